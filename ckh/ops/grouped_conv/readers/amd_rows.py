"""Validation of the rows of AMD's CSV files, each distinct kernel and problem once, and the table of the valid rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.data.numbering import combined_numbers, first_rows
from ckh.data.readers.cells import Integers, integers, numbers, time_column, times_ms, true_cells
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.errors import CkhError, UsageError
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.features import GROUPED_CONV
from ckh.ops.grouped_conv.kernels.names import amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem
from ckh.schema import SHORTEST_MS, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.data.readers.cells import Cells, Faults, TextColumn
    from ckh.ops.grouped_conv.kernel import ConvKernel

BAD_KERNEL = "with a kernel name that does not parse"
BAD_SIZE = "with a size that is zero or negative"
BAD_GROUPS = "with channels not divisible by G"
BAD_PROBLEM = "with an impossible problem"
NOT_VALID = "marked as invalid in the file"
BAD_TIME = "with a time that is zero, negative or impossibly short"

# Values for a plain 2D convolution: columns that AMD's older files lack, and that may be empty.
_NOT_COUNTED = -1  # outputs were not counted
_PLAIN = {"Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1, "dilation_h": 1, "dilation_w": 1}

# Kernels that differ from their short names: architecture, pipeline -> pipeline that ran, and the evidence.
_COMPV5 = (
    "of compv5 are read as repeated measurements of compv3: with the four waves and the one wave group of AMD's tiles "
    "compv5 computes nothing, and where AMD measured both, their times differ by 0.8 % in the median"
)
_RAN_INSTEAD = {("gfx950", "compv5"): ("compv3", _COMPV5)}


@dataclass(frozen=True, slots=True, eq=False)
class _Kernels:
    """The distinct kernels of some rows and each row's kernel.

    `others` has, by index of the kernel, the reason why it differs from its name.
    """

    kernels: list[ConvKernel]
    names: list[str]
    of_row: NDArray[np.int64]
    others: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Named:
    """The kernel that a file's name denotes, its name in ckh, and why it differs from the file's name, if it does."""

    kernel: ConvKernel
    name: str
    other: str


class KernelNames:
    """The kernels that names in a file of an architecture denote, each name parsed once."""

    def __init__(self, arch: ArchSpec) -> None:
        self.arch = arch
        self._known: dict[str, _Named | str] = {}

    def of(self, text: str) -> _Named | str:
        """Return the kernel of a name, or the fault of the name."""
        if text not in self._known:
            try:
                self._known[text] = self._named(text)
            except CkhError as error:
                self._known[text] = error.message
        return self._known[text]

    def _named(self, text: str) -> _Named | str:
        kernel, other = parse_kernel_name(text), ""
        if kernel.pipeline not in self.arch.common.pipeline_lds:
            return f"unknown pipeline {kernel.pipeline!r} in {text!r}"
        if not kernel.is_complete:
            kernel, other = _ran(kernel, self.arch)
        return _Named(kernel, kernel_name(kernel) if kernel.is_complete else amd_short_name(kernel), other)


def judged_rows(cells: Cells, faults: Faults, names: KernelNames, run_id: str) -> tuple[pa.Table, Counter[str]]:
    """Validate every row, recording faults; return the table of the valid rows, and counts of reinterpreted kernels."""
    import numpy as np
    import pyarrow as pa

    arch = names.arch
    kernels = _kernels(cells.column("kernel"), faults, names)
    sizes = _sizes(cells, faults)
    if not cells.has("Di"):
        is_3d = np.array([kernel.ndim_spatial > 2 for kernel in kernels.kernels] or [False])  # noqa: PLR2004
        faults.mark(is_3d[kernels.of_row], BAD_PROBLEM, lambda _row: "a 3D kernel, but there is no column Di")
    timed = time_column(cells)
    times = numbers(cells, timed, faults, may_be_empty=False)
    if cells.has("tflops") and timed != "tflops":
        numbers(cells, "tflops", faults, may_be_empty=True)
    shortest = 0.0 if timed == "tflops" else SHORTEST_MS
    faults.mark((times < shortest) | (times == 0), BAD_TIME, lambda row: f"{timed} is {times[row]:g}")
    if cells.has("is_valid"):
        is_valid = cells.column("is_valid")
        faults.mark(~true_cells(is_valid), NOT_VALID, lambda row: f"is_valid is {is_valid.text(row)!r}")
    non_zero = integers(cells, "non_zero", faults, _NOT_COUNTED).values

    problems, problem_of_row = _problems(kernels, sizes, faults)
    good = np.flatnonzero(faults.good)
    flops = np.array([float(problem.flops) for problem in problems] or [0.0])[problem_of_row[good]]
    latency_ms = times_ms(timed, times[good], flops)
    counted, right = non_zero[good] != _NOT_COUNTED, non_zero[good] != 0
    extra: dict[str, Any] = {}
    if cells.has("non_zero"):
        extra["non_zero"] = pa.array(non_zero[good], mask=~counted)
    extra["message"] = _messages(right)
    table = build_table(
        Pairs(
            problems, problem_of_row[good], kernels.kernels, kernels.names, kernels.of_row[good], GROUPED_CONV.op_type
        ),
        Results(status_of(right, Status.WRONG_RESULT), latency_ms, extra),
        Origin(arch.name, None, arch.hardware.to_dict(), run_id),
    )
    counts = np.bincount(kernels.of_row[good], minlength=len(kernels.kernels))
    others = Counter(dict.fromkeys(kernels.others.values(), 0))
    for number, words in kernels.others.items():
        others[words] += int(counts[number])
    return table, +others


def _ran(kernel: ConvKernel, arch: ArchSpec) -> tuple[ConvKernel, str]:
    """Return the kernel that ran under a short name, and the reason why it differs from the name, if it does."""
    pipeline, words = _RAN_INSTEAD.get((arch.name, kernel.pipeline), (kernel.pipeline, ""))
    # AMD's older names omit a buffer that the pipeline requires.
    has_dsb = kernel.double_smem_buffer or pipeline in DOUBLE_SMEM_PIPELINES
    return replace(kernel, pipeline=pipeline, double_smem_buffer=has_dsb), words


def _kernels(column: TextColumn, faults: Faults, names: KernelNames) -> _Kernels:
    import numpy as np

    result: list[_Named] = []
    complaints: dict[int, str] = {}
    number = np.zeros(len(column.texts), dtype=np.int64)
    for i, text in enumerate(column.texts):
        item = names.of(text)
        if isinstance(item, str):
            complaints[i] = item
        else:
            number[i] = len(result)
            result.append(item)
    if complaints:
        bad = np.isin(column.codes, list(complaints))
        faults.mark(bad, BAD_KERNEL, lambda row: complaints[int(column.codes[row])])
    others = {i: named.other for i, named in enumerate(result) if named.other}
    return _Kernels([named.kernel for named in result], [item.name for item in result], number[column.codes], others)


def _sizes(cells: Cells, faults: Faults) -> dict[str, Integers]:
    """Return the sizes by column; missing columns are as in a plain 2D convolution."""
    return {name: integers(cells, name, faults, _PLAIN.get(name)) for name in CONV_COLUMNS}


def _problems(
    kernels: _Kernels, sizes: dict[str, Integers], faults: Faults
) -> tuple[list[ConvProblem], NDArray[np.int64]]:
    """Return the distinct problems of the valid rows, each validated once, and each row's index among them."""
    import numpy as np

    heads = [(kernel.variant, kernel.dtype, kernel.ndim_spatial, kernel.layout or "") for kernel in kernels.kernels]
    of_row = np.zeros(len(kernels.of_row), dtype=np.int64)
    good = np.flatnonzero(faults.good)
    if not len(good):
        return [], of_row
    columns = [Integers(np.arange(len(heads)), _numbers_of(heads)[kernels.of_row]), *sizes.values()]
    numbers = combined_numbers((column.codes[good], len(column.distinct)) for column in columns)
    problems: list[ConvProblem] = []
    complaints: dict[int, tuple[str, str]] = {}
    first = good[first_rows(numbers)]
    number = np.zeros(len(first), dtype=np.int64)
    of_each = zip(*(column.at(first) for column in sizes.values()), strict=True)
    for i, (kernel, numbers_of_one) in enumerate(zip(kernels.of_row[first].tolist(), of_each, strict=True)):
        values = dict(zip(sizes, numbers_of_one, strict=True))
        try:
            problem = _problem(heads[kernel], values)
        except UsageError as error:
            complaints[i] = (_reason(values), error.message)
            continue
        number[i] = len(problems)
        problems.append(problem)
    of_row[good] = number[numbers]
    if complaints:
        group_of_row = np.full(len(of_row), -1, dtype=np.int64)
        group_of_row[good] = numbers
        for reason in dict.fromkeys(reason for reason, _ in complaints.values()):
            groups = [i for i, (why, _) in complaints.items() if why == reason]
            faults.mark(np.isin(group_of_row, groups), reason, lambda row: complaints[int(group_of_row[row])][1])
    return problems, of_row


def _problem(head: tuple[Any, str, int, str], sizes: dict[str, int]) -> ConvProblem:
    variant, dtype, ndim, layout = head
    fields: dict[str, Any] = {CONV_COLUMNS[name]: size for name, size in sizes.items()}
    return ConvProblem(variant=variant, dtype=dtype, ndim=ndim, layout=layout, **fields)


def _reason(sizes: dict[str, int]) -> str:
    if any(size < (0 if name.startswith("pad") else 1) for name, size in sizes.items()):
        return BAD_SIZE
    return BAD_GROUPS if sizes["C"] % sizes["G"] or sizes["K"] % sizes["G"] else BAD_PROBLEM


def _numbers_of(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return the index of each value among the distinct ones."""
    import numpy as np

    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values] or [0], dtype=np.int64)


def _messages(right: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    texts = pa.array([None, "all outputs are zero"])
    return texts.take(pa.array((~right).astype("int8")))
