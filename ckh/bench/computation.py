"""Protocols for measuring an operation: its computation, and how its kernels are generated and built."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ckh.errors import UsageError
from ckh.ops import operation_of, part_of
from ckh.ops.base import Problem
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.codegen.unit import HostSimd
    from ckh.bench.planning.candidates import CandidateSource
    from ckh.data.settings import Settings
    from ckh.kernels.judging import Rule
    from ckh.ops.base import AnyOperation

    Bounds = tuple[NDArray[Any], NDArray[Any]]  # lower and upper

Shape = tuple[int, ...]
P = TypeVar("P", bound=Problem)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Split:
    """How a kernel splits the sum over K."""

    parts: int = 1
    """Number of partial sums, added by atomics in undefined order; 1: the result is stored, not added."""
    in_fp32: bool = False
    """Whether the limits are those of a sum in float32, rounded once. Otherwise they allow for rounding each partial
    sum and each addition to the result's dtype."""

    @property
    def repeats(self) -> bool:
        """True if every run of the kernel gives the same bits, i.e. the order of additions is fixed."""
        return self.parts == 1


class Role(StrEnum):
    """Role of an operand.

    INPUT and SCALE are factors of the summed products; random scales are positive. BIAS is read by the epilogue only.
    """

    INPUT = "input"
    SCALE = "scale"
    BIAS = "bias"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that kernels read or write."""

    name: str
    shape: Shape
    dtype: str
    role: Role = Role.INPUT
    strides: Shape | None = None
    """Distance of neighbours along each axis, in elements; None: dense, in C order. Inputs may repeat elements by a
    stride of 0. Elements between the rows of an input are NaN, those of an output must stay unwritten."""
    order: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    """The elements of a dense input in the order in which kernels read them, as an array of the same size; None: as
    they are."""


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """Layout in which a user's array holds an operand or the result."""

    name: str
    """Name of the array, e.g. "x"."""
    place: int
    """Index among the problem's operands, the last of which is the result."""
    shape: Shape
    axes: str
    """Description of its axes, e.g. "N, H, W, G, C/G"."""
    other_shape: Shape | None = None
    """Alternative shape with the same elements in the same order; None if there is none."""
    is_transposed: bool = False
    """Whether it is stored transposed."""


AXES, BEFORE, SPATIAL = 7, 2, 3  # of the result: all, those before the spatial ones, and these
_TERMS = SPATIAL + 1


class Contraction(ctypes.Structure):
    """`struct Contraction` of checks.hip: for each element of a dense result, a sum over four axes.

    The factors of a product are the elements of a and b at the sum, over all axes, of index times stride. Three
    axes of the result are spatial, and each meets one of the first three axes of the sum in a third, whose
    index follows from theirs: (`times` * result + `ahead` * term + `offset`) / `divisor`. Where that is no integer, or
    not in 0 to `limit`, there is no product.
    """

    _fields_: ClassVar[Sequence[Any]] = [
        *((name, ctypes.c_int64) for name in ("first", "first_a", "first_b")),
        *((name, ctypes.c_int64 * AXES) for name in ("size", "a", "b")),
        *((name, ctypes.c_int64 * _TERMS) for name in ("terms", "terms_a", "terms_b")),
        *((name, ctypes.c_int64 * SPATIAL) for name in ("times", "ahead", "offset", "divisor", "limit")),
        *((name, ctypes.c_int64 * SPATIAL) for name in ("met_a", "met_b")),
    ]


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distance of neighbours along each axis of a dense tensor in C order, in elements."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def matrix_product(
    batch: int,
    sizes: tuple[int, int, int],
    strides: Sequence[Sequence[int]],
    layout: str,
    firsts: tuple[int, int, int] = (0, 0, 0),
) -> Contraction:
    """Return a batch of products of M, N and K, given the strides of A and B as stored: batch, line and element.

    C has rows one after the other. `firsts` are the places of the first elements of C, A and B.
    """
    (m, n, k), ((batch_a, *of_a), (batch_b, *of_b)) = sizes, strides
    a_m, a_k = of_a if layout[0] == "r" else reversed(of_a)
    b_k, b_n = of_b if layout[1] == "r" else reversed(of_b)
    axes = ((batch, batch_a, batch_b), *((1, 0, 0),) * (AXES - 3), (m, a_m, 0), (n, 0, b_n))
    size, strides_a, strides_b = zip(*axes, strict=True)
    ones, zeros = (1,) * SPATIAL, (0,) * SPATIAL
    return Contraction(
        *firsts, size, strides_a, strides_b, (*ones, k), (*zeros, a_k), (*zeros, b_k), divisor=ones, limit=ones
    )


