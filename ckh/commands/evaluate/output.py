"""Output of `ckh evaluate` by times."""

from __future__ import annotations

import shlex
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.assess.report import Choice, Evaluation
from ckh.commands._common import print_table, say
from ckh.documents import Document, fields_of
from ckh.learn.judging.judged_data import percent, stands_in
from ckh.text.log import MEASURED
from ckh.text.tabletext import sparkline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.assess.intervals import Estimate
    from ckh.assess.metrics import Efficiency
    from ckh.assess.noise import Ceiling, DeviceNoise
    from ckh.learn.judging.judged_answers import TimeErrors
    from ckh.learn.judging.judged_data import Among, StandIn
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.spec import ModelSpec

NOT_LEARNED = (
    "baselines from training data (nearest problem, best fixed kernel) are missing: name the data with --train-data"
)
BEST_RANKED_MEASURED = "best-ranked measured kernel"
_BARS = 20
_LEAST_SHOWN = 0.8  # lowest efficiency shown
NOT_REPEATED = (
    "repeatability unknown, without repeated measurements; the tolerance is the spread of a run's samples, at least 1 %"
)


@dataclass(frozen=True, slots=True)
class MeasurableChoice(Choice):
    """A measured choice, with the command that measures its problem again."""

    kernel: str
    """The choice."""
    efficiency: float
    """Efficiency of the choice, 0 if it failed."""
    measure_again: str | None = None
    """Command that measures the problem again with all kernels."""


@dataclass(frozen=True, slots=True)
class UnjudgedChoice(Choice):
    """An unmeasured choice, or a refused problem."""

    latency_ms: None
    efficiency: None


class EvaluateDocument(Evaluation, Document):
    """ckh evaluate --json: the efficiency of a model's choices."""

    schema = "evaluate"

    baselines: dict[str, Efficiency | None]  # type: ignore[assignment] # one is null where it is unknown
    """Baselines that the data allow, on the problems of efficiency; null: unknown."""
    choices: Sequence[MeasurableChoice]
    """Choices that were measured, worst first."""
    unjudged: tuple[UnjudgedChoice, ...]
    """Problems that are refused or whose choice was never measured."""
    model: str
    """Folder of the model."""
    stands_in: StandIn | None
    """Substitute model, if there is no model of these problems; otherwise null."""
    among: Among
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""
    times: TimeErrors | None
    """Predicted against measured times; null if the model predicts none."""
    figures: Mapping[str, float]
    """Figures by the names that gates use."""
    failures: tuple[str, ...]
    """Failed gates."""


def document(
    result: Evaluation,
    model: Model,
    among: Among,
    times: TimeErrors | None,
    figures: Mapping[str, float],
    worst: int,
) -> EvaluateDocument:
    """Document of an evaluation, with the `worst` worst choices, or all."""
    from ckh.assess.report import HINDSIGHT

    judged = _worst_first([choice for choice in result.choices if choice.efficiency is not None])[: worst or None]
    outcome = fields_of(result) | {
        "baselines": {**result.baselines, HINDSIGHT: result.baselines.get(HINDSIGHT)},
        "choices": [
            MeasurableChoice(**fields_of(item), measure_again=measure_again([item], model.spec) or None)
            for item in judged
        ],
    }
    return EvaluateDocument(
        **outcome,
        unjudged=tuple(UnjudgedChoice(**fields_of(choice)) for choice in result.choices if choice.efficiency is None),
        model=str(model.path),
        stands_in=stands_in(model),
        among=among,
        times=times,
        figures=figures,
        failures=(),
    )


def print_report(result: Evaluation, spec: ModelSpec, title: str, worst: int) -> None:
    """Print an evaluation as tables."""
    from ckh.assess.report import FIXED, HINDSIGHT

    columns = ("efficiency", "mean", "95 % interval", "geomean", "P50", "P10", "P5", "min")
    coverage, own = result.coverage, [("model", result.efficiency)]
    if coverage.judged < coverage.problems:
        own.append((BEST_RANKED_MEASURED, result.best_ranked_measured))
    rows = [_row(name, item) for name, item in (*own, *result.baselines.items()) if item is not None]
    judged = "" if coverage.judged == coverage.problems else f", {coverage.judged} with a measured choice"
    print_table(f"{title}: {result.rows} rows, {coverage.problems} problems{judged}", columns, rows, {"mean": MEASURED})
    if coverage.judged < coverage.problems and result.best_ranked_measured is not None:
        say(
            f"{BEST_RANKED_MEASURED}: {result.best_ranked_measured.problems} problems; it is not predict's answer "
            "where the choice was never measured"
        )
    for line in coverage.lines():
        say(line)
    if known := [choice.efficiency for choice in result.choices if choice.efficiency is not None]:
        say(distribution_line(known))
    if HINDSIGHT not in result.baselines:
        say(f"{HINDSIGHT}: unknown, no kernel was measured on every problem")
    if FIXED not in result.baselines:
        say(NOT_LEARNED)
    for line in noise_lines(result.noise, result.ceiling):
        say(line)
    if result.unstable:
        say(f"{percent(result.unstable)} of the times are unstable: their samples spread by more than 5 %")
    say()
    _print_first(result)
    say()
    slices = [
        [
            f"{item.kind}: {item.name}",
            str(item.problems),
            percent(item.mean),
            _interval(item.low, item.high),
            percent(item.p10),
            percent(item.min),
        ]
        for item in result.slices
    ]
    print_table("", ("slice", "problems", "mean", "95 % interval", "P10", "min"), slices)
    if worst:
        _print_worst(_worst_first(result.choices)[:worst], spec)


