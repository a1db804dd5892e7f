"""Models trained on measurements: `ckh.train`, and what `ckh train` saves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.api.inputs import direction_of, files_of, options_of
from ckh.api.training_data import MOST_ROWS, TrainRequest, checked_out, read_rows, to_train_on
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.data.dataset import DATASET, holdout_path, share_of, split_off, write_dataset
from ckh.errors import CkhError, WrongTypeError
from ckh.files.outputs import check_output
from ckh.files.paths import own_model_folders, path_of
from ckh.kernels.pools import TIMED_NAME
from ckh.learn.analytic.transfer import nearest_model
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.batches import known_candidates
from ckh.learn.judging.judged_data import LEAST_COVERAGE, percent
from ckh.learn.models.artifact import fitting_models, load_model, wanted_for
from ckh.learn.models.manifest import trained_problems
from ckh.learn.models.spec import BETWEEN_DEVICES, SPEC_NAME, spec_of
from ckh.learn.training.prepared import check_options, too_few_to_validate
from ckh.learn.training.train import held_out as trained_held_out
from ckh.learn.training.train import rounds, seen
from ckh.learn.training.train import train as trained_on
from ckh.learn.training.trained import ENOUGH, MODEL, Today, compare, save
from ckh.learn.training.warm_start import continued, read_start, recipe_of
from ckh.text.log import note, warn
from ckh.text.progress import progress
from ckh.text.prose import shell_word
from ckh.training import Labels, RankObjective, TrainOptions, TreeParams, sized_options, winner_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ckh.api.inputs import Data
    from ckh.api.keywords import TrainKeywords
    from ckh.data.dataset import Dataset
    from ckh.learn.models.artifact import Model
    from ckh.learn.training.trained import ModelComparison, Trained
    from ckh.learn.training.warm_start import Start
    from ckh.ops.base import Kernel
    from ckh.problems import Direction

_MOST_RANKED, _MOST_KERNELS = 64, 4096  # problems, and kernels without measurements of a pool: ranked in a second
_MOST_COMPARED = 1000  # problems: enough for a mean to half a percentage point, and compared in seconds


def chosen_options(dataset: Dataset, request: TrainRequest, start: Start | None) -> TrainOptions:
    """The options of a training: those that were given, else the start's or the operation's."""
    defaults = _defaults(dataset, request.given.get("labels"))
    defaults = defaults if start is None else continued(start, defaults)
    chosen = {} if request.targets is None else {"targets": request.targets}
    options = _options(
        defaults, dict(request.params), {"jobs": len(os.sched_getaffinity(0)), **request.given, **chosen}
    )
    if options.folds and too_few_to_validate(dataset.winners()):
        warn("too few problems for cross-validation: no validation, no early stopping", "few-problems")
    return options


def _defaults(dataset: Dataset, labels: Labels | None) -> TrainOptions:
    """The operation's options, if they are for labels like these, by default those of the data; else general ones."""
    rows = len(dataset.winners())
    own = dataset.op.training.defaults(rows)
    if labels is None and dataset.op.apart:
        labels = Labels.WINNERS if dataset.is_won.any() else Labels.MEASURED
    other = winner_options() if labels is Labels.WINNERS else sized_options(rows)
    return own if labels in (None, own.labels) else other


def _options(defaults: TrainOptions, params: dict[str, Any], given: dict[str, Any]) -> TrainOptions:
    """The operation's own options, with those that were given."""
    if given.get("labels") is Labels.WINNERS:
        defaults = replace(defaults, targets=(), rank=RankObjective.LAMBDARANK)
    if given.get("rank", defaults.rank) is not RankObjective.EFFICIENCY:
        given = {"prior": 0.0, **given}
    return replace(defaults, **given, params=replace(defaults.params, **params))


def _nearest_start(dataset: Dataset) -> Start:
    """The model that currently answers for the problems of the data, to add trees to."""
    folder = nearest_model(wanted_for(dataset.problems()[0], dataset.arch))
    note(f"adding trees to {folder}")
    return read_start(folder)


