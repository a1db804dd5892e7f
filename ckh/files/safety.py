"""Checks of who can change a file, or redirect its path.

ckh trusts the contents of its caches, which include machine code, and must write only where its user intended.
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
_MAX_LINKS = 40  # Linux's limit


def why_unsafe(path: Path) -> str:
    """Reason why another user could change a path; empty if only its owner, this user or root, can.

    The rules are those of sshd (StrictModes): the path and every folder above it belong to this user or root, and are
    not writable by group or others. Two exceptions are safe: a folder above with the sticky bit, such as /tmp, since
    its entries can only be replaced by their owners; and a group without other members. In a user namespace (a
    container) that does not know the owner of a folder, usually root, only the modes count.

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
    """First symbolic link on a path that another user may have planted; None if there is none.

    The rule is that of Linux's fs.protected_symlinks, which may be off and does not apply to `os.path.realpath`: in a
    world-writable folder with the sticky bit, such as /tmp, a link may be followed if it belongs to this user or to the
    owner of the folder; elsewhere always. Missing paths are not links.

    Raises:
        OSError: a folder on the path cannot be read.
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
