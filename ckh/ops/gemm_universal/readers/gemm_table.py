"""Reader of AMD's tables of GEMM measurements, and of tables whose columns are mapped to theirs.

- `gemm_full_benchmark.py` of the tile engine writes CSV: kernel, problem_idx, M, N, K, latency_ms, tflops, non_zero,
  since 2026 also device, max_rel and verified.
- `data_pipeline.py` and `convert_json_to_parquet.py` of the heuristics write Parquet of 33 columns.
- `master_results.csv` of a coverage sweep has one row per problem: the fastest kernel with a correct result.

Element type and layout come from the kernel's name; where the table states them, they must agree. A row without a time
is left out and counted, unless it is marked as failed; a result that is all zeros, or marked as not verified, is wrong.
Rows of one problem and kernel are repeated measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.data.formats import Formats, MappedTable, Reading, ReadOptions
from ckh.data.readers.cells import (
    TIMES,
    Cells,
    Faults,
    integers,
    numbers,
    parquet_columns,
    time_column,
    times_ms,
    true_cells,
)
from ckh.data.readers.named_table import Table, header_of, open_table, require_columns
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.ops.gemm_universal.kernel import kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.readers.gemm_rows import BAD_TIME, MISMATCH, kernel_of, problem_of
from ckh.ops.table_rows import TableRows, distinct_problems
from ckh.schema import SHORTEST_MS, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.ops.gemm_universal.kernel import GemmKernel

CSV, PARQUET, MASTER = "tile-engine-csv", "gemm-parquet", "master-csv"
_OPTIONAL = ("dtype", "layout", "non_zero", "verified", "is_valid", "arch")

# ckh's column -> AMD's names of it; the first that a table has is used.
_AMDS = {
    "kernel": ("kernel_name", "working_kernel"),
    "m": ("M",),
    "n": ("N",),
    "k": ("K",),
    "latency_ms": ("best_latency_ms",),
    "tflops": ("measured_tflops", "best_tflops"),
}
NOT_RUN = "without a kernel that worked"
# Reasons why a row is not a measurement, in order of precedence.
_FAILURES = (
    (Status.LAUNCH_ERROR, "there is no time"),
    (Status.LAUNCH_ERROR, "the file marks it as invalid"),
    (Status.WRONG_RESULT, "all outputs are zero"),
    (Status.WRONG_RESULT, "the file marks the result as not verified"),
)


@dataclass(frozen=True, slots=True)
class TableForm:
    """The rows of a table: class of problems, parser of kernel names, the sizes that it must have, and kernels' names.

    `complete` returns the kernel of a name, or raises `LeftOut` if the name does not state all of it.
    """

    kind: type[Any]
    parse: Callable[[str], Any]
    sizes: tuple[str, ...] = ("m", "n", "k")
    complete: Callable[..., Any] = kernel_of
    name: Callable[[Any], str] = kernel_name

    @property
    def more_sizes(self) -> tuple[str, ...]:
        """Sizes that a table need not have."""
        return tuple(name for name in self.kind.size_columns if name not in self.sizes)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that a table may have."""
        return "kernel", *self.sizes, *TIMES, *self.more_sizes, *_OPTIONAL

    @property
    def formats(self) -> Formats:
        """The formats of an operation whose measurements are read from such tables only."""
        return Formats(mapped=MappedTable(self.columns, partial(read_table, form=self)))


GEMMS = TableForm(GemmProblem, parse_kernel_name)


def sniff_csv(head: bytes) -> bool:
    """True if the first line names the columns of the tile engine's CSV."""
    return {"kernel", "M", "N", "K", "latency_ms"} <= (names := header_of(head)) and "C" not in names


def sniff_master(head: bytes) -> bool:
    """True if the first line after comments names the columns of `master_results.csv`."""
    return {"working_kernel", "M", "N", "K", "best_latency_ms"} <= header_of(head)