def trained_model(request: TrainRequest) -> tuple[Trained, Path]:
    """Train on the data of a request, and compare the model with the one in use; returns also its folder, not written.

    What prevents writing is raised before the training.
    """
    named = None if request.is_nearest else request.warm_start
    read_from = [*request.paths, *([named] if named else [])]
    if request.out is not None:
        check_output(request.out, MODEL, force=request.force, inputs=read_from)
    start = None if named is None else read_start(named)
    with to_train_on(request) as (data, words):
        dataset, drawn = read_rows(data)
    out = checked_out(dataset, data, words, read_from)
    held, path = None, holdout_path(out)
    if request.holdout:
        check_output(path, DATASET, force=request.force, inputs=read_from)
        dataset, held = split_off(dataset, request.holdout, request.seed)
    start = _nearest_start(dataset) if request.is_nearest else start
    options = chosen_options(dataset, request, start)
    with progress("training trees", rounds(options)) as advance:
        trained = trained_on(dataset, options, advance, start)
    if held is not None:
        write_dataset(held, path)
    named = path if held is not None else next(filter(Path.is_file, map(holdout_path, data.paths)), None)
    return with_lead(replace(trained, sample=drawn, today=against_today(trained), holdout=named)), out


def with_lead(trained: Trained) -> Trained:
    """State the lead that kernels without measurements need, and how often the first choice was measured.

    Where the folds show no lead, it is twice the largest that such kernels have for the problems of the data.
    """
    dataset, leads, is_measured = trained.dataset, [0.0], []
    if trained.options.labels is Labels.WINNERS or TIMED_NAME not in dataset.op.training.model_files:
        return trained
    with TemporaryDirectory() as folder:
        save(trained, Path(folder) / "model")
        if not (Path(folder) / "model" / TIMED_NAME).is_file():  # of short names, only measured kernels are ranked
            return trained
        model = load_model(Path(folder) / "model")
        for is_own, score, is_timed in _scored(model, dataset):
            timed = score[is_timed & np.isfinite(score)]
            best, other = timed.max(initial=-np.inf), score[~is_timed].max(initial=-np.inf)
            if len(timed) and dataset.op.apart:  # others than ckh can measure are behind all that were
                best = timed.min()
            is_first_timed = trained.lead is None and bool(np.isfinite(best))
            leads += [float(other - best)] if is_first_timed else []
            is_measured.append(is_own[int(np.where(is_timed | (not is_first_timed), score, -np.inf).argmax())])
    lead = 2.0 * max(leads) if trained.lead is None else trained.lead
    return replace(trained, lead=lead, coverage=fmean(is_measured))


