"""Answers from what was prepared, through C alone."""

from __future__ import annotations

import ctypes
import operator
import os
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError
from ckh.paths import PROBES, user_data_dir
from ckh.quick.store import paths, read_facts, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.commands._ranking_text import KernelRow, Ranking
    from ckh.learn.probes import Probe
    from ckh.ops.base import Problem
    from ckh.quick.asked import Asked

LIBRARY = Path(__file__).resolve().parents[1] / "ranking" / "_ckh_rank.so"
_BACKEND = "CKH_RANK_BACKEND"
# Operations of expressions, as `ckh.export.integers` names them.
_OPERATIONS: dict[str, Callable[..., int]] = {
    "number": lambda value: value,
    "plus": operator.add,
    "less": operator.sub,
    "times": operator.mul,
    "over": operator.floordiv,
    "modulo": operator.mod,
}


class _Choice(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_int32),
        ("score", ctypes.c_double),
        ("tflops", ctypes.c_double),
        ("latency_ms", ctypes.c_double),
    ]


def text_of(asked: Asked) -> str | None:
    """What `ckh predict` prints, or None where the full command must be asked."""
    if not is_wanted():
        return None
    try:
        facts_path, model_path = paths(asked)
        facts = read_facts(facts_path, stamp(asked))
        if facts is None:
            return None
        ranking = _ranking(problem_of(asked, facts), facts, model_path, asked)
        if ranking is None:
            return None
        return ranking.json() if "json" in asked.flags else ranking.text(why="why" in asked.flags)
    except (CkhError, OSError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None


def is_wanted() -> bool:
    """Whether $CKH_RANK_BACKEND leaves ranking to C."""
    return os.environ.get(_BACKEND, "") in {"", "c"}


def can_answer(facts: dict[str, Any] | None, path: Path) -> bool:
    """Whether what was prepared can be used, so that it need not be prepared again."""
    if facts is None:
        return False
    with _opened(path) as opened:
        return opened is not None


def problem_of(asked: Asked, facts: dict[str, Any]) -> Problem:
    """The problem that was typed.

    Raises:
        CkhError: it is impossible.
    """
    if facts["op"] == "gemm_universal":
        from ckh.ops.gemm_universal.problem import GemmProblem

        return GemmProblem(**asked.sizes, dtype=facts["dtype"])  # type: ignore[arg-type]
    from ckh.commands._conv_sizes import resolve

    problem = resolve(dict(asked.sizes), asked.kind["variant"] or "forward", facts["dtype"])
    if facts["op"] != "miopen_conv":
        return problem
    from ckh.ops.miopen_conv.problem import from_convolution

    return from_convolution(problem, asked.kind["layout"])


def open_library() -> ctypes.CDLL:
    """The C part.

    Raises:
        OSError: it is not there.
        AttributeError: it is of another version.
    """
    library = ctypes.CDLL(str(LIBRARY))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.ckh_open_file.argtypes = [ctypes.c_char_p, ctypes.POINTER(pointer)]
    library.ckh_close.argtypes = [pointer]
    library.ckh_close.restype = None
    library.ckh_kernel_name.argtypes = [pointer, ctypes.c_int32]
    library.ckh_kernel_name.restype = ctypes.c_char_p
    library.ckh_rank_sizes.argtypes = [
        *(pointer, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64), ctypes.c_uint32),
        *(ctypes.POINTER(_Choice), size, ctypes.POINTER(size)),
    ]
    library.ckh_reasons.argtypes = [
        *(pointer, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64)),
        *(ctypes.POINTER(ctypes.c_int32), size, ctypes.POINTER(size)),
    ]
    return library


@contextmanager
def _opened(path: Path) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p] | None]:
    """The C part and a model; None if the file is no model."""
    library, model = open_library(), ctypes.c_void_p()
    if library.ckh_open_file(str(path).encode(), ctypes.byref(model)):
        yield None
        return
    try:
        yield library, model
    finally:
        library.ckh_close(model)


