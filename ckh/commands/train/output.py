"""Output of `ckh train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.api.learning import against_start, continues_current
from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document, fields_of
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from ckh.learn.training.trained import FoldMetrics, StartComparison, Trained


@dataclass(frozen=True, slots=True)
class TargetResult:
    """A trained target."""

    trees: int
    oof_mean_efficiency: float | None
    """Mean efficiency on held-out folds."""
    oof_p10_efficiency: float | None
    """10th percentile of the efficiency on held-out folds."""
    folds: tuple[FoldMetrics, ...]


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Efficiency of the new model and of the model it started from, on the same problems."""

    problems: int
    seen: int | None
    """Training problems of the start among them; null: unknown."""
    start_mean_efficiency: float
    start_p10_efficiency: float
    mean_efficiency: float
    p10_efficiency: float
    worse: bool


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Model that training continued."""

    from_: str
    """Its folder."""
    prev_trees: int
    new_trees: int
    validation: ModelComparison | None


@dataclass(frozen=True, slots=True)
class CurrentModel:
    """Model in use before training."""

    model: str
    """Its folder, or the estimate's name."""
    validation: ModelComparison
    """Held-out choices of the new model, with those of the current model as start."""


class TrainDocument(Document):
    """ckh train --json: the trained models."""

    schema = "train"

    out: str
    """Folder of the model."""
    rows: int
    problems: int
    rank: TargetResult | None = None
    tflops: TargetResult | None = None
    latency: TargetResult | None = None
    bandwidth: TargetResult | None = None
    warm_start: WarmStart | None = None
    """With --warm-start."""
    today: CurrentModel | None = None


def print_trained(trained: Trained, out: Path, *, as_json: bool) -> None:
    """Print the results of training and the next command."""
    dataset = trained.dataset
    after = f"ckh evaluate --model {shell_word(out)} --data HOLDOUT.parquet"
    if as_json:
        print_json(_document(trained, out))
        return
    rows = [
        [
            name,
            str(made.trees),
            _mean([fold.rmse for fold in made.folds]),
            _mean([fold.r2 for fold in made.folds]),
            _percent(made.oof_mean_efficiency),
            _percent(made.oof_p10_efficiency),
        ]
        for name, made in trained.targets.items()
    ]
    title = f"{out}: {len(dataset.frame)} rows, {len(dataset.problems())} problems, held-out rows of the folds"
    print_table(title, ("target", "trees", "rmse", "r2", "mean efficiency", "P10 efficiency"), rows)
    _print_how(trained)
    say(f"\nnext: {after}")


def _document(trained: Trained, out: Path) -> TrainDocument:
    made, start = trained.targets[trained.rank_by], trained.start
    targets = {
        name: TargetResult(target.trees, target.oof_mean_efficiency, target.oof_p10_efficiency, target.folds)
        for name, target in trained.targets.items()
    }
    warm_start = None
    if start is not None:
        prev = start.trees[trained.rank_by]
        warm_start = WarmStart(
            str(start.path), prev, made.trees - prev, _compared(made.comparison) if made.comparison else None
        )
    today, dataset = trained.today, trained.dataset
    return TrainDocument(
        out=str(out),
        rows=len(dataset.frame),
        problems=len(dataset.problems()),
        **targets,
        warm_start=warm_start,
        today=None if today is None else CurrentModel(today.source, _compared(today.comparison)),
    )


def _compared(comparison: StartComparison) -> ModelComparison:
    return ModelComparison(**fields_of(comparison), worse=bool(comparison.worse))


def _print_how(trained: Trained) -> None:
    made = trained.targets[trained.rank_by]
    if made.comparison is not None and not made.comparison.worse:
        say(f"\nagainst its start: {against_start(made.comparison)}")
    if trained.today is not None and not trained.today.comparison.worse and not continues_current(trained):
        say(f"\nagainst {trained.today.source}, the model used until now: {against_start(trained.today.comparison)}")


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f}" if known else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
