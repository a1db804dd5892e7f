"""The record of `matvec` and all its parts."""

from __future__ import annotations

import ctypes
import re
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, UsageError
from ckh.features.engine import Feature, FeatureEngine
from ckh.kernels.judging import RuleBook, Rules
from ckh.kernels.pools import Pools
from ckh.kernels.table import KernelTable, column_of
from ckh.ops.base import Kernels, Operation, Problems, Training
from ckh.requested import Requested, SizeOption
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.computation import Measured
    from ckh.bench.planning.candidates import PoolSource
    from ckh.data.settings import Settings
    from ckh.export.groups import Exported, Group
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Encoding
    from ckh.search.product import Product, Searched

SIZES = ("rows", "cols")
PARAMETERS = ("block", "unroll")


@dataclass(frozen=True, slots=True, order=True)
class MatvecProblem:
    """y (rows) = A (rows x cols) x (cols)."""

    rows: int
    cols: int
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise UsageError(f"{self.rows} x {self.cols} is not a matrix")

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.cols

    @property
    def bytes(self) -> int:
        return 4 * (self.rows * self.cols + self.rows + self.cols)

    def canonical(self) -> str:
        return f"matvec_{self.dtype}_{self.rows}x{self.cols}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, order=True)
class MatvecKernel:
    """Number of rows and columns processed at a time."""

    dtype: str
    block: int
    unroll: int


def _name(kernel: MatvecKernel) -> str:
    return f"matvec_{kernel.dtype}_block{kernel.block}_unroll{kernel.unroll}"


def _parsed(form: str, text: str) -> dict[str, Any]:
    if (match := re.fullmatch(form, text)) is None:
        raise DataError(f"not of matvec: {text!r}")
    return {name: value if name == "dtype" else int(value) for name, value in match.groupdict().items()}


def _parse_problem(text: str) -> MatvecProblem:
    return MatvecProblem(**_parsed(r"matvec_(?P<dtype>[a-z0-9]+)_(?P<rows>\d{1,9})x(?P<cols>\d{1,9})", text))


def _parse_kernel(text: str) -> MatvecKernel:
    return MatvecKernel(
        **_parsed(r"matvec_(?P<dtype>[a-z0-9]+)_block(?P<block>\d{1,3})_unroll(?P<unroll>\d{1,3})", text)
    )


@RuleBook().rule
def _takes_whole_steps(problem: MatvecProblem, unroll: int) -> Iterator[str]:
    if problem.cols % unroll:
        yield f"{problem.cols} columns are not whole steps of {unroll}"


RULES: Rules[MatvecKernel] = Rules((), (), (_takes_whole_steps,), lambda _: ())


def _table(_arch: ArchSpec, dtype: str) -> KernelTable[MatvecKernel]:
    return KernelTable.product(MatvecKernel, [(("block",), [(1,), (4,)]), (("unroll",), [(1,), (8,)])], dtype=dtype)


POOLS = Pools(MatvecKernel, RULES, _table, lambda kernel: (kernel.dtype,), _parse_kernel, _name)


def _problem_columns(problems: Sequence[MatvecProblem]) -> dict[str, list[Any]]:
    return {name: [getattr(problem, name) for problem in problems] for name in ("dtype", *SIZES)}


def _kernel_columns(kernels: Sequence[MatvecKernel], _encoding: Encoding) -> dict[str, list[Any]]:
    return {name: column_of(kernels, name).tolist() for name in PARAMETERS}


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp32", **_account: Any
) -> tuple[MatvecProblem, ...]:
    if source != "squares" or variant is not None:
        raise UsageError(f"matvec has no problem set {source!r} with directions", "there is squares")
    return tuple(MatvecProblem(size, size, dtype or default_dtype) for size in range(32, 256, 8))


ENGINE = FeatureEngine(
    op_type="matvec",
    features=(
        Feature("log2_rows", "", lambda c: np.log2(c["rows"])),
        Feature("log2_cols", "", lambda c: np.log2(c["cols"])),
        Feature("unroll", "", lambda c: c["unroll"]),
        Feature("blocks", "", lambda c: np.ceil(c["rows"] / c["block"])),
    ),
    categorical=(),
    derived={},
    defaults={},
    kernel_columns=frozenset(PARAMETERS),
)


def _requested() -> Requested[MatvecProblem]:
    def problem(given: Mapping[str, Any], _variant: str, dtype: str) -> MatvecProblem:
        return MatvecProblem(**given, dtype=dtype)

    options = SizeOption("rows", "rows of a matrix"), SizeOption("cols", "columns of a matrix")
    return Requested(options, problem, own=("rows",))


