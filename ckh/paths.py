"""Where ckh finds what it ships and keeps what it makes."""

from __future__ import annotations

import os
from pathlib import Path

from ckh.errors import DataError

MODELS_VARIABLE = "CKH_MODELS"
_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder `name` ("archspecs", "models") that ships with ckh: inside the package, or beside it in a checkout.

    Raises:
        DataError: neither exists.
    """
    candidates = (_PACKAGE / name, _PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise DataError(f"the folder {name} is missing from this installation", f"looked for {candidates[0]}")


def cache_dir() -> Path:
    """The folder for what can be made again: $CKH_CACHE_DIR, $XDG_CACHE_HOME/ckh or ~/.cache/ckh.

    It is created when missing, readable by its owner alone.

    Raises:
        DataError: it cannot be created.
    """
    folder = _chosen("CKH_CACHE_DIR", "XDG_CACHE_HOME", ".cache")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the cache folder {folder}: {error.strerror}", "set CKH_CACHE_DIR") from error
    return folder


def user_data_dir() -> Path:
    """The folder for what a user adds (models of their own): $CKH_DATA_DIR, $XDG_DATA_HOME/ckh or ~/.local/share/ckh.

    It may not exist.
    """
    return _chosen("CKH_DATA_DIR", "XDG_DATA_HOME", ".local/share")


def model_folders() -> list[Path]:
    """Where models are looked for, in this order: $CKH_MODELS, the user's data folder, those that ship."""
    named = [Path(part) for part in os.environ.get(MODELS_VARIABLE, "").split(os.pathsep) if part]
    try:
        shipped = [data_dir("models")]
    except DataError:  # an installation without models works with those of its user
        shipped = []
    return [*named, user_data_dir() / "models", *shipped]


def _chosen(own: str, xdg: str, below_home: str) -> Path:
    if os.environ.get(own):
        return Path(os.environ[own]).expanduser().absolute()
    base = Path(os.environ.get(xdg, ""))
    # The XDG specification has relative paths ignored.
    return (base if base.is_absolute() else Path.home() / below_home) / "ckh"


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new and never a part.

    The mode is 0644 less the process's umask.

    Raises:
        OSError: the folder is missing, not writable or full; nothing is left behind.
    """
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
