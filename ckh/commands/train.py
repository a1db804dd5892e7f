"""`ckh train`: learns models from a dataset."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.cluster.connection import CLUSTER_HELP, everywhere_or_here
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, examples
from ckh.commands._declared_options import has_options_of
from ckh.errors import DataError, UsageError
from ckh.log import note, warn
from ckh.outputs import check_output
from ckh.problems import Direction
from ckh.training import Labels, RankObjective, TrainOptions, TreeParams, winner_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.cluster.calls import Cluster
    from ckh.data.dataset import Dataset
    from ckh.learn.far_fit import FarFit
    from ckh.learn.halving import Tuning
    from ckh.learn.trained import Trained
    from ckh.learn.warm_start import Start


_NO_FOLDS = (1, 2)

_HELP = """Train a LightGBM model of TFLOPS, and one that orders the kernels of a problem.

Without --data it trains on the newest complete runs of `ckh bench` in the folder runs, else on what ships for this
machine's device (of convolutions forward, if no --variant says another); without --out it writes among your own models,
where `ckh predict` looks first. A line says both.

Cross-validation holds out whole problems, and stops on a fold that it does not score; the final fit uses all rows and
the median number of trees. The same data and seed give the same bytes. Model files are AMD's: gzip'd LightGBM text
with feature_spec.json and train_manifest.json, and for people alone, as no command reads them, cv_metrics_*.json and
feature_importances_*.json. Options that are left out have values that suit the number of rows (400 trees of 31 leaves
up to 15,000 rows, of 63 up to 60,000, and of more 200 of 255 that learn twice as fast), or those of a recipe that the
operation has.

--targets tflops,latency,bandwidth adds models of latency and bandwidth. Predictions do without them; ckh export --to
lgbm gives them to other programs. Of more than 60,000 rows these two are validated by one fold.

--warm-start adds trees to a model of the same operation, direction, features and targets; "nearest" takes the one that
ckh predict would take for these data. Of another GPU or element type it says what differs, and the manifest keeps it.
What is left out is the start's, but 500 --trees. Held out of the new trees' training, both are compared on the same
problems: those that the start has not seen, if they are ten or more. Without it the new model is compared in the same
way with the one that answers for such problems today, if there is one.

--tune tries settings: the default, and others drawn from 200-1600 trees, learning rates 0.02-0.2, 15-255 leaves, 3-40
rows a leaf, 0.3-1 of the features and 0.55-1 of the rows a tree, L1 0-1 and L2 0-10. Options that are given stay as
they are. Each fold drops the worse half; the best replaces the default only if it chose better. See tuning.json.

--rank efficiency regresses the efficiency, relative its logarithm, lambdarank optimises the order itself, blend has the
trees of the last two, and tflops lets the model of TFLOPS order.

--prior W adds, weighed W to 1, trees of a law of time (trips over K, rounds over the compute units, bytes) that is
fitted to the rows: it holds for sizes that were not measured. Up to 15,000 rows of convolutions W is 1. It is left out
where, fitted to two thirds of the problems, it errs by more than 25 % on the others, as it does on a CPU. Where there
is a law, --lambdarank W adds, weighed W to 1, the trees of a LambdaRank: from 2,000 to 15,000 rows W is 1.

--labels winners learns from data in which only the best kernel of each problem is known, as AITER's tuned tables: the
others are its candidates, and only the order is learned. Efficiency is the share of problems whose winner is first.

Of more rows than --sample those of problems that are drawn by --seed are read, and the others do not take memory; the
manifest says of how many. With --distributed and --cluster these validate, and LightGBM on Dask fits the final models
to all rows, of which each worker has a part (docs/cluster.md).

