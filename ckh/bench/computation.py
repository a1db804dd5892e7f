"""Protocols for measuring an operation: its computation, and how its kernels are generated and built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import UsageError
from ckh.ops import operation_of, part_of
from ckh.ops.base import Problem
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    import ctypes
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
    """How a kernel splits the sum over K.

    Attributes:
        parts: number of partial sums, added by atomics in undefined order; 1: the result is stored, not added.
        in_fp32: whether partial sums are added in float32 and rounded once by a second stage; otherwise every partial
            sum and every addition is rounded to the result's dtype.
    """

    parts: int = 1
    in_fp32: bool = False

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
    """A tensor that kernels read or write.

    Attributes:
        name: its name, e.g. "a".
        shape: its shape.
        dtype: its element type.
        role: what kernels use it for.
        strides: distance of neighbours along each axis, in elements; None: dense, in C order. Inputs may repeat
            elements by a stride of 0. Elements between the rows of an input are NaN, those of an output must stay
            unwritten.
        order: the elements of a dense input in the order in which kernels read them, as an array of the same size;
            None: as they are.
    """

    name: str
    shape: Shape
    dtype: str
    role: Role = Role.INPUT
    strides: Shape | None = None
    order: Callable[[NDArray[Any]], NDArray[Any]] | None = None


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """Layout in which a user's array holds an operand or the result.

    Attributes:
        name: name of the array, e.g. "x".
        place: index among the problem's operands, the last of which is the result.
        shape: shape of the array.
        axes: description of its axes, e.g. "N, H, W, G, C/G".
        other_shape: alternative shape with the same elements in the same order; None if there is none.
        is_transposed: whether it is stored transposed.
    """

    name: str
    place: int
    shape: Shape
    axes: str
    other_shape: Shape | None = None
    is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class Computation(Generic[P]):
    """Computation of an operation.

    Attributes:
        operands: a problem's operands in the order of the kernels' arguments: inputs, and last the result. Kernels get
            a workspace after them.
        compute: sums of products of the inputs and scales, which are passed in order after the problem, in their
            precision; linear in each of them.
        reduction_length: maximum number of products summed in one element of the result.
        dtypes: supported dtypes of problems.
        c_problem: problem structure passed to kernels.
        split: how the kernel of a given name splits a problem's sums.
        finish: epilogue that follows the sums: from lower and upper bounds of the sums, flat and in float64, and the
            problem's biases as float64, to bounds of right results before they are rounded to the result's dtype; None:
            the sums are the results.
        arrays: layouts of users' arrays for the inputs, in the order of the arguments, and last for the result.
    """

    operands: Callable[[P], tuple[Operand, ...]]
    compute: Callable[..., NDArray[Any]]
    reduction_length: Callable[[P], int]
    dtypes: Sequence[str]
    c_problem: Callable[[P], ctypes.Structure]
    split: Callable[[P, str], Split]
    finish: Callable[[P, Bounds, Sequence[NDArray[Any]]], Bounds] | None = None
    arrays: Callable[[P], tuple[ArrayForm, ...]] | None = None

    def operands_of(self, problem: P) -> tuple[tuple[Operand, ...], Operand]:
        """Inputs of a problem, and its result.

        Raises:
            UsageError: kernels of the problem's dtype cannot be measured.
        """
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
    """A kernel of `validate kernels`.

    Attributes:
        label: description of what it covers.
        kernel: the kernel.
        problem: the problem to run it on.
        of: distinguishes cases with the same label, e.g. the direction.
    """

    label: str
    kernel: K
    problem: P
    of: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """Settings of a matrix of kernels; None: all directions and spatial dimensions."""

    arch: ArchSpec
    dtype: str
    variant: str | None = None
    ndim: int | None = None


@dataclass(frozen=True, slots=True)
class Trials(Generic[P, K]):
    """How kernels of an operation are executed for validation.

    Attributes:
        loop_ends: small problems that reach every loop end of a kernel, some of which it may refuse.
        kernel_class: description of the class of kernels that are right or wrong together.
        representatives: kernels of each class for an architecture, smallest tiles first; headers may not support all.
    """

    loop_ends: Callable[[K], tuple[P, ...]]
    kernel_class: Callable[[K], str]
    representatives: Callable[[ArchSpec], dict[str, list[K]]]


@dataclass(frozen=True, slots=True)
class HostEmission(Generic[K]):
    """How kernels are built for the CPU.

    Attributes:
        emit: C++ source of a kernel for the CPU's SIMD registers.
        templates: folders of headers that sources include in addition to the shared ones.
        problems: default problem set to measure.
        compile_s: default CPU seconds to compile a kernel, by kind; "" for all other kinds.
    """

    emit: Callable[[K, HostSimd], str]
    templates: tuple[Path, ...]
    problems: str
    compile_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.9})


@dataclass(frozen=True, slots=True)
class KnownHeaders:
    """Facts about the CK Tile headers of this machine.

    Attributes:
        include: include folder.
        interface: detected interface.
        rules: rules for what they cannot build of an operation's kernels.
    """

    include: str
    interface: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class HipEmission(Generic[K]):
    """How kernels are built for AMD GPUs.

    Attributes:
        emit: C++ source of a kernel for a version of CK Tile's headers and an architecture; raises
            `UnsupportedKernelError`.
        templates: folders of headers that sources include in addition to the shared ones.
        problems: default problem set to measure.
        functions: substring of the mangled names of the kernels' GPU functions.
        found: features of headers for these kernels, described, by name.
        rules: what headers cannot build, as rules over kernel columns: `emit` refuses kernels that break one.
        compile_s: as of `HostEmission`, for kernels compiled in units.
    """

    emit: Callable[[K, Headers, ArchSpec], str]
    templates: tuple[Path, ...]
    problems: str
    functions: tuple[str, ...]
    found: Callable[[Headers], Mapping[str, tuple[str, ...]]]
    rules: Callable[[Headers], tuple[Rule, ...]]
    compile_s: Mapping[str, float]

    def known_headers(self) -> KnownHeaders | None:
        """Headers that kernels would be built with; None if there are none."""
        from ckh.bench.compilation.hip_toolchain import known_ck_tile

        headers = known_ck_tile()
        return None if headers is None else KnownHeaders(str(headers.include), headers.interface, self.rules(headers))


@dataclass(frozen=True, slots=True)
class Measured(Generic[P, K]):
    """How kernels of an operation are built, measured and checked.

    Attributes:
        computation: what problems compute.
        host: how kernels are built for the CPU; None: not supported.
        hip: how kernels are built for AMD GPUs; None: not supported.
        problems: problems of a run's settings; raises `UsageError` for a setting that the operation does not have.
        candidate_source: source of kernels for a run's settings; raises the same.
        reasons: reasons why a kernel cannot be built for an architecture or does not apply to a problem; empty if none.
        matrix: cases of a named matrix of `validate kernels`; raises `UsageError` for an unknown name or setting; None:
            there are no matrices.
        trials: how kernels are executed for validation; None: they are not.
    """

    computation: Computation[P]
    host: HostEmission[K] | None
    hip: HipEmission[K] | None
    problems: Callable[[Settings], tuple[P, ...]]
    candidate_source: Callable[[Settings], CandidateSource[P, K]]
    reasons: Callable[[K, ArchSpec, P], list[str]]
    matrix: Callable[[str, MatrixSettings], tuple[Case[P, K], ...]] | None = None
    trials: Callable[[], Trials[P, K]] | None = None


def measured_of(op: AnyOperation) -> Measured[Any, Any]:
    """Measuring protocol of an operation.

    Raises:
        UsageError: ckh builds no kernels of it.
    """
    part = part_of(op, op.measured, Measured)
    if part is None:
        raise UsageError(
            f"ckh builds no kernels of {op.name}", "its times are converted: see ckh convert --help", code="unsupported"
        )
    return part


def computation_of(problem: Problem) -> Computation[Any]:
    """Computation of a problem's operation.

    Raises:
        UsageError: ckh does not compute problems of this operation.
    """
    return measured_of(operation_of(problem.canonical())).computation
