"""Reader of AITER's tuned tables of mixtures of experts (tuned_fmoe.csv), including ckh's.

A row is the winner of one tuning: both products, and the time of each if stated. Rows of other libraries, or of
unsupported kinds, are skipped and counted; predictions of ckh keep their bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckh.data.formats import Reading
from ckh.data.readers.reader import BadRows, MissingTime, read_bytes, source_of, stated_time
from ckh.data.spool import store
from ckh.errors import DataError
from ckh.files.untrusted import as_text, csv_rows
from ckh.ops.aiter_gemm.readers.tuned_csv import PREDICTED, bound_message
from ckh.ops.aiter_gemm.tuned_device import ARCH_OF_CUS
from ckh.ops.aiter_moe.kernel import joint, parse_choice
from ckh.ops.aiter_moe.kernels.pool import kind_of, known_name, moe_pool
from ckh.ops.aiter_moe.problem import OP_TYPE, STAGE1, STAGE2, AiterMoe
from ckh.ops.aiter_moe.problem_files import problem_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.formats import ReadOptions

NAME = "aiter-moe-csv"
FOREIGN = "of kernels that are not of Composable Kernel, or of one kernel for both products"
UNLISTED = "of kernels that are not in ckh's lists"
OTHER_KIND = "of a kind that ckh has no kernels for"
OTHER_ARCH = "of another architecture than --arch, or of an unknown one"
BAD_TIME = "with a time that is impossible"
_REQUIRED = ("cu_num", "token", "model_dim", "inter_dim", "expert", "kernelName1", "kernelName2", "us")
_US_PER_MS = 1000.0


class _Row(NamedTuple):
    """A choice with its time in microseconds, or if predicted an upper bound."""

    problem: AiterMoe
    kernel: str
    time_us: float
    is_predicted: bool


class _LeftOut(Exception):  # noqa: N818 - the row is left out and counted
    """A skipped row, with the reason."""


def sniff(head: bytes) -> bool:
    """True if the first line has the columns of such tables."""
    names = {name.strip().strip('"') for name in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")}
    return names.issuperset(_REQUIRED)


def read(path: Path, options: ReadOptions) -> Reading:
    """Read a tuned table."""
    content = read_bytes(path)
    rows = ((line, cells) for line, cells in csv_rows(path, as_text(path, content), fills=True) if any(cells))
    header = [name.strip() for name in next(rows, (0, []))[1]]
    if missing := [name for name in _REQUIRED if name not in header]:
        raise DataError(
            f"{path}: column {missing[0]} is missing", "expected " + ", ".join(_REQUIRED), code="missing-column"
        )
    left_out: Counter[str] = Counter()
    bad = BadRows()
    result: dict[tuple[str, int], list[_Row]] = defaultdict(list)
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{path}:{line}: {len(cells)} cells under {len(header)} columns", code="bad-row")
        try:
            arch, some = _rows(path, line, dict(zip(header, cells, strict=True)), options)
        except _LeftOut as why:
            left_out[str(why)] += 1
            continue
        except MissingTime:
            bad.without_time.append(line)
            continue
        result[arch, some[0].problem.num_cus] += some
    left_out.update(bad.left_out())
    if not result:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DataError(f"{path}: no usable row ({reasons or 'the file has no rows'})", code="empty")
    tables = [_table(arch, cus, _fastest(some), path.name) for (arch, cus), some in sorted(result.items())]
    return Reading(store(tables, options.output), (source_of(path, content, NAME),), bad=dict(left_out))


def _rows(path: Path, line: int, values: Mapping[str, str], options: ReadOptions) -> tuple[str, list[_Row]]:
    problem = problem_of(path, line, values)
    if isinstance(problem, str):
        raise _LeftOut(OTHER_KIND)
    arch = _arch(values.get("gfx", ""), problem.num_cus, options)
    stages = [replace(problem, stage=stage) for stage in (STAGE1, STAGE2)]
    columns = zip(("kernelName1", "kernelName2"), stages, strict=True)
    names = [known_name(values[column].strip(), arch, stage) for column, stage in columns]
    try:
        choice = parse_choice(joint(*names))
    except DataError:
        raise _LeftOut(FOREIGN) from None
    if choice not in moe_pool(arch, *kind_of(problem)):
        raise _LeftOut(UNLISTED)
    is_predicted = values.get(PREDICTED, "").strip() in ("1", "1.0")
    rows = [_Row(problem, choice.name, _time(values["us"]), is_predicted)]
    for stage, name, column in zip(stages, names, ("us1", "us2"), strict=True):
        if values.get(column, "").strip() and not is_predicted:
            rows.append(_Row(stage, name, _time(values[column]), is_predicted=False))
    return arch, rows


def _arch(stated: str, num_cus: int, options: ReadOptions) -> str:
    from ckh.archs import arch_names

    wanted = (options.arch or "").split(":", 1)[0]
    arch = stated.strip().split(":", 1)[0] or wanted or ARCH_OF_CUS.get(num_cus, "")
    if arch not in arch_names() or (wanted and arch != wanted):
        raise _LeftOut(OTHER_ARCH)
    return arch


def _time(text: str) -> float:
    try:
        return stated_time(text)
    except ValueError:
        raise _LeftOut(BAD_TIME) from None


def _fastest(rows: list[_Row]) -> list[_Row]:
    """Keep the fastest of duplicate rows, as AITER does."""
    result: dict[tuple[AiterMoe, str, bool], _Row] = {}
    for row in rows:
        key = row.problem, row.kernel, row.is_predicted
        if key not in result or row.time_us < result[key].time_us:
            result[key] = row
    return list(result.values())


def _table(arch: str, num_cus: int, rows: list[_Row], run_id: str) -> pa.Table:
    from ckh.data.rows import Origin, Pairs, Results, build_table
    from ckh.schema import Status

    is_predicted = np.array([row.is_predicted for row in rows])
    latency_ms = np.where(is_predicted, np.nan, np.array([row.time_us for row in rows]) / _US_PER_MS)
    messages = [bound_message(row.time_us) if row.is_predicted else None for row in rows]
    pairs = Pairs.of(((row.problem, parse_choice(row.kernel)) for row in rows), OP_TYPE)
    measured = np.where(latency_ms > 0, str(Status.OK), str(Status.LAUNCH_ERROR))
    results = Results(np.where(is_predicted, str(Status.PREDICTED), measured), latency_ms, {"message": messages})
    return build_table(pairs, results, Origin.on_gpu(arch, num_cus, run_id))
