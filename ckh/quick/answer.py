"""Answers from what was prepared, through C alone."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError
from ckh.paths import user_data_dir
from ckh.quick.store import paths, read_facts, stamp

if TYPE_CHECKING:
    from ckh.ops.base import Problem
    from ckh.quick.asked import Asked

LIBRARY = Path(__file__).resolve().parents[1] / "ranking" / "_ckh_rank.so"
_ORDER = ("", "predicted TFLOPS", "predicted ms", "kernel")


class _Choice(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_int32),
        ("score", ctypes.c_double),
        ("tflops", ctypes.c_double),
        ("latency_ms", ctypes.c_double),
    ]


def text_of(asked: Asked) -> str | None:
    """What `ckh predict` prints, or None where the full command must be asked."""
    try:
        if (user_data_dir() / "probes").exists():
            return None  # what was measured comes first
        facts_path, model_path = paths(asked)
        facts = read_facts(facts_path, stamp(asked))
        if facts is None:
            return None
        problem = problem_of(asked, facts)
        chosen = _rank(problem, facts, model_path, asked.top)
    except (CkhError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return None if chosen is None else _text(problem, facts, *chosen)


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
    return library


def _rank(
    problem: Problem, facts: dict[str, Any], path: Path, top: int
) -> tuple[int, list[tuple[str, _Choice]]] | None:
    """How many kernels apply, and the first of them; None if C has an error to tell."""
    library, model = open_library(), ctypes.c_void_p()
    if library.ckh_open_file(str(path).encode(), ctypes.byref(model)):
        return None
    try:
        sizes = [getattr(problem, name) for name in facts["sizes"]]
        key = (ctypes.c_int32 * len(facts["key"]))(*facts["key"])
        choices, count = (_Choice * min(top, facts["pool"]))(), ctypes.c_size_t()
        values = (ctypes.c_int64 * len(sizes))(*sizes)
        if library.ckh_rank_sizes(model, key, values, 0, choices, len(choices), ctypes.byref(count)):
            return None
        chosen = choices[: min(len(choices), count.value)]
        return count.value, [(library.ckh_kernel_name(model, one.kernel).decode(), one) for one in chosen]
    finally:
        library.ckh_close(model)


def _text(problem: Problem, facts: dict[str, Any], count: int, chosen: list[tuple[str, _Choice]]) -> str:
    from ckh.commands._ranking_text import head, table

    refused = facts["refused"] + facts["pool"] - count
    rows = [(name, one.tflops, one.latency_ms) for name, one in chosen]
    return head(problem, facts["model"], count, refused) + table(rows)