def _ranking(problem: Problem, facts: dict[str, Any], path: Path, asked: Asked) -> Ranking | None:
    """What the full command finds; None if C has an error to tell."""
    from ckh.commands._ranking_text import Ranking
    from ckh.learn.reach import beyond

    probe = _measured(problem, facts["arch"]) if "no_measured" not in asked.flags else None
    far = beyond(problem, facts["reach"])
    sizes = [getattr(problem, name) for name in facts["sizes"]]
    key = (ctypes.c_int32 * len(facts["key"]))(*facts["key"])
    values = (ctypes.c_int64 * len(sizes))(*sizes)
    top = facts["pool"] if probe is not None else min(asked.top, facts["pool"])
    choices, count = (_Choice * top)(), ctypes.c_size_t()
    with _opened(path) as opened:
        if opened is None:
            return None
        library, model = opened
        if library.ckh_rank_sizes(model, key, values, 0, choices, top, ctypes.byref(count)):
            return None
        reasons = (ctypes.c_int32 * facts["pool"])()
        if library.ckh_reasons(model, key, values, reasons, len(reasons), ctypes.byref(ctypes.c_size_t())):
            return None
        kernels = [
            _row(one, library.ckh_kernel_name(model, one.kernel).decode(), is_told=facts["tells_tflops"] and not far)
            for one in choices[: min(top, count.value)]
        ]
    if probe is not None:
        probe, kernels = _in_front(probe, kernels)
    return Ranking(
        problem=problem,
        path=facts["path"],
        model=facts["model"],
        other_models=tuple(facts["other_models"]),
        arch=facts["arch"],
        device=facts["device"],
        ranked_by="c",
        candidates=count.value,
        refused=_refused(facts, reasons, sizes),
        beyond=far,
        probe=probe,
        kernels=kernels[: asked.top],
    )


def _row(choice: _Choice, name: str, *, is_told: bool) -> KernelRow:
    from ckh.commands._ranking_text import KernelRow

    tflops, latency_ms = (choice.tflops, choice.latency_ms) if is_told else (None, None)
    return KernelRow(name, choice.score, tflops, latency_ms, None)


def _measured(problem: Problem, arch: str) -> Probe | None:
    """What was measured of the problem here; nothing is imported where nothing was ever measured."""
    if not (user_data_dir() / PROBES).exists():
        return None
    from ckh.learn.probes import recall

    return recall(problem.canonical(), arch)


def _in_front(probe: Probe, kernels: list[KernelRow]) -> tuple[Probe, list[KernelRow]]:
    from dataclasses import replace

    from ckh.learn.probes import in_front

    known, order = in_front(probe, [one.kernel for one in kernels])
    times = [one.latency_ms for one in known.fastest_first()]
    rows = [replace(kernels[place], measured_ms=ms) for place, ms in zip(order, times, strict=False)]
    return known, rows + [kernels[place] for place in order[len(rows) :]]


def _refused(facts: dict[str, Any], reasons: Sequence[int], sizes: Sequence[int]) -> dict[str, int]:
    """How many kernels the architecture and the problem refuse, by reason, as `choose` of operations counts them."""
    counts = Counter(facts["refused"])
    words: dict[int, str] = {}
    for reason in reasons:
        if reason >= 0 and reason not in words:
            words[reason] = "".join(map(str, (_value(part, sizes) for part in facts["reasons"][reason])))
        if reason >= 0 and words[reason]:
            counts[words[reason]] += 1
    return dict(counts.most_common())


def _value(part: Any, sizes: Sequence[int]) -> Any:
    """Words as they are, an expression of `ckh.export.integers` as its value."""
    if not isinstance(part, list):
        return part
    operation, *operands = part
    if operation == "size":
        return sizes[operands[0]]
    return _OPERATIONS[operation](*(_value(operand, sizes) for operand in operands))
