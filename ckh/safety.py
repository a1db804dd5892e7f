"""A check that only we can change a file: what ckh finds in its caches it believes, and some of it is machine code."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"
_KNOWN_OWNERS = Path("/proc/self/uid_map")  # user_namespaces(7)
_UNKNOWN_OWNER = Path("/proc/sys/kernel/overflowuid")
_ALL = str(2**32 - 1)


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
