"""Computing, building and measuring matrix products with further tensors in their epilogue."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.computation import ArrayForm, Operand, Role, Trials
from ckh.bench.isolated.typed import element_type
from ckh.kernels.judging import RuleBook
from ckh.ops.gemm_multi_d.operation import FAMILY, GemmMultiDKernel
from ckh.ops.gemm_multi_d.problem import DTYPES, FUNCTIONS, MAX_TENSORS, OP_TYPE, VECTOR, GemmMultiDProblem
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.derived_measured import GEMM, DerivedHip, derived_measured
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.measured import kernel_class, loop_end_sizes, representatives_of
from ckh.ops.gemm_universal.problem import output_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.computation import Bounds
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

Array = NDArray[Any]

# Functor of each function in the emitted source: CK Tile's own, and ckh's with an activation.
_FUNCTORS = {
    "add": "ck_tile::element_wise::MultiDAdd",
    "mul": "ck_tile::element_wise::MultiDMultiply",
    **{name: f"AddThen<{name.removeprefix('add_').capitalize()}>" for name in FUNCTIONS if name.startswith("add_")},
}

# Errors of float32 arithmetic in an epilogue: of sums and products of at most three terms, relative to the sum of
# magnitudes; of activations by a device's exponential function, relative to the result and absolute.
_FP32, _ACTIVATION, _ACTIVATION_ABSOLUTE = 2.0**-23, 2.0**-18, 2.0**-24
_GELU_CUBIC, _GELU_SCALE = 0.044715, 1.5957691216057308  # 2 sqrt(2 / pi)
# Where an activation that is not monotonic has its minimum.
_MINIMUM = {"gelu": -0.7524614, "silu": -1.2784645}


class _CProblem(gemm.CGemmProblem):
    """`struct ckh_multi_d_problem`."""

    _fields_ = (("d_strides", ctypes.c_int64 * MAX_TENSORS),)


def c_problem(problem: GemmMultiDProblem) -> ctypes.Structure:
    """Return the problem as kernels take it; a vector is a matrix whose rows are 0 elements apart."""
    strides = [0 if kind == VECTOR else problem.n for kind in problem.ds]
    return _CProblem(problem.m, problem.n, problem.k, 1, (ctypes.c_int64 * MAX_TENSORS)(*strides))


def operands(problem: GemmMultiDProblem) -> tuple[Operand, ...]:
    """A, B, the further tensors, and E."""
    a, b, c = gemm.operands(problem)
    dtype = output_dtype(problem.dtype)
    ds = (
        Operand(f"d{number}", (problem.n,) if kind == VECTOR else (problem.m, problem.n), dtype, Role.BIAS)
        for number, kind in enumerate(problem.ds)
    )
    return a, b, *ds, Operand("e", c.shape, dtype, Role.OUTPUT)


def _arrays(problem: GemmMultiDProblem) -> tuple[ArrayForm, ...]:
    a, b, _ = gemm.arrays(problem)
    forms = [
        ArrayForm(tensor.name, place, tensor.shape, "N" if len(tensor.shape) == 1 else "M, N")
        for place, tensor in enumerate(operands(problem)[2:], 2)
    ]
    return a, b, *forms


def _activated(name: str, x: Array) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    scaled = _GELU_SCALE * (x + _GELU_CUBIC * x**3) if name == "gelu" else x
    with np.errstate(over="ignore"):
        activated: Array = x / (1 + np.exp(-scaled))
    return activated


def finish(problem: GemmMultiDProblem, bounds: Bounds, biases: Sequence[Array]) -> Bounds:
    """Bounds of results before rounding.

    The epilogue of CK Tile that shuffles C rounds the sums to E's dtype first; the other one does not. Both are within
    the bounds.
    """
    function = FUNCTIONS[problem.function]
    element = element_type(output_dtype(problem.dtype))
    low = np.minimum(bounds[0], element.lowest(bounds[0]))
    high = np.maximum(bounds[1], element.highest(bounds[1]))
    tensors = [np.broadcast_to(bias, (problem.m, problem.n)).reshape(-1) for bias in biases]
    if function.multiplies:
        factor = np.prod(tensors, axis=0)
        low, high = np.minimum(low * factor, high * factor), np.maximum(low * factor, high * factor)
        margin = _FP32 * np.maximum(np.abs(low), np.abs(high))
    else:
        margin = _FP32 * (np.maximum(np.abs(low), np.abs(high)) + np.abs(tensors).sum(axis=0))
        low, high = low + np.sum(tensors, axis=0), high + np.sum(tensors, axis=0)
    return _image(function.activation, low - margin, high + margin)


def _image(activation: str, low: Array, high: Array) -> Bounds:
    """Bounds of an activation's values between two arguments."""
    if not activation:
        return low, high
    ends = _activated(activation, low), _activated(activation, high)
    least, most = np.minimum(*ends), np.maximum(*ends)
    if activation in _MINIMUM:
        place = np.float64(_MINIMUM[activation])
        least = np.where((low <= place) & (place <= high), _activated(activation, place), least)
        least = least - (_ACTIVATION * np.abs(least) + _ACTIVATION_ABSOLUTE)
        most = most + (_ACTIVATION * np.abs(most) + _ACTIVATION_ABSOLUTE)
    return least, most