def _scored(model: Model, dataset: Dataset) -> Iterator[tuple[list[bool], NDArray[np.float64], NDArray[np.bool_]]]:
    """Yield for some problems whether each candidate was measured on it, the scores, and which have any times.

    Of large pools every n-th kernel without measurements is scored.
    """
    parts: dict[int, tuple[Sequence[Kernel], NDArray[np.intp], tuple[Kernel, ...]]] = {}
    names, op = dataset.frame["kernel"].to_numpy(dtype=object), dataset.op
    every = set(names)
    for number in np.unique(np.linspace(0, len(dataset.problems()) - 1, _MOST_RANKED).round()).astype(int).tolist():
        problem = dataset.problems()[number]
        candidates = known_candidates(problem, model)
        timed, pool = candidates.timed or 0, candidates.pool
        if id(pool) not in parts:
            kept = np.r_[:timed, timed : len(pool) : 1 + (len(pool) - timed) // _MOST_KERNELS]
            parts[id(pool)] = pool, kept, tuple(pool[place] for place in kept.tolist())
        _, kept, kernels = parts[id(pool)]
        score = model.score_pool([problem], kernels, tflops=False)[0][0]
        own, listed = set(names[dataset.problem_ids == number]), [op.kernels.name(kernel) for kernel in kernels]
        yield (
            [name in own for name in listed],
            np.where(np.isin(kept, candidates.chosen), score, -np.inf),
            (kept < timed) | [name in every for name in listed],
        )


def against_today(trained: Trained) -> Today | None:
    """Compare a model with the one that now answers for its data, before it is saved, on some of very many problems.

    If that one knows the problems, its recipe is trained on the same folds. A model in the user's folder takes
    precedence over a shipped model, however few rows it was trained on.
    """
    held_out = trained.targets[trained.rank_by].oof_efficiency
    if held_out is None or trained.options.labels is Labels.WINNERS:
        return None
    count = len(held_out)
    used = np.unique(np.linspace(0, count - 1, min(count, _MOST_COMPARED)).round().astype(np.intp))
    dataset = trained.dataset.select(np.isin(trained.dataset.problem_ids, used))
    try:
        model = AnsweringModels(dataset.arch, dataset.num_cus).answering(dataset.problems()[0])
        times = times_of(dataset)
        before = times.efficiency()[choices(model.scores(dataset), times.problem, times.count)]
    except CkhError:  # no model, or one that cannot score these rows: not a reason to lose the new model
        return None
    known = trained_problems(model.path)
    is_seen = None if known is None else seen(dataset, known)
    own, known_devices = (set(spec.device.split(BETWEEN_DEVICES)) for spec in (spec_of(dataset, ()), model.spec))
    after = np.array(held_out)[used]
    if is_seen is None or (~is_seen).sum() >= ENOUGH or not own <= known_devices:
        return Today(str(model.path), compare(before, after, is_seen))
    by_recipe = None if trained.start is not None else _by_recipe(trained, model)  # whose start may know them, too
    if by_recipe is None:
        return None
    return Today(str(model.path), compare(by_recipe[used], after, np.zeros(len(used), np.bool_)), retrained=True)


def _by_recipe(trained: Trained, model: Model) -> NDArray[np.float64] | None:
    """Efficiency of choices on held-out folds by the recipe of a model, shape (problems,); None if it has none."""
    note(f"training the recipe of {model.path} on the same folds, as it knows these problems")
    try:
        recipe = recipe_of(read_start(model.path), trained.options)
        check_options(recipe, None)
        held = trained_held_out(trained.dataset, recipe)
    except CkhError:
        return None
    if held is None:
        return None
    times = times_of(held.dataset)
    return np.asarray(times.efficiency()[choices(held.score, times.problem, times.count)])


def why_not_used(trained: Trained, out: Path) -> str:
    """Why a model must not replace the one in use; empty if it may.

    It may if its mean efficiency is higher on the problems of the comparison, or if it is the first of its kind: no
    model fits these problems, and none is in `out`.
    """
    if trained.today is not None:
        comparison = trained.today.comparison
        if comparison.mean_efficiency > comparison.start_mean_efficiency:
            return ""
        how = ", whose recipe was trained on the same folds" if trained.today.retrained else ""
        tie = "; a tie keeps it" if comparison.mean_efficiency == comparison.start_mean_efficiency else ""
        return f"its mean efficiency is not above that of {trained.today.source}{how}{tie}"
    dataset = trained.dataset
    in_use = [ref.path for ref in fitting_models(wanted_for(dataset.problems()[0], dataset.arch))]
    replaced = [out, *in_use] if (out / SPEC_NAME).exists() else in_use
    return f"it cannot be compared with {replaced[0]} on the same problems" if replaced else ""


def saved(trained: Trained, out: Path, *, install: bool = False) -> Path:
    """Write a model directory, and warn of a model that chooses worse than its start or the one in use.

    Where ckh predict looks for models, only a model that is better than the one in use is written, or the first of its
    kind; another is kept beside that folder, unless `install`.
    """
    is_searched = out.absolute().parent.resolve() in [folder.resolve() for folder in own_model_folders()]
    why = why_not_used(trained, out) if is_searched and not install else ""
    if why:
        out = out.absolute().parent.with_name(f"{out.absolute().parent.name}-not-installed") / out.name
        check_output(out, MODEL, force=True)
    save(trained, out)
    if trained.coverage is not None and trained.coverage < LEAST_COVERAGE:
        warn(
            f"coverage {percent(trained.coverage)}: the first choice of ckh predict was not measured on the other "
            "problems, which the figures of the folds leave out; measure more kernels of each problem",
            "low-coverage",
        )
    if trained.start is not None:
        _warn_of_start(trained)
    _warn_if_worse(trained, is_used=is_searched and not why)
    if why:
        warn(f"not installed: {why}; use it by --model {shell_word(out)}, or train with --install", "not-installed")
    return out


def continues_current(trained: Trained) -> bool:
    """Return whether the start of a continued model is the model in use, so that both comparisons are the same."""
    today, start = trained.today, trained.start
    return today is not None and start is not None and Path(today.source).resolve() == start.path.resolve()


def _warn_of_start(trained: Trained) -> None:
    """Warn of the limits of a continued model before it is used."""
    comparison = trained.targets[trained.rank_by].comparison
    if trained.start is not None and trained.start.differs:
        note(f"{trained.start.path} differs: {'; '.join(trained.start.differs)}")
    if comparison is None:
        warn("the model was not compared with its start, which needs folds and at least 3 problems", "not-compared")
    elif comparison.worse:
        fell = " and ".join(comparison.losses)
        warn(f"the model is worse than its start, by {fell}: {against_start(comparison)}", "worse-than-start")


def _warn_if_worse(trained: Trained, *, is_used: bool) -> None:
    """Warn of a model with worse choices than the one in use, over which it takes precedence if installed."""
    today = trained.today
    if today is not None and today.comparison.worse and not continues_current(trained):
        fell = " and ".join(today.comparison.losses)
        better = f"{today.source}, the model used until now, has better choices by {fell}"
        warn(f"{better}: {against_start(today.comparison)}", "worse-than-current")
        # By now "nearest" may be the new model itself.
        instead = f"; --warm-start {shell_word(today.source)} extends it" if Path(today.source).is_dir() else ""
        if is_used:
            warn(f"ckh predict prefers your own models{instead}", "shadows-model")


def against_start(comparison: ModelComparison) -> str:
    """The efficiencies of a start and of what was trained, and on which problems."""
    count = comparison.problems
    if comparison.seen is None:
        which = f"{count} problems, of which the training problems are unknown"
    elif comparison.seen:
        which = f"{count} problems, {comparison.seen} of which it was trained on"
    else:
        which = f"{count} unseen problems"
    mean = f"{percent(comparison.start_mean_efficiency)} -> {percent(comparison.mean_efficiency)}"
    p10 = f"{percent(comparison.start_p10_efficiency)} -> {percent(comparison.p10_efficiency)}"
    return f"mean efficiency {mean}, P10 {p10} on {which}"


def train(  # noqa: PLR0913 - as many as its callers may choose by name
    data: Data,
    out: Path | str,
    *,
    variant: Direction | str | None = None,
    targets: Sequence[str] | None = None,
    warm_start: Path | str | None = None,
    sample: int = MOST_ROWS,
    force: bool = False,
    peak_check: bool = True,
    install: bool = False,
    holdout: str | None = None,
    **options: Unpack[TrainKeywords],
) -> Model:
    """Train a model on measurements and write its directory, as `ckh train` does.

    In a folder where `ckh predict` looks, a model that is not better than the one in use is kept beside that folder.

    Args:
        data: the measurements: datasets, or paths of such.
        out: the model directory.
        variant: the direction, where the data have several.
        targets: targets besides the ranking: tflops, latency, bandwidth.
        warm_start: model directory to add trees to, or "nearest".
        sample: maximum number of rows; larger data are sampled by problem.
        force: whether a model in `out` is replaced.
        peak_check: whether times above the peak rates of their GPU are left out, or refused if they are many.
        install: whether the model is used although it is not better than the one in use.
        holdout: share of the problems that is not trained on, e.g. "20%", written to OUT-holdout.parquet.
        options: fields of `ckh.training.TrainOptions` and `TreeParams`, e.g. rank, folds, seed, n_estimators.

    Returns:
        The model, loaded; its `path` is where it was written.

    Raises:
        CkhError: data, options or output are unusable.
    """
    out, start = path_of(out, "out"), None if warm_start is None else path_of(warm_start, "warm_start")
    if targets is not None and (isinstance(targets, str) or not isinstance(targets, Iterable)):
        raise WrongTypeError("targets", "a list of names", targets)
    given, params = options_of(options, TrainOptions, TreeParams)
    with files_of(data) as paths:
        request = TrainRequest(
            params,
            given,
            paths=paths,
            out=out,
            variant=direction_of(variant),
            targets=None if targets is None else tuple(targets),
            warm_start=start,
            sample=sample,
            peak_check=peak_check,
            force=force,
            holdout=share_of(holdout, "holdout"),
        )
        trained, out = trained_model(request)
        return load_model(saved(trained, out, install=install))
