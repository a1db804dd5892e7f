"""An export's folder, written whole or not at all, and what models are called in it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ckh.errors import DataError, UsageError
from ckh.paths import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.learn.artifact import Model


def check_folder(out: Path, *, force: bool) -> None:
    """Refuse to write over something.

    Raises:
        UsageError: `out` is a file, or a folder that is not empty and `force` is not set.
        DataError: it cannot be written there.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} exists and is no folder", "choose another --out")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(f"{out} is not empty", "replace all that is in it with --force, or choose another --out")
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise DataError(f"cannot write the export {out}: {parent} is no folder that can be written to")


def model_names(models: Sequence[Model]) -> list[str]:
    """What models are called in an export: as their folders.

    Raises:
        UsageError: two have one name.
    """
    names = [model.path.resolve().name for model in models]
    if len(set(names)) != len(names):
        raise UsageError(f"two models are called {max(names, key=names.count)}", "rename one of the folders")
    return names


def write_folder(out: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder; what was there is replaced in one step.

    Args:
        out: the folder.
        files: content by path within it.

    Raises:
        DataError: it cannot be written; what was there is as it was.
    """
    part = out.with_name(f".{out.name}.{os.urandom(6).hex()}")
    old = part.with_suffix(".old")
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(part / name, content)
        if out.exists():
            out.rename(old)
        part.rename(out)
    except OSError as error:
        if old.exists() and not out.exists():
            old.rename(out)
        raise DataError(f"cannot write the export {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