--noise-weights weighs rows by 1 / (spread² + 0.05²), with mean 1. --mine doubles, in each round, the weight of the
fifth of problems with the worst held-out choices, up to 5, and keeps the best round; it seldom helps.
"""


_NEAREST = "nearest"
_MANY_UNSTABLE = 0.1  # share of times from which rows are weighed by their noise


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="train",
        help=_HELP,
        epilog=examples(
            "ckh train --op grouped_conv",
            "ckh train --op grouped_conv --variant forward --data data.parquet --out models/mine",
            "ckh train --op gemm_universal --data gemm.parquet --out models/gemm",
            "ckh train --data a.parquet --data b.parquet --out models/mine --force",
            "ckh train --data large --sample 1000000 --out models/mine",
            "ckh train --data large --distributed --cluster tcp://head:8786 --out models/mine",
            "ckh train --data data.parquet --out models/small --trees 300 --leaves 31 --learning-rate 0.1",
            "ckh train --data data.parquet --out models/mine --trees 300 --leaves 63 --ensemble 3",
            "ckh train --data amd.parquet --out models/gfx942 --rank tflops --json",
            "ckh train --data more.parquet --warm-start models/mine --trees 200 --out models/mine2",
            "ckh train --data few.parquet --warm-start nearest --trees 200 --out models/mine",
            "ckh train --data data.parquet --out models/tuned --tune 20 --trees 400 --seed 7",
            "ckh train --data data.parquet --out models/mine --noise-weights --mine 2",
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
    op: str | None = typer.Option(None, "--op", autocompletion=_completion.operations, help=OP_HELP + "  [the data's]"),
    variant: Direction | None = typer.Option(None, "--variant", help="Direction; needed if the data hold several."),
    targets: str | None = typer.Option(
        None, "--targets", help="What to model, beside the order: tflops, latency, bandwidth.  [tflops]"
    ),
    *,
    params: dict[str, Any],
    given: dict[str, Any],
    warm_start: Path | None = typer.Option(None, "--warm-start", help="Model directory to add trees to, or nearest."),
    tuned: int | None = typer.Option(None, "--tune", min=2, max=1000, help="Settings to try, the default among them."),
    sample: int = typer.Option(
        2_000_000, "--sample", min=1, help="Train on problems with so many rows together, if the data have more."
    ),
    force: bool = typer.Option(False, "--force", help="Replace a model in --out."),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=f"Folds and trials: {CLUSTER_HELP}"),
    distributed: bool = typer.Option(
        False, "--distributed", help="Fit the final models to all rows, spread over the workers of --cluster."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Train and print how well it went on held-out folds."""
    from ckh.commands._train_defaults import checked_out, to_train_on
    from ckh.commands._train_output import print_trained, warn_if_worse, warn_of_start
    from ckh.data.sample import read_sample
    from ckh.learn.prepared import too_few_to_validate
    from ckh.learn.save import MODEL, save
    from ckh.learn.today import against_today
    from ckh.learn.warm_start import continued, read_start

    is_nearest = warm_start is not None and str(warm_start) == _NEAREST
    # LightGBM's threads sleep while they wait, as others may need the cores; its library reads that when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    said = [*(inputs or []), *data]
    _refuse_usage(given, said, is_distributed=distributed)
    read_from = [*said, *([warm_start] if warm_start and not is_nearest else [])]
    if out is not None:
        check_output(out, MODEL, force=force, inputs=read_from)
    start = None if warm_start is None or is_nearest else read_start(warm_start)
    seed = given.get("seed", TrainOptions().seed)
    with _interruptible(), to_train_on(said, op, variant) as found:
        paths, variant = found.paths, found.variant
        only = {} if variant is None else {"variant": str(variant)}
        read, drawn = read_sample(paths, sample, seed, lambda one: one.column_names(), only)
    if drawn is not None:
        note(f"{drawn}: --sample {sample}, --seed {seed}")
    dataset = _select(read, op, variant)
    out = checked_out(dataset, variant, found.words, out, force=force, inputs=read_from)
    if is_nearest:
        start = read_start(_nearest(dataset))
    defaults = dataset.op.train_defaults(len(dataset.valid()))
    if start is None and given.get("labels") is Labels.WINNERS and defaults.labels is not Labels.WINNERS:
        defaults = winner_options()
    chosen = {} if targets is None else {"targets": _targets(targets)}
    threads = {"jobs": len(os.sched_getaffinity(0))}
    options = _options(defaults if start is None else continued(start, defaults), params, threads | given | chosen)
    options = _by_stability(options, dataset, is_said=distributed or "noise_weights" in given)
    if distributed:
        _require_distributable(options, start, cluster)
    if options.folds and too_few_to_validate(dataset.valid()):
        warn(
            "too few problems for cross-validation: the model is not validated, and has all of its trees",
            "few-problems",
        )
    with _interruptible(), everywhere_or_here(cluster) as workers:
        tuning = None if tuned is None else _tune(dataset, options, tuned, list(params), start)
        far = _spread(workers, paths, variant, options) if distributed and workers is not None else None
        trained = replace(_fit(dataset, options, tuning, start, far), sample=drawn)
    if start is None:
        trained = replace(trained, today=against_today(trained))
    save(trained, out)
    if start is not None:
        warn_of_start(trained)
    warn_if_worse(trained)
    print_trained(trained, out, as_json=as_json)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Say on Ctrl-C what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted: no model was written, and what was in --out is as it was; training starts anew")
        raise


def _refuse_usage(given: dict[str, Any], said: Sequence[Path], *, is_distributed: bool) -> None:
    """Refuse, before anything is read, what is wrong whatever the data are."""
    if given.get("folds") in _NO_FOLDS:
        raise UsageError(
            f"--folds {given['folds']} cannot train, stop and score", "3 or more, or 0 for none", code="out-of-range"
        )
    if is_distributed and not said:
        raise UsageError(
            "--distributed reads data on the workers", "name datasets with --data", code="inapplicable-option"
        )