@dataclass(frozen=True, slots=True)
class Computation(Generic[P]):
    """Computation of an operation."""

    operands: Callable[[P], tuple[Operand, ...]]
    """A problem's operands in the order of the kernels' arguments: inputs, and last the result. Kernels get a workspace
    after them."""
    compute: Callable[..., NDArray[Any]]
    """Sums of products of the inputs and scales, which are passed in order after the problem, in their precision;
    linear in each of them."""
    reduction_length: Callable[[P], int]
    """Maximum number of products summed in one element of the result."""
    dtypes: Sequence[str]
    """Supported dtypes of problems."""
    c_problem: Callable[[P], ctypes.Structure]
    """Problem structure passed to kernels."""
    split: Callable[[P, str], Split]
    """How the kernel of a given name splits a problem's sums."""
    finish: Callable[[P, Bounds, Sequence[NDArray[Any]]], Bounds] | None = None
    """Epilogue that follows the sums: from lower and upper bounds of the sums, flat and in float64, and the problem's
    biases as float64, to bounds of right results before they are rounded to the result's dtype; None: the sums are the
    results."""
    contractions: Callable[[P], Sequence[Contraction]] | None = None
    """The sums as loops over the first two operands, for GPUs; None: only the host computes them."""
    factors: Callable[..., tuple[NDArray[Any], NDArray[Any]]] | None = None
    """The factors of the products of one element, given the problem, its indices in the result, and the two operands;
    independent of `contractions`, which it checks."""
    arrays: Callable[[P], tuple[ArrayForm, ...]] | None = None
    """Layouts of users' arrays for the inputs, in the order of the arguments, and last for the result."""

    def operands_of(self, problem: P) -> tuple[tuple[Operand, ...], Operand]:
        """Inputs of a problem, and its result; raises `UsageError` for a dtype that cannot be measured."""
        if problem.dtype not in self.dtypes:
            raise UsageError(
                f"kernels of {problem.dtype} cannot be measured",
                "one of " + ", ".join(self.dtypes),
                code="unknown-dtype",
            )
        *inputs, result = self.operands(problem)
        return tuple(inputs), result

    def array_forms(self, problem: P) -> tuple[ArrayForm, ...]:
        """Layouts of users' arrays for a problem's inputs and result; by default those of the kernels."""
        if self.arrays is not None:
            return self.arrays(problem)
        return tuple(
            ArrayForm(operand.name, place, operand.shape, "") for place, operand in enumerate(self.operands(problem))
        )


@dataclass(frozen=True, slots=True)
class Case(Generic[P, K]):
    """A kernel of `validate kernels`."""

    label: str
    """Description of what it covers."""
    kernel: K
    problem: P
    of: Mapping[str, str | int] = field(default_factory=dict)
    """Distinguishes cases with the same label, e.g. the direction."""


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """Settings of a matrix of kernels; None: all directions and spatial dimensions."""

    arch: ArchSpec
    dtype: str
    variant: str | None = None
    ndim: int | None = None


@dataclass(frozen=True, slots=True)
class Trials(Generic[P, K]):
    """How kernels of an operation are executed for validation."""

    loop_ends: Callable[[K], tuple[P, ...]]
    """Small problems that reach every loop end of a kernel, some of which it may refuse."""
    kernel_class: Callable[[K], str]
    """Description of the class of kernels that are right or wrong together."""
    representatives: Callable[[ArchSpec], dict[str, list[K]]]
    """Kernels of each class for an architecture, smallest tiles first; headers may not support all."""


