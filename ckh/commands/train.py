"""`ckh train`: learns models from a dataset."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, print_table
from ckh.errors import DataError, UsageError
from ckh.log import warn
from ckh.outputs import check_output
from ckh.problems import Direction
from ckh.training import Labels, RankObjective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.data.dataset import Dataset
    from ckh.learn.halving import Trial, Tuning
    from ckh.learn.trained import Trained, TrainedTarget
    from ckh.learn.warm_start import Start, StartComparison
    from ckh.training import TrainOptions


_NO_FOLDS = (1, 2)

_HELP = """Train LightGBM models of TFLOPS, latency and bandwidth, and one that orders the kernels of a problem.

Cross-validation holds out whole problems, and stops on a fold that it does not score; the final fit uses all rows and
the median number of trees. The same data and seed give the same bytes. Model files are AMD's: gzip'd LightGBM text
with feature_spec.json, train_manifest.json, cv_metrics_*.json and feature_importances_*.json. Options that are left
out have values that suit the number of rows (400 trees of 31, 63 or 255 leaves up to 15,000, 60,000 and more rows), or
those of a recipe that the operation has.

--warm-start adds trees to a model of the same operation, direction, dtype, arch, hardware, features and targets. What
is left out is the start's, but 500 --trees. Held out of the new trees' training, both are compared on the same
problems: those that the start has not seen, if they are ten or more.

--tune tries settings: the default, and others drawn from 200-1600 trees, learning rates 0.02-0.2, 15-255 leaves, 3-40
rows a leaf, 0.3-1 of the features and 0.55-1 of the rows a tree, L1 0-1 and L2 0-10. Options that are given stay as
they are. Each fold drops the worse half; the best replaces the default only if it chose better. See tuning.json.

--rank efficiency regresses the efficiency, relative its logarithm, lambdarank optimises the order itself, blend has the
trees of the last two, and tflops lets the model of TFLOPS order.

--prior W adds, weighed W to 1, trees of a law of time (trips over K, rounds over the compute units, bytes) that is
fitted to the rows: it holds for sizes that were not measured. Up to 15,000 rows of convolutions W is 0.5, where every
kernel was measured on 30 problems or more.

--labels winners learns from data in which only the best kernel of each problem is known, as AITER's tuned tables: the
others are its candidates, and only the order is learned. Efficiency is the share of problems whose winner is first.

--noise-weights weighs rows by 1 / (spread² + 0.05²), with mean 1. --mine doubles, in each round, the weight of the
fifth of problems with the worst held-out choices, up to 5, and keeps the best round; it seldom helps.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="train",
        help=_HELP,
        epilog=examples(
            "ckh train --op grouped_conv --variant forward --data data.parquet --out models/mine",
            "ckh train --op gemm_universal --data gemm.parquet --out models/gemm",
            "ckh train --data a.parquet --data b.parquet --out models/mine --force",
            "ckh train --data data.parquet --out models/small --trees 300 --leaves 31 --learning-rate 0.1",
            "ckh train --data data.parquet --out models/mine --trees 300 --leaves 63 --ensemble 3",
            "ckh train --data amd.parquet --out models/gfx942 --rank tflops --targets tflops --json",
            "ckh train --data more.parquet --warm-start models/mine --trees 200 --out models/mine2",
            "ckh train --data data.parquet --out models/tuned --tune 20 --trees 400 --seed 7",
            "ckh train --data data.parquet --out models/mine --noise-weights --mine 2",
            "ckh train --labels winners --data aiter.parquet --out models/aiter_gemm",
        ),
    )(train)


