"""Reports of a dataset, and of a folder of `ckh bench` or `ckh search measure`, also during the run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.bench.planning.plan import SEARCH
from ckh.ops import operation_of
from ckh.report import measurements
from ckh.report.drawing import Drawing, Line, Lines, PageTable, Report
from ckh.report.measurements import HOUR_S, LEAST_FAR, Look, looks_of_runs, machine, repeats, unit_of_time
from ckh.report.roofline import problem_table, roofline, speeds_of, times_over_problems
from ckh.schema import MEASURED, REPEATED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.data.journal import Journal, ResultRow

_POINTS = 200
_FASTEST = 10


def report_dataset(dataset: Dataset, paths: list[Path], weights: NDArray[np.float64] | None = None) -> Report:
    """All figures that a dataset allows; `weights` is the number of executions of each problem, shape (problems,)."""
    frame = dataset.frame
    times = times_of(dataset)
    has_oracle = np.isfinite(times.oracle_ms())
    weights = np.ones(times.count) if weights is None else weights
    best = choices(-times.latency_ms, times.problem, times.count)[has_oracle]
    speeds = None
    if has_oracle.any():
        known = dataset.select(has_oracle[dataset.problem_ids])
        speeds = speeds_of(known, times_of(known), weights[has_oracle])
    names = frame["kernel"].astype(str).to_numpy()
    kernels = int(frame["kernel"].nunique())
    first = frame.iloc[dataset.first_rows]
    sizes = {name: first[name].to_numpy(dtype=np.float64) for name in dataset.op.problems.sizes}
    is_valid = frame["is_valid"].to_numpy(dtype=bool)
    spread = frame["spread"].to_numpy(dtype=np.float64)[is_valid]
    failed = frame["status"][~is_valid].astype(str).value_counts()
    twice = [frame[name].to_numpy(dtype=np.float64) for name in REPEATED if name in frame]
    figures = [
        measurements.coverage(sizes, weights),
        *([] if speeds is None else [times_over_problems(speeds), roofline(speeds)]),
        measurements.winners(names[best].tolist(), weights[has_oracle], kernels) if len(best) else None,
        measurements.failures({str(name).replace("_", " "): int(count) for name, count in failed.items()}, len(frame)),
        measurements.noise(spread),
        measurements.over_time(np.arange(len(spread), dtype=np.float64), "measurements", spread),
        *machine(looks_of_runs(dataset.metadata["runs"])),
        repeats(twice[0], twice[1], dataset.problem_ids) if len(twice) == len(REPEATED) else None,
    ]
    where = ", ".join(dict.fromkeys(frame["device"].dropna().astype(str))) if "device" in frame else ""
    return Report(
        title=f"Measurements: {', '.join(path.name for path in paths)}",
        subtitle=f"{dataset.op.name} on {', '.join(dataset.archs)}{f' ({where})' if where else ''}",
        facts=[
            ("measurements", f"{len(frame):,}"),
            ("problems", f"{times.count:,}"),
            ("kernels", f"{kernels:,}"),
            ("usable times", f"{is_valid.mean():.1%}"),
            *([("runs of the problems", f"{weights.sum():,.0f}")] if (weights != 1).any() else []),
        ],
        figures=[figure for figure in figures if figure is not None],
        tables=[] if speeds is None else [problem_table(speeds)],
    )


def report_run(journal: Journal) -> Report:
    """All figures that a journal allows, also while it is written."""
    run = journal.runs[-1]
    ended = bool(journal.ends) and journal.ends[-1].run_id == run.run_id
    is_search = run.kernels.startswith(SEARCH)
    rows = [row for row in journal.rows if not row.remeasured]
    pairs = next((run.pairs for run in reversed(journal.runs) if run.pairs is not None), None)
    done = len({(row.problem, row.kernel) for row in rows})
    facts = [
        ("state", journal.ends[-1].reason if ended else "still measuring"),
        ("pairs measured", f"{done:,}" + (f" of {pairs:,}" if pairs else "")),
        ("problems", f"{len({row.problem for row in rows}):,}"),
        ("usable times", f"{sum(row.status in MEASURED for row in rows) / len(rows):.1%}" if rows else "-"),
    ]
    hours = _hours(rows)
    if not ended and pairs and len(hours) > 1 and hours[-1] > 0:
        left = (pairs - done) * hours[-1] / done
        facts.append(("about", f"{left:.1f} hours left" if left >= 1 else f"{left * 60:.0f} minutes left"))
    figures = [_search(rows)] if is_search else [_progress(rows, pairs), *_of_rows(journal.final_rows())]
    looks: dict[str, list[Look]] = {}
    for reference in journal.references:
        looks.setdefault(reference.run_id, []).append(
            Look(reference.time, reference.latency_ms, reference.clock_mhz, reference.temperature_c)
        )
    figures += [_drift(journal.rows), *machine(looks)]
    return Report(
        title=f"{'Search' if is_search else 'Run'}: {journal.path.resolve().parent.name}",
        subtitle=f"{run.op} on {run.arch} ({run.device}), started {run.started}"
        + (f", {run.problems}" if is_search else f", problems {run.problems}, kernels {run.kernels}"),
        facts=facts,
        figures=[figure for figure in figures if figure is not None],
        tables=[_fastest(journal)] if is_search else [],
    )


def _hours(rows: Sequence[ResultRow]) -> np.ndarray:
    times = np.array([row.time for row in rows])
    return (times - times.min()) / HOUR_S if len(times) else times


def _of_rows(final: Sequence[ResultRow]) -> list[Drawing | None]:
    if not final:
        return []
    op = operation_of(final[0].problem)
    problems = [op.problems.parse(text) for text in dict.fromkeys(row.problem for row in final)]
    sizes = {
        name: np.array([float(getattr(problem, name.lower())) for problem in problems]) for name in op.problems.sizes
    }
    best: dict[str, ResultRow] = {}
    for row in final:
        if _ms(row) < _ms(best.get(row.problem)):
            best[row.problem] = row
    reasons = Counter(str(row.status).replace("_", " ") for row in final if row.status not in MEASURED)
    spread = np.array([np.nan if row.spread is None else row.spread for row in final])
    kernels = len({row.kernel for row in final})
    return [
        measurements.coverage(sizes, np.ones(len(problems))),
        measurements.winners([row.kernel for row in best.values()], np.ones(len(best)), kernels) if best else None,
        measurements.failures(reasons, len(final)),
        measurements.noise(spread),
        measurements.over_time(*unit_of_time(_hours(final)), spread),
    ]


def _ms(row: ResultRow | None) -> float:
    return float("inf") if row is None or row.latency_ms is None else row.latency_ms


def _progress(rows: Sequence[ResultRow], pairs: int | None) -> Drawing | None:
    hours = np.sort(_hours(rows))
    if len(hours) < 2:  # noqa: PLR2004 - one row is not a line
        return None
    at = np.unique(np.linspace(0, len(hours) - 1, _POINTS).astype(int))
    x, unit = unit_of_time(hours[at])
    rate = len(hours) / hours[-1] if hours[-1] > 0 else 0.0
    of = f" of {pairs:,}" if pairs else ""
    return Drawing(
        "progress",
        f"{len(hours):,}{of} pairs measured, {rate:,.0f} per hour",
        "Pairs of a kernel and a problem over the time since the first. Flat parts are compilation or pauses.",
        Lines([Line("", x.tolist(), (at + 1).tolist())], f"{unit} since the first", "pairs measured"),
    )


def _drift(rows: Sequence[ResultRow]) -> Drawing | None:
    """Ratio of remeasured times of leaders to their first ones."""
    first: dict[tuple[str, str], ResultRow] = {}
    again: list[tuple[ResultRow, float]] = []
    for row in rows:
        pair = (row.problem, row.kernel)
        if not row.remeasured:
            first[pair] = row
        elif row.latency_ms is not None and pair in first and _ms(first[pair]) < float("inf"):
            again.append((row, row.latency_ms / _ms(first[pair]) - 1.0))
    if len(again) < _FASTEST:
        return None
    hours = (np.array([row.time for row, _ in again]) - min(row.time for row in rows)) / HOUR_S
    ratio = np.array([change for _, change in again])
    x, unit = unit_of_time(hours)
    far = max(float(np.quantile(np.abs(ratio), 0.9)) * 1.2, LEAST_FAR)
    return Drawing(
        "drift",
        f"In a repeated measurement, half of the leaders are within {np.median(np.abs(ratio)):.1%} of their first "
        f"time, with a median of {np.median(ratio):+.1%}",
        "Each point is a kernel that was measured twice: above zero it was slower the second time. Triangles at "
        "the edge are beyond it. A trend is drift of the machine.",
        Lines(
            [Line("", x.tolist(), ratio.tolist(), style="points")],
            f"{unit} since the start",
            "second time over the first",
            percent_y=True,
            x_from_zero=True,
            y_range=(-far, far),
            zero=True,
        ),
    )


def _search(rows: Sequence[ResultRow]) -> Drawing | None:
    times = np.array([_ms(row) for row in rows])
    good = np.flatnonzero(np.isfinite(times))
    if not len(good):
        return None
    best = np.minimum.accumulate(times)[good[0] :]
    place = np.arange(good[0], len(times)) + 1
    last = int(np.argmin(times)) + 1
    return Drawing(
        "search",
        f"The fastest of {len(rows)} measurements is number {last}: {best[-1]:.4g} ms",
        "Points are the measured kernels in order, triangles far slower ones; the line is the best so far.",
        Lines(
            [
                Line("best so far", place.tolist(), best.tolist(), style="steps"),
                Line("measured", (good + 1).tolist(), times[good].tolist(), style="points"),
            ],
            "measurements",
            "ms",
            y_range=(float(best[-1]) * 0.95, float(np.quantile(times[good], 0.9)) * 1.05),
        ),
    )


def _fastest(journal: Journal) -> PageTable:
    known = sorted((row for row in journal.final_rows() if row.latency_ms is not None), key=_ms)[:_FASTEST]
    rows = [
        [str(place), f"{_ms(row):.4g}", "-" if row.spread is None else f"{row.spread:.1%}", row.kernel]
        for place, row in enumerate(known, 1)
    ]
    return PageTable("The fastest", ["", "ms", "spread", "kernel"], rows, code=frozenset({3}))