@RuleBook().rule
def _lacks(*, headers: GemmHeaders) -> Iterator[str]:
    interface = headers.common.interface
    if interface is not Interface.LATE_2025:
        yield f"{OP_TYPE} needs CK Tile's interface of late 2025, this is {interface}"


def _source(kernel: GemmMultiDKernel, headers: GemmHeaders) -> str:
    own = (
        f"inline constexpr ck_tile::index_t num_d = {kernel.num_d};",
        f"using Elementwise = {_FUNCTORS[kernel.function]};",
    )
    return source_of(kernel, headers, "multi_d_late2025.hpp", vocabulary="multi_d_vocabulary.hpp", own=own)


HIP = DerivedHip(__file__, "multi-d-train", "UniversalGemmKernel", _lacks, _source, of_pipeline=False)


def _class(kernel: GemmMultiDKernel) -> str:
    return f"{kernel_class(kernel)}, {kernel.function} of {kernel.num_d}"


def _loop_ends(kernel: GemmMultiDKernel) -> tuple[GemmMultiDProblem, ...]:
    """Return problems whose tensors are vectors and matrices in turn."""
    sizes = [(m, n, k) for m, n, k, parts in loop_end_sizes(kernel) if parts == 1]
    kinds = ("vr", "rv")
    return tuple(
        GemmMultiDProblem(
            *size, kernel.dtype, kernel.layout, function=kernel.function, ds=kinds[number % 2][: kernel.num_d]
        )
        for number, size in enumerate(sizes)
    )


def _representatives(arch: ArchSpec) -> dict[str, list[GemmMultiDKernel]]:
    """Return `gemm_universal`'s classes for the sum of two tensors, and one kernel for each other function."""
    by_class: dict[str, list[GemmMultiDKernel]] = {}
    for function in FUNCTIONS:
        num_d = MAX_TENSORS if function == "add" else 1
        classes = representatives_of(FAMILY.space(arch), arch, GemmMultiDKernel, function=function, num_d=num_d)
        supported = [kernels for kernels in classes.values() if kernels[0].dtype in DTYPES]
        by_class |= {_class(kernels[0]): kernels for kernels in (supported if function == "add" else supported[:1])}
    return by_class


MEASURED = derived_measured(
    OP_TYPE,
    FAMILY.pools,
    FAMILY.bench_pools,
    replace(GEMM.computation, operands=operands, dtypes=DTYPES, c_problem=c_problem, finish=finish, arrays=_arrays),
    HIP.emission,
    Trials(_loop_ends, _class, _representatives),
)
