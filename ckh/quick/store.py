"""Prepared answers in the cache: their location and validity.

If a kind of problems cannot be prepared, such as for too large pools, printed output is cached instead, for exactly the
given options.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.files.paths import (
    COMPILED,
    PROBES,
    RESOURCES,
    cache_dir,
    data_dir,
    files,
    files_of_models,
    user_data_dir,
    write_atomic,
)
from ckh.ops import DEFAULT_OPERATION
from ckh.text.prose import room
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ckh.quick.request import Request

VERSION = 26  # of the prepared content
_FOLDER = "answers"
_BACKEND = "CKH_RANK_BACKEND"
_CHECK = 9  # bytes of the checksum before facts
_DRIVER = "/sys/class/kfd"  # of AMD GPUs
_PACKAGE = Path(__file__).resolve().parents[1]
_PRINTED = "printed"
_VARIABLES = ("CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH", "PATH")  # determine the location of the headers
MAX_PRINTED = 256  # cached outputs, most recent first
MAX_PRINTED_BYTES = 1 << 20  # of each


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
    result = [*files_of_models(*filter(None, [request.kind["model"]])), *_compiled(request)]
    state = (f"{path} {item.st_mtime_ns} {item.st_size}" for path, item in result)
    return "\n".join((__version__, json.dumps(request.kind), *os.uname(), *state, *_gpus(), *_headers()))


def _compiled(request: Request) -> Iterable[tuple[str, os.stat_result]]:
    """Files of compiler reports on the operation's kernels, shipped and local."""
    op = request.kind["op"] or DEFAULT_OPERATION
    result = [*files(str(cache_dir(RESOURCES))), *files(str(data_dir("archspecs") / COMPILED))]
    return (item for item in result if Path(item[0]).stem.partition("-")[2] == op)


def read_printed(request: Request) -> str | None:
    """Return the cached output for the same options; None if there is none, or what determines it has changed."""
    facts = read_facts(cache_dir(_PRINTED) / f"{_name(_options(request))}.json", _printed_stamp(request))
    return None if facts is None or facts["options"] != _options(request) else str(facts["text"])


def keep_printed(request: Request, text: str) -> None:
    """Cache printed output, if it is not too long; evicts the oldest."""
    if len(text) > MAX_PRINTED_BYTES:
        return
    folder, options = cache_dir(_PRINTED), _options(request)
    facts = {"stamp": _printed_stamp(request), "options": options, "text": text}
    write_atomic(folder / f"{_name(options)}.json", encode_facts(facts))
    by_age = sorted(files(str(folder)), key=lambda file: file[1].st_mtime_ns)
    for path, _ in by_age[:-MAX_PRINTED]:
        Path(path).unlink(missing_ok=True)


def _options(request: Request) -> list[Any]:
    """All that printed output depends on besides its stamp, including the order of options and the terminal's width."""
    is_as_wide_as_it_is = not {"json", "wide"}.isdisjoint(request.flags)
    columns = None if is_as_wide_as_it_is else room()
    return [*_kind(request), [[*pair] for pair in request.sizes.items()], request.top, sorted(request.flags), columns]


def _printed_stamp(request: Request) -> str:
    """`stamp`, extended for printed output by probes and ckh's own code."""
    parts = (
        "learn/answers",
        "learn/analytic",
        "learn/models",
        "kernels",
        "commands",
        f"ops/{request.kind['op'] or DEFAULT_OPERATION}",
    )
    folders = [user_data_dir() / PROBES, *(_PACKAGE / part for part in parts)]
    result = [file for folder in folders for file in files(str(folder))]
    return "\n".join((stamp(request), *(f"{path} {item.st_mtime_ns} {item.st_size}" for path, item in result)))


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


def _gpus() -> list[str]:
    if not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return []
    from ckh.hardware.gpus import visible_gpus

    return [f"{gpu.arch} {gpu.num_cus}" for gpu in visible_gpus()]


def _headers() -> Iterator[str]:
    """Everything that determines the headers found; computed without imports."""
    values = {name: os.environ.get(name, "") for name in _VARIABLES}
    yield from values.values()
    for folder in (values["CK_TILE_INCLUDE"], f"{values['ROCM_PATH'] or '/opt/rocm'}/include"):
        path = Path(folder, "ck_tile")
        yield f"{path} {path.stat().st_mtime_ns}" if folder and path.exists() else ""
