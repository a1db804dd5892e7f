"""Printed answers and refusals in the cache: what a command line printed, while nothing that it depends on has changed.

A repeated call ends here, so it imports almost nothing: `re`, `json` and `pathlib` take longer than all of this.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.quick.request import Request

MAX_PRINTED = 256  # cached outputs, most recent first
MAX_PRINTED_BYTES = 1 << 20  # of each
_FOLDER = "printed"
_DRIVER = "/sys/class/kfd"  # of AMD GPUs
# Variables that change what is printed, directly or by the files that are found.
_VARIABLES = (
    *("HOME", "CKH_MODELS", "CKH_DATA_DIR", "XDG_DATA_HOME", "CKH_RANK_BACKEND", "NO_COLOR", "FORCE_COLOR", "COLUMNS"),
    *("CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH", "PATH"),
)
_BETWEEN = b"\0\0"  # the parts of a file: key, files with their states, notes, refusal, and the text


def key_of(args: Sequence[str]) -> bytes | None:
    """Everything besides files that determines what a command line prints; None if it is not cached."""
    if args[:1] not in (["predict"], ["search"]) or os.environ.get("CKH_QUICK") == "0":
        return None
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
        variables = [os.environ.get(name) for name in _VARIABLES]
        state = [__version__, args, os.getcwd(), *os.uname(), variables, width, *gpus()]  # noqa: PTH109 - quicker
    except (OSError, ValueError, AttributeError):  # stdout is closed or replaced, or the folder was removed
        return None
    return ascii(state).encode()


def read_printed(key: bytes) -> tuple[str, str, str] | None:
    """Return what was printed with a key: notes, text, and message if no kernel applies.

    None if unknown, or something has changed since.
    """
    path = f"{_cache_folder()}/{_FOLDER}/{_name(key)}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            check, _, content = file.read().partition(b"\n")
        known, state, notes, refusal, text = content.split(_BETWEEN, 4)
        files = os.fsdecode(state).split("\0")
        is_valid = check == b"%08x" % zlib.crc32(content) and known == key and _is_safe(path)
    except (OSError, ValueError):
        return None
    if not is_valid or list(map(_state, files[1::2])) != files[::2]:
        return None
    return notes.decode(), text.decode(errors="surrogateescape"), refusal.decode(errors="surrogateescape")


def keep_printed(key: bytes, request: Request, notes: str, text: str, refusal: str = "") -> None:
    """Cache what the command line of a key printed, if it is not too long; evicts the oldest. Failures are ignored."""
    from ckh.errors import CkhError
    from ckh.files.paths import cache_dir, files, write_atomic

    content = _BETWEEN.join(part.encode(errors="surrogateescape") for part in (notes, refusal, text))
    if len(content) > MAX_PRINTED_BYTES:
        return
    with suppress(CkhError, OSError):
        folder = cache_dir(_FOLDER)
        state = "\0".join(part for path in _dependencies(request) for part in (_state(path), path))
        whole = _BETWEEN.join((key, os.fsencode(state), content))
        write_atomic(folder / _name(key), b"%08x\n" % zlib.crc32(whole) + whole)
        by_age = sorted(files(str(folder)), key=lambda file: file[1].st_mtime_ns)
        for path, _ in by_age[:-MAX_PRINTED]:
            os.unlink(path)  # noqa: PTH108 - one of many


def gpus() -> list[str]:
    """The GPUs of this machine, by compute units."""
    if not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return []
    from ckh.hardware.gpus import visible_gpus

    return [f"{gpu.arch} {gpu.num_cus}" for gpu in visible_gpus()]


def header_folders() -> tuple[str, str]:
    """Where CK Tile's headers are looked for first."""
    rocm = os.environ.get("ROCM_PATH") or "/opt/rocm"
    return f"{os.environ.get('CK_TILE_INCLUDE', '')}/ck_tile", f"{rocm}/include/ck_tile"


def _name(key: bytes) -> str:
    return f"{zlib.crc32(key):08x}{zlib.adler32(key):08x}"


def _dependencies(request: Request) -> list[str]:
    """Files and folders that determine an answer: code, models, architectures, compiler reports, headers and probes."""
    from ckh.files.paths import (
        PROBES,
        RESOURCES,
        cache_dir,
        data_dir,
        files,
        folders,
        own_model_folders,
        user_data_dir,
    )

    code = [file for name, module in sys.modules.items() if name.startswith("ckh") and (file := module.__file__)]
    archspecs = str(data_dir("archspecs"))
    models = [str(data_dir("models")), *map(str, own_model_folders()), *filter(None, [request.kind["model"]])]
    searched = [*models, *(folder for model in models for folder in folders(model))]
    searched += [archspecs, str(cache_dir(RESOURCES)), str(user_data_dir() / PROBES)]
    inside = [path for folder in searched for path, _ in files(folder)]
    library = f"{os.path.dirname(os.path.dirname(__file__))}/ranking/_ckh_rank.so"  # noqa: PTH120 - quicker
    return [*code, library, *searched, *inside, *header_folders()]


def _state(path: str) -> str:
    """The state of a file or folder, by time and size; a dash if it does not exist."""
    try:
        state = os.stat(path)  # noqa: PTH116 - quicker
    except OSError:
        return "-"
    return f"{state.st_mtime_ns} {state.st_size}"


def _cache_folder() -> str:
    """Folder of the cache as of `ckh.files.paths.cache_dir`, which may not exist; a relative one is not found."""
    if own := os.environ.get("CKH_CACHE_DIR"):
        return own
    base = os.environ.get("XDG_CACHE_HOME", "")
    return f"{base if base.startswith('/') else os.path.expanduser('~/.cache')}/ckh"  # noqa: PTH111 - quicker


def _is_safe(path: str) -> bool:
    """True if no other user can change a file, or plant a link in its place."""
    if os.path.realpath(path) != path:
        return False
    place = path
    while place != "/":
        state = os.stat(place)  # noqa: PTH116 - quicker
        is_sticky = place != path and state.st_mode & stat.S_ISVTX
        if state.st_uid not in (os.geteuid(), 0) or (state.st_mode & 0o022 and not is_sticky):
            from pathlib import Path

            from ckh.files.paths import why_unsafe

            return not why_unsafe(Path(path))
        place = os.path.dirname(place)  # noqa: PTH120 - quicker
    return True
