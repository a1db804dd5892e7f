"""Report of a dataset: figures of its measurements, and of drift of the machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.report.drawing import Bars, Dots, Drawing, Line, Lines, Report
from ckh.report.roofline import problem_table, roofline, speeds_of, times_over_problems
from ckh.schema import REPEATED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

_MOST_BARS = 12
_STEADY = 0.05  # larger spreads deserve attention
_POINTS = 60
_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
_LEAST_FAR = 0.02  # minimum range of an axis of drift
_FEW_UNITS = 2  # of time: fewer are given in the next smaller unit
_MOST_RUNS = 4  # maximum number of distinguishable lines
_LEAST_PAIRS = 3  # measured twice, for a problem's median
_LEAST_PROBLEMS = 10  # measured twice, to show a drift


def report_dataset(dataset: Dataset, paths: list[Path]) -> Report:
    """All figures that a dataset allows."""
    frame = dataset.frame
    times = times_of(dataset)
    has_oracle = np.isfinite(times.oracle_ms())
    best = choices(-times.latency_ms, times.problem, times.count)[has_oracle]
    speeds = None
    if has_oracle.any():
        known = dataset.select(has_oracle[dataset.problem_ids])
        speeds = speeds_of(known, times_of(known))
    names = frame["kernel"].astype(str).to_numpy()
    kernels = int(frame["kernel"].nunique())
    first = frame.iloc[dataset.first_rows]
    sizes = {name: first[name].to_numpy(dtype=np.float64) for name in dataset.op.problems.sizes}
    is_valid = frame["is_valid"].to_numpy(dtype=bool)
    spread = frame["spread"].to_numpy(dtype=np.float64)[is_valid]
    failed = frame["status"][~is_valid].astype(str).value_counts()
    twice = [frame[name].to_numpy(dtype=np.float64) for name in REPEATED if name in frame]
    figures = [
        coverage(sizes, times.count),
        *([] if speeds is None else [times_over_problems(speeds), roofline(speeds)]),
        winners(names[best].tolist(), kernels) if len(best) else None,
        failures({str(name).replace("_", " "): int(count) for name, count in failed.items()}, len(frame)),
        noise(spread),
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
        ],
        figures=[figure for figure in figures if figure is not None],
        tables=[] if speeds is None else [problem_table(speeds)],
    )


def coverage(sizes: Mapping[str, NDArray[np.float64]], problems: int) -> Drawing | None:
    """Frequencies of sizes: values of problems by the size's name; None if all are the same."""
    varying: dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}
    for name, values in sizes.items():
        distinct, counts_of = np.unique(values, return_counts=True)
        if len(distinct) > 1:
            varying[name] = distinct, counts_of
    if not varying:
        return None
    widest = max(varying, key=lambda name: float(varying[name][0][-1] / max(varying[name][0][0], 1)))
    low, high = varying[widest][0][[0, -1]]
    shown, counts = ([pair[i].tolist() for pair in varying.values()] for i in (0, 1))
    return Drawing(
        "coverage",
        f"{problems:,} problems cover {len(varying)} sizes; {widest} has the widest range, {low:g} to {high:g}",
        "Each dot is a value of a size; its area is the number of problems with it. Constant sizes are omitted.",
        Dots(tuple(varying), shown, counts, "value of the size"),
    )


def winners(names: Sequence[str], kernels: int) -> Drawing:
    """How often each kernel is the fastest."""
    winners, wins = zip(*Counter(names).most_common(), strict=True)
    total, shown = sum(wins), wins[:_MOST_BARS]
    enough = int(np.searchsorted(np.cumsum(wins) / total, 0.9)) + 1
    texts = [f"{count:,} ({count / total:.0%})" for count in shown]
    return Drawing(
        "winners",
        f"{len(wins)} of {kernels:,} kernels are ever the fastest; {enough} of them cover 90 % of the problems",
        f"Number of problems on which a kernel has the shortest measured time; the {len(shown)} most frequent winners.",
        Bars(winners[:_MOST_BARS], shown, texts, "problems won", strong=min(enough, len(shown))),
    )


def failures(reasons: Mapping[str, int], rows: int) -> Drawing | None:
    """Reasons why rows have no usable time; None if all have one."""
    counts = Counter(reasons).most_common(_MOST_BARS)
    total = sum(reasons.values())
    if not total:
        return None
    names, values = zip(*counts, strict=True)
    return Drawing(
        "failures",
        f"{total / rows:.1%} of the pairs failed, most of them by: {names[0]}",
        f"{total:,} of {rows:,} pairs of a kernel and a problem have no usable time.",
        Bars(names, values, [f"{count:,}" for count in values], "pairs", strong=1),
    )


def noise(spread: NDArray[np.float64]) -> Drawing | None:
    """Spread of the samples of measurements; None if unknown."""
    known = np.sort(spread[np.isfinite(spread)])
    if not len(known):
        return None
    at = np.linspace(0, 1, _POINTS)
    lines = [Line("", at.tolist(), np.quantile(known, at).tolist())]
    return Drawing(
        "noise",
        f"Half of the measurements spread less than {np.median(known):.1%}, "
        f"{np.mean(known > _STEADY):.1%} of them more than {_STEADY:.0%}",
        "Median absolute deviation of a measurement's samples, relative to their median, in ascending order.",
        Lines(lines, "share of the measurements", "spread", log_y=True, percent_x=True, percent_y=True),
    )


