"""Locations of shipped files, caches and user data, and checks of who can change or redirect them.

ckh trusts the contents of its caches, which include machine code, and must write only where its user intended.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ckh.errors import CacheError, DataError, UsageError, WrongTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"
_KNOWN_OWNERS = Path("/proc/self/uid_map")  # user_namespaces(7)
_UNKNOWN_OWNER = Path("/proc/sys/kernel/overflowuid")
_ALL = str(2**32 - 1)
_SHARED = stat.S_ISVTX | stat.S_IWOTH  # the mode of /tmp
_MAX_LINKS = 40  # Linux's limit


def why_unsafe(path: Path) -> str:
    """Reason why another user could change a path; empty if only its owner, this user or root, can.

    The rules are those of sshd (StrictModes): the path and every folder above it belong to this user or root, and are
    not writable by group or others. Two exceptions are safe: a folder above with the sticky bit, such as /tmp, since
    its entries can only be replaced by their owners; and a group without other members. In a user namespace (a
    container) that does not know the owner of a folder, usually root, only the modes count.
    """
    real = path.resolve()
    for place in (real, *real.parents):
        state = place.stat()
        if state.st_uid not in (os.geteuid(), _ROOT) and state.st_uid != _unknown_owner():
            return f"{place} belongs to another user ({state.st_uid})"
        is_sticky = place != real and state.st_mode & stat.S_ISVTX
        if state.st_mode & stat.S_IWOTH and not is_sticky:
            return f"everybody can write to {place}"
        if state.st_mode & stat.S_IWGRP and not is_sticky and not _is_alone(state, place):
            return f"the group {state.st_gid} can write to {place}"
    return ""


def planted_link(path: Path) -> Path | None:
    """First symbolic link on a path that another user may have planted; None if there is none.

    The rule is that of Linux's fs.protected_symlinks, which may be off and does not apply to `os.path.realpath`: in a
    world-writable folder with the sticky bit, such as /tmp, a link may be followed if it belongs to this user or to the
    owner of the folder; elsewhere always. Missing paths are not links.
    """
    whole = path.absolute()
    place, left, links = Path(whole.anchor), list(reversed(whole.parts[1:])), 0
    while left and links <= _MAX_LINKS:
        name = left.pop()
        entry = place.parent if name == os.pardir else place / name
        if not entry.is_symlink():
            place = entry
            continue
        if _is_planted(entry, place):
            return entry
        links += 1
        target = entry.readlink()
        place = Path(target.anchor) if target.is_absolute() else place
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return None


def planted_file(path: Path) -> bool:
    """Whether a file in a folder such as /tmp is another user's, by the rule of Linux's fs.protected_regular."""
    real = path.resolve()
    return real.is_file() and _is_planted(real, real.parent)


def _is_planted(entry: Path, folder: Path) -> bool:
    state = folder.stat()
    return state.st_mode & _SHARED == _SHARED and entry.lstat().st_uid not in (os.geteuid(), state.st_uid)


def _unknown_owner() -> int | None:
    """Owner id that represents unmapped owners in this user namespace; None if all owners are mapped."""
    try:
        known = _KNOWN_OWNERS.read_text(encoding="utf-8").split()
        return None if known[-1] == _ALL else int(_UNKNOWN_OWNER.read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError):
        return None


def _is_alone(state: os.stat_result, place: Path) -> bool:
    """True if the group of a file has no members besides its owner, and no other user is in an access list."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(state.st_uid), grp.getgrgid(state.st_gid)
    except KeyError:
        return False
    others = set(group.gr_mem) - {owner.pw_name}
    is_own = owner.pw_gid == state.st_gid and owner.pw_name == group.gr_name
    return is_own and not others and _ACCESS_LIST not in os.listxattr(place)


MODELS_VARIABLE = "CKH_MODELS"
PROBES = "probes"  # folder of measured first choices, in the user data folder
RESOURCES = "resources"  # folder of compiler reports on kernels, in the cache
_NEW_FILE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
_NAME_LENGTH = 40  # of a hidden name, so that it is never too long with its suffix
_PACKAGE = Path(__file__).resolve().parents[1]


