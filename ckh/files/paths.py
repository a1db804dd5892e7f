"""Where ckh finds what it ships and keeps what it makes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ckh.errors import CacheError, DataError, UsageError
from ckh.files.safety import planted_link, why_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS_VARIABLE = "CKH_MODELS"
PROBES = "probes"  # folder, in that for what a user adds, of what was measured of first choices
COMPILED = "compiled"  # folder, in archspecs, of what ships of these reports
RESOURCES = "resources"  # folder, in the cache, of what compilers reported of kernels
_NAME_LENGTH = 40  # of a hidden name: with what is added it is never too long
_PACKAGE = Path(__file__).resolve().parents[1]


def data_dir(name: str) -> Path:
    """The folder `name` ("archspecs", "docs", "models") that ships: inside the package, or beside it in a checkout.

    Raises:
        DataError: neither exists.
    """
    candidates = (_PACKAGE / name, _PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise DataError(
        f"the folder {name} is missing from this installation", f"looked for {candidates[0]}", code="installation"
    )


def shipped_data() -> Path:
    """The folder of measured data that ship: in a checkout or source distribution alone; it may not exist."""
    return _PACKAGE.parent / "data"


def cache_dir(name: str = "") -> Path:
    """The folder for what can be made again: $CKH_CACHE_DIR, $XDG_CACHE_HOME/ckh or ~/.cache/ckh; in it, one by name.

    It is created when missing, for its owner alone.

    Raises:
        CacheError: it cannot be created.
        DataError: others could change what is in it.
    """
    folder = _chosen("CKH_CACHE_DIR", "XDG_CACHE_HOME", ".cache")
    try:
        link = planted_link(folder)
        reason = "" if link is None else f"{link} is a link of another user"
        if not reason:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = folder.resolve() / name
            folder.mkdir(mode=0o700, exist_ok=True)
            reason = why_unsafe(folder)
    except OSError as error:
        raise CacheError(f"cannot create the cache folder {folder}: {error.strerror}", "set CKH_CACHE_DIR") from error
    if reason:
        hint = "use chmod go-w, or set CKH_CACHE_DIR to a folder that only you can write to"
        raise DataError(
            f"the cache folder {folder} is not used, since others can change its content: {reason}",
            hint,
            code="unsafe-cache",
        )
    return folder


def user_data_dir() -> Path:
    """The folder for what a user adds (models of their own): $CKH_DATA_DIR, $XDG_DATA_HOME/ckh or ~/.local/share/ckh.

    It may not exist.
    """
    return _chosen("CKH_DATA_DIR", "XDG_DATA_HOME", ".local/share")


def model_folders() -> list[Path]:
    """Where models are looked for, in this order: $CKH_MODELS, the user's data folder, those that ship.

    Raises:
        UsageError: $CKH_MODELS names what is not a folder.
    """
    named = [Path(part) for part in os.environ.get(MODELS_VARIABLE, "").split(os.pathsep) if part]
    for folder in named:
        if not folder.is_dir():
            raise UsageError(
                f"{MODELS_VARIABLE} names {folder}, not a folder", "create it, or leave it out", code="no-file"
            )
    try:
        shipped = [data_dir("models")]
    except DataError:  # an installation without models works with those of its user
        shipped = []
    return [*named, user_data_dir() / "models", *shipped]


def files_of_models(*more: str) -> list[tuple[str, os.stat_result]]:
    """The files that the choice of a model follows from, as they are now: architectures, and models in all folders.

    Args:
        more: other places where models are looked for.

    Raises:
        UsageError: $CKH_MODELS names what is not a folder.
    """
    found = files(str(data_dir("archspecs")))
    for place in (*map(str, model_folders()), *more):
        for folder in (place, *folders(place)):
            found += files(folder)
    return found


def files(folder: str) -> list[tuple[str, os.stat_result]]:
    """The files of a folder by their paths; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted((one.path, one.stat()) for one in entries if one.is_file())
    except OSError:
        return []


def folders(folder: str) -> list[str]:
    """The paths of the folders in a folder; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(one.path for one in entries if one.is_dir())
    except OSError:
        return []


def _chosen(own: str, xdg: str, below_home: str) -> Path:
    if os.environ.get(own):
        return Path(os.environ[own]).expanduser().absolute()
    base = Path(os.environ.get(xdg, ""))
    # The XDG specification has relative paths ignored.
    return (base if base.is_absolute() else Path.home() / below_home) / "ckh"


def hidden_name(path: Path) -> Path:
    """A new name beside `path` for what will be renamed to it."""
    return path.with_name(f".{path.name[:_NAME_LENGTH]}.{os.urandom(8).hex()}")


@contextmanager
def open_atomic(path: Path, put: Callable[[Path, Path], object] = Path.replace) -> Iterator[BinaryIO]:
    """A file to write to, which is at `path` when the context ends without an error; until then it has a hidden name.

    The mode is 0644 less the process's umask. `put` renames the file from one name to another.

    Raises:
        OSError: the folder is missing, not writable or full; nothing is left behind.
    """
    part = hidden_name(path)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new and never a part.

    Raises:
        OSError: as of `open_atomic`.
    """
    with open_atomic(path) as file:
        file.write(content)
