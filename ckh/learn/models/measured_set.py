"""`measured.json.gz`: training problems of a model with the fastest kernel of each. Imports little.

Used for out-of-distribution checks and to find the nearest measured problem.
"""

from __future__ import annotations

import gzip
import json
import math
from bisect import insort
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ckh.files.jsonfields import model_fields
from ckh.text.log import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.files.jsonfields import JsonFields
    from ckh.ops.base import Problem

MEASURED_NAME = "measured.json.gz"
_MOST_PROBLEMS = 20_000  # above this, only the limits of sizes are stored
_VERSION = 1
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class NearestProblem:
    """A measured problem and its fastest kernel.

    `distance` is the Euclidean distance of the base-2 logarithms of sizes.
    """

    problem: str
    distance: float
    kernel: str
    latency_ms: float


@dataclass(frozen=True, eq=False)
class MeasuredSet:
    """Measurements that a model was trained on."""

    sizes: tuple[str, ...]
    limits: tuple[tuple[int, int], ...]
    families: tuple[str, ...]
    problems: tuple[str, ...]  # empty if there are too many
    values: tuple[tuple[int, ...], ...]
    kernels: tuple[str, ...]
    best: tuple[tuple[int, float], ...]  # of each problem: index of the fastest kernel, and its time in ms

    @property
    def limits_by_size(self) -> dict[str, tuple[int, int]]:
        """Minimum and maximum of each measured size, by name."""
        return dict(zip(self.sizes, self.limits, strict=True))

    @cached_property
    def _logs(self) -> list[list[float]]:
        return [list(map(_log, row)) for row in self.values]

    def nearest(self, problem: Problem, count: int = 1) -> list[NearestProblem]:
        """Find the nearest problems by sizes, nearest first."""
        here = [_log(getattr(problem, name)) for name in self.sizes]
        near: list[tuple[float, int]] = []  # at most `count`
        limit = math.inf  # distance of the farthest of them
        for number, row in enumerate(self._logs):
            total = 0.0
            for log, place in zip(row, here, strict=True):
                total += (log - place) ** 2
                if total > limit:
                    break
            else:
                insort(near, (total, number))
                del near[count:]
                limit = near[-1][0] if len(near) == count else limit
        return [
            NearestProblem(
                self.problems[number], math.sqrt(total), self.kernels[self.best[number][0]], self.best[number][1]
            )
            for total, number in near
        ]


@lru_cache(maxsize=1 << 16)
def _log(size: int) -> float:
    return math.log2(1 + max(size, 0))


def measured_file(dataset: Dataset, before: MeasuredSet | None = None) -> bytes:
    """Build the file content for training rows; problems without times count only for limits and families."""
    import numpy as np

    from ckh.assess.metrics import choices
    from ckh.assess.times import times_of

    op, frame = dataset.op, dataset.frame
    limits = [(int(frame[name].min()), int(frame[name].max())) for name in op.problems.sizes]
    families = set(map(str, frame[op.kernels.slice_column].unique()))
    rows: dict[str, tuple[list[int], str, float]] = {}
    if before is not None:
        limits = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(limits, before.limits, strict=True)]
        families |= set(before.families)
        for problem, values, (kernel, ms) in zip(before.problems, before.values, before.best, strict=True):
            rows[problem] = list(values), before.kernels[kernel], ms
    times = times_of(dataset)
    if times.count + len(rows) <= _MOST_PROBLEMS:
        best = choices(-times.latency_ms, times.problem, times.count)
        names = frame["kernel"].to_numpy(dtype=object)[best]
        sizes = frame.iloc[dataset.first_rows][list(op.problems.sizes)].to_numpy(dtype=np.int64).tolist()
        of_problem: dict[str, list[tuple[float, str, list[int]]]] = {}
        winners = zip(dataset.problems(), sizes, names, times.latency_ms[best].tolist(), strict=True)
        for problem, row, name, ms in winners:
            if ms < np.inf:
                of_problem.setdefault(problem.canonical(), []).append((float(f"{ms:.6g}"), str(name), row))
        for text, won in of_problem.items():  # by several runs: the median, or the shorter time next to it
            ms, name, row = sorted(won)[(len(won) - 1) // 2]
            rows[text] = row, name, ms
    else:
        rows = {}
    kernels: dict[str, int] = {}
    document = {
        "version": _VERSION,
        "sizes": [name.lower() for name in op.problems.sizes],
        "limits": limits,
        "families": sorted(families),
        "problems": list(rows),
        "values": [row for row, _, _ in rows.values()],
        "best": [[kernels.setdefault(name, len(kernels)), ms] for _, name, ms in rows.values()],
        "kernels": list(kernels),
    }
    # No time stamp in the archive: equal models give equal files.
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def read_measured(folder: Path, sizes: Iterable[str] | None = None) -> MeasuredSet | None:
    """Read the measurements of a model's folder."""
    path = folder / MEASURED_NAME
    if not path.is_file():
        return None
    with model_fields(path) as fields:
        measured_set = _measured_set(fields)
        if sizes is not None and (unknown := set(measured_set.sizes) - set(sizes)):
            fields.fail("sizes", f"has {min(unknown)[:_SHOWN]!r}, which is not a size of the model's operation")
    return measured_set


def _measured_set(fields: JsonFields) -> MeasuredSet:
    if (version := fields.scalar("version", int)) != _VERSION:
        fields.fail("version", f"is {version}, and this ckh reads {_VERSION}")
    sizes = fields.strings("sizes")
    if len(set(sizes)) < len(sizes):
        fields.fail("sizes", "has a name twice")
    measured_set = MeasuredSet(
        sizes=sizes,
        limits=tuple((low, high) for low, high in fields.rows("limits", (int, int))),
        families=_lines(fields, "families"),
        problems=_lines(fields, "problems"),
        values=tuple(map(tuple, fields.rows("values", (int,) * len(sizes)))),
        kernels=_lines(fields, "kernels"),
        best=tuple((kernel, float(ms)) for kernel, ms in fields.rows("best", (int, float))),
    )
    for name, problem in _faults(measured_set):
        fields.fail(name, problem)
    return measured_set


def _lines(fields: JsonFields, name: str) -> tuple[str, ...]:
    """Escape texts for terminals."""
    return tuple(map(one_line, fields.strings(name)))


def _faults(measured_set: MeasuredSet) -> Iterator[tuple[str, str]]:
    """The first inconsistent field, and the fault."""
    if len(measured_set.problems) > _MOST_PROBLEMS:
        yield "problems", f"must be {_MOST_PROBLEMS} at most, not {len(measured_set.problems)}"
    for name, rows, of in (
        ("limits", measured_set.limits, "sizes"),
        ("values", measured_set.values, "problems"),
        ("best", measured_set.best, "problems"),
    ):
        if len(rows) != (count := len(getattr(measured_set, of))):
            yield name, f"must have a row for each of {count} {of}, not {len(rows)} rows"
    for number, (low, high) in enumerate(measured_set.limits):
        if not 0 <= low <= high:
            yield f"limits[{number}]", f"must be the least and the largest size, not {[low, high]}"
    for number, (kernel, ms) in enumerate(measured_set.best):
        if not (0 <= kernel < len(measured_set.kernels) and ms > 0):
            yield f"best[{number}]", f"must be the number of a kernel and its time in ms, not {[kernel, ms]}"
