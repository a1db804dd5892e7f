"""How an operation is measured: its computation, and how its kernels are found and built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import UsageError
from ckh.ops import operation_of, part_of
from ckh.ops.base import Problem

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.codegen.host_source import HostSimd
    from ckh.bench.planning.candidates import CandidateSource
    from ckh.data.settings import Settings
    from ckh.kernels.judging import Rule
    from ckh.ops.base import AnyOperation

Shape = tuple[int, ...]
P = TypeVar("P", bound=Problem)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Split:
    """How a kernel splits the sum over K.

    Attributes:
        parts: what is added to the result by atomic operations, in whatever order; 1: it is stored, not added.
        in_fp32: whether the parts are added in float32 and their sum is rounded once, by a second stage; else every
            part and every sum is rounded to the result's dtype.
    """

    parts: int = 1
    in_fp32: bool = False

    @property
    def repeats(self) -> bool:
        """True if every run of the kernel gives the same bits, i.e. has a fixed order of additions."""
        return self.parts == 1


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """How an array of a user holds an operand or the result.

    Attributes:
        name: what it is called, e.g. "x".
        place: of the kernel's arguments: 0 is a, 1 is b, 2 is the result.
        shape: the array's shape.
        axes: words for its axes, e.g. "N, H, W, G, C/G".
        other_shape: another shape with the same elements in the same order; None: there is none.
        is_transposed: whether it lies in memory as its transpose.
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
        operand_shapes: of a problem's operands a and b and of its result.
        compute: the result, in the precision of operands of these shapes.
        reduction_length: the most products that one element of the result sums.
        result_dtypes: the dtypes that operands can have, each with that of the result.
        c_problem: the structure that kernels take.
        split: how the kernel of a name splits a problem's sums.
        arrays: how users' arrays hold the operands, in the order in which they are given, and the result, which is the
            last.
    """

    operand_shapes: Callable[[P], tuple[Shape, Shape, Shape]]
    compute: Callable[[P, NDArray[Any], NDArray[Any]], NDArray[Any]]
    reduction_length: Callable[[P], int]
    result_dtypes: Mapping[str, str]
    c_problem: Callable[[P], ctypes.Structure]
    split: Callable[[P, str], Split]
    arrays: Callable[[P], tuple[ArrayForm, ArrayForm, ArrayForm]] | None = None

    def array_forms(self, problem: P) -> tuple[ArrayForm, ArrayForm, ArrayForm]:
        """How users' arrays hold a problem's operands and its result; by default as kernels do."""
        if self.arrays is not None:
            return self.arrays(problem)
        a, b, out = self.operand_shapes(problem)
        return ArrayForm("a", 0, a, ""), ArrayForm("b", 1, b, ""), ArrayForm("out", 2, out, "")

    def result_dtype(self, problem: P) -> str:
        """Element type of a problem's result.

        Raises:
            UsageError: kernels of the problem's dtype cannot be measured.
        """
        if problem.dtype not in self.result_dtypes:
            raise UsageError(
                f"kernels of {problem.dtype} cannot be measured",
                "one of " + ", ".join(self.result_dtypes),
                code="unknown-dtype",
            )
        return self.result_dtypes[problem.dtype]


@dataclass(frozen=True, slots=True)
class Case(Generic[P, K]):
    """A kernel of `validate kernels`.

    Attributes:
        label: what it shows, in words.
        kernel: the kernel.
        problem: what it is tried on.
        of: what distinguishes it from cases of the same label, such as its direction.
    """

    label: str
    kernel: K
    problem: P
    of: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """Settings of a matrix of kernels; None: all directions and numbers of dimensions."""

    arch: ArchSpec
    dtype: str
    variant: str | None = None
    ndim: int | None = None


@dataclass(frozen=True, slots=True)
class Trials(Generic[P, K]):
    """How kernels of an operation are executed for validation.

    Attributes:
        loop_ends: small problems that take a kernel through every end of its loops, of which it may refuse some.
        kernel_class: what a kernel has in common with those that are right or wrong as it is, in words.
        representatives: the kernels of each class for an architecture, smallest tiles first; headers may lack some.
    """

    loop_ends: Callable[[K], tuple[P, ...]]
    kernel_class: Callable[[K], str]
    representatives: Callable[[ArchSpec], dict[str, list[K]]]


@dataclass(frozen=True, slots=True)
class HostEmission(Generic[K]):
    """How kernels are built for the CPU.

    Attributes:
        emit: the C++ source of a kernel for the CPU's vector registers.
        templates: the folder of headers that sources include beside the shared ones.
        problems: the problem set that is measured by default.
        compile_s: CPU seconds of a compiler for a kernel by its kind, where none was seen; "" of the others.
    """

    emit: Callable[[K, HostSimd], str]
    templates: Path
    problems: str
    compile_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.9})


@dataclass(frozen=True, slots=True)
class KnownHeaders:
    """The CK Tile headers of this machine, as far as answers need them.

    Attributes:
        include: their folder.
        interface: which one they have.
        rules: what they lack for an operation's kernels.
    """

    include: str
    interface: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class HipEmission(Generic[K]):
    """How kernels are built for AMD GPUs.

    Attributes:
        emit: the C++ source of a kernel for a version of CK Tile's headers and an architecture; raises
            `UnsupportedKernelError`.
        templates: the folder of headers that sources include beside the shared ones.
        problems: the problem set that is measured by default.
        functions: what the mangled names of the kernels' GPU functions contain.
        found: what headers have for the kernels, in words, by what it is.
        rules: what headers lack for kernels, as rules over their columns: `emit` refuses what breaks one.
        compile_s: as of `HostEmission`, for kernels that are compiled several together.
    """

    emit: Callable[[K, Headers, ArchSpec], str]
    templates: Path
    problems: str
    functions: tuple[str, ...]
    found: Callable[[Headers], Mapping[str, tuple[str, ...]]]
    rules: Callable[[Headers], tuple[Rule, ...]]
    compile_s: Mapping[str, float]

    def known_headers(self) -> KnownHeaders | None:
        """The headers that kernels would be built with; None without headers."""
        from ckh.bench.compilation.hip_toolchain import known_ck_tile

        headers = known_ck_tile()
        return None if headers is None else KnownHeaders(str(headers.include), headers.interface, self.rules(headers))


@dataclass(frozen=True, slots=True)
class Measured(Generic[P, K]):
    """How kernels of an operation are built, measured and checked.

    Attributes:
        computation: what problems compute.
        host: how kernels are built for the CPU; None: they are not.
        hip: how kernels are built for AMD GPUs; None: they are not.
        problems: the problems of a run's settings; raises `UsageError` for a setting that the operation does not have.
        candidate_source: where the kernels of a run's settings come from; raises the same.
        reasons: why a kernel cannot be built for an architecture or does not apply to a problem; empty if it does.
        matrix: the cases of a matrix of `validate kernels`, by its name; raises `UsageError` for one, or a setting,
            that the operation does not have; None: there are no matrices.
        trials: how kernels are executed to be believed; None: nobody knows.
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
    """The measuring part of an operation.

    Raises:
        UsageError: ckh builds none.
    """
    found = part_of(op, op.measured, Measured)
    if found is None:
        raise UsageError(
            f"ckh builds no kernels of {op.name}", "its times are converted: see ckh convert --help", code="unsupported"
        )
    return found


def computation_of(problem: Problem) -> Computation[Any]:
    """Computation of a problem's operation.

    Raises:
        UsageError: ckh does not compute problems of its operation.
    """
    return measured_of(operation_of(problem.canonical())).computation
