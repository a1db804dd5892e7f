"""Report of a dataset: coverage, fastest kernels, failures, stability of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.report import measurements
from ckh.report.drawing import Report
from ckh.report.measurements import looks_of_runs, machine, repeats
from ckh.report.roofline import problem_table, roofline, speeds_of, times_over_problems
from ckh.schema import REPEATED

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset


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
