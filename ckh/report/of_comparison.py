"""Report that compares two models on the same problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.compare import Comparison, Thresholds, compare
from ckh.assess.metrics import best_of_first
from ckh.report.drawing import Bars, Drawing, Line, Lines, PageTable, Report, Spreads
from ckh.report.of_model import SPREADS_NOTE, spread_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.report.judged import Judged

_FIRST = 20
_WORST = 20
_POINTS = 200
_SLICES = 14


def report_comparison(old: Judged, new: Judged) -> Report:
    """Compare both models on the same rows."""
    comparison = compare([new.dataset], lambda _: old.ranked, lambda _: new.ranked, Thresholds())
    mean = comparison.differences[0]
    paths = [judged.model.path.resolve().parts[::-1] for judged in (old, new)]
    differ = next((place for place, (a, b) in enumerate(zip(*paths, strict=False)) if a != b), 0)
    # As much of the folders as distinguishes the models.
    first, second = ("/".join(reversed(path[: differ + 1])) for path in paths)
    names = first, second
    worst = [
        [f"{degraded.old_efficiency:.1%}", f"{degraded.new_efficiency:.1%}", degraded.problem]
        for degraded in comparison.degraded[:_WORST]
    ]
    figures = [_change(old, new, comparison), _distributions(old, new, names), _regret(old, new), _slices(old, new)]
    return Report(
        title=" → ".join(names),
        subtitle=f"{new.model.spec.purpose}, the same {comparison.problems:,} measured problems",
        facts=[
            ("mean efficiency", f"{mean.old:.1%} → {mean.new:.1%}"),
            ("difference (95 %)", f"{mean.low:+.2%} to {mean.high:+.2%}"),
            ("improved", f"{comparison.improved:,}"),
            ("same", f"{comparison.same:,}"),
            ("degraded", f"{len(comparison.degraded):,}"),
            *((f"{names[0]}: {words}", value) for words, value in old.coverage_facts),
            *((f"{names[1]}: {words}", value) for words, value in new.coverage_facts),
        ],
        figures=[figure for figure in figures if figure is not None],
        tables=[PageTable(f"The {len(worst)} largest losses", ["old", "new", "problem"], worst, code=frozenset({2}))]
        if worst
        else [],
    )


def _both(old: Judged, new: Judged) -> NDArray[np.float64]:
    """Efficiencies of both models' choices where both were measured, shape (2, problems)."""
    values = np.array([old.all_efficiency, new.all_efficiency])
    return values[:, np.isfinite(values).all(axis=0)]


def _change(old: Judged, new: Judged, comparison: Comparison) -> Drawing:
    mean = comparison.differences[0]
    before, after = _both(old, new)
    change = np.sort(after - before)
    at = np.linspace(0, 1, min(_POINTS, len(change)))
    values = np.quantile(change, at)
    is_worse = "worse" if mean.high < 0 else "not distinguishable from the old"
    return Drawing(
        "change",
        f"On average the new model is {'better' if mean.low > 0 else is_worse}: {mean.new - mean.old:+.2%} "
        f"({mean.low:+.2%} to {mean.high:+.2%})",
        "Difference in efficiency on each problem, from the largest loss to the largest gain. The interval is from "
        "a paired bootstrap over problems.",
        Lines(
            [
                Line(
                    "",
                    at.tolist(),
                    values.tolist(),
                    low=np.minimum(values, 0).tolist(),
                    high=np.maximum(values, 0).tolist(),
                )
            ],
            "share of the problems",
            "new - old efficiency",
            percent_x=True,
            percent_y=True,
            zero=True,
        ),
    )


def _distributions(old: Judged, new: Judged, names: tuple[str, str]) -> Drawing:
    before, after = _both(old, new)
    alike = np.ones(len(after))
    return Drawing(
        "efficiency",
        f"The P10 efficiency is {np.percentile(after, 10):.1%} with the new model, "
        f"{np.percentile(before, 10):.1%} with the old one",
        SPREADS_NOTE,
        Spreads(
            [spread_of(f"new: {names[1]}", after, alike), spread_of(f"old: {names[0]}", before, alike)], "efficiency"
        ),
    )


def _regret(old: Judged, new: Judged) -> Drawing:
    most = min(_FIRST, int(np.bincount(new.times.problem).max()))
    k = list(range(1, most + 1))
    is_judged = np.isfinite(old.all_efficiency) & np.isfinite(new.all_efficiency)
    best = {
        name: best_of_first(judged.times, judged.ranked.place, k)[:, is_judged]
        for name, judged in (("new", new), ("old", old))
    }
    lines = {name: 1.0 - thresholds.mean(axis=1) for name, thresholds in best.items()}
    at = min(5, most)
    return Drawing(
        "regret",
        f"The regret of the first {at} choices is {lines['new'][at - 1]:.2%}, with the old model "
        f"{lines['old'][at - 1]:.2%}",
        "Regret is 1 - efficiency of the best of the first k choices, on average.",
        Lines(
            [Line(name, k, values.tolist()) for name, values in lines.items()],
            "first k choices",
            "regret",
            percent_y=True,
            y_range=(0.0, max(float(values[0]) for values in lines.values()) * 1.08 or 0.01),
        ),
    )


def _slices(old: Judged, new: Judged) -> Drawing | None:
    problems, change = new.dataset.problems(), new.all_efficiency - old.all_efficiency
    result = []
    for kind, tests in new.dataset.op.problems.slices.items():
        for name, test in tests.items():
            inside = np.array([test(problem) for problem in problems]) & np.isfinite(change)
            if inside.any() and not inside.all():
                result.append((float(change[inside].mean()), f"{kind}: {name}", int(inside.sum())))
    if not result:
        return None
    result.sort(key=lambda item: -abs(item[0]))
    shown = sorted(result[:_SLICES])
    worst, name, _ = shown[0]
    return Drawing(
        "slices",
        f"The new model {'loses most' if worst < 0 else 'gains least'} on {name}: {worst:+.2%}",
        "Mean difference in efficiency by slice; longer bars are larger differences of either sign.",
        Bars(
            [name for _, name, _ in shown],
            [abs(value) for value, _, _ in shown],
            [f"{value:+.2%} of {count} problems" for value, _, count in shown],
            "new - old efficiency",
            strong=sum(value < 0 for value, _, _ in shown),
        ),
    )
