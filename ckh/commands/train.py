"""`ckh train`: trains models on a dataset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import (
    JSON_HELP,
    NO_PEAK_CHECK_HELP,
    OP_HELP,
    completed,
    examples,
    import_lightgbm,
    print_json,
    print_table,
    say,
)
from ckh.commands._declared_options import has_options_of
from ckh.data.dataset import share_of
from ckh.documents import Document
from ckh.learn.judging.judged_data import percent
from ckh.problems import Direction
from ckh.text.log import note
from ckh.text.prose import shell_word
from ckh.training import TrainOptions, TreeParams

if TYPE_CHECKING:
    from ckh.learn.training.trained import FoldMetrics, ModelComparison, Trained

_HELP = """Train LightGBM models of TFLOPS and of the ranking of a problem's kernels.

Defaults: data are the newest complete runs of ckh bench in the folder runs, else the shipped data for this machine's
device (forward convolutions, unless --variant is given); the model is written to your own models, where ckh predict
looks first. A line states both.

Where ckh predict looks, a model is installed only if its mean efficiency on the compared problems is higher than that
of the model in use, whose recipe is trained on the same folds if it knows the problems (a tie keeps it), or if no model
fits these problems yet. Another, also one that cannot be compared, is kept beside
that folder, which a line states; --install installs it.

Cross-validation holds out whole problems, with a separate fold for early stopping; the final fit uses all rows and the
median number of trees. The same data and seed give the same bytes. The files are AMD's: gzip'd LightGBM text,
feature_spec.json and train_manifest.json; cv_metrics_*.json and feature_importances_*.json are for information only.
Tree sizes depend on the number of rows (400 trees of 31 leaves up to 15,000 rows, of 63 up to 60,000, and above 200 of
255 with twice the learning rate), or come from a recipe of the operation.

--rank: efficiency regresses the efficiency, relative its logarithm; lambdarank optimises the order; tflops ranks by the
TFLOPS model.

--targets tflops,latency,bandwidth adds models of latency and bandwidth for ckh export --to lgbm; predictions do not
need them. Above 60,000 rows they are validated on one fold.

--labels winners: the data state only the best kernel of each problem, such as AITER's tuned tables. The other
candidates count as slower, and only the order is learned. Efficiency is then the share of problems whose winner ranks
first.

With --rank efficiency and up to 15,000 rows, models of convolutions and of mixtures of experts start from the analytic
estimate of ckh predict, where it is known for all kernels, as on GPUs: the trees correct it, with the weight that
chooses best on held-out problems; without weight, as for a few dozen rows, kernels of unmeasured tiles and pipelines
are ranked too. Trees without the estimate replace it where they choose better on 50 problems of ten kernels or more.

--warm-start adds trees (500 unless --trees is given) to a model of the same operation, direction, features and targets;
nearest takes the model that ckh predict would select. Other options default to the start model's. Differences in GPU or
element type are printed and recorded in the manifest. The new model is compared with its start, else with the model in
use, on the same problems: on those unseen by the start if there are ten or more.

Data with more rows than --sample are sampled by problem, with --seed; the manifest records the total.
"""


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
    retrained: bool
    """Whether the current model knew the problems, so that its recipe was trained on the same folds."""


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
    coverage: float | None = None
    """Share of the problems whose first choice by ckh predict was measured; null: not counted."""
    holdout: str | None = None
    """Dataset of problems to evaluate the model on, from --holdout or ckh convert --split."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="train",
        help=_HELP,
        epilog=examples(
            "ckh train --op grouped_conv",
            "ckh train --op grouped_conv --variant forward --data data.parquet --holdout 20% --out models/mine",
            "ckh train --op gemm_universal --data gemm.parquet --out models/gemm",
            "ckh train --data a.parquet --data b.parquet --out models/mine --force",
            "ckh train --data large --sample 1000000 --out models/mine",
            "ckh train --data data.parquet --out models/small --trees 300 --leaves 31",
            "ckh train --data amd.parquet --out models/gfx942 --rank tflops --json",
            "ckh train --data more.parquet --warm-start models/mine --trees 200 --out models/mine2",
            "ckh train --data few.parquet --warm-start nearest --trees 200 --out models/mine",
            "ckh train --labels winners --data aiter.parquet --out models/aiter_gemm",
        ),
    )(train)


