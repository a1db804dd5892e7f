"""Computing, building and measuring matrix products that share N and K."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.codegen.unit_source import UnsupportedKernelError
from ckh.bench.computation import ArrayForm, Computation, HipEmission, HostEmission, Measured, Operand, Role, Trials
from ckh.kernels.judging import RuleBook, given
from ckh.ops.gemm_grouped.kernel import GemmGroupedKernel
from ckh.ops.gemm_grouped.pool import BENCH_POOLS, GROUPED_RULES, POOLS, grouped_space
from ckh.ops.gemm_grouped.problem import MAX_GROUPS, OP_TYPE, GemmGroupedProblem
from ckh.ops.gemm_universal.measuring import hip, host
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.hip_rules import missing, rules_of
from ckh.ops.gemm_universal.measuring.trials import kernel_class, loop_end_sizes, representatives_of
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

_TEMPLATES = Path(__file__).parents[1] / "templates"
_KERNEL = Path("ck_tile/ops/gemm/kernel/grouped_gemm_kernel.hpp")
_ARGUMENTS = "UniversalGemmKernelArgs"  # of a group, where the kernel is built on the universal kernel
_TWO_BUFFERS = "DoubleSmemBuffer"


class CGemmGroupedProblem(ctypes.Structure):
    """`struct ckh_gemm_grouped_problem`."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "split_k", "groups")),
        ("ms", ctypes.c_int64 * MAX_GROUPS),
    ]


def c_problem(problem: GemmGroupedProblem) -> ctypes.Structure:
    """Return the groups as kernels take them."""
    sizes = (problem.m, problem.n, problem.k, problem.split_k, problem.num_groups)
    return CGemmGroupedProblem(*sizes, (ctypes.c_int64 * MAX_GROUPS)(*problem.all_m))


def operands(problem: GemmGroupedProblem) -> tuple[Operand, ...]:
    """A of all rows, B of each group, and C of all rows, as stored: column-major matrices are transposed."""
    a, b, c = (
        shape if letter == "r" else shape[::-1]
        for shape, letter in zip((problem.a_shape, problem.b_shape, problem.c_shape), problem.layout, strict=True)
    )
    dtype = problem.dtype
    return (
        Operand("a", a, dtype),
        Operand("b", (problem.num_groups, *b), dtype),
        Operand("c", c, output_dtype(dtype), Role.OUTPUT),
    )


def _arrays(problem: GemmGroupedProblem) -> tuple[ArrayForm, ...]:
    _, b, _ = operands(problem)
    first, _, last = gemm.arrays(problem)
    return first, ArrayForm("b", 1, b.shape, "G, K, N" if problem.layout[1] == "r" else "G, N, K"), last


def multiply_groups(problem: GemmGroupedProblem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return C as stored in memory, in the precision of A and B, which have the shapes of `operands`."""
    rows = a if problem.layout[0] == "r" else a.T
    ends = np.cumsum(problem.all_m)[:-1]
    products = [
        part @ (weight if problem.layout[1] == "r" else weight.T)
        for part, weight in zip(np.split(rows, ends), b, strict=True)
    ]
    return np.concatenate(products)


@RuleBook().rule
def _refused(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if headers.is_current:
        yield f"{OP_TYPE} needs CK Tile's interface of 2025, this is {common.interface}"
    elif _ARGUMENTS not in common.text(_KERNEL):
        yield f"{common} have no grouped kernel that is built on the universal one"
    elif pipeline in common.double_buffered and _TWO_BUFFERS not in common.text(_KERNEL):
        yield f"the grouped kernel of {common} has one buffer, {pipeline} needs two"
    elif pipeline not in headers.persistent:
        yield f"{pipeline} of {common} does not say whether it is persistent, which the grouped kernel requires"


def grouped_rules(headers: GemmHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers: `gemm_universal`'s, and those of CK Tile's grouped kernel."""
    return *rules_of(headers), *given((_refused,), headers=headers)


def emit(kernel: GemmGroupedKernel, headers: GemmHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture.

    Raises:
        UnsupportedKernelError: these headers cannot build it; states the reason.
    """
    (refused,) = given((_refused,), headers=headers)
    if reasons := list(refused(kernel, arch)) or missing(kernel, headers, arch):
        raise UnsupportedKernelError("; ".join(reasons))
    interface = headers.common.interface
    of_interface = (f"gemm_{interface}_classes.hpp", f"grouped_{interface}.hpp")
    return hip.source_of(kernel, headers, "gemm_plain.hpp", *of_interface, "grouped_launch.hpp", "grouped_exports.hpp")


def _emit_hip(kernel: GemmGroupedKernel, headers: Headers, arch: ArchSpec) -> str:
    return emit(kernel, gemm.gemm_headers(headers), arch)


def _hip_rules(headers: Headers) -> tuple[Rule, ...]:
    return grouped_rules(gemm.gemm_headers(headers))


def _found(headers: Headers) -> Mapping[str, tuple[str, ...]]:
    """Return the features of headers for grouped kernels."""
    assert _GEMM.hip is not None
    (own,) = given((_refused,), headers=gemm.gemm_headers(headers))
    found = _GEMM.hip.found(headers)
    return {**found, "pipelines": tuple(name for name in found["pipelines"] if not list(own.function(name)))}


def _loop_ends(kernel: GemmGroupedKernel) -> tuple[GemmGroupedProblem, ...]:
    """Return `gemm_universal`'s sizes as groups: in turns one, unequal ones and one without rows, and equal ones."""
    found: list[GemmGroupedProblem] = []
    for index, (m, n, k, parts) in enumerate(loop_end_sizes(kernel)):
        ms = (f"{m}", f"{m + kernel.tile_m}+{m}x2+0", f"{m}x3")[index % 3]
        found.append(GemmGroupedProblem(ms=ms, n=n, k=k, dtype=kernel.dtype, layout=kernel.layout, split_k=parts))
    return tuple(dict.fromkeys(found))


def _representatives(arch: ArchSpec) -> dict[str, list[Any]]:
    """Return each pipeline and scheduler of every dtype, in fp16 also persistent; other layouts: `mem` and `compv3`."""
    return representatives_of(grouped_space(arch), arch, GemmGroupedKernel)


_GEMM: Measured[Any, Any] = gemm.MEASURED
assert _GEMM.host is not None
assert _GEMM.hip is not None

MEASURED: Measured[GemmGroupedProblem, GemmGroupedKernel] = Measured(
    computation=Computation(
        operands,
        multiply_groups,
        gemm.reduction_length,
        _GEMM.computation.dtypes,
        c_problem,
        _GEMM.computation.split,
        arrays=_arrays,
    ),
    host=HostEmission(
        partial(host.emit, abi="grouped_abi.hpp"),
        (_TEMPLATES / "host", *_GEMM.host.templates),
        "host-grouped-train",
    ),
    hip=HipEmission(
        _emit_hip,
        (_TEMPLATES / "ck_tile", *_GEMM.hip.templates),
        "grouped-train",
        ("GroupedGemmKernel",),
        _found,
        _hip_rules,
        _GEMM.hip.compile_s,
    ),
    problems=partial(gemm.problems_of_run, op=OP_TYPE),
    candidate_source=partial(gemm.candidates_of_run, op=OP_TYPE, pools=POOLS, bench_pools=BENCH_POOLS),
    reasons=GROUPED_RULES.check,
    trials=lambda: Trials(_loop_ends, kernel_class, _representatives),
)
