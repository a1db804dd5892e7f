"""Prepared answers in the cache: their location and validity."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.files.paths import (
    RESOURCES,
    cache_dir,
    files,
    files_of_models,
)
from ckh.ops import DEFAULT_OPERATION
from ckh.quick.printed import gpus, header_folders
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ckh.quick.request import Request

VERSION = 31  # of the prepared content
_FOLDER = "answers"
_BACKEND = "CKH_RANK_BACKEND"
_CHECK = 9  # bytes of the checksum before facts
_VARIABLES = ("CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH", "PATH")  # determine the location of the headers


def is_wanted() -> bool:
    """True if $CKH_RANK_BACKEND allows ranking in C."""
    return os.environ.get(_BACKEND, "") in {"", "c"}


def paths(request: Request) -> tuple[Path, Path]:
    """Files of a request: facts (JSON) and the model for C."""
    name, folder = _name(_kind(request)), cache_dir(_FOLDER)
    return folder / f"{name}.json", folder / f"{name}.ckhm"


def estimate_path(model: Path) -> Path:
    """File of the estimate that completes a model, beside the model's."""
    return model.with_suffix(".estimate.ckhm")


def names_path(model: Path) -> Path:
    """File of the kernel names, beside the model's."""
    return model.with_suffix(".names")


def _kind(request: Request) -> list[Any]:
    folder = str(Path.cwd()) if request.kind["model"] else ""
    return [VERSION, request.kind, os.environ.get("CKH_MODELS", ""), folder]


def _name(of: list[Any]) -> str:
    text = json.dumps(of)
    return f"{zlib.crc32(text.encode()):08x}{zlib.adler32(text.encode()):08x}"


def stamp(request: Request) -> str:
    """Everything that determines an answer besides its problem: prepared answers are valid while it is unchanged.

    Files by time and size: models in every folder that is searched, architecture specs, and compiler reports. Also the
    GPUs of this machine, by compute units.
    """
    relevant = [*files_of_models(*filter(None, [request.kind["model"]])), *_compiled(request)]
    state = (f"{path} {file.st_mtime_ns} {file.st_size}" for path, file in relevant)
    return "\n".join((__version__, json.dumps(request.kind), *os.uname(), *state, *gpus(), *_headers()))


def _compiled(request: Request) -> Iterable[tuple[str, os.stat_result]]:
    """Files of compiler reports on the operation's kernels."""
    op = request.kind["op"] or DEFAULT_OPERATION
    reports = files(str(cache_dir(RESOURCES)))
    return ((path, file) for path, file in reports if Path(path).stem.partition("-")[2] == op)


def read_facts(path: Path, expected: str) -> dict[str, Any] | None:
    """Read the facts in a file; None if there is none, it is damaged, or its stamp has changed."""
    try:
        content = path.read_bytes()
        if content[:_CHECK] != _checksum(content[_CHECK:]):
            return None
        facts = json.loads(content[_CHECK:])
    except (OSError, ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) and facts.get("stamp") == expected else None


def encode_facts(facts: dict[str, Any]) -> bytes:
    """Encode the content of a file of facts."""
    content = json.dumps(facts).encode()
    return _checksum(content) + content


def _checksum(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content)


def _headers() -> Iterator[str]:
    """Everything that determines the headers found; computed without imports."""
    yield from (os.environ.get(name, "") for name in _VARIABLES)
    for folder in header_folders():
        yield f"{folder} {os.stat(folder).st_mtime_ns}" if os.path.exists(folder) else ""  # noqa: PTH110, PTH116 - quicker
