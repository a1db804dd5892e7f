"""An export's folder: its kind, its list of files, and the names of models in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.jsonfields import read_json
from ckh.files.outputs import FolderKind
from ckh.files.untrusted import require_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.learn.models.artifact import Model

_LIST_NAME = "export.json"


def with_list(files: Mapping[str, bytes], report: Mapping[str, Any]) -> dict[str, bytes]:
    """Add `export.json`, which describes the files, to an export; it identifies the folder as an export."""
    names = sorted([*files, _LIST_NAME])
    return {**files, _LIST_NAME: (json.dumps({**report, "files": names}, indent=1) + "\n").encode()}


def list_of(folder: Path) -> dict[str, Any]:
    """Read the list of an export."""
    if _owns(folder) is None:
        raise DataError(f"{folder} is not an export of ckh", "write one, or name another folder", code="not-an-export")
    document: dict[str, Any] = read_json(folder / _LIST_NAME)
    return document


def model_names(models: Sequence[Model]) -> list[str]:
    """Return the names of models in an export: those of their folders.

    Names are used in paths, C and Markdown.
    """
    names = [require_name(model.path.resolve().name, "the folder of a model") for model in models]
    if len(set(names)) != len(names):
        raise UsageError(
            f"two models have the name {max(names, key=names.count)}",
            "rename one of the folders",
            code="duplicate-name",
        )
    return names


def require_measurements(path: Path) -> None:
    """Refuse an export's folder, or a file of an exported model: neither has measured rows."""
    folder = path if path.is_dir() else path.parent
    is_own = _owns(folder)
    if is_own is None or not (path.is_dir() or is_own(path.name)):
        return
    document = read_json(folder / _LIST_NAME)
    if "models" in document:
        raise DataError(
            f"{path} is an exported model ({document['to']}), without choices to convert",
            "use the model that was exported: ckh predict --model MODEL",
            code="not-convertible",
        )
    tables = [str(path / str(name)) for name in document["files"] if "/" in str(name)]
    if path.is_dir():
        raise DataError(
            f"{path} is a folder of tables for {document['to']}",
            "name them: " + " ".join(tables),
            code="not-convertible",
        )


def _owns(folder: Path) -> Callable[[str], bool] | None:
    try:
        document = read_json(folder / _LIST_NAME)
        return frozenset(document["files"]).__contains__ if document["to"] else None
    except (DataError, KeyError, TypeError):
        return None


EXPORT = FolderKind("export of ckh", _owns)