def train(
    inputs: list[Path] = typer.Argument(None, metavar="[DATA]...", help="Datasets; the same as --data."),
    data: list[Path] = typer.Option([], "--data", help="Dataset or folder of datasets; may be repeated."),
    out: Path = typer.Option(..., "--out", "-o", help="Model directory to write."),
    op: str | None = typer.Option(None, "--op", autocompletion=_completion.operations, help=OP_HELP + "  [the data's]"),
    variant: Direction | None = typer.Option(None, "--variant", help="Direction; needed if the data hold several."),
    targets: str | None = typer.Option(None, "--targets", help="What to model, beside the order.  [tflops,latency,…]"),
    rank: RankObjective | None = typer.Option(
        None, "--rank", help="What the model that orders is trained for.  [efficiency]"
    ),
    labels: Labels | None = typer.Option(
        None, "--labels", help="What the data know: times, or of each problem its winners alone.  [measured]"
    ),
    trees: int | None = typer.Option(None, "--trees", min=1, help="Most boosting rounds.  [400]"),
    leaves: int | None = typer.Option(None, "--leaves", min=2, max=4096, help="Leaves of a tree.  [31 to 255]"),
    learning_rate: float | None = typer.Option(
        None, "--learning-rate", min=1e-4, max=1.0, help="Shrinkage of a tree.  [0.05]"
    ),
    features: float | None = typer.Option(
        None, "--feature-fraction", min=0.05, max=1.0, help="Features a tree may use.  [0.4]"
    ),
    ensemble: int | None = typer.Option(
        None, "--ensemble", min=1, max=50, help="Models, of as many seeds, whose trees together order kernels.  [1]"
    ),
    focus: float | None = typer.Option(
        None, "--focus", min=0.0, max=10.0, help="Weigh rows by their efficiency to this power.  [1]"
    ),
    prior: float | None = typer.Option(
        None, "--prior", min=0.0, max=10.0, help="Weight of a law of time beside the model that orders.  [0.5 or 0]"
    ),
    folds: int | None = typer.Option(None, "--folds", min=0, max=50, help="Folds of the cross-validation, or 0.  [5]"),
    seed: int | None = typer.Option(None, "--seed", min=0, help="What all random choices follow from.  [42]"),
    warm_start: Path | None = typer.Option(None, "--warm-start", help="Model directory to add trees to."),
    tuned: int | None = typer.Option(None, "--tune", min=2, max=1000, help="Settings to try, the default among them."),
    noise: bool = typer.Option(False, "--noise-weights", help="Weigh rows by how certain their times are."),
    mine: int = typer.Option(0, "--mine", min=0, max=20, help="Rounds of giving hard problems more weight."),
    jobs: int | None = typer.Option(None, "--jobs", "-j", min=1, max=1024, help="Threads; one a core by default."),
    force: bool = typer.Option(False, "--force", help="Replace a model in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Train and print how well it went on held-out folds."""
    from ckh.data.dataset import read_dataset
    from ckh.learn.prepared import too_few_to_validate
    from ckh.learn.save import MODEL, save
    from ckh.learn.train import rounds
    from ckh.learn.train import train as fit
    from ckh.learn.warm_start import continued, read_start
    from ckh.progress import progress

    paths = [*(inputs or []), *data]
    check_output(out, MODEL, force=force, inputs=[*paths, *([warm_start] if warm_start else [])])
    if not paths:
        raise UsageError("there is nothing to train on", "name datasets with --data")
    start = None if warm_start is None else read_start(warm_start)
    dataset = _select(read_dataset(*paths, columns=lambda one: one.column_names()), op, variant)
    defaults = dataset.op.train_defaults(len(dataset.valid()))
    params = {"n_estimators": trees, "num_leaves": leaves, "learning_rate": learning_rate, "colsample_bytree": features}
    options = _options(
        defaults if start is None else continued(start, defaults),
        targets=None if targets is None else _targets(targets),
        rank=rank,
        labels=labels,
        folds=folds,
        seed=seed,
        ensemble=ensemble,
        focus=focus,
        prior=prior,
        jobs=jobs or len(os.sched_getaffinity(0)),
        noise_weights=noise,
        mine=mine,
        params=params,
    )
    if options.folds and too_few_to_validate(dataset.valid()):
        warn("too few problems for cross-validation: the model is not validated, and has all of its trees")
    fixed = [name for name, value in params.items() if value is not None]
    tuning = None if tuned is None else _tune(dataset, options, tuned, fixed, start)
    options = options if tuning is None else replace(options, params=tuning.params)
    with progress("training", rounds(options)) as advance:
        trained = replace(fit(dataset, options, advance, start), tuning=tuning)
    save(trained, out)
    if start is not None:
        _warn_of_start(trained)
    _report(trained, out, as_json=as_json)


def _options(defaults: TrainOptions, params: dict[str, Any], **given: Any) -> TrainOptions:
    """The operation's own options, with those that were given: of trees, for a blend's regression as well."""
    if given["folds"] in _NO_FOLDS:
        raise UsageError(f"--folds {given['folds']} cannot train, stop and score", "3 or more, or 0 for none")
    known = {name: value for name, value in given.items() if value is not None}
    changed = {name: value for name, value in params.items() if value is not None}
    own = None if changed else defaults.regression
    if known.get("labels") is Labels.WINNERS:
        defaults = replace(defaults, targets=(), rank=RankObjective.LAMBDARANK)
    if known.get("rank", defaults.rank) is not RankObjective.EFFICIENCY:
        known.setdefault("prior", 0.0)
    return replace(defaults, **known, params=replace(defaults.params, **changed), regression=own)


def _tune(dataset: Dataset, options: TrainOptions, count: int, fixed: Sequence[str], start: Start | None) -> Tuning:
    from ckh.learn.halving import fits
    from ckh.learn.tune import tune
    from ckh.progress import progress

    with progress("tuning", fits(count, options.folds)) as advance:
        return tune(dataset, options, count, advance, fixed, start)


def _warn_of_start(trained: Trained) -> None:
    """Warn of the limits of a continued model before it is used."""
    comparison = trained.targets[trained.rank_by].comparison
    if comparison is None:
        warn("the model was not compared with its start: that needs folds, and 3 problems or more")
    elif comparison.worse:
        fell = " and ".join(comparison.worse)
        warn(f"the model is worse than its start, by {fell}: {_against_start(comparison)}")
    if trained.dataset.op.model_files:
        warn("the candidates in the model's directory are those of the new data alone, not those of its start")


def _targets(text: str) -> tuple[str, ...]:
    from ckh.training import TARGETS, TFLOPS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in TARGETS]:
        raise UsageError(f"unknown target {unknown[0]!r}", "the targets are " + ", ".join(TARGETS))
    if TFLOPS not in names:
        raise UsageError(f"--targets must hold {TFLOPS}: predictions are given in TFLOPS")
    return names


def _select(dataset: Dataset, op: str | None, variant: Direction | None) -> Dataset:
    from ckh.ops import operation

    if op is not None and operation(op).name != dataset.op.name:
        raise DataError(f"the dataset has no row of {op}", f"it has {dataset.op.name}")
    if variant is None:
        return dataset
    if not dataset.op.has_directions:
        raise UsageError(f"{dataset.op.name} has no directions", "leave out --variant")
    mask = (dataset.frame["variant"] == str(variant)).to_numpy()
    if not mask.any():
        raise DataError(
            f"the dataset has no row of {dataset.op.name} {variant}", f"it has {', '.join(dataset.variants)}"
        )
    return dataset.select(mask)


def _report(trained: Trained, out: Path, *, as_json: bool) -> None:
    dataset = trained.dataset
    after = f"ckh evaluate --model {out} --data HOLDOUT.parquet"
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
    title = f"{out}: {len(dataset.frame)} rows, {len(dataset.problems())} problems, held-out folds"
    print_table(title, ("target", "trees", "rmse", "r2", "mean efficiency", "P10 efficiency"), rows)
    _print_how(trained)
    typer.echo(f"\nnext: {after}")


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
        typer.echo(f"\nagainst its start: {_against_start(made.comparison)}")


def _print_mining(made: TrainedTarget) -> None:
    assert made.mined is not None
    rows = [
        [str(one.number), str(one.raised), _percent(one.mean_efficiency), _percent(one.p10_efficiency)]
        for one in made.mined.rounds
    ]
    title = f"\nmining of hard problems, round {made.mined.kept} is kept"
    print_table(title, ("round", "problems with more weight", "mean efficiency", "P10 efficiency"), rows)


def _print_tuning(tuning: Tuning) -> None:
    from ckh.learn.halving import SPACE

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
    title = f"\n{len(tuning.trials)} settings tried, those that came to the last fold; {chosen} is taken"
    print_table(title, ("setting", *SPACE, "mean efficiency"), rows)


def _by_efficiency(trial: Trial) -> tuple[float, int]:
    return -trial.mean_efficiency, trial.number


def _against_start(comparison: StartComparison) -> str:
    count = comparison.problems
    if comparison.seen is None:
        which = f"{count} problems, which of them it was trained on is unknown"
    elif comparison.seen:
        which = f"{count} problems, {comparison.seen} of which it was trained on"
    else:
        which = f"{count} problems new to it"
    mean = f"{_percent(comparison.start_mean_efficiency)} -> {_percent(comparison.mean_efficiency)}"
    p10 = f"{_percent(comparison.start_p10_efficiency)} -> {_percent(comparison.p10_efficiency)}"
    return f"mean efficiency {mean}, P10 {p10} on {which}"


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f}" if known else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
