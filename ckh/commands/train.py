"""`ckh train`: learns models from a dataset."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, print_table
from ckh.errors import DataError, UsageError
from ckh.log import warn
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.data.dataset import Dataset
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


_HELP = """Train LightGBM models of TFLOPS, latency and bandwidth, and one that orders the kernels of a problem.

Cross-validation holds out whole problems, and stops on a fold that it does not score; the final fit uses all rows and
the median number of trees. The same data and seed give the same bytes. Model files are AMD's: gzip'd LightGBM text
with feature_spec.json, train_manifest.json, cv_metrics_*.json and feature_importances_*.json.
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
    targets: str = typer.Option("tflops,latency,bandwidth", "--targets", help="What to model, beside the order."),
    rank: Rank = typer.Option(Rank.RELATIVE, "--rank", help="What the model that orders is trained for."),
    trees: int = typer.Option(2000, "--trees", min=1, help="Most boosting rounds."),
    leaves: int = typer.Option(255, "--leaves", min=2, max=4096, help="Leaves of a tree."),
    learning_rate: float = typer.Option(0.02, "--learning-rate", min=1e-4, max=1.0, help="Shrinkage of a tree."),
    features: float = typer.Option(0.85, "--feature-fraction", min=0.05, max=1.0, help="Features a tree may use."),
    folds: int = typer.Option(5, "--folds", min=3, max=50, help="Folds of the cross-validation."),
    seed: int = typer.Option(42, "--seed", min=0, help="What all random choices follow from."),
    jobs: int | None = typer.Option(None, "--jobs", "-j", min=1, help="Threads; one a core by default."),
    force: bool = typer.Option(False, "--force", help="Replace a model in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Train and print how well it went on held-out folds."""
    from ckh.data.dataset import read_dataset
    from ckh.learn.options import RankObjective, TrainOptions, TreeParams
    from ckh.learn.save import check_target, save
    from ckh.learn.train import rounds, too_few_to_validate
    from ckh.learn.train import train as fit
    from ckh.progress import progress

    check_target(out, force=force)
    options = TrainOptions(
        targets=_targets(targets),
        rank=RankObjective(str(rank)),
        folds=folds,
        seed=seed,
        jobs=jobs or len(os.sched_getaffinity(0)),
        params=TreeParams(
            n_estimators=trees, num_leaves=leaves, learning_rate=learning_rate, colsample_bytree=features
        ),
    )
    paths = [*(inputs or []), *data]
    if not paths:
        raise UsageError("there is nothing to train on", "name datasets with --data")
    dataset = _select(read_dataset(*paths), op, variant)
    if too_few_to_validate(dataset.valid()):
        warn("too few problems for cross-validation: the model is not validated, and has all of its trees")
    with progress("training", rounds(options)) as advance:
        trained = fit(dataset, options, advance)
    save(trained, out)
    _report(trained, out, as_json=as_json)


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
