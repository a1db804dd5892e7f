"""Reader of AITER's MoE tuning with all candidates, collected in Parquet.

A row is a kernel for one of the two products. Repeated measurements of a kernel for a problem in one run of the tuner
become one row with the median. Choices for both products are rows too: all pairs of kernels whose tiles have the same
number of rows, with the sum of the two times. Times of different runs are never compared: of two runs that measured a
problem, the run with more kernels is used, or the later one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckh.data.formats import Formats, Reader, Reading, ReadOptions, RowsFormat
from ckh.data.readers.reader import parquet_columns, parquet_frame, source_of_file
from ckh.data.spool import store
from ckh.errors import DataError, UsageError
from ckh.ops.aiter_moe.kernel import MoeChoice, joint, parse_choice
from ckh.ops.aiter_moe.kernels.pool import known_name
from ckh.ops.aiter_moe.problem import BOTH, OP_TYPE, STAGE1, STAGE2, AiterMoe
from ckh.ops.aiter_moe.readers import tuned
from ckh.ops.aiter_moe.readers.tuned_csv import TUNED, write_tuned
from ckh.problems import dtype_name
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

NAME = "aiter-moe-parquet"
FOREIGN = "of a library other than Composable Kernel"
FAILED = "of a kernel that failed or was wrong"
OTHER_ARCH = "of another architecture than --arch"
BAD_ROW = "with a size or name that is impossible"

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
_QUANTS = {"per_Token": "per_token", "per_1x128": "per_1x128", "per_1x32": "per_1x32", "No": "none"}
_US_PER_MS = 1000.0


class _Time(NamedTuple):
    """The time of a choice: its median in ms, its relative spread, and the number of measurements."""

    latency_ms: float
    spread: float
    samples: int


_Times = dict[AiterMoe, dict[MoeChoice, _Time]]


def sniff(head: bytes) -> bool:
    """True if a Parquet file has the columns of collected tunings."""
    return parquet_columns(head).issuperset(column.name for column in _COLUMNS[:-1])


def read(path: Path, options: ReadOptions) -> Reading:
    """Read collected tunings."""
    frame = parquet_frame(path, _COLUMNS)
    left_out: Counter[str] = Counter()
    tables = list(_tables(_usable(frame, options, left_out), left_out, path.name))
    if not tables:
        raise DataError(f"{path}: no usable row", code="empty")
    return Reading(store(tables, options.output), (source_of_file(path, NAME),), bad=dict(left_out))


def _usable(frame: pd.DataFrame, options: ReadOptions, left_out: Counter[str]) -> pd.DataFrame:
    for reason, bad in (
        (FOREIGN, ~frame["library"].isin(_LIBRARIES)),
        (OTHER_ARCH, frame["gfx"] != options.arch if options.arch else frame["gfx"] != frame["gfx"]),
        (FAILED, ~(frame["time_us"] > 0)),
    ):
        if count := int(bad.loc[frame.index].sum()):
            left_out[reason] += count
        frame = frame[~bad.loc[frame.index]]
    return frame


def _tables(frame: pd.DataFrame, left_out: Counter[str], run_id: str) -> Iterator[pa.Table]:
    """Yield the rows of a dataset, a table per device."""
    for (arch, num_cus), part in frame.groupby(["gfx", "cus"]):
        result: _Times = {}
        for run in sorted((run for _, run in part.groupby("blob")), key=_weight):
            result |= _run(run, left_out)
        if result:
            yield _table(str(arch), int(str(num_cus)), result, run_id)


def _weight(run: pd.DataFrame) -> tuple[int, str]:
    """Sort key of runs that measured the same problem: number of measurements, then date."""
    return len(run), max(run["date"].astype(str))


def _run(frame: pd.DataFrame, left_out: Counter[str]) -> _Times:
    """Return the rows of one run of the tuner."""
    samples: dict[AiterMoe, dict[MoeChoice, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in frame.to_dict("records"):
        try:
            problem = _problem(row)
            choice = parse_choice(known_name(str(row["kernel"]), str(row["gfx"]), problem))
        except (DataError, UsageError, KeyError):
            left_out[BAD_ROW] += 1
            continue
        samples[problem][choice].append(float(row["time_us"]) / _US_PER_MS)
    measured = {problem: {item: _median(times) for item, times in some.items()} for problem, some in samples.items()}
    return measured | dict(_joint(measured))


def _problem(row: Mapping[Any, Any]) -> AiterMoe:
    given: dict[str, Any] = {_RENAMED.get(name, name): row[name] for name in _IDENTITY}
    sizes = ("num_cus", "tokens", "model_dim", "inter_dim", "experts", "topk")
    given |= {name: int(given[name]) for name in sizes}
    given["dtype"] = dtype_name(str(given["dtype"]))
    given["quant"] = _QUANTS[str(given["quant"]).removeprefix("QuantType.")]
    given["activation"] = str(given["activation"]).removeprefix("ActivationType.").lower()
    return AiterMoe(**given)


def _median(times: list[float]) -> _Time:
    middle = float(np.median(times))
    spread = float(np.median(np.abs(np.array(times) - middle))) / middle if len(times) > 1 else float("nan")
    return _Time(middle, spread, len(times))


def _joint(measured: _Times) -> Iterator[tuple[AiterMoe, dict[MoeChoice, _Time]]]:
    """Yield the choices for both products, for problems whose two products were measured."""
    for problem, firsts in measured.items():
        seconds = measured.get(replace(problem, stage=STAGE2), {})
        if problem.stage != STAGE1:
            continue
        pairs = {
            parse_choice(joint(first.name, two.name)): _sum(firsts[first], seconds[two])
            for first in firsts
            for two in seconds
            if first.block_m == two.block_m
        }
        if pairs:
            yield replace(problem, stage=BOTH), pairs


def _sum(time: _Time, two: _Time) -> _Time:
    total = time.latency_ms + two.latency_ms
    spread = (time.spread * time.latency_ms + two.spread * two.latency_ms) / total
    return _Time(total, spread, min(time.samples, two.samples))


def _table(arch: str, num_cus: int, result: _Times, run_id: str) -> pa.Table:
    from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
    from ckh.schema import Status

    rows = {(problem, choice): time for problem, some in result.items() for choice, time in some.items()}
    latency_ms, spread, samples = map(np.array, zip(*rows.values(), strict=True))
    results = Results(
        status_of(latency_ms > 0, Status.LAUNCH_ERROR), latency_ms, {"spread": spread, "samples": samples}
    )
    return build_table(Pairs.of(rows, OP_TYPE), results, Origin.on_gpu(arch, num_cus, run_id))


FORMATS = Formats(
    readers=(Reader(NAME, sniff, read), Reader(tuned.NAME, tuned.sniff, tuned.read)),
    rows=(RowsFormat("aiter-moe", "a tuned table of AITER's mixtures of experts", TUNED, write_tuned),),
)
