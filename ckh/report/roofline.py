"""Speeds of measured kernels over the arithmetic intensity of their problems, with the GPU's peaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckh.archs import HOST, load_arch
from ckh.assess.metrics import choices
from ckh.report.drawing import Drawing, Line, Lines, PageTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.assess.metrics import Times
    from ckh.data.dataset import Dataset

HARDWARE_COLUMNS = ("hw_num_cus", "hw_max_clock_mhz")  # that peaks depend on
_DRAWN = 120  # problems
_OTHERS = 6  # other kernels per problem
_MOST_ROOFS = 3
_TABLE_ROWS = 500
_QUANTILES = 60
_PER_TERA, _MS = 1e12, 1e3


class Roof(NamedTuple):
    """Peaks of a GPU by its maker: in TFLOPS, and in TB/s."""

    name: str
    tflops: float
    terabytes: float

    def at(self, intensity: NDArray[np.float64]) -> NDArray[np.float64]:
        """TFLOPS at an arithmetic intensity in operations per byte."""
        return np.minimum(self.tflops, self.terabytes * intensity)


@dataclass(frozen=True, slots=True, eq=False)
class Speeds:
    """Measured speeds of problems, from usable times."""

    dataset: Dataset  # problems that have an oracle
    times: Times
    intensity: NDArray[np.float64]  # operations per byte of compulsory traffic, shape (problems,)
    tflops: NDArray[np.float64]  # of each row, 0 without a time, shape (rows,)
    roofs: Sequence[Roof | None]  # roof of each problem; None: unknown peaks
    chosen: NDArray[np.int64] | None = None
    """Row of a model's choice for each problem, -1 if unmeasured, shape (problems,); None: no model."""

    @property
    def best(self) -> NDArray[np.int64]:
        """Fastest row of each problem, shape (problems,)."""
        return choices(-self.times.latency_ms, self.times.problem, self.times.count)

    @property
    def is_host(self) -> bool:
        """True if a CPU was measured."""
        return HOST in self.dataset.archs

    @property
    def of_roof(self) -> NDArray[np.float64]:
        """The best kernel's share of the roof at the problem's intensity, NaN if unknown."""
        limits = [np.nan if roof is None else roof.at(x) for roof, x in zip(self.roofs, self.intensity, strict=True)]
        return np.asarray(self.tflops[self.best] / np.array(limits, dtype=np.float64))


def speeds_of(dataset: Dataset, times: Times, chosen: NDArray[np.int64] | None = None) -> Speeds:
    """Speeds of a dataset all of whose problems have an oracle."""
    problems = dataset.problems()
    flops = np.array([problem.flops for problem in problems], dtype=np.float64)
    moved = np.array([problem.bytes for problem in problems], dtype=np.float64)
    tflops = flops[times.problem] / (times.latency_ms / _MS) / _PER_TERA
    first = dataset.frame.iloc[dataset.first_rows]
    keys = zip(*(first[name] for name in ("arch", "dtype", *HARDWARE_COLUMNS)), strict=True)
    roofs = [_roof(*key) for key in keys]
    return Speeds(dataset, times, flops / moved, tflops, roofs, chosen)


@cache
def _roof(arch: str, dtype: str, cus: float, clock_mhz: float) -> Roof | None:
    spec = load_arch(arch)
    if spec.peaks is None or dtype not in spec.peaks.flops_per_cu_clock or not cus > 0 or not clock_mhz > 0:
        return None
    tflops = spec.peak_tflops(dtype, cus, clock_mhz)
    return Roof(f"{arch}, {dtype}, {cus:g} CUs", tflops, spec.peaks.bandwidth_gb_s / 1e3)


