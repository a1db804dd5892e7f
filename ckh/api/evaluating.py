"""How good a model's choices are on measured problems: `ckh.evaluate`, and what `ckh evaluate` prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.api.inputs import files_of
from ckh.assess.report import Choice, Evaluation
from ckh.assess.winners import MISSING, WinnerReport
from ckh.documents import Document, fields_of
from ckh.errors import UsageError
from ckh.learn.judging.judged_data import (
    MOST_UNSTABLE,
    Among,
    files_learned_from,
    for_verdict,
    held_out,
    is_copy,
    judged_model,
    load_judged,
    measure_again,
    refuse_unstable,
    won,
)
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from ckh.api.inputs import Data
    from ckh.assess.metrics import Efficiency
    from ckh.assess.ranked_rows import RankedRows
    from ckh.assess.winners import WinnerChoice
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.answers.answer import NotMeasured
    from ckh.learn.judging.judged_answers import TimeErrors
    from ckh.learn.models.artifact import Model

COVERAGE = "coverage"  # the figure of coverage


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Data, model and options of an evaluation."""

    train_data: tuple[Path, ...] = ()
    among: Among = Among.CANDIDATES
    with_trained: bool = False
    max_unstable: float = MOST_UNSTABLE
    least: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated(Shown):
    """Evaluation of a model.

    Attributes:
        model: the model.
        result: efficiencies of its choices, or if only winners are known the hit rates.
        figures: figures by the names of `ckh evaluate --fail-under`.
        among: kernels to choose among.
        times: predicted against measured times; None if the model predicts none.
        winners: besides efficiencies, hit rates on the problems of which only winners are known; None without such.
    """

    model: Model
    result: Evaluation | WinnerReport
    figures: Mapping[str, float]
    among: Among
    times: TimeErrors | None = None
    winners: WinnerReport | None = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.figures.items())
        return f"<ckh.Evaluated {self.model.path.name}: {shown}>"

    def table(self) -> ShownTable:
        """A row for the model and each baseline: efficiencies, or of winners hit rates."""
        title = str(self.model.path)
        if isinstance(self.result, WinnerReport):
            hits = [hit for hit in (self.result.model, self.result.baseline) if hit is not None]
            columns = ("choice", "problems", *(f"top{k}" for k in self.result.model.first))
            return ShownTable(title, columns, [(hit.name, hit.problems, *hit.first.values()) for hit in hits])
        own = {"model": self.result.efficiency, **self.result.baselines}
        rows = [(name, *_figures(efficiency)) for name, efficiency in own.items() if efficiency is not None]
        columns = ("choice", "problems", "mean", "low", "high", "geomean", "p50", "p10", "p5", "min")
        return ShownTable(title, columns, rows, tuple(self.result.coverage.lines()))

    def to_frame(self) -> pd.DataFrame:
        """One row for each problem: the choice, and how good it is."""
        import pandas as pd

        made: pd.DataFrame = pd.DataFrame([fields_of(choice) for choice in self.result.choices])
        return made


def _figures(efficiency: Efficiency) -> tuple[float, ...]:
    mean = efficiency.mean
    further = (efficiency.geomean, efficiency.p50, efficiency.p10, efficiency.p5)
    return efficiency.problems, mean.value, mean.low, mean.high, *(figure.value for figure in further), efficiency.min


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

    choices: Sequence[MeasurableChoice]
    """Choices that were measured, worst first."""
    unjudged: tuple[UnjudgedChoice, ...]
    """Problems that are refused or whose choice was never measured."""
    model: str
    """Folder of the model."""
    stands_in: NotMeasured | None
    """Substitute model, if there is no model of these problems; otherwise null."""
    among: Among
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""
    times: TimeErrors | None
    """Predicted against measured times; null if the model predicts none."""
    winners: WinnerReport | None
    """Hit rates on the problems of which only winners are known; null without such."""
    figures: Mapping[str, float]
    """Figures by the names that gates use."""
    failures: tuple[str, ...]
    """Failed gates."""


class EvaluateWinnersDocument(WinnerReport, Document):
    """ckh evaluate --json, if of all problems only winners are known."""

    schema = "evaluate_winners"

    stands_in: NotMeasured | None
    """Substitute model, if there is no model of these problems; otherwise null."""
    among: Among
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""
    figures: Mapping[str, float]
    """Figures by the names that gates use."""
    failures: tuple[str, ...]
    """Failed gates."""


def document_of(
    evaluated: Evaluated, worst: int, failures: tuple[str, ...]
) -> EvaluateDocument | EvaluateWinnersDocument:
    """Document of an evaluation, with the `worst` worst choices, or all."""
    result, spec = evaluated.result, evaluated.model.spec
    fields = fields_of(result)
    fields |= {"stands_in": evaluated.model.not_measured, "among": evaluated.among}
    fields |= {"figures": evaluated.figures, "failures": failures}
    if isinstance(result, WinnerReport):
        return EvaluateWinnersDocument(**fields | {"choices": missed_first(result)[: worst or None]})
    judged = [choice for choice in worst_first(result.choices) if choice.efficiency is not None][: worst or None]
    fields["choices"] = [
        MeasurableChoice(**fields_of(choice), measure_again=measure_again([choice.problem], spec) or None)
        for choice in judged
    ]
    return EvaluateDocument(
        **fields,
        unjudged=tuple(UnjudgedChoice(**fields_of(choice)) for choice in result.choices if choice.efficiency is None),
        model=str(evaluated.model.path),
        times=evaluated.times,
        winners=evaluated.winners,
    )


