"""Prepared answers in the cache: where they are, and whether they still hold."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.paths import cache_dir, data_dir, model_folders
from ckh.version import __version__

if TYPE_CHECKING:
    from ckh.quick.request import Request

VERSION = 10  # of what is prepared, and how
_FOLDER = "answers"
_BACKEND = "CKH_RANK_BACKEND"
_CHECK = 9  # bytes of the checksum before facts
_DRIVER = "/sys/class/kfd"  # of AMD GPUs


def is_wanted() -> bool:
    """True if $CKH_RANK_BACKEND leaves ranking to C."""
    return os.environ.get(_BACKEND, "") in {"", "c"}


def paths(request: Request) -> tuple[Path, Path]:
    """The files of a request: facts (JSON) and the model for C."""
    text = json.dumps(
        [VERSION, request.kind, os.environ.get("CKH_MODELS", ""), str(Path.cwd()) if request.kind["model"] else ""]
    )
    name = f"{zlib.crc32(text.encode()):08x}{zlib.adler32(text.encode()):08x}"
    folder = cache_dir(_FOLDER)
    return folder / f"{name}.json", folder / f"{name}.ckhm"


def stamp(request: Request) -> str:
    """Everything that an answer follows from besides its problem: it holds while this stays the same.

    Files by time and size: models in every folder where they are looked for, and what is known of architectures.
    """
    places = [*map(str, model_folders()), *filter(None, [request.kind["model"]])]
    parts = [__version__, json.dumps(request.kind), *os.uname(), *files(str(data_dir("archspecs")))]
    for folder in places:
        parts.append(folder)
        parts += files(folder)
        for inside in folders(folder):
            parts += files(inside)
    parts.append(detected_arch())
    return "\n".join(parts)


def read_facts(path: Path, expected: str) -> dict[str, Any] | None:
    """The facts in a file; None if there is none, it is damaged, or what it was made for has changed."""
    try:
        content = path.read_bytes()
        if content[:_CHECK] != _checksum(content[_CHECK:]):
            return None
        facts = json.loads(content[_CHECK:])
    except (OSError, ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) and facts.get("stamp") == expected else None


def encode_facts(facts: dict[str, Any]) -> bytes:
    """The content of a file of facts."""
    content = json.dumps(facts).encode()
    return _checksum(content) + content


def _checksum(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content)


def files(folder: str, *, times: bool = True) -> list[str]:
    """The files of a folder by name and size, and by the time of their last change."""
    try:
        with os.scandir(folder) as entries:
            found = [(one.name, one.stat()) for one in entries if one.is_file()]
    except OSError:
        return []
    return sorted(f"{name} {state.st_mtime_ns if times else ''} {state.st_size}" for name, state in found)


def folders(folder: str) -> list[str]:
    """The folders in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(one.path for one in entries if one.is_dir())
    except OSError:
        return []


def detected_arch() -> str:
    """The architecture of this machine's GPU, or nothing. Where there is no driver, nothing more is imported."""
    if not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return ""
    from ckh.gpus import detect_gpu_arch

    return detect_gpu_arch() or ""