def times_over_problems(speeds: Speeds) -> Drawing:
    """Best time of each problem, sorted, with the times of the median and the slowest kernel."""
    times = speeds.times
    order = np.lexsort((times.latency_ms, times.problem))
    order = order[np.isfinite(times.latency_ms[order])]
    start, count = np.unique(times.problem[order], return_index=True, return_counts=True)[1:]
    ms = {
        name: times.latency_ms[order[start + place]]
        for name, place in (("slowest kernel", count - 1), ("median kernel", count // 2), ("best kernel", 0 * count))
    }
    at = np.linspace(0, 1, min(_QUANTILES, len(start)))
    best, middle = ms["best kernel"], ms["median kernel"]
    lines = [Line(name, at.tolist(), np.quantile(values, at).tolist()) for name, values in reversed(ms.items())]
    return Drawing(
        "times",
        f"The best times go from {best.min():.3g} to {best.max():.3g} ms{_where(speeds)}; the median kernel takes "
        f"{np.median(middle / best):.2f} times as long as the best",
        "Times of the best, the median and the slowest kernel of each problem, each sorted from the shortest.",
        Lines(lines, "share of the problems", "ms", log_y=True, percent_x=True),
    )


def roofline(speeds: Speeds) -> Drawing:
    """TFLOPS of kernels over the arithmetic intensity of their problems, below the GPU's roofs."""
    order = np.argsort(speeds.intensity, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(_DRAWN, len(order))).astype(int))]
    best, chosen = speeds.best[shown], None if speeds.chosen is None else speeds.chosen[shown]
    marked = best if chosen is None else np.concatenate([best, chosen])
    low, high = float(speeds.intensity.min()) * 0.8, float(speeds.intensity.max()) * 1.25
    lines = []
    for roof in _distinct_roofs(speeds):
        ridge = roof.tflops / roof.terabytes
        x = np.array([low, *([ridge] if low < ridge < high else []), high])
        lines.append(Line(f"peak of {roof.name}", x.tolist(), roof.at(x).tolist(), is_plain=True))
    lines.append(_points("best", speeds, best, 9.0))
    if chosen is not None:
        lines.append(_points("chosen", speeds, chosen[(chosen >= 0) & (speeds.tflops[chosen] > 0)], 5.0))
    lines.append(_points("other kernels", speeds, _others(speeds, shown, marked), 3.5))
    sampled = "" if len(shown) == len(order) else f" ({len(shown)} of {len(order):,})"
    return Drawing(
        "roofline",
        _roofline_title(speeds),
        f"Each column is a problem{sampled}, with up to {_OTHERS} other kernels between its "
        "fastest and its slowest. Arithmetic intensity is operations per byte of minimal memory traffic. "
        f"{_peaks_in_words(speeds)}",
        Lines(lines, "operations per byte", "TFLOPS", log_x=True, log_y=True, labels_above=True),
    )


def _where(speeds: Speeds) -> str:
    return " on the host" if speeds.is_host else ""


def _roofline_title(speeds: Speeds) -> str:
    of_roof = speeds.of_roof
    known = np.isfinite(of_roof)
    best = speeds.tflops[speeds.best]
    if not known.any():
        return f"The best kernels reach {best.min():.3g} to {best.max():.3g} TFLOPS{_where(speeds)}"
    return (
        f"The best kernels reach {best.min():.3g} to {best.max():.3g} TFLOPS, half of them more than "
        f"{np.median(of_roof[known]):.0%} of the peak at their arithmetic intensity"
    )


def _peaks_in_words(speeds: Speeds) -> str:
    roofs = _distinct_roofs(speeds)
    if not roofs:
        return "The host's peak rates are unknown." if speeds.is_host else "Peak rates are unknown."
    said = "; ".join(f"{roof.name}: {roof.tflops:,.0f} TFLOPS, {roof.terabytes:g} TB/s" for roof in roofs)
    return f"The vendor's peak rates: {said}; above the slope, operands come from caches."


def _distinct_roofs(speeds: Speeds) -> list[Roof]:
    """The roofs of most problems."""
    roofs = [roof for roof in speeds.roofs if roof is not None]
    return sorted(dict.fromkeys(roofs), key=lambda roof: -roofs.count(roof))[:_MOST_ROOFS]


