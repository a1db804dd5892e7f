"""Prepared answers in the cache: where they are, and whether they still hold."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.paths import cache_dir, files_of_models
from ckh.version import __version__

if TYPE_CHECKING:
    from ckh.quick.request import Request

VERSION = 12  # of what is prepared, and how
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
    found = files_of_models(*filter(None, [request.kind["model"]]))
    state = (f"{path} {one.st_mtime_ns} {one.st_size}" for path, one in found)
    return "\n".join((__version__, json.dumps(request.kind), *os.uname(), *state, detected_arch()))


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


def detected_arch() -> str:
    """The architecture of this machine's GPU, or nothing. Where there is no driver, nothing more is imported."""
    if not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return ""
    from ckh.gpus import detect_gpu_arch

    return detect_gpu_arch() or ""
