"""Checks of who can change a file, or say where it leads.

What ckh finds in its caches it believes, and some of it is machine code; what it writes goes where its user said.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"
_KNOWN_OWNERS = Path("/proc/self/uid_map")  # user_namespaces(7)
_UNKNOWN_OWNER = Path("/proc/sys/kernel/overflowuid")
_ALL = str(2**32 - 1)
_SHARED = stat.S_ISVTX | stat.S_IWOTH  # the mode of /tmp
_MAX_LINKS = 40  # Linux follows no more


def why_unsafe(path: Path) -> str:
    """Why somebody else could change what is at a path; empty if only its owner, who is us or root, can.

    The rules are those of sshd (StrictModes): the path and every folder above it belong to us or to root, and neither
    group nor others may write to them. Two things are no danger: a folder above that has the sticky bit, as /tmp has,
    since what is in it can only be replaced by its owner; and a group that has no other member. In a user namespace
    (a container) that does not know the owner of a folder, which is root as a rule, the modes alone decide.

    Raises:
        OSError: the path does not exist.
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
    """The first symbolic link on the way to a path, or at it, that another user may have planted; None if none is.

    The rule is that of Linux's fs.protected_symlinks, which may be off and does not hold for `os.path.realpath`: in a
    folder with the sticky bit that everybody can write to, as /tmp, a link may be followed if it belongs to us or to
    the owner of the folder, elsewhere always. What does not exist is not a link.

    Raises:
        OSError: a folder on the way cannot be looked at.
    """
    whole = path.absolute()
    place, left, links = Path(whole.anchor), list(reversed(whole.parts[1:])), 0
    while left and links <= _MAX_LINKS:
        name = left.pop()
        entry = place.parent if name == os.pardir else place / name
        if not entry.is_symlink():
            place = entry
            continue
        folder = place.stat()
        if folder.st_mode & _SHARED == _SHARED and entry.lstat().st_uid not in (os.geteuid(), folder.st_uid):
            return entry
        links += 1
        target = entry.readlink()
        place = Path(target.anchor) if target.is_absolute() else place
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return None


def _unknown_owner() -> int | None:
    """The owner that stands for those which our user namespace does not know; None if it knows all."""
    try:
        known = _KNOWN_OWNERS.read_text(encoding="utf-8").split()
        return None if known[-1] == _ALL else int(_UNKNOWN_OWNER.read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError):
        return None


def _is_alone(state: os.stat_result, place: Path) -> bool:
    """True if the group of a file is its owner's own, without other members, and nobody else is in an access list."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(state.st_uid), grp.getgrgid(state.st_gid)
    except KeyError:
        return False
    others = set(group.gr_mem) - {owner.pw_name}
    is_own = owner.pw_gid == state.st_gid and owner.pw_name == group.gr_name
    return is_own and not others and _ACCESS_LIST not in os.listxattr(place)