def _require_distributable(options: TrainOptions, start: Start | None, cluster: str | None) -> None:
    from ckh.learn.prepared import check_distributed

    if cluster is None:
        raise UsageError(
            "--distributed spreads rows over a cluster", "name it with --cluster", code="inapplicable-option"
        )
    check_distributed(options, start)


def _nearest(dataset: Dataset) -> Path:
    """The model that answers for the data's problems today.

    Raises:
        ModelError: there is none.
    """
    from ckh.learn.artifact import wanted_for
    from ckh.learn.transfer import nearest_model

    folder = nearest_model(wanted_for(dataset.problems()[0], dataset.arch))
    note(f"adding trees to {folder}")
    return folder


def _by_stability(options: TrainOptions, dataset: Dataset, *, is_said: bool) -> TrainOptions:
    """The options, which weigh rows by their noise where many times are unstable, unless something else is said."""
    from ckh.assess.measured import unstable_share

    share = unstable_share([dataset])
    if is_said or share <= _MANY_UNSTABLE or options.labels is Labels.WINNERS:
        return options
    note(f"{share:.0%} of the times are unstable: rows are weighed by how certain they are (--noise-weights)")
    return replace(options, noise_weights=True)


def _options(defaults: TrainOptions, params: dict[str, Any], given: dict[str, Any]) -> TrainOptions:
    """The operation's own options, with those that were given: of trees, for a blend's regression as well."""
    regression, speeds = (None, None) if params else (defaults.regression, defaults.speeds)
    if given.get("labels") is Labels.WINNERS:
        defaults = replace(defaults, targets=(), rank=RankObjective.LAMBDARANK)
    if given.get("rank", defaults.rank) is not RankObjective.EFFICIENCY:
        given = {"prior": 0.0, **given}
    if not given.get("prior", defaults.prior):
        given = {"lambdarank": 0.0, **given}
    return replace(defaults, **given, params=replace(defaults.params, **params), regression=regression, speeds=speeds)


def _spread(cluster: Cluster, paths: Sequence[Path], variant: Direction | None, options: TrainOptions) -> FarFit:
    """All rows, or those of a direction, on the workers of a cluster."""
    from ckh.data.parts import read_parts
    from ckh.learn.far_fit import FarFit

    parts = read_parts(*paths, columns=lambda one: one.column_names())
    if variant is not None:
        parts = parts.select([(part.frame["variant"] == str(variant)).to_numpy() for part in parts])
    return FarFit(cluster, parts, options)


def _fit(
    dataset: Dataset, options: TrainOptions, tuning: Tuning | None, start: Start | None, far: FarFit | None
) -> Trained:
    from ckh.learn.train import rounds
    from ckh.learn.train import train as fit
    from ckh.progress import progress

    options = options if tuning is None else replace(options, params=tuning.params)
    with progress("training trees", rounds(options)) as advance:
        return replace(fit(dataset, options, advance, start, far), tuning=tuning)


def _tune(dataset: Dataset, options: TrainOptions, count: int, fixed: Sequence[str], start: Start | None) -> Tuning:
    from ckh.learn.halving import fits
    from ckh.learn.tune import tune
    from ckh.progress import progress

    with progress("tuning", fits(count, options.folds)) as advance:
        return tune(dataset, options, count, advance, fixed, start)


def _targets(text: str) -> tuple[str, ...]:
    from ckh.training import TARGETS, TFLOPS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in TARGETS]:
        raise UsageError(f"unknown target {unknown[0]!r}", "the targets are " + ", ".join(TARGETS), code="unknown-name")
    if TFLOPS not in names:
        raise UsageError(f"--targets must hold {TFLOPS}: predictions are given in TFLOPS", code="missing-option")
    return names


def _select(dataset: Dataset, op: str | None, variant: Direction | None) -> Dataset:
    from ckh.ops import operation

    if op is not None and operation(op).name != dataset.op.name:
        raise DataError(f"the dataset has no row of {op}", f"it has {dataset.op.name}", code="no-training-data")
    if variant is None:
        return dataset
    if not dataset.op.has_directions:
        raise UsageError(f"{dataset.op.name} has no directions", "leave out --variant", code="inapplicable-option")
    mask = (dataset.frame["variant"] == str(variant)).to_numpy()
    if not mask.any():
        raise DataError(
            f"the dataset has no row of {dataset.op.name} {variant}",
            f"it has {', '.join(dataset.variants)}",
            code="no-training-data",
        )
    return dataset.select(mask)
