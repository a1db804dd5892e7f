"""AITER's tuned tables of mixtures of experts (tuned_fmoe.csv), including ckh's; and its tuning with all candidates.

A table's row is the winner of one tuning: the kernels of both products, and the time of each if stated. Rows of other
libraries, or of unsupported kinds, are skipped and counted; predictions of ckh keep their bound.

Tunings with all candidates are collected in Parquet: a row is a kernel for one of the two products. Repeated
measurements of a kernel for a problem in one run of the tuner become one row with the median. Choices for both products
are rows too: all pairs of kernels whose tiles have the same number of rows, with the sum of the two times. Times of
different runs are never compared: of two runs that measured a problem, the run with more kernels is used, or the later
one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.reader import parquet_columns, parquet_frame, source_of_file, stated_time
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import DataError, UsageError
from ckh.files.outputs import FileKind, head_of
from ckh.ops.aiter.tables import (
    OTHER_ARCH,
    PREDICTED,
    US_PER_MS,
    LeftOut,
    TableRow,
    Won,
    arch_of,
    fastest,
    rates,
    read_csv,
    sniff_csv,
    table_text,
    timed_rows,
    write_lines,
)
from ckh.ops.aiter_moe.kernel import MoeChoice, joint, kind_of, known_name, moe_pool, newer_name, parse_choice, parts
from ckh.ops.aiter_moe.operation import KEY, QUANT_NAMES, key_cells, problem_of
from ckh.ops.aiter_moe.problem import BOTH, OP_TYPE, STAGE1, STAGE2, AiterMoe
from ckh.problems import dtype_name
from ckh.schema import Column, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from ckh.data.formats import MeasuredRows

NAME, CSV_NAME = "aiter-moe-parquet", "aiter-moe-csv"
# Reasons why rows are skipped.
FOREIGN = "of a library other than Composable Kernel"
FAILED = "of a kernel that failed or was wrong"
BAD_ROW = "with a size or name that is impossible"
NOT_OF_CK = "of kernels that are not of Composable Kernel, or of one kernel for both products"
UNLISTED = "of kernels that are not in ckh's lists"
OTHER_KIND = "of a kind that ckh has no kernels for"
BAD_TIME = "with a time that is impossible"

COLUMNS = (
    *KEY,
    *("block_m", "ksplit", "us1", "kernelName1", "err1", "us2", "kernelName2", "err2", "us", "run_1stage"),
    *("tflops", "bw", "_tag"),
)
_REQUIRED = ("cu_num", "token", "model_dim", "inter_dim", "expert", "kernelName1", "kernelName2", "us")
_RENAMED = {"cus": "num_cus", "token": "tokens", "expert": "experts", "q_dtype_a": "dtype", "q_type": "quant"}
_RENAMED |= {"act_type": "activation"}
_IDENTITY = ("cus", "stage", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_dtype_a", "q_type")
_TEXTS = ("gfx", "stage", "act_type", "q_dtype_a", "q_type", "library", "kernel", "blob")
_COLUMNS = (
    *(Column(name, "string" if name in _TEXTS else "int64", "", "") for name in ("gfx", *_IDENTITY)),
    *(Column(name, "string", "", "") for name in ("library", "kernel")),
    Column("time_us", "float64", "us", "", nullable=True),
    Column("blob", "string", "", "the run of the tuner"),
    Column("date", "string", "", "of the run", nullable=True),
)
_LIBRARIES = ("ck", "cktile")
_QUANTS = {name: quant for quant, name in QUANT_NAMES.items()}


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
    """Read a tuned table."""

    def winners(line: int, cells: dict[str, str]) -> list[Won]:
        problem = problem_of(path, line, cells)
        if isinstance(problem, str):
            raise LeftOut(OTHER_KIND)
        arch = arch_of(cells.get("gfx", ""), problem.num_cus, options)
        stages = [replace(problem, stage=stage) for stage in (STAGE1, STAGE2)]
        names = [
            known_name(cells[column], arch, stage)
            for column, stage in zip(("kernelName1", "kernelName2"), stages, strict=True)
        ]
        try:
            choice = parse_choice(joint(*names))
        except DataError:
            raise LeftOut(NOT_OF_CK) from None
        if choice not in moe_pool(arch, *kind_of(problem)):
            raise LeftOut(UNLISTED)
        is_predicted = cells.get(PREDICTED, "") in ("1", "1.0")
        rows = [(problem, choice, cells["us"])]
        if not is_predicted:
            rows += [
                (stage, parse_choice(name), cells[column])
                for stage, name, column in zip(stages, names, ("us1", "us2"), strict=True)
                if cells.get(column)
            ]
        try:
            return [Won(arch, problem, kernel, stated_time(us), is_predicted) for problem, kernel, us in rows]
        except ValueError:
            raise LeftOut(BAD_TIME) from None

    return read_csv(path, options, CSV_NAME, _REQUIRED, winners, op_type=OP_TYPE, settled=_fastest)


def _fastest(won: list[Won]) -> list[Won]:
    """Keep the fastest of duplicate rows, as AITER does."""
    best: dict[tuple[Any, ...], Won] = {}
    for row in won:
        key = row.problem, row.kernel, row.is_predicted
        if key not in best or row.time_us < best[key].time_us:
            best[key] = row
    return list(best.values())


class _Time(NamedTuple):
    """The time of a choice: its median in ms, its relative spread, and the number of measurements."""

    latency_ms: float
    spread: float
    samples: int


_Times = dict[AiterMoe, dict[MoeChoice, _Time]]


def _read_candidates(path: Path, options: ReadOptions) -> Reading:
    """Read collected tunings."""
    frame = parquet_frame(path, _COLUMNS)
    left_out: Counter[str] = Counter()
    for reason, bad in (
        (FOREIGN, ~frame["library"].isin(_LIBRARIES)),
        (OTHER_ARCH, frame["gfx"] != options.arch if options.arch else frame["gfx"] != frame["gfx"]),
        (FAILED, ~(frame["time_us"] > 0)),
    ):
        if count := int(bad.loc[frame.index].sum()):
            left_out[reason] += count
        frame = frame[~bad.loc[frame.index]]
    tables = []
    for (arch, num_cus), part in frame.groupby(["gfx", "cus"]):
        measured: _Times = {}
        # Of runs that measured the same problem, the one with more measurements, then the later one, is kept.
        for run in sorted(
            (run for _, run in part.groupby("blob")), key=lambda run: (len(run), max(map(str, run["date"])))
        ):
            measured |= _run(run, left_out)
        if measured:
            tables.append(_table(str(arch), int(str(num_cus)), measured, path.name))
    if not tables:
        raise DataError(f"{path}: no usable row", code="empty")
    return Reading(store(tables, options.output), (source_of_file(path, NAME),), bad=dict(left_out))


def _run(frame: pd.DataFrame, left_out: Counter[str]) -> _Times:
    """Return the times of one run of the tuner."""
    samples: dict[AiterMoe, dict[MoeChoice, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in frame.to_dict("records"):
        try:
            problem = problem_of_candidate(row)
            choice = parse_choice(known_name(str(row["kernel"]), str(row["gfx"]), problem))
        except (DataError, UsageError, KeyError):
            left_out[BAD_ROW] += 1
            continue
        samples[problem][choice].append(float(row["time_us"]) / US_PER_MS)
    measured: _Times = defaultdict(dict)
    for problem, choices in samples.items():
        for choice, times in choices.items():
            middle = float(np.median(times))
            spread = float(np.median(np.abs(np.array(times) - middle))) / middle if len(times) > 1 else float("nan")
            measured[problem][choice] = _Time(middle, spread, len(times))
    return {**measured, **dict(_joint(measured))}


def problem_of_candidate(row: Mapping[Any, Any]) -> AiterMoe:
    """Return the problem of a row of collected tunings."""
    given: dict[str, Any] = {_RENAMED.get(name, name): row[name] for name in _IDENTITY}
    sizes = ("num_cus", "tokens", "model_dim", "inter_dim", "experts", "topk")
    given |= {name: int(given[name]) for name in sizes}
    given["dtype"] = dtype_name(str(given["dtype"]))
    given["quant"] = _QUANTS[str(given["quant"]).removeprefix("QuantType.")]
    given["activation"] = str(given["activation"]).removeprefix("ActivationType.").lower()
    return AiterMoe(**given)


def _joint(measured: _Times) -> Iterator[tuple[AiterMoe, dict[MoeChoice, _Time]]]:
    """Yield the choices for both products, for problems whose two products were measured."""
    for problem, firsts in measured.items():
        seconds = measured.get(replace(problem, stage=STAGE2), {})
        if problem.stage != STAGE1:
            continue
        pairs = {
            parse_choice(joint(first.name, second.name)): _sum(firsts[first], seconds[second])
            for first in firsts
            for second in seconds
            if first.block_m == second.block_m
        }
        if pairs:
            yield replace(problem, stage=BOTH), pairs


def _sum(first: _Time, second: _Time) -> _Time:
    total = first.latency_ms + second.latency_ms
    spread = (first.spread * first.latency_ms + second.spread * second.latency_ms) / total
    return _Time(total, spread, min(first.samples, second.samples))


def _table(arch: str, num_cus: int, measured: _Times, run_id: str) -> pa.Table:
    rows = {(problem, choice): timed for problem, times in measured.items() for choice, timed in times.items()}
    latency_ms, spread, samples = map(np.array, zip(*rows.values(), strict=True))
    results = Results([str(Status.OK)] * len(rows), latency_ms, {"spread": spread, "samples": samples})
    return build_table(Pairs.of(rows, OP_TYPE), results, Origin.on_gpu(arch, num_cus, run_id))


FORMATS = Formats(
    readers=(
        Reader(
            NAME,
            lambda head: parquet_columns(head).issuperset(column.name for column in _COLUMNS[:-1]),
            _read_candidates,
        ),
        Reader(CSV_NAME, sniff_csv(_REQUIRED), read_tuned),
    ),
    rows=(
        RowsFormat(
            "aiter-moe",
            "a tuned table of AITER's mixtures of experts",
            FileKind("tuned table of AITER's mixtures of experts", lambda path: b"kernelName2" in head_of(path)),
            _write,
        ),
    ),
)