class _Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in SIZES]


def _candidate_source(settings: Settings) -> PoolSource[MatvecProblem, MatvecKernel]:
    from ckh.bench.planning.candidates import PoolSource, wanted_by

    if option := settings.first_given("rule_set", "split_k", "registry"):
        raise UsageError(f"matvec has no {option}")
    return PoolSource(POOLS, lambda item: (item.dtype,), wanted_by(settings.filter, MatvecKernel))


def _measured() -> Measured[MatvecProblem, MatvecKernel]:
    from ckh.bench.computation import Computation, HostEmission, Measured, Operand, Role, Split

    def emit(kernel: MatvecKernel, _simd: object) -> str:
        constants = f"constexpr int block = {kernel.block}, unroll = {kernel.unroll};"
        return f'namespace kernel {{ {constants} constexpr char name[] = "{_name(kernel)}"; }}\n#include "matvec.hpp"\n'

    return Measured(
        computation=Computation(
            operands=lambda p: (
                Operand("a", (p.rows, p.cols), p.dtype),
                Operand("x", (p.cols,), p.dtype),
                Operand("y", (p.rows,), p.dtype, Role.OUTPUT),
            ),
            compute=lambda _, a, x: a @ x,
            reduction_length=attrgetter("cols"),
            dtypes=("fp32",),
            c_problem=lambda p: _Problem(p.rows, p.cols),
            split=lambda *_: Split(),
        ),
        host=HostEmission(emit, (Path(__file__).parent,), "squares"),
        hip=None,
        problems=lambda settings: _load_problems(settings.problems, None, settings.dtype),
        candidate_source=_candidate_source,
        reasons=RULES.check,
    )


def _searched() -> Searched[MatvecProblem]:
    from ckh.search.product import KernelParameter, Options, Product, Searched

    def product_of(problem: MatvecProblem, arch: ArchSpec) -> Product:
        axes = [(("block",), [(1,), (2,), (4,), (8,)]), (("unroll",), [(1,)])]
        bases = KernelTable.product(MatvecKernel, axes, dtype=problem.dtype)
        options = Options(("unroll",), tuple((unroll,) for unroll in (1, 2, 4, 8, 16)))
        return Product(
            bases, options, RULES, (), arch, [KernelParameter(name, attrgetter(name)) for name in PARAMETERS]
        )

    return Searched(product_of)


def _exported() -> Exported:
    from ckh.archs import load_arch
    from ckh.export.groups import DTYPE, Exported, ProblemKind, element_types, ruled_group

    columns = {name: name for name in SIZES}
    kind = ProblemKind(
        "matvec", 77, "a matrix and a vector.", (DTYPE,), columns, MatvecProblem, {"rows": 64, "cols": 64}
    )

    def groups(model: Model) -> Iterator[Group]:
        for dtype in element_types(model):
            arch = load_arch(model.spec.arch)
            yield ruled_group(kind, MatvecProblem(1, 1, dtype), POOLS.of(arch, dtype), RULES.problem, arch)

    return Exported(kind, groups)


OPERATION = Operation(
    name="matvec",
    summary="a matrix times a vector",
    prefix="matvec_",
    problems=Problems(
        identity=("dtype", *SIZES),
        sizes=SIZES,
        parse=_parse_problem,
        of_row=lambda row: MatvecProblem(int(row["rows"]), int(row["cols"]), row["dtype"]),
        columns=_problem_columns,
        features=_problem_columns,
        place=lambda problem: [float(np.log2(getattr(problem, name))) for name in SIZES],
        split_by=SIZES,
        load=_load_problems,
        set_names=lambda: ("squares",),
        requested=_requested,
    ),
    kernels=Kernels(
        type=MatvecKernel,
        parse=_parse_kernel,
        name=_name,
        columns=_kernel_columns,
        features=_kernel_columns,
        mismatch=lambda kernel, problem: "" if kernel.dtype == problem.dtype else "another dtype",
        candidates=lambda problem, arch, model: POOLS.candidates(problem, arch, problem.dtype, model=model),
        key_of=lambda problem: (problem.dtype, problem.cols % 8),
        slice_column="block",
        searched=_searched,
    ),
    training=Training(
        columns=dataset_columns(
            (Column("dtype", "string", "", "element type"),),
            tuple(Column(name, "int64", "", f"problem size {name}") for name in SIZES),
            tuple(Column(name, "int64", "", f"kernel parameter {name}") for name in PARAMETERS),
        ),
        model_per=("dtype",),
        engine=ENGINE,
        input_columns=(*SIZES, *PARAMETERS),
    ),
    measured=_measured,
    exported=_exported,
)
