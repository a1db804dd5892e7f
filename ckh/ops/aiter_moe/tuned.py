"""AITER's tuned tables of mixtures of experts (tuned_fmoe.csv).

A row is the winner of one tuning: the kernels of both products, and the time of each if stated. Rows of other
libraries, or of unsupported kinds, are skipped and counted; predictions of ckh keep their bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.cells import stated_time
from ckh.errors import DataError
from ckh.files.account import LeftOut
from ckh.files.outputs import FileKind, head_of
from ckh.ops.aiter.tables import (
    PREDICTED,
    WRONG,
    TableRow,
    Won,
    arch_of,
    fastest,
    is_refused,
    rates,
    read_csv,
    sniff_csv,
    table_text,
    timed_rows,
    write_lines,
)
from ckh.ops.aiter_moe.kernel import joint, kind_of, known_name, moe_pool, newer_name, parse_choice, parts
from ckh.ops.aiter_moe.operation import KEY, key_cells, problem_of
from ckh.ops.aiter_moe.problem import BOTH, OP_TYPE, STAGE1, STAGE2, AiterMoe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.formats import MeasuredRows

NAME = "aiter-moe-csv"
# Reasons why rows are skipped.
NOT_OF_CK = "of kernels that are not of Composable Kernel, or of one kernel for both products"
UNLISTED = "of kernels that are not in ckh's lists"
OTHER_KIND = "of a kind that ckh has no kernels for"
BAD_TIME = "with a time that is impossible"

MOST_WRONG = 0.5  # share of elements, by which AITER's tuner refuses a kernel
COLUMNS = (
    *KEY,
    *("block_m", "ksplit", "us1", "kernelName1", "err1", "us2", "kernelName2", "err2", "us", "run_1stage"),
    *("tflops", "bw", "_tag"),
)
_SIZES = ("cu_num", "token", "model_dim", "inter_dim", "expert")
_REQUIRED = (*_SIZES, "kernelName1", "kernelName2", "us")
_OF_PROFILE = (*_SIZES[1:], "stage", "kernelName", "us")
_PRODUCTS = ((STAGE1, "kernelName1", "us1"), (STAGE2, "kernelName2", "us2"))  # stage, kernel and time


@dataclass(frozen=True, slots=True)
class TunedMixture(TableRow):
    """A row of a tuned table; its kernel is named as in `MoeChoice`."""

    times_us: tuple[float | None, float | None] = (None, None)  # of each product, if known

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of `KEY`, by which AITER looks a row up."""
        return tuple(key_cells(self.arch, self.problem).values())

    def cells(self) -> dict[str, Any]:
        """The row by column."""
        problem, (first, second) = self.problem, parts(self.kernel)
        us1, us2 = ("" if time is None else f"{time:.10g}" for time in self.times_us)
        return {
            **key_cells(self.arch, problem),
            "block_m": first.block_m,
            "ksplit": 0,
            "us1": us1,
            "kernelName1": newer_name(first.name),
            "err1": "",
            "us2": us2,
            "kernelName2": newer_name(second.name),
            "err2": "",
            "us": f"{self.time_us:.10g}",
            "run_1stage": 0,
            **rates(problem, None if self.is_predicted else self.time_us),
            "_tag": "",
            PREDICTED: 1,
        }


def mixture_table(lines: Sequence[TunedMixture]) -> str:
    """Return the text of a tuned table of mixtures."""
    return table_text(lines, COLUMNS, lambda row: {choice.name for choice in moe_pool(row.arch, *kind_of(row.problem))})


def _write(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a dataset's rows as a tuned table: the best choices for both products, or predictions read back."""
    lines = dataset_lines(rows)
    omitted = len(rows) - len(lines)
    return write_lines(path, mixture_table(lines), omitted, "slower kernels, single products and failures")


def dataset_lines(rows: MeasuredRows) -> list[TunedMixture]:
    """Return the best choices for both products in order of the rows, with the time of each, and predictions."""
    from ckh.ops.aiter_moe.operation import OPERATION

    both: list[TunedMixture] = []
    single: dict[tuple[str, AiterMoe, str], float] = {}
    for arch, problem, kernel, time_us, is_predicted in timed_rows(rows, OPERATION):
        if problem.stage == BOTH:
            both.append(TunedMixture(arch, problem, kernel, time_us, is_predicted))
        else:
            single[arch, problem, kernel] = time_us
    lines = []
    for line in fastest(both):
        first, second = (
            single.get((line.arch, replace(line.problem, stage=stage), part.name))
            for stage, part in zip((STAGE1, STAGE2), parts(line.kernel), strict=True)
        )
        lines.append(replace(line, times_us=(first, second)))
    return lines


def read_tuned(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table, or all times of a tuner (profile_fmoe.csv), where a row is a kernel for one product."""
    is_profile = sniff_csv(_OF_PROFILE)(head_of(path))

    def kernels(cells: dict[str, str]) -> list[Won]:
        problem = problem_of(cells)
        own = ((cells["stage"], "kernelName", ""),) if is_profile else _PRODUCTS
        if isinstance(problem, str) or own[0][0] not in (STAGE1, STAGE2):
            raise LeftOut(OTHER_KIND)
        arch = arch_of(cells.get("gfx", ""), problem.num_cus, options)
        stages = [replace(problem, stage=stage) for stage, _, _ in own]
        names = [known_name(cells[column], arch, stage) for (_, column, _), stage in zip(own, stages, strict=True)]
        problem = stages[0] if is_profile else problem
        try:
            choice = parse_choice(names[0] if is_profile else joint(*names))
        except DataError:
            raise LeftOut(NOT_OF_CK) from None
        if choice not in moe_pool(arch, *kind_of(problem)):
            raise LeftOut(UNLISTED)
        if is_refused(cells.get("err", ""), MOST_WRONG):
            raise LeftOut(WRONG)
        is_predicted = cells.get(PREDICTED, "") in ("1", "1.0")
        rows = [(problem, choice, cells["us"])]
        if not is_predicted:
            rows += [
                (stage, parse_choice(name), cells[column])
                for stage, name, (_, _, column) in zip(stages, names, own, strict=True)
                if cells.get(column)
            ]
        try:
            return [Won(arch, problem, kernel, stated_time(us), is_predicted) for problem, kernel, us in rows]
        except ValueError:
            raise LeftOut(BAD_TIME) from None

    return read_csv(path, options, NAME, _OF_PROFILE if is_profile else _REQUIRED, kernels, op_type=OP_TYPE)


FORMATS = Formats(
    readers=(Reader(NAME, lambda head: any(sniff_csv(names)(head) for names in (_REQUIRED, _OF_PROFILE)), read_tuned),),
    rows=(
        RowsFormat(
            "aiter-moe",
            "a tuned table of AITER's mixtures of experts",
            FileKind("tuned table of AITER's mixtures of experts", lambda path: b"kernelName2" in head_of(path)),
            _write,
        ),
    ),
)
