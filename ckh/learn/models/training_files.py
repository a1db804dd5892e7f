"""Finding the data that a model was trained on, by what its manifest says of them."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.learn.models.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ckh.data.tables import DatasetFile

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