def sniff_parquet(head: bytes) -> bool:
    """True if the columns are those of AMD's Parquet."""
    return {"kernel_name", "m", "n", "k", "latency_ms", "measured_tflops"} <= parquet_columns(head)


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a file of one of AMD's formats."""
    return read_table(open_table(path), options)


def read_table(table: Table, options: ReadOptions, form: TableForm = GEMMS) -> Reading:
    """Read a table with a form's columns, named as by ckh or AMD."""
    table = table.renamed(
        {
            ours: next(name for name in names if table.has(name))
            for ours, names in _AMDS.items()
            if not table.has(ours) and any(map(table.has, names))
        }
    )
    require_columns(table, ("kernel", *form.sizes), TIMES)
    arch = load_arch(table.arch(options.arch))
    many = [name for name in TIMES if table.has(name)]
    few = [name for name in form.columns if table.has(name) and name not in {*many, "arch"}]
    rows = _TableRows(form, arch, options, f"{table.file_name}:{table.sha256[:12]}")
    for cells in table.blocks(few, many):
        rows.add(cells)
    return rows.reading(table, _format_of(table))


def _format_of(table: Table) -> str:
    own = table.columns.values()
    return MASTER if "working_kernel" in own else PARQUET if "measured_tflops" in own else CSV


class _TableRows(TableRows):
    """The valid rows of a table, and counts of the others."""

    def __init__(self, form: TableForm, arch: ArchSpec, options: ReadOptions, run_id: str) -> None:
        super().__init__(options)
        self.form, self.arch, self.run_id = form, arch, run_id

    def add(self, cells: Cells) -> None:
        """Validate and add the rows that name a kernel."""
        super().add(self._that_ran(cells))

    def parsed(self, text: str) -> tuple[str, GemmKernel]:
        """Return a kernel with its complete name."""
        kernel = self.form.complete(text, {}, self.arch, self.form.parse)
        return self.form.name(kernel), kernel

    def notes(self) -> list[str]:
        """Warnings about the rows."""
        return self.differing_tflops()

    def _that_ran(self, cells: Cells) -> Cells:
        """Return the rows that name a kernel; a problem of `master_results.csv` without one is not a measurement."""
        import numpy as np

        column = cells.column("kernel")
        has_name = np.array([bool(text) for text in column.texts] or [True])[column.codes]
        if has_name.all() or not has_name.any():
            return cells
        kept = np.flatnonzero(has_name)
        self.account.leave_out(NOT_RUN, count=len(cells) - len(kept))
        return Cells(cells.table.take(kept), cells.lines[kept], cells.wrong)

    def judged(self, cells: Cells, faults: Faults) -> pa.Table:
        """Return the table of the valid rows."""
        import numpy as np

        kernels, kernel_of_row = self.kernels_of(cells, faults)
        own = [kernel for _, kernel in kernels]
        problems, problem_of_row = _problems(own, kernel_of_row, cells, faults, self.form)
        timed = time_column(cells)
        given = numbers(cells, timed, faults, may_be_empty=True)
        flops = np.array([float(problem.flops) for problem in problems] or [0.0])[problem_of_row]
        latency_ms = times_ms(timed, given, flops)
        too_short = (latency_ms < SHORTEST_MS) & (latency_ms != 0)
        faults.mark(too_short | (given < 0), BAD_TIME, lambda row: f"{timed} is {given[row]:g}")
        non_zero = integers(cells, "non_zero", faults, -1).values
        if cells.has("tflops") and timed != "tflops":
            rate = numbers(cells, "tflops", faults, may_be_empty=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                ours = flops / latency_ms / 1e9
            stated = faults.good & (rate > 0)
            self.compare_tflops(cells.lines[stated], rate[stated], ours[stated])
        failed = (~(latency_ms > 0), ~_says(cells, "is_valid"), non_zero == 0, ~_says(cells, "verified"))
        good = np.flatnonzero(faults.good)
        status, message = _statuses([mask[good] for mask in failed])
        extra: dict[str, Any] = {"message": message}
        if cells.has("non_zero"):
            extra["non_zero"] = _with_nulls(non_zero[good])
        ran = ~(failed[0] | failed[1])[good]
        hardware = self.arch.hardware.to_dict()
        if self.options.num_cus is not None:
            hardware |= {"num_cus": self.options.num_cus}
        names = [name for name, _ in kernels]
        return build_table(
            Pairs(
                problems,
                problem_of_row[good],
                own,
                names,
                kernel_of_row[good],
                self.form.kind.op_type,
            ),
            Results(status, np.where(ran, latency_ms[good], np.nan), extra),
            Origin(self.arch.name, None, hardware, self.run_id),
        )


def _problems(
    kernels: list[GemmKernel], kernel_of_row: NDArray[np.int64], cells: Cells, faults: Faults, form: TableForm
) -> tuple[list[GemmProblem], NDArray[np.int64]]:
    """Return the distinct problems of the valid rows, each validated once, and each row's index among them."""
    import numpy as np

    sizes = {name: integers(cells, name, faults) for name in form.sizes}
    sizes |= {name: integers(cells, name, faults, form.kind.field_defaults[name]) for name in form.more_sizes}
    _check_stated(kernels, kernel_of_row, cells, faults, form.kind.text_columns)
    texts = form.kind.text_columns
    kinds = [tuple(str(getattr(kernel, name)) for name in texts) for kernel in kernels]
    distinct = list(dict.fromkeys(kinds))
    kind_of_row = np.array([distinct.index(kind) for kind in kinds] or [0])[kernel_of_row]

    def make(kind: tuple[str, ...], given: list[int]) -> GemmProblem:
        stated = dict(zip(texts, kind, strict=True))
        problem: GemmProblem = problem_of(dict(zip(sizes, given, strict=True)), kind=form.kind, **stated)
        return problem

    return distinct_problems(faults, distinct, kind_of_row, tuple(sizes.values()), make)


def _check_stated(
    kernels: list[GemmKernel],
    kernel_of_row: NDArray[np.int64],
    cells: Cells,
    faults: Faults,
    texts: tuple[str, ...],
) -> None:
    """Mark the rows whose stated element type or layout differs from their kernel's."""
    import numpy as np

    for name in ("dtype", "layout"):
        if name not in texts or not cells.has(name) or not kernels:
            continue
        column = cells.column(name)
        own = [str(getattr(kernel, name)) for kernel in kernels]
        stated = np.array(column.texts)[column.codes]
        differs = (stated != np.array(own)[kernel_of_row]) & (stated != "")

        def detail(row: int, name: str = name, stated: Any = stated, own: list[str] = own) -> str:
            return f"{name} is {stated[row]}, the kernel's name says {own[kernel_of_row[row]]}"

        faults.mark(differs, MISMATCH, detail)


def _says(cells: Cells, name: str) -> NDArray[np.bool_]:
    """Return the rows whose value in a column is true or missing."""
    import numpy as np

    return true_cells(cells.column(name)) if cells.has(name) else np.ones(len(cells), dtype=bool)


def _statuses(failed: list[NDArray[np.bool_]]) -> tuple[pa.DictionaryArray, pa.Array]:
    """Return the status and message of each row, given the rows of each of `_FAILURES`."""
    import numpy as np
    import pyarrow as pa

    numbers_of = np.select(failed, range(1, len(_FAILURES) + 1), 0).astype(np.int32)
    kinds = list(dict.fromkeys([Status.OK, *(status for status, _ in _FAILURES)]))
    of_number = np.array([0, *(kinds.index(status) for status, _ in _FAILURES)], dtype=np.int32)
    messages = pa.array([None, *(text for _, text in _FAILURES)])
    status = pa.DictionaryArray.from_arrays(of_number[numbers_of], [str(kind) for kind in kinds])
    return status, messages.take(pa.array(numbers_of))


def _with_nulls(non_zero: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(non_zero, mask=non_zero < 0)