@has_options_of(given=TrainOptions, params=TreeParams)
def train(
    inputs: list[Path] = typer.Argument(None, metavar="[DATA]...", help="Datasets; the same as --data."),
    data: list[Path] = typer.Option([], "--data", help="Dataset or folder of datasets; may be repeated.  [see above]"),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Model directory to write.  [among your own models, e.g. ~/.local/share/ckh/models]"
    ),
    op: str | None = completed("op", OP_HELP + "  [the data's]"),
    variant: Direction | None = typer.Option(None, "--variant", help="Direction; required if the data have several."),
    targets: str | None = typer.Option(
        None, "--targets", help="Targets besides the ranking: tflops, latency, bandwidth.  [tflops]"
    ),
    *,
    params: dict[str, Any],
    given: dict[str, Any],
    warm_start: Path | None = typer.Option(None, "--warm-start", help="Model directory to add trees to, or nearest."),
    sample: int = typer.Option(
        2_000_000, "--sample", min=1, help="Maximum number of rows; larger data are sampled by problem."
    ),
    no_peak_check: bool = typer.Option(False, "--no-peak-check", help=NO_PEAK_CHECK_HELP),
    force: bool = typer.Option(False, "--force", help="Replace a model in --out."),
    holdout: str | None = typer.Option(
        None, "--holdout", metavar="SHARE", help="Hold out a share of the problems, e.g. 20%, in OUT-holdout.parquet."
    ),
    install: bool = typer.Option(
        False, "--install", help="Use the model although it is not better than the one in use."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Train and print the results of cross-validation."""
    # Let LightGBM's threads sleep while they wait, as others may need the cores; read when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import_lightgbm()
    from ckh.api.learning import saved, trained_model
    from ckh.api.training_data import TrainRequest

    names = None if targets is None else tuple(filter(None, (name.strip() for name in targets.split(","))))
    request = TrainRequest(
        params,
        given,
        paths=[*(inputs or []), *data],
        out=out,
        op=op,
        variant=variant,
        targets=names,
        warm_start=warm_start,
        sample=sample,
        peak_check=not no_peak_check,
        force=force,
        holdout=share_of(holdout, "--holdout"),
    )
    try:
        trained, out = trained_model(request)
    except KeyboardInterrupt:
        note("interrupted: no model was written, --out is unchanged; training cannot be resumed")
        raise
    out = saved(trained, out, install=install)
    _print_trained(trained, out, as_json=as_json)


def _print_trained(trained: Trained, out: Path, *, as_json: bool) -> None:
    """Print the results of training and the next command."""
    from ckh.api.learning import against_start, continues_current

    dataset = trained.dataset
    after = f"ckh evaluate --model {shell_word(out)} --data {shell_word(trained.holdout or 'HOLDOUT.parquet')}"
    if as_json:
        print_json(_document(trained, out))
        return
    rows = [
        [
            name,
            str(made.trees),
            _mean([fold.rmse for fold in made.folds]),
            _mean([fold.r2 for fold in made.folds]),
            percent(made.oof_mean_efficiency),
            percent(made.oof_p10_efficiency),
        ]
        for name, made in trained.targets.items()
    ]
    title = f"{out}: {len(dataset.frame)} rows, {len(dataset.problems())} problems, held-out rows of the folds"
    print_table(title, ("target", "trees", "rmse", "r2", "mean efficiency", "P10 efficiency"), rows)
    comparison, today = trained.targets[trained.rank_by].comparison, trained.today
    if comparison is not None and not comparison.worse:
        say(f"\nagainst its start: {against_start(comparison)}")
    if today is not None and not today.comparison.worse and not continues_current(trained):
        say(f"\nagainst {today.source}, the model used until now: {against_start(today.comparison)}")
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
        warm_start = WarmStart(str(start.path), prev, made.trees - prev, made.comparison)
    today, dataset = trained.today, trained.dataset
    return TrainDocument(
        out=str(out),
        rows=len(dataset.frame),
        problems=len(dataset.problems()),
        **targets,
        warm_start=warm_start,
        today=None if today is None else CurrentModel(today.source, today.comparison, today.retrained),
        coverage=trained.coverage,
        holdout=None if trained.holdout is None else str(trained.holdout),
    )


def _mean(numbers: list[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{sum(known) / len(known):.4f}" if known else "-"
