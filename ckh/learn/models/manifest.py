"""`train_manifest.json`: what a model says of its training data. Reading it imports next to nothing.

Finding the data that a model was trained on, by what its manifest says of them.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, ModelError
from ckh.files.jsonfields import model_fields
from ckh.training import Labels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ckh.data.tables import DatasetFile
    from ckh.ops.base import Problem

MANIFEST_NAME = "train_manifest.json"
_ID_LENGTH = 12


def problem_id(problem: Problem) -> str:
    """A short hash that stands for a problem in manifests."""
    return hashlib.sha256(problem.canonical().encode()).hexdigest()[:_ID_LENGTH]


def trained_problems(folder: Path) -> frozenset[str] | None:
    """The ids (`problem_id`) of the problems that a model was trained on; None if its manifest does not say.

    Raises:
        ModelError: the manifest is damaged.
    """
    return _ids(folder, "problems")


def trained_layers(folder: Path) -> frozenset[str] | None:
    """The ids of the layers that a model was trained on, at any batch size; None if its manifest does not say.

    Raises:
        ModelError: the manifest is damaged.
    """
    return _ids(folder, "layers")


def labels_of(folder: Path) -> Labels:
    """The labels of the kernels that a model learned from; measured ones if its manifest does not say.

    Raises:
        ModelError: the manifest is damaged, or names no such labels.
    """
    named = our_manifest(folder).get("labels", Labels.MEASURED.value)
    if not isinstance(named, str) or named not in list(Labels):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh.labels must be one of {', '.join(Labels)}", code="bad-field")
    return Labels(named)


def problem_count(folder: Path) -> int:
    """How many problems a model was trained on; 0 if its manifest does not say, or is damaged.

    Models that fit are put in order by it, and the manifests of those that are not used are nobody's concern.
    """
    try:
        count = read_manifest(folder).get("unique_shapes")
    except ModelError:
        return 0
    return count if type(count) is int else 0


def our_manifest(folder: Path) -> dict[str, Any]:
    """The entries that ckh wrote into a manifest; empty for models of AMD's tools, or without a manifest.

    Raises:
        ModelError: the manifest is damaged.
    """
    ours = read_manifest(folder).get("ckh", {})
    if not isinstance(ours, dict):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh must be an object", code="bad-field")
    return ours


def read_manifest(folder: Path) -> dict[str, Any]:
    """A model's manifest; empty if it is missing.

    Raises:
        ModelError: it is damaged.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return {}
    with model_fields(path) as fields:
        return {name: fields.value(name) for name in fields.names()}


def _ids(folder: Path, name: str) -> frozenset[str] | None:
    ids = our_manifest(folder).get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ModelError(f"{folder / MANIFEST_NAME}: ckh.{name} must be a list of strings", code="bad-field")
    return frozenset(ids)


_MOST_FILES = 256  # of a folder that are looked at


def training_files(model: Path, folders: Iterable[Path]) -> tuple[Path, ...]:
    """The datasets that a model was trained on; none if they are not all in the folders.

    One file by the digest of its rows; others by the digests of what they were converted from, and by their rows.

    Args:
        model: the model's folder.
        folders: where to look, not in folders inside.
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
    found = frozenset().union(*(_origins(file.metadata) for file in parts))
    is_whole = found == wanted and sum(file.rows for file in parts) == manifest.get("data_rows")
    return tuple(file.path for file in parts) if is_whole else ()


def _datasets(folders: Iterable[Path]) -> Iterable[DatasetFile]:
    from ckh.data.tables import DatasetFile

    for folder in dict.fromkeys(one.resolve() for one in folders):
        for path in islice(sorted(folder.glob("*.parquet")), _MOST_FILES):
            with suppress(DataError):
                yield DatasetFile(path)


def _origins(document: dict[str, Any]) -> frozenset[str]:
    """The digests of the files that rows were converted from."""
    sources = document.get("sources")
    found = [one.get("sha256") for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    return frozenset(filter(None, map(str, found)))
