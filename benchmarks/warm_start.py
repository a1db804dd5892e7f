"""Savings of continuing the nearest model (`ckh train --warm-start`), by replay of data with all times.

    python benchmarks/warm_start.py

A third of a target's problems is held out. On some of the others a model is trained anew, with the defaults of `ckh
train`, and another continues a model of the source, trained on the source's data only: another run of other problems on
the same GPU, or another GPU. Prints mean and P10 efficiency on the held-out problems, over three draws, and those of
the unchanged source model.

For AITER's GEMMs only winners are known: a third of the layers (N, K) of gfx950 is held out, and the table shows how
often the measured winner is first, or among the first five, for a model of some tuned shapes and for the shipped model
of gfx942 continued with them.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.judging.judged_answers import ranked_rows, ranked_winners
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.learn.training.warm_start import continued, read_start

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA = Path(__file__).parents[1] / "data"
MODELS = DATA.with_name("models")
SEEDS = range(3)
NEW_TREES = 200


class Pair(NamedTuple):
    """A source to continue, and a target with few known problems."""

    name: str
    source: str
    target: str
    counts: tuple[int, ...]


PAIRS = (
    Pair("gfx950, 20 kernels -> 30 kernels", "amd-gfx950-conv-20kernels", "amd-gfx950-conv-30kernels", (5, 15, 40)),
    Pair("gfx950, 30 kernels -> 20 kernels", "amd-gfx950-conv-30kernels", "amd-gfx950-conv-20kernels", (5, 15, 40)),
    Pair("experts, gfx950 -> gfx942", "aiter-moe-gfx950", "aiter-moe-gfx942", (4, 8, 16)),
    Pair("experts, gfx942 -> gfx950", "aiter-moe-gfx942", "aiter-moe-gfx950", (10, 30, 90)),
)


# Families of AITER's GEMMs with many tuned shapes on both GPUs, and the numbers of training shapes of gfx950.
FAMILIES = ("a8w8", "a8w8_bpreshuffle")
SHAPES = (30, 100)
FEW = 5  # first choices


def on(arch: str, model: Model) -> Model:
    """A model with the features of an architecture's hardware."""
    return model if model.spec.arch == arch else Model(model.path, replace(model.spec, arch=arch, hardware={}))


def efficiency(model: Model, held: Dataset) -> NDArray[np.float64]:
    """Efficiency of the first measured kernels of a model's answers, with features of the problems' hardware."""
    times, ranked = times_of(held), ranked_rows(on(held.arch, model), held)
    assert ranked.ranks_any(times.problem).all()
    return np.asarray(times.efficiency()[ranked.best_ranked(times.problem)])


def learned(rows: Dataset, folder: Path, start: Path | None = None) -> Model:
    """A model of rows, new or continued, without folds."""
    options = replace(rows.op.training.defaults(len(rows)), folds=0, jobs=1)
    if start is None:
        save(train(rows, options, lambda *_: None), folder)
    else:
        before = read_start(start)
        options = replace(continued(before, options), folds=0)
        options = replace(options, params=replace(options.params, n_estimators=NEW_TREES))
        save(train(rows, options, lambda *_: None, before), folder)
    return load_model(folder)


def judge_winners(family: str, work: Path) -> None:
    """Print the ranks of winners by training data."""
    data = read_dataset(DATA / "aiter-gemm-gfx950.parquet").valid()
    data = data.select((data.frame["family"] == family).to_numpy() & (data.frame["library"] == "ck").to_numpy())
    source = MODELS / "aiter_gemm_gfx942"
    result: dict[tuple[str, int], list[NDArray[np.int64]]] = {}
    for seed in SEEDS:
        layer = np.unique(data.frame[list(data.op.problems.split_by)].to_numpy(), axis=0, return_inverse=True)[
            1
        ].reshape(-1)
        random = np.random.default_rng(seed)
        is_held = np.isin(layer, random.permutation(layer.max() + 1)[: (layer.max() + 1) // 3])
        held, others = data.select(is_held), data.select(~is_held)
        result.setdefault(("source", 0), []).append(ranked_winners(held, on(data.arch, load_model(source))).place)
        order = random.permutation(others.problem_ids.max() + 1)
        for count in SHAPES:
            rows = others.select(np.isin(others.problem_ids, order[:count]))
            for how, start in (("anew", None), ("continued", source)):
                model = learned(rows, work / f"{family}-{how}-{seed}-{count}", start)
                result.setdefault((how, count), []).append(ranked_winners(held, model).place)
    for (how, count), some in result.items():
        place = np.concatenate(some)
        print(
            f"{family:34s} {how:10s} {count:3d} shapes    winner first {np.mean(place < 1):.1%}, "
            f"in the first {FEW} {np.mean(place < FEW):.1%}",
            flush=True,
        )


def main() -> None:
    """Evaluate and print a line for each number of problems."""
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            judge_winners(family, Path(folder))
    for pair in PAIRS:
        source, target = (read_dataset(DATA / f"{name}.parquet").valid() for name in (pair.source, pair.target))
        target = target.select(np.bincount(target.problem_ids)[target.problem_ids] > 1)
        result: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
        with tempfile.TemporaryDirectory() as work:
            first = Path(work) / "source"
            learned(source, first)
            for seed in SEEDS:
                order = np.random.default_rng(seed).permutation(target.problem_ids.max() + 1)
                held = target.select(np.isin(target.problem_ids, order[: len(order) // 3]))
                result.setdefault(("source", 0), []).append(efficiency(load_model(first), held))
                for count in pair.counts:
                    rows = target.select(np.isin(target.problem_ids, order[len(order) // 3 :][:count]))
                    for how, start in (("anew", None), ("continued", first)):
                        model = learned(rows, Path(work) / f"{how}-{seed}-{count}", start)
                        result.setdefault((how, count), []).append(efficiency(model, held))
        for (how, count), some in result.items():
            values = np.concatenate(some)
            print(
                f"{pair.name:34s} {how:10s} {count:3d} problems  {values.mean():.1%} / {np.percentile(values, 10):.1%}"
            )


if __name__ == "__main__":
    main()
