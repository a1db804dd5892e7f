"""An export's folder: its kind, what is in it, and what models are called in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.outputs import FolderKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.learn.artifact import Model

_LIST_NAME = "export.json"


def with_list(files: Mapping[str, bytes], report: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of an export, and `export.json`, which says what they are: by it an export is known again."""
    names = sorted([*files, _LIST_NAME])
    return {**files, _LIST_NAME: (json.dumps({**report, "files": names}, indent=1) + "\n").encode()}


def model_names(models: Sequence[Model]) -> list[str]:
    """What models are called in an export: as their folders.

    Raises:
        UsageError: two have one name.
    """
    names = [model.path.resolve().name for model in models]
    if len(set(names)) != len(names):
        raise UsageError(f"two models are called {max(names, key=names.count)}", "rename one of the folders")
    return names


def _owns(folder: Path) -> Callable[[str], bool] | None:
    try:
        document = json.loads((folder / _LIST_NAME).read_text(encoding="utf-8"))
        return frozenset(document["files"]).__contains__ if document["to"] else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


EXPORT = FolderKind("export of ckh", _owns)
