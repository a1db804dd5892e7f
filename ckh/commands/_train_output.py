"""The output of `ckh train`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.commands._common import print_json, print_table, say
from ckh.log import note, warn
from ckh.prose import shell_word

if TYPE_CHECKING:
    from ckh.learn.training.halving import Trial, Tuning
    from ckh.learn.training.trained import Trained, TrainedTarget
    from ckh.learn.training.warm_start import StartComparison


def warn_of_start(trained: Trained) -> None:
    """Warn of the limits of a continued model before it is used."""
    comparison = trained.targets[trained.rank_by].comparison
    if trained.start is not None and trained.start.differs:
        note(f"{trained.start.path} differs: {'; '.join(trained.start.differs)}")
    if comparison is None:
        warn("the model was not compared with its start, which needs folds and at least 3 problems", "not-compared")
    elif comparison.worse:
        fell = " and ".join(comparison.worse)
        warn(f"the model is worse than its start, by {fell}: {_against_start(comparison)}", "worse-than-start")


def warn_if_worse(trained: Trained) -> None:
    """Warn of a model that chooses worse than what has answered so far, as it would be taken before that."""
    today = trained.today
    if today is not None and today.comparison.worse:
        fell = " and ".join(today.comparison.worse)
        found = f"{today.source}, the model used until now, has better choices by {fell}"
        warn(f"{found}: {_against_start(today.comparison)}", "worse-than-current")
        # By now "nearest" may be the new model itself.
        instead = f"; --warm-start {shell_word(today.source)} extends it" if Path(today.source).is_dir() else ""
        warn(f"ckh predict prefers your own models{instead}", "shadows-model")


def print_trained(trained: Trained, out: Path, *, as_json: bool) -> None:
    """Print how well training went, and the command that follows."""
    dataset = trained.dataset
    after = f"ckh evaluate --model {shell_word(out)} --data HOLDOUT.parquet"
    if as_json:
        targets: dict[str, Any] = {
            name: {
                "trees": made.trees,
                "oof_mean_efficiency": made.oof_mean_efficiency,
                "oof_p10_efficiency": made.oof_p10_efficiency,
                "folds": [asdict(fold) for fold in made.folds],
            }
            for name, made in trained.targets.items()
        }
        document = {"out": str(out), "rows": len(dataset.frame), "problems": len(dataset.problems()), **targets}
        print_json("train", {**document, **_how(trained)})
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


def _how(trained: Trained) -> dict[str, Any]:
    """The parts of the JSON document that stand there only if they were requested."""
    made = trained.targets[trained.rank_by]
    said: dict[str, Any] = {}
    if trained.start is not None:
        comparison = None if made.comparison is None else made.comparison.to_dict()
        prev = trained.start.trees[trained.rank_by]
        trees = {"prev_trees": prev, "new_trees": made.trees - prev}
        said["warm_start"] = {"from": str(trained.start.path), **trees, "validation": comparison}
    if trained.tuning is not None:
        said["tuning"] = trained.tuning.to_dict()
    if trained.today is not None:
        said["today"] = trained.today.to_dict()
    if made.mined is not None:
        said["mining"] = made.mined.to_dict()
    return said


def _print_how(trained: Trained) -> None:
    made = trained.targets[trained.rank_by]
    if made.mined is not None:
        _print_mining(made)
    if trained.tuning is not None:
        _print_tuning(trained.tuning)
    if made.comparison is not None and not made.comparison.worse:
        say(f"\nagainst its start: {_against_start(made.comparison)}")
    if trained.today is not None and not trained.today.comparison.worse:
        say(f"\nagainst {trained.today.source}, the model used until now: {_against_start(trained.today.comparison)}")


def _print_mining(made: TrainedTarget) -> None:
    assert made.mined is not None
    rows = [
        [str(one.number), str(one.raised), _percent(one.mean_efficiency), _percent(one.p10_efficiency)]
        for one in made.mined.rounds
    ]
    title = f"\nhard-example mining, round {made.mined.kept} kept"
    print_table(title, ("round", "problems with more weight", "mean efficiency", "P10 efficiency"), rows)


def _print_tuning(tuning: Tuning) -> None:
    from ckh.learn.training.halving import SPACE

    last = sorted((trial for trial in tuning.trials if len(trial.folds) == tuning.folds), key=_by_efficiency)
    rows = [
        [
            "default" if trial.number == 0 else str(trial.number),
            *(f"{getattr(trial.params, name):g}" for name in SPACE),
            _percent(trial.mean_efficiency),
        ]
        for trial in last
    ]
    chosen = "the default" if tuning.chosen == 0 else f"setting {tuning.chosen}"
    title = f"\n{len(tuning.trials)} settings tried, listed are the finalists; {chosen} selected"
    print_table(title, ("setting", *SPACE, "mean efficiency"), rows)


def _by_efficiency(trial: Trial) -> tuple[float, int]:
    return -trial.mean_efficiency, trial.number


def _against_start(comparison: StartComparison) -> str:
    count = comparison.problems
    if comparison.seen is None:
        which = f"{count} problems, of which the training problems are unknown"
    elif comparison.seen:
        which = f"{count} problems, {comparison.seen} of which it was trained on"
    else:
        which = f"{count} unseen problems"
    mean = f"{_percent(comparison.start_mean_efficiency)} -> {_percent(comparison.mean_efficiency)}"
    p10 = f"{_percent(comparison.start_p10_efficiency)} -> {_percent(comparison.p10_efficiency)}"
    return f"mean efficiency {mean}, P10 {p10} on {which}"


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f}" if known else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