@dataclass(frozen=True, slots=True)
class HostEmission(Generic[K]):
    """How kernels are built for the CPU."""

    emit: Callable[[K, HostSimd], str]
    """C++ source of a kernel for the CPU's SIMD registers."""
    templates: tuple[Path, ...]
    """Folders of headers that sources include in addition to the shared ones."""
    problems: str
    """Default problem set to measure."""
    compile_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.9})
    """Default CPU seconds to compile a kernel, by kind; "" for all other kinds."""


@dataclass(frozen=True, slots=True)
class KnownHeaders:
    """Facts about the CK Tile headers of this machine."""

    include: str
    """Include folder."""
    interface: str
    """Detected interface."""
    rules: tuple[Rule, ...]
    """Rules for what they cannot build of an operation's kernels."""


@dataclass(frozen=True, slots=True)
class HipEmission(Generic[K]):
    """How kernels are built for AMD GPUs."""

    emit: Callable[[K, Headers, ArchSpec], str]
    """C++ source of a kernel for a version of CK Tile's headers and an architecture; raises `UnsupportedKernelError`.
    """
    templates: tuple[Path, ...]
    """Folders of headers that sources include in addition to the shared ones."""
    problems: str
    """Default problem set to measure."""
    functions: tuple[str, ...]
    """Substring of the mangled names of the kernels' GPU functions."""
    found: Callable[[Headers], Mapping[str, tuple[str, ...]]]
    """Features of headers for these kernels, described, by name."""
    rules: Callable[[Headers], tuple[Rule, ...]]
    """Rules over kernel columns that exclude what headers cannot build; `emit` refuses kernels that break one."""
    compile_s: Mapping[str, float]
    """As of `HostEmission`, for kernels compiled in units."""

    def known_headers(self) -> KnownHeaders | None:
        """Headers that kernels would be built with; None if there are none."""
        from ckh.bench.compilation.hip_toolchain import known_ck_tile

        headers = known_ck_tile()
        return None if headers is None else KnownHeaders(str(headers.include), headers.interface, self.rules(headers))


@dataclass(frozen=True, slots=True)
class Measured(Generic[P, K]):
    """How kernels of an operation are built, measured and checked."""

    computation: Computation[P]
    """The computation of its problems."""
    host: HostEmission[K] | None
    """How kernels are built for the CPU; None: not supported."""
    hip: HipEmission[K] | None
    """How kernels are built for AMD GPUs; None: not supported."""
    problems: Callable[[Settings], tuple[P, ...]]
    """Problems of a run's settings; raises `UsageError` for a setting that the operation does not have."""
    candidate_source: Callable[[Settings], CandidateSource[P, K]]
    """Source of kernels for a run's settings; raises the same."""
    reasons: Callable[[K, ArchSpec, P], list[str]]
    """Reasons why a kernel cannot be built for an architecture or does not apply to a problem; empty if none."""
    matrix: Callable[[str, MatrixSettings], tuple[Case[P, K], ...]] | None = None
    """Cases of a named matrix of `validate kernels`; raises `UsageError` for an unknown name or setting; None: there
    are no matrices."""
    trials: Callable[[], Trials[P, K]] | None = None
    """How kernels are executed for validation; None: they are not."""


def measured_of(op: AnyOperation) -> Measured[Any, Any]:
    """Measuring protocol of an operation; raises `UsageError` if ckh builds no kernels of it."""
    part = part_of(op, op.measured, Measured)
    if part is None:
        raise UsageError(
            f"ckh builds no kernels of {op.name}", "its times are converted: see ckh convert --help", code="unsupported"
        )
    return part


def computation_of(problem: Problem) -> Computation[Any]:
    """Computation of a problem's operation; raises as `measured_of`."""
    return measured_of(operation_of(problem.canonical())).computation