def worst_first(choices: Sequence[Choice]) -> list[Choice]:
    """Choices by efficiency, after refused problems and unmeasured choices."""
    return sorted(
        choices, key=lambda choice: (not choice.refusal, choice.efficiency is not None, choice.efficiency or 0.0)
    )


def missed_first(result: WinnerReport) -> list[WinnerChoice]:
    """Choices by the rank of the winner, after those whose answer lacks it."""
    return sorted(result.choices, key=lambda choice: -(MISSING if choice.place is None else choice.place))


def evaluated(model: Model, data: Sequence[Path], options: EvaluateOptions) -> Evaluated:
    """Evaluate a model's choices on datasets: by efficiency, and by hits where only a problem's winner is known."""
    parts = load_judged(model, data)
    if options.least is None:
        parts = held_out(parts, [model], with_trained=options.with_trained)
    else:
        parts = for_verdict(parts, [model], options.least, with_trained=options.with_trained, with_won=True)
    refuse_unstable(parts, options.max_unstable)
    train_data = files_learned_from(model, options.train_data, data)
    learned_from = load_judged(model, train_data) if train_data else None
    if not (is_won := won(parts, model)).all():
        judged = _of_times(model, parts.select_problems(~is_won), learned_from, options.among)
        if not is_won.any():
            return judged
        hits, figures = _of_winners(model, parts.select_problems(is_won), learned_from)
        return replace(judged, winners=hits, figures={**figures, **judged.figures})
    if options.among is Among.MEASURED:
        raise UsageError("--among measured needs times, not winners alone", "omit --among", code="conflicting-options")
    return Evaluated(model, *_of_winners(model, parts, learned_from), options.among)


def evaluate(
    data: Data,
    model: Model | Path | str | None = None,
    *,
    train_data: Data = (),
    among: str = Among.CANDIDATES,
    with_trained: bool = False,
    max_unstable: float = MOST_UNSTABLE,
    min_problems: int | None = None,
) -> Evaluated:
    """Evaluate a model's choices on measured problems, as `ckh evaluate` does.

    Args:
        data: the measurements: datasets, or paths of such.
        model: the model, or its folder; by default the one that `ckh predict` selects.
        train_data: training data of the baselines; by default the model's, if found.
        among: "candidates" of `ckh predict`, or "measured" kernels alone.
        with_trained: whether problems that the model was trained on are included.
        max_unstable: maximum share of unstable times.
        min_problems: refuse fewer problems, and leave out those with a single measured kernel.

    Raises:
        CkhError: as `evaluated`; or there is no such model.
    """
    from ckh.learn.models.artifact import Model, load_model

    if among not in list(Among):
        raise UsageError(f"unknown among {among!r}", "one of " + ", ".join(Among), code="unknown-name")
    with files_of(data) as paths, files_of(train_data) as learned_from:
        loaded = (
            model if isinstance(model, Model) else judged_model(None, paths) if model is None else load_model(model)
        )
        options = EvaluateOptions(tuple(learned_from), Among(among), with_trained, max_unstable, least=min_problems)
        return evaluated(loaded, paths, options)


def _of_times(model: Model, parts: DatasetParts, learned_from: DatasetParts | None, among: Among) -> Evaluated:
    from ckh.assess import report
    from ckh.assess.baselines import Learned
    from ckh.assess.metrics import figures
    from ckh.learn.judging.judged_answers import judged_rows, time_errors

    ratios = []

    def rank(part: Dataset) -> RankedRows:
        ranked, of_part = judged_rows(model, part, measured_alone=among is Among.MEASURED)
        ratios.append(of_part)
        return ranked

    learned = None if learned_from is None else Learned(learned_from)
    result = report.evaluate(parts, rank, learned, is_copy=is_copy(parts, model, learned_from))
    values = {COVERAGE: result.coverage.coverage}
    values |= {} if result.efficiency is None else figures(result.efficiency)
    return Evaluated(model, result, values, among, time_errors(ratios))


def _of_winners(
    model: Model, parts: DatasetParts, learned_from: DatasetParts | None
) -> tuple[WinnerReport, dict[str, float]]:
    """Evaluation by winners, of one row per problem, in memory, and its figures."""
    from ckh.assess import winners
    from ckh.learn.judging.judged_answers import ranked_winners

    dataset, known = parts.whole(), None if learned_from is None else learned_from.whole()
    result = winners.report(dataset, ranked_winners(dataset, model), known)
    return result, {f"top{k}": share for k, share in result.model.first.items()} | {COVERAGE: result.coverage}
