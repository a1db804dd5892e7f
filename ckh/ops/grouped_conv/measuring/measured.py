"""How convolutions are computed, built and measured."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.computation import Computation, HipEmission, HostEmission, Measured, Split
from ckh.errors import DataError, UsageError
from ckh.ops.grouped_conv.kernels.names import parse_kernel_name
from ckh.ops.grouped_conv.measuring import hip, host
from ckh.ops.grouped_conv.measuring.hip_headers import detect_conv, found_words
from ckh.ops.grouped_conv.measuring.hip_rules import rules_of
from ckh.ops.grouped_conv.measuring.reference import convolve, operand_shapes, reduction_length
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS
from ckh.problems import Direction
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.computation import Case, MatrixSettings, Trials
    from ckh.bench.planning.candidates import CandidateSource
    from ckh.data.settings import Settings
    from ckh.kernels.judging import Rule
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

_COMPILE_S = {"": 16.0}  # seen of units of seven
ALL_DIRECTIONS = "all"
_TEMPLATES = Path(__file__).parents[1] / "templates"
_FIELDS = (
    *("n", "c", "k", "g", "di", "hi", "wi", "z", "y", "x", "stride_d", "stride_h", "stride_w"),
    *("pad_d", "pad_h", "pad_w", "dilation_d", "dilation_h", "dilation_w", "do", "ho", "wo"),
)


class CConvProblem(ctypes.Structure):
    """`struct ckh_conv_problem`."""

    _fields_ = [(name, ctypes.c_int64) for name in _FIELDS]


def c_problem(problem: ConvProblem) -> CConvProblem:
    """The convolution as kernels take it."""
    return CConvProblem(**{name: getattr(problem, name) for name in _FIELDS})


def _split(_problem: ConvProblem, kernel_name: str) -> Split:
    """The kernel's own; none of a library that states no name, or one of its own."""
    try:
        kernel = parse_kernel_name(kernel_name)
    except DataError:
        return Split()
    return Split(kernel.split_k, bool(kernel.two_stage))


def _problems(settings: Settings) -> tuple[ConvProblem, ...]:
    """Those of a set or file in the direction and number of dimensions, channels padded if that is set.

    Raises:
        DataError: there are none.
    """
    from ckh.ops.grouped_conv.padding import pad_channels
    from ckh.ops.grouped_conv.problem_sets import load_problems

    sets = (load_problems(settings.problems, one, settings.dtype) for one in _directions(settings.variant))
    problems = tuple(p for found in sets for p in found if settings.ndim in (None, p.ndim))
    if not problems:
        raise DataError(f"{settings.problems} has no {settings.ndim}D problem", code="no-problems")
    return pad_channels(problems) if settings.pad_channels else problems


_conv_headers = cache(detect_conv)


def _emit_hip(kernel: ConvKernel, headers: Headers, arch: ArchSpec) -> str:
    return hip.emit(kernel, _conv_headers(headers), arch)


def _hip_rules(headers: Headers) -> tuple[Rule, ...]:
    return rules_of(_conv_headers(headers))


def _found(headers: Headers) -> dict[str, tuple[str, ...]]:
    return found_words(_conv_headers(headers))


def _candidate_source(settings: Settings) -> CandidateSource[ConvProblem, ConvKernel]:
    from ckh.ops.grouped_conv.measuring.candidate_source import candidate_source

    return candidate_source(settings)


def _reasons(kernel: ConvKernel, arch: ArchSpec, problem: ConvProblem) -> list[str]:
    from ckh.ops.grouped_conv.kernels.validity import CONV_RULES

    return CONV_RULES.check(kernel, arch, problem)


def _matrix(name: str, settings: MatrixSettings) -> tuple[Case[ConvProblem, ConvKernel], ...]:
    from ckh.ops.grouped_conv.measuring.matrix import matrix

    directions = _directions(settings.variant or ALL_DIRECTIONS)
    ndims = tuple(CONV_LAYOUTS) if settings.ndim is None else (settings.ndim,)
    return matrix(name, settings.arch, directions, ndims, settings.dtype)


def _directions(text: str) -> tuple[Direction, ...]:
    if text != ALL_DIRECTIONS and text not in list(Direction):
        raise UsageError(f"unknown direction {text!r}", one_of(text, (*Direction, ALL_DIRECTIONS)), code="unknown-name")
    return tuple(Direction) if text == ALL_DIRECTIONS else (Direction(text),)


def _trials() -> Trials[ConvProblem, ConvKernel]:
    from ckh.ops.grouped_conv.measuring.trials import TRIALS

    return TRIALS


MEASURED: Measured[ConvProblem, ConvKernel] = Measured(
    computation=Computation(
        operand_shapes,
        convolve,
        reduction_length,
        {dtype: dtype for dtype in ("fp32", "fp16", "bf16")},
        c_problem,
        _split,
    ),
    host=HostEmission(host.emit, _TEMPLATES / "host", "host-train"),
    hip=HipEmission(
        _emit_hip, _TEMPLATES / "ck_tile", "train", ("GroupedConvolution",), _found, _hip_rules, _COMPILE_S
    ),
    problems=_problems,
    candidate_source=_candidate_source,
    reasons=_reasons,
    matrix=_matrix,
    trials=_trials,
)
