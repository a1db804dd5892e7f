"""`ckh train`: learns models from a dataset."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, print_table
from ckh.errors import DataError, UsageError
from ckh.log import warn
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset
    from ckh.learn.options import TrainOptions
    from ckh.learn.train import Trained


class Variant(StrEnum):
    """What `--variant` takes."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


class Rank(StrEnum):
    """What `--rank` takes (`learn.options.RankObjective`, here so that `--help` need not load it)."""

    RELATIVE = "relative"
    LAMBDARANK = "lambdarank"
    TFLOPS = "tflops"


_NO_FOLDS = (1, 2)

_HELP = """Train LightGBM models of TFLOPS, latency and bandwidth, and one that orders the kernels of a problem.

Cross-validation holds out whole problems, and stops on a fold that it does not score; the final fit uses all rows and
the median number of trees. The same data and seed give the same bytes. Model files are AMD's: gzip'd LightGBM text
with feature_spec.json, train_manifest.json, cv_metrics_*.json and feature_importances_*.json. Options that are left
out have the operation's own values: those in brackets, or for miopen_conv the recipe of its folder.
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
            "ckh train --data amd.parquet --out models/gfx942 --rank tflops --targets tflops --json",
        ),
    )(train)


def train(
    inputs: list[Path] = typer.Argument(None, metavar="[DATA]...", help="Datasets; the same as --data."),
    data: list[Path] = typer.Option([], "--data", help="Dataset or folder of datasets; may be repeated."),
    out: Path = typer.Option(..., "--out", "-o", help="Model directory to write."),
    op: str | None = typer.Option(None, "--op", help=OP_HELP + "  [the data's]"),
    variant: Variant | None = typer.Option(None, "--variant", help="Direction; needed if the data hold several."),
    targets: str | None = typer.Option(None, "--targets", help="What to model, beside the order.  [tflops,latency,…]"),
    rank: Rank | None = typer.Option(None, "--rank", help="What the model that orders is trained for.  [relative]"),
    trees: int | None = typer.Option(None, "--trees", min=1, help="Most boosting rounds.  [2000]"),
    leaves: int | None = typer.Option(None, "--leaves", min=2, max=4096, help="Leaves of a tree.  [255]"),
    learning_rate: float | None = typer.Option(
        None, "--learning-rate", min=1e-4, max=1.0, help="Shrinkage of a tree.  [0.02]"
    ),
    features: float | None = typer.Option(
        None, "--feature-fraction", min=0.05, max=1.0, help="Features a tree may use.  [0.85]"
    ),
    folds: int | None = typer.Option(None, "--folds", min=0, max=50, help="Folds of the cross-validation, or 0.  [5]"),
    seed: int | None = typer.Option(None, "--seed", min=0, help="What all random choices follow from.  [42]"),
    jobs: int | None = typer.Option(None, "--jobs", "-j", min=1, help="Threads; one a core by default."),
    force: bool = typer.Option(False, "--force", help="Replace a model in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Train and print how well it went on held-out folds."""
    from ckh.data.dataset import read_dataset
    from ckh.learn.options import RankObjective
    from ckh.learn.save import check_target, save
    from ckh.learn.train import rounds, too_few_to_validate
    from ckh.learn.train import train as fit
    from ckh.progress import progress

    check_target(out, force=force)
    paths = [*(inputs or []), *data]
    if not paths:
        raise UsageError("there is nothing to train on", "name datasets with --data")
    dataset = _select(read_dataset(*paths), op, variant)
    options = _options(
        dataset.op.train_defaults(len(dataset.valid())),
        targets=None if targets is None else _targets(targets),
        rank=None if rank is None else RankObjective(str(rank)),
        folds=folds,
        seed=seed,
        jobs=jobs or len(os.sched_getaffinity(0)),
        params={
            "n_estimators": trees,
            "num_leaves": leaves,
            "learning_rate": learning_rate,
            "colsample_bytree": features,
        },
    )
    if options.folds and too_few_to_validate(dataset.valid()):
        warn("too few problems for cross-validation: the model is not validated, and has all of its trees")
    with progress("training", rounds(options)) as advance:
        trained = fit(dataset, options, advance)
    save(trained, out)
    _report(trained, out, as_json=as_json)


def _options(defaults: TrainOptions, params: dict[str, Any], **given: Any) -> TrainOptions:
    """The operation's own options, with those that were given."""
    if given["folds"] in _NO_FOLDS:
        raise UsageError(f"--folds {given['folds']} cannot train, stop and score", "3 or more, or 0 for none")
    known = {name: value for name, value in given.items() if value is not None}
    changed = {name: value for name, value in params.items() if value is not None}
    return replace(defaults, **known, params=replace(defaults.params, **changed))


def _targets(text: str) -> tuple[str, ...]:
    from ckh.learn.options import TARGETS
    from ckh.learn.spec import TFLOPS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in TARGETS]:
        raise UsageError(f"unknown target {unknown[0]!r}", "the targets are " + ", ".join(TARGETS))
    if TFLOPS not in names:
        raise UsageError(f"--targets must hold {TFLOPS}: predictions are told in TFLOPS")
    return names


def _select(dataset: Dataset, op: str | None, variant: Variant | None) -> Dataset:
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
        print_json({"out": str(out), "rows": len(dataset.frame), "problems": len(dataset.problems()), **targets})
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
    typer.echo(f"\nnext: {after}")


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f}" if known else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