class Look(NamedTuple):
    """A reference measurement: seconds since 1970, time of the reference kernel, and available sensor readings."""

    time: float
    latency_ms: float
    clock_mhz: float | None
    temperature_c: float | None


def looks_of_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Look]]:
    """Complete reference measurements of runs, from a dataset's metadata."""
    looks: dict[str, list[Look]] = {}
    for run in runs:
        rows = run.get("looks")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and len(row) == len(Look._fields) and all(map(_is_number, row)) and row[1]:
                looks.setdefault(str(run.get("run_id")), []).append(Look(*row))
    return looks


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and isfinite(value))


def machine(looks: Mapping[str, Sequence[Look]]) -> list[Drawing]:
    """Time of the reference kernel, clock and temperature, over the time since each run's start, as far as known."""
    usable = {run: [look for look in run_looks if look.latency_ms > 0] for run, run_looks in looks.items()}
    longest = sorted((run for run in usable if len(usable[run]) > 1), key=lambda run: -len(usable[run]))[:_MOST_RUNS]
    if not longest:
        return []
    times = {run: np.array([look.latency_ms for look in usable[run]], dtype=np.float64) for run in longest}
    drift = {run: ms / np.median(ms) - 1.0 for run, ms in times.items()}
    every = np.concatenate(list(drift.values()))
    far = max(float(np.abs(every).max()) * 1.1, _LEAST_FAR)
    figures = [
        _over_time(
            "machine",
            f"The machine drifted by {every.min():+.1%} to {every.max():+.1%}, by the reference kernel",
            "Time of one kernel on one problem, measured repeatedly during the run, relative to its median. Above zero "
            "the machine was slower.",
            {run: (usable[run], drift[run].tolist()) for run in longest},
            Lines([], "", "reference kernel relative to its median", percent_y=True, y_range=(-far, far), zero=True),
        )
    ]
    for name, field, unit in (("clock", "clock_mhz", "MHz"), ("temperature", "temperature_c", "°C")):
        shown = {run: [look for look in usable[run] if getattr(look, field) is not None] for run in longest}
        known = [run for run in longest if shown[run]]
        values = {run: (shown[run], [float(getattr(look, field)) for look in shown[run]]) for run in known}
        flat = [number for _, numbers in values.values() for number in numbers]
        if len(flat) > 1:
            title = f"The {name} was {min(flat):.0f} to {max(flat):.0f} {unit}"
            note = "As reported by the system when the reference kernel was measured."
            figures.append(_over_time(name, title, note, values, Lines([], "", f"{name} in {unit}")))
    return figures


def _over_time(
    name: str, title: str, note: str, values: Mapping[str, tuple[Sequence[Look], list[float]]], axes: Lines
) -> Drawing:
    since = {run: np.array([look.time - looks[0].time for look in looks]) for run, (looks, _) in values.items()}
    longest = max(float(seconds.max()) for seconds in since.values())
    unit, length = next((item for item in _UNITS if longest >= _FEW_UNITS * item[1]), _UNITS[-1])
    lines = [
        Line(run if len(values) > 1 else "", (since[run] / length).tolist(), looks)
        for run, (_, looks) in values.items()
    ]
    return Drawing(name, title, note, replace(axes, lines=lines, x_label=f"{unit} since the start"))


def repeats(earlier: NDArray[np.float64], later: NDArray[np.float64], problem: NDArray[np.int64]) -> Drawing | None:
    """Ratio of the second measurement of each problem to its first, in order of measurement."""
    twice = np.flatnonzero((earlier > 0) & (later > 0))
    numbers, counts = np.unique(problem[twice], return_counts=True)
    ratio: dict[int, list[float]] = {int(number): [] for number in numbers[counts >= _LEAST_PAIRS]}
    for row in twice.tolist():
        if int(problem[row]) in ratio:
            ratio[int(problem[row])].append(float(later[row] / earlier[row]))
    drift = np.array([np.median(ratios) for ratios in ratio.values()]) - 1.0
    if len(drift) < _LEAST_PROBLEMS:
        return None
    far = max(float(np.quantile(np.abs(drift), 0.98)) * 1.1, _LEAST_FAR)
    return Drawing(
        "repeats",
        f"In a repeated measurement, half of the problems are within {np.median(np.abs(drift)):.1%} of their first "
        f"time, with a median of {np.median(drift):+.1%}",
        "Median over a problem's kernels; each point is a problem, in the order of measurement. Above zero the second "
        "measurement was slower. Such drift affects all kernels alike: their times, not their order.",
        Lines(
            [Line("", (np.arange(len(drift)) + 1).tolist(), drift.tolist(), style="points")],
            "problems, in the order of measurement",
            "second time over the first",
            percent_y=True,
            y_range=(-far, far),
            zero=True,
        ),
    )