def _points(label: str, speeds: Speeds, rows: NDArray[np.int64], size: float) -> Line:
    names = speeds.dataset.frame["kernel"].to_numpy()
    problems = speeds.dataset.problems()
    tips = [
        f"{label}: {speeds.tflops[row]:.4g} TFLOPS, {speeds.times.latency_ms[row]:.4g} ms, {names[row]}, "
        f"{problems[speeds.times.problem[row]].canonical()}"
        for row in rows
    ]
    x, y = speeds.intensity[speeds.times.problem[rows]], speeds.tflops[rows]
    is_quiet = label == "other kernels"
    return Line(label, x.tolist(), y.tolist(), style="points", tips=tips, size=size, is_quiet=is_quiet)


def _others(speeds: Speeds, problems: NDArray[np.int64], marked: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of up to `_OTHERS` other measured kernels of each problem, from the fastest to the slowest."""
    is_other = np.isfinite(speeds.times.latency_ms) & np.isin(speeds.times.problem, problems)
    is_other[marked[marked >= 0]] = False
    rows = np.flatnonzero(is_other)
    rows = rows[np.lexsort((speeds.times.latency_ms[rows], speeds.times.problem[rows]))]
    _, start, count = np.unique(speeds.times.problem[rows], return_index=True, return_counts=True)
    samples = [
        rows[first + np.unique(np.linspace(0, many - 1, min(_OTHERS, many)).astype(int))]
        for first, many in zip(start, count, strict=True)
    ]
    return np.concatenate([*samples, np.zeros(0, dtype=np.int64)])


def problem_table(speeds: Speeds) -> PageTable:
    """A row for each problem, by decreasing time: its best kernel, and the model's choice if there is one."""
    best, names = speeds.best, speeds.dataset.frame["kernel"].to_numpy()
    ms, of_roof = speeds.times.latency_ms, speeds.of_roof
    kernels = np.bincount(speeds.times.problem[np.isfinite(ms)], minlength=len(best))
    order = np.argsort(-ms[best], kind="stable")[:_TABLE_ROWS]
    has_model, has_roof = speeds.chosen is not None, bool(np.isfinite(of_roof).any())
    problems = speeds.dataset.problems()
    columns = {"problem": [problems[i].canonical() for i in order]}
    if has_model:
        columns |= _of_choices(speeds, order)
    columns |= {
        "best ms": [f"{ms[best[i]]:.4g}" for i in order],
        "best TFLOPS": [f"{speeds.tflops[best[i]]:.4g}" for i in order],
        "ops a byte": [f"{speeds.intensity[i]:.4g}" for i in order],
    }
    if has_roof:
        columns["of the peak"] = ["-" if np.isnan(of_roof[i]) else f"{of_roof[i]:.1%}" for i in order]
    columns |= {"kernels": [str(kernels[i]) for i in order], "best kernel": [str(names[best[i]]) for i in order]}
    code = {place for place, name in enumerate(columns) if name in {"problem", "best kernel", "chosen kernel"}}
    return PageTable(
        f"{len(order)} problems" + ("" if len(order) == len(best) else f" of {len(best):,}, the slowest first"),
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        code=frozenset(code),
        is_data=True,
        note=("Times are of the host. " if speeds.is_host else "") + "Rows are sorted by time.",
    )


def _of_choices(speeds: Speeds, order: NDArray[np.int64]) -> dict[str, list[str]]:
    assert speeds.chosen is not None
    names, efficiency = speeds.dataset.frame["kernel"].to_numpy(), speeds.times.efficiency()
    rows = speeds.chosen[order].tolist()
    return {
        "efficiency": ["-" if row < 0 else f"{efficiency[row]:.1%}" for row in rows],
        "chosen ms": ["-" if row < 0 else f"{speeds.times.latency_ms[row]:.4g}" for row in rows],
        "chosen TFLOPS": ["-" if row < 0 else f"{speeds.tflops[row]:.4g}" for row in rows],
        "chosen kernel": ["never measured" if row < 0 else str(names[row]) for row in rows],
    }
