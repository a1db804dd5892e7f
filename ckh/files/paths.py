"""Locations of shipped files, caches and user data."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ckh.errors import CacheError, DataError, UsageError, WrongTypeError
from ckh.files.safety import planted_link, why_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS_VARIABLE = "CKH_MODELS"
PROBES = "probes"  # folder of measured first choices, in the user data folder
CALIBRATIONS = "calibrations"  # folder of calibrations of devices, in the user data folder
COMPILED = "compiled"  # folder of shipped compiler reports, in archspecs
RESOURCES = "resources"  # folder of compiler reports on kernels, in the cache
_NAME_LENGTH = 40  # of a hidden name, so that it is never too long with its suffix
_PACKAGE = Path(__file__).resolve().parents[1]


def path_of(value: object, name: str) -> Path:
    """Return the path of an argument given as path or text.

    Raises:
        WrongTypeError: it is neither.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise WrongTypeError(name, "a path", value)
    return Path(value)


def data_dir(name: str) -> Path:
    """Shipped folder `name` ("archspecs", "docs", "models"): inside the package, or beside it in a checkout.

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
    """Folder of shipped measured data, in a checkout or source distribution only; it may not exist."""
    return _PACKAGE.parent / "data"


def cache_dir(name: str = "") -> Path:
    """Cache folder: $CKH_CACHE_DIR, $XDG_CACHE_HOME/ckh or ~/.cache/ckh, or a subfolder by name.

    It is created if missing, accessible to its owner only.

    Raises:
        CacheError: it cannot be created.
        DataError: others could change its contents.
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
    """Folder of user data (e.g. own models): $CKH_DATA_DIR, $XDG_DATA_HOME/ckh or ~/.local/share/ckh.

    It may not exist.
    """
    return _chosen("CKH_DATA_DIR", "XDG_DATA_HOME", ".local/share")


def model_folders() -> list[Path]:
    """Search path of models: $CKH_MODELS, the user data folder, the shipped models.

    Raises:
        UsageError: $CKH_MODELS names a path that is not a folder.
    """
    named = [Path(part) for part in os.environ.get(MODELS_VARIABLE, "").split(os.pathsep) if part]
    for folder in named:
        if not folder.is_dir():
            raise UsageError(f"{MODELS_VARIABLE} names {folder}, not a folder", "create it, or omit it", code="no-file")
    try:
        shipped = [data_dir("models")]
    except DataError:  # an installation without models works with the user's
        shipped = []
    return [*named, user_data_dir() / "models", *shipped]


def files_of_models(*more: str) -> list[tuple[str, os.stat_result]]:
    """Current files that determine the choice of a model: architectures, and models in all folders.

    Args:
        more: additional folders of models.

    Raises:
        UsageError: $CKH_MODELS names a path that is not a folder.
    """
    result = files(str(data_dir("archspecs")))
    for place in (*map(str, model_folders()), *more):
        for folder in (place, *folders(place)):
            result += files(folder)
    return result


def files(folder: str) -> list[tuple[str, os.stat_result]]:
    """Files of a folder with their paths; empty if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.path, entry.stat()) for entry in entries if entry.is_file())
    except OSError:
        return []


def folders(folder: str) -> list[str]:
    """Paths of the subfolders of a folder; empty if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError:
        return []


def _chosen(own: str, xdg: str, below_home: str) -> Path:
    if os.environ.get(own):
        return Path(os.environ[own]).expanduser().absolute()
    base = Path(os.environ.get(xdg, ""))
    # The XDG specification requires relative paths to be ignored.
    return (base if base.is_absolute() else Path.home() / below_home) / "ckh"


def hidden_name(path: Path) -> Path:
    """New hidden name beside `path`, to be renamed to it."""
    return path.with_name(f".{path.name[:_NAME_LENGTH]}.{os.urandom(8).hex()}")


@contextmanager
def open_atomic(path: Path, put: Callable[[Path, Path], object] = Path.replace) -> Iterator[BinaryIO]:
    """Open a file under a hidden name, which is renamed to `path` when the context ends without an error.

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
    """Write a file atomically: a reader, or a crash, sees the old or the new content, never a part.

    Raises:
        OSError: as in `open_atomic`.
    """
    with open_atomic(path) as file:
        file.write(content)
