"""`train_manifest.json`: facts about a model's training data. Reading it has almost no imports.

Also finds the datasets that a model was trained on, by the digests in its manifest.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, ModelError
from ckh.files.jsonfields import model_fields
from ckh.text.log import one_line
from ckh.training import Labels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ckh.data.parquet import DatasetFile
    from ckh.ops.base import Problem

MANIFEST_NAME = "train_manifest.json"
_ID_LENGTH = 12


def problem_id(problem: Problem) -> str:
    """Short hash that identifies a problem in manifests."""
    return hashlib.sha256(problem.canonical().encode()).hexdigest()[:_ID_LENGTH]


def trained_problems(folder: Path) -> frozenset[str] | None:
    """Ids (`problem_id`) of the problems that a model was trained on; None if not in its manifest."""
    return _ids(folder, "problems")


def trained_layers(folder: Path) -> frozenset[str] | None:
    """Ids of the layers that a model was trained on, at any batch size; None if not in its manifest."""
    return _ids(folder, "layers")


def labels_of(folder: Path) -> Labels:
    """Labels that a model was trained on; measured times if not in its manifest."""
    named = our_manifest(folder).get("labels", Labels.MEASURED.value)
    if not isinstance(named, str) or named not in list(Labels):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh.labels must be one of {', '.join(Labels)}", code="bad-field")
    return Labels(named)


def warnings_of(folder: Path) -> tuple[str, ...]:
    """Reasons to doubt a model that its training found."""
    said = our_manifest(folder).get("warnings", [])
    return tuple(one_line(str(text)) for text in said) if isinstance(said, list) else ()


def problem_count(folder: Path) -> int:
    """Number of problems that a model was trained on; 0 if its manifest lacks it, or is damaged.

    It only orders models that fit, so that a damaged manifest of an unused model is not an error.
    """
    try:
        count = read_manifest(folder).get("unique_shapes")
    except ModelError:
        return 0
    return count if type(count) is int else 0


def our_manifest(folder: Path) -> dict[str, Any]:
    """Entries written by ckh into a manifest; empty for models of AMD's tools, or without a manifest."""
    ours = read_manifest(folder).get("ckh", {})
    if not isinstance(ours, dict):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh must be an object", code="bad-field")
    return ours


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a model's manifest; empty if it is missing."""
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    with model_fields(path) as fields:
        return {name: fields.value(name) for name in fields.names()}


def _ids(folder: Path, name: str) -> frozenset[str] | None:
    ids = our_manifest(folder).get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(text, str) for text in ids):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh.{name} must be a list of strings", code="bad-field")
    return frozenset(ids)


_MOST_FILES = 256  # maximum per folder


def training_files(model: Path, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Find the datasets that a model was trained on; empty unless all are in the folders.

    A single file is found by the digest of its rows; several by the digests of their source files, and their rows.
    """
    manifest = read_manifest(model)
    ours = manifest.get("ckh")
    if not isinstance(ours, dict) or "data_sha256" not in ours:
        return ()
    files = list(_datasets(folders))
    for file in files:
        if file.sha256 == ours["data_sha256"]:
            return (file.path,)
    wanted = _origins(ours)
    parts = {file.sha256: file for file in files if wanted and _origins(file.metadata) <= wanted}.values()
    origins = frozenset().union(*(_origins(file.metadata) for file in parts))
    is_whole = origins == wanted and sum(file.rows for file in parts) == manifest.get("data_rows")
    return tuple(file.path for file in parts) if is_whole else ()


def _datasets(folders: Iterable[Path]) -> Iterable[DatasetFile]:
    from ckh.data.parquet import DatasetFile

    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        for path in islice(sorted(folder.glob("*.parquet")), _MOST_FILES):
            with suppress(DataError):
                yield DatasetFile(path)


def _origins(document: dict[str, Any]) -> frozenset[str]:
    """Digests of the files that rows were converted from."""
    sources = document.get("sources")
    digests = (
        [source.get("sha256") for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []
    )
    return frozenset(filter(None, map(str, digests)))
