"""The operation `gemm_multi_d`: `gemm_universal` for each function of an epilogue.

Names of kernels state the function and the number of tensors first: `gemm_multi_d_add_relu_2_fp16_rcr_...`.

Source of the pools: the configuration of AMD's tile engine for these GEMMs, which has `gemm_universal`'s tiles, waves
and instructions with three pipelines; persistent kernels included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import UsageError
from ckh.features.engine import Feature
from ckh.kernels.declaration import named, number, word
from ckh.ops.base import having
from ckh.ops.gemm_multi_d.problem import (
    DTYPES,
    FUNCTIONS,
    MATRIX,
    MAX_TENSORS,
    OP_TYPE,
    VECTOR,
    GemmMultiDProblem,
)
from ckh.ops.gemm_universal.derived import GEMM, derived
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, GemmKernel, parser_of
from ckh.ops.gemm_universal.kernels.family import KernelFamily
from ckh.ops.gemm_universal.kernels.problem_rules import BOOK, rule_key, rules_with, store_width

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec
    from ckh.features.engine import Columns
    from ckh.kernels.judging import Rules


@dataclass(frozen=True, slots=True, order=True)
class GemmMultiDKernel(GemmKernel):
    """A kernel whose epilogue applies a function."""

    op_type = OP_TYPE
    group_fields = (*GROUP_FIELDS, "function", "num_d")

    function: str = field(default="add", metadata=named(word("function", FUNCTIONS)))
    num_d: int = field(default=1, metadata=named(number("number of further tensors", f"[1-{MAX_TENSORS}]")))


parse_multi_d_kernel = parser_of(GemmMultiDKernel, OP_TYPE, "function", "num_d")


rule = BOOK.rule


@rule
def _same_epilogue(problem: GemmMultiDProblem, function: str, num_d: int) -> Iterator[str]:
    if function != problem.function:
        yield f"a kernel of {function} cannot compute {problem.function}"
    if num_d != problem.num_d:
        yield f"a kernel of {num_d} further tensors cannot run a problem of {problem.num_d}"


@rule
def _whole_d(
    arch: ArchSpec, problem: GemmMultiDProblem, epilogue: str | None, dtype: str, wave_n: int, warp_tile_n: int
) -> Iterator[str]:
    """Further tensors are read in native vectors of C, whatever vectors of C a kernel stores."""
    width = store_width(epilogue, dtype, wave_n, warp_tile_n)
    if arch.is_gpu and problem.n % width:
        yield f"N = {problem.n} is not a multiple of the {width} elements of a further tensor that are read at once"


@rule
def _on_a_gpu(arch: ArchSpec) -> Iterator[str]:
    if not arch.is_gpu:
        yield "the host device has no epilogues with further tensors"


@rule
def _floats(dtype: str) -> Iterator[str]:
    if dtype not in DTYPES:
        yield f"epilogues with further tensors are in floating point, not {dtype}"


MULTI_D_RULES: Rules[GemmMultiDKernel] = rules_with((_on_a_gpu, _floats), problem=(_same_epilogue, _whole_d))
FAMILY = KernelFamily(
    GemmMultiDKernel, MULTI_D_RULES, parse_multi_d_kernel, ("compv3", "compv4", "mem"), are_listed=False
)
POOLS = FAMILY.pools


def multi_d_rule_key(problem: GemmMultiDProblem) -> Hashable:
    """Return the part of a problem that the rules read: problems of one key have the same applicable kernels."""
    return rule_key(problem), problem.function, problem.num_d


_CODES = {name: float(code) for code, name in enumerate(FUNCTIONS)}


def _count(c: Columns, kind: str) -> Any:
    return np.char.count(c.raw("ds").astype(str), kind).astype(float)


def _d_elements(c: Columns) -> Any:
    return _count(c, MATRIX) * c["m"] * c["n"] + _count(c, VECTOR) * c["n"]


_FEATURES = (
    Feature("d_matrices", "", lambda c: _count(c, MATRIX)),
    Feature("d_vectors", "", lambda c: _count(c, VECTOR)),
    Feature("d_elements_per_flop", "", lambda c: _d_elements(c) / np.maximum(2.0 * c["m"] * c["n"] * c["k"], 1.0)),
    Feature("function", "category", lambda c: c.codes("function", _CODES, 0.0)),
)

GEMM_MULTI_D = GEMM_UNIVERSAL.extended(OP_TYPE, _FEATURES, categorical=("function",))

_DERIVED = derived(
    __name__,
    "matrix products with bias, residual, scale or activation",
    GemmMultiDProblem,
    FAMILY,
    GEMM_MULTI_D,
    {
        "function": "function of the epilogue: " + ", ".join(FUNCTIONS),
        "ds": "tensors of the epilogue: r a row-major M x N matrix, v a vector of N",
    },
)


def _mismatch(kernel: GemmMultiDKernel, problem: GemmMultiDProblem) -> str:
    is_same = (kernel.function, kernel.num_d) == (problem.function, problem.num_d)
    reason = f"a kernel of {kernel.function} with {kernel.num_d} tensors on {problem.canonical()}"
    return str(GEMM.kernels.mismatch(kernel, problem)) or ("" if is_same else reason)


def _place(problem: GemmMultiDProblem) -> list[float]:
    """`gemm_universal`'s point, and one axis for each function."""
    return [*GEMM.problems.place(problem), *(4.0 * (problem.function == name) for name in FUNCTIONS)]


def _shaped() -> object:
    from ckh.shapes.layers import Matmul
    from ckh.shapes.shaped import Shaped

    def problem(shape: Matmul, dtype: str) -> GemmMultiDProblem:
        own = shape.dtype or dtype
        if not shape.has_bias or own not in DTYPES:
            what = f"products with a bias in {own}" if shape.has_bias else "products without a bias"
            raise UsageError(what, code="unsupported")
        return GemmMultiDProblem(shape.m, shape.n, shape.k, own, shape.layout)

    def shape(of: GemmMultiDProblem) -> Matmul:
        if (of.function, of.ds) != ("add", VECTOR):
            raise UsageError(f"products with {of.function} of {of.ds}, which is no bias", code="unsupported")
        return Matmul(of.m, of.n, of.k, of.dtype, of.layout, has_bias=True)

    return Shaped(Matmul, problem, shape, prefers=lambda shape: shape.has_bias and not shape.scaling)


OPERATION = replace(
    _DERIVED,
    problems=replace(
        _DERIVED.problems,
        shaped=_shaped,
        slices={**GEMM.problems.slices, "function": {name: having("function", name) for name in FUNCTIONS}},
        place=_place,
    ),
    kernels=replace(_DERIVED.kernels, mismatch=_mismatch, key_of=multi_d_rule_key),
)