def _print_first(result: Evaluation) -> None:
    """Print the efficiency of the first k choices, with the number of problems with unmeasured choices."""
    columns = ["first k choices", "with a best kernel", "mean of the best", "P10 of the best"]
    rows = [[str(k.k), percent(k.hit), percent(k.efficiency_mean), percent(k.efficiency_p10)] for k in result.top]
    if any(k.problems < result.coverage.problems for k in result.top):
        columns.insert(1, "problems")
        for row, k in zip(rows, result.top, strict=True):
            row.insert(1, str(k.problems))
    print_table("", columns, rows)


def distribution_line(efficiency: Sequence[float]) -> str:
    """Histogram of efficiency over the problems, as bars."""
    least = min(int(min(efficiency) * 10) / 10, _LEAST_SHOWN)
    width = (1.0 - least) / _BARS
    counts = [0] * _BARS
    for value in efficiency:
        counts[min(int((value - least) / width + 1e-9), _BARS - 1)] += 1
    return f"the model's choices from {least:.0%} {sparkline(counts, 0)} to 100%, by efficiency"


def noise_lines(noise: Sequence[DeviceNoise], ceiling: Ceiling | None) -> list[str]:
    """Lines on repeat noise, and on the model compared with a repeated measurement."""
    lines = [_noise_line(item) for item in noise] or [NOT_REPEATED]
    if ceiling is not None:
        how = f"selected on one measurement, scored on another ({ceiling.problems} problems)"
        lines.append(f"ceiling    {_estimate(ceiling.repeated)}: {how}")
        lines.append(f"the model  {_estimate(ceiling.model)}, scored alike; {_estimate(ceiling.share)} of the ceiling")
        if ceiling.gap is not None:
            lines.append(f"           {_estimate(ceiling.gap)} of the gap from the {ceiling.baseline} to it")
    return lines


def _noise_line(noise: DeviceNoise) -> str:
    return (
        f"repeatability on {noise.device}: two times of a kernel differ by {noise.median:.1%} (median), "
        f"{noise.p90:.1%} (P90) in {noise.pairs} pairs of {noise.problems} problems; ties within "
        f"{noise.tolerance:.1%} of the best"
    )


def _estimate(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} ({_interval(estimate.low, estimate.high)})"


def measure_again(choices: Sequence[Choice], spec: ModelSpec) -> str:
    """Command that measures problems again with all kernels; empty if ckh cannot measure the operation."""
    if spec.op.measured is None:
        return ""
    from ckh.archs import HOST
    from ckh.learn.models.spec import ANY

    problems = " ".join(shlex.quote(choice.problem) for choice in choices)
    words = [f"--op {spec.op_type}", "--device host" if spec.arch == HOST else f"--arch {spec.arch}"]
    words += [f"--variant {spec.variant}"] if spec.op.has_directions and spec.variant is not None else []
    words += [f"--dtype {spec.dtype}"] if spec.dtype != ANY else []
    name = f"worst-{zlib.crc32(problems.encode()):08x}"
    bench = f"ckh bench {' '.join(words)} --problems {name}.txt --out runs/{name}"
    return f"printf '%s\\n' {problems} > {name}.txt && {bench}"


def _worst_first(choices: Sequence[Choice]) -> list[Choice]:
    """Choices by efficiency, after refused problems and unmeasured choices."""
    return sorted(
        choices, key=lambda choice: (not choice.refusal, choice.efficiency is not None, choice.efficiency or 0.0)
    )


def _print_worst(ranked: Sequence[Choice], spec: ModelSpec) -> None:
    say()
    lines = [
        [
            candidate.problem,
            "never measured" if candidate.efficiency is None else percent(candidate.efficiency),
            candidate.kernel or "refused",
            candidate.best_kernel,
        ]
        for candidate in ranked
    ]
    print_table("", ("worst choices", "efficiency", "chosen", "best"), lines)
    if command := measure_again(ranked, spec):
        say(f"\nmeasure them again: {command}")


def _row(name: str, efficiency: Efficiency) -> list[str]:
    middle = [percent(part.value) for part in (efficiency.geomean, efficiency.p50, efficiency.p10, efficiency.p5)]
    interval = _interval(efficiency.mean.low, efficiency.mean.high)
    return [name, percent(efficiency.mean.value), interval, *middle, percent(efficiency.min)]


def _interval(low: float, high: float) -> str:
    return f"{percent(low)} - {percent(high)}"