def path_of(value: object, name: str) -> Path:
    """Return the path of an argument given as path or text."""
    if not isinstance(value, (str, os.PathLike)):
        raise WrongTypeError(name, "a path", value)
    return Path(value)


def data_dir(name: str) -> Path:
    """Shipped folder `name` ("archspecs", "docs", "models"): inside the package, or beside it in a checkout."""
    places = (_PACKAGE / name, _PACKAGE.parent / name)
    for folder in places:
        if folder.is_dir():
            return folder
    raise DataError(
        f"the folder {name} is missing from this installation", f"looked for {places[0]}", code="installation"
    )


def shipped_data() -> Path:
    """Folder of shipped measured data: the package's, or all of a checkout's; it may not exist."""
    installed = _PACKAGE / "measured"
    return installed if installed.is_dir() else _PACKAGE.parent / "data"


def cache_dir(name: str = "") -> Path:
    """Cache folder: $CKH_CACHE_DIR, $XDG_CACHE_HOME/ckh or ~/.cache/ckh, or a subfolder by name.

    It is created if missing, accessible to its owner only.
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


def own_model_folders() -> list[Path]:
    """Search path of the user's models: $CKH_MODELS, the user data folder."""
    named = [Path(part) for part in os.environ.get(MODELS_VARIABLE, "").split(os.pathsep) if part]
    for folder in named:
        if not folder.is_dir():
            raise UsageError(f"{MODELS_VARIABLE} names {folder}, not a folder", "create it, or omit it", code="no-file")
    return [*named, user_data_dir() / "models"]


def model_folders() -> list[Path]:
    """Search path of models: the user's, then the shipped models."""
    try:
        shipped = [data_dir("models")]
    except DataError:  # an installation without models works with the user's
        shipped = []
    return [*own_model_folders(), *shipped]


def files_of_models(*more: str) -> list[tuple[str, os.stat_result]]:
    """Current files that determine the choice of a model: architectures, and models in all folders."""
    current = files(str(data_dir("archspecs")))
    for place in (*map(str, model_folders()), *more):
        for folder in (place, *folders(place)):
            current += files(folder)
    return current


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


def _remove_unlocked(path: Path) -> None:
    """Remove a file or folder of this user, unless a process has it locked."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_uid == os.geteuid():
                _remove(path)
        finally:
            os.close(file)


def _remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def new_beside(path: Path, *, is_folder: bool = False) -> Iterator[tuple[Path, int]]:
    """Make a file or folder under a hidden name beside `path`, locked while open; yields its name and the open file.

    It is removed at the end, unless it was renamed, and by the next process if this one is killed. The mode of a file
    is 0644 less the process's umask; it is appended to.
    """
    start, own = f".{path.name[:_NAME_LENGTH]}.", os.urandom(8).hex()
    for name in os.listdir(path.parent) if path.parent.is_dir() else ():  # noqa: PTH208 - names
        if (
            name.startswith(start)
            and len(name) == len(start + own)
            and not name[len(start) :].strip("0123456789abcdef")
        ):
            _remove_unlocked(path.with_name(name))
    part, unlocked = path.with_name(start + own), path.with_name(f".{start}{own}")  # which no process removes
    if is_folder:
        unlocked.mkdir(parents=True)
    file = os.open(unlocked, os.O_RDONLY if is_folder else _NEW_FILE, 0o644)
    with suppress(OSError):  # file systems without locks, where nothing is removed
        fcntl.flock(file, fcntl.LOCK_EX)
    unlocked.rename(part)
    try:
        yield part, file
    finally:
        _remove(part)
        os.close(file)


@contextmanager
def open_atomic(path: Path, put: Callable[[Path, Path], object] = Path.replace) -> Iterator[BinaryIO]:
    """Open a file beside `path`, which is put there when the context ends without an error.

    `put` renames the file from one name to another.
    """
    with new_beside(path) as (part, number), os.fdopen(number, "wb", closefd=False) as file:
        yield file
        file.flush()
        os.fsync(number)
        put(part, path)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader, or a crash, sees the old or the new content, never a part."""
    with open_atomic(path) as file:
        file.write(content)
