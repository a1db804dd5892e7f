"""Efficiency of answers without measurements: by a model of another GPU or element type, and by the analytic estimate.

    python benchmarks/transfer.py

The estimate is evaluated on AMD's measurements of CK Tile's convolutions on gfx950, alone and for the kernels of one
pipeline inserted into the ranking of a model of the other; models of AITER's GEMMs and mixtures of experts on the other
GPU, pool by pool, the latter also on each element type of gfx950 that training omitted (data/). Each with the 95 %
interval of the first figure, by resampling problems, or a GEMM's layers; and a random choice.

A choice is the first measured kernel of the answer of `ckh predict`; refused problems, and those whose answer has no
measured kernel, are counted but not evaluated. The operations' `JUDGED` or `judged.json` have the printed numbers.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.data.dataset import read_dataset
from ckh.learn.analytic.transfer import as_of, estimate_model, with_estimate
from ckh.learn.judging.judged_answers import ranked_rows, ranked_winners
from ckh.learn.models.artifact import Model, ModelRef, load_model, wanted_for
from ckh.learn.models.spec import ANY, Wanted, read_spec
from ckh.learn.training.train import train
from ckh.learn.training.trained import save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

ROOT = Path(__file__).parents[1]
DATA = sorted((ROOT / "data").glob("amd-gfx950-conv-*.parquet"))
AITER = ("gfx950", "gfx942")
FEW, FEWEST = 5, 10  # first choices; minimum problems of an evaluated pool
DRAWS = 2000
HELD_OUT = 5  # folds


def show(what: str, dataset: Dataset, scores: NDArray[np.float64]) -> None:
    """Print mean, interval and P10 efficiency of the choices by scores of all rows, and the mean of random choices.

    Problems without a finite score have no measured choice: they are counted, not evaluated.
    """
    times = times_of(dataset)
    efficiency = times.efficiency()
    best = choices(scores, times.problem, times.count)
    judged = np.isfinite(scores[best])
    left_out = f"  ({(~judged).sum()} without a measured candidate)" if not judged.all() else ""
    if not judged.any():
        print(f"{what:62s} {0:6d} problems{left_out}", flush=True)
        return
    chosen = efficiency[best][judged]
    random = (np.bincount(times.problem, efficiency) / np.bincount(times.problem))[judged]
    low, high = interval(chosen, np.arange(len(chosen)))
    print(
        f"{what:62s} {len(chosen):6d} problems  {chosen.mean():.1%} [{low:.1%}, {high:.1%}]"
        f" / {np.percentile(chosen, 10):.1%}  (random {random.mean():.1%}){left_out}",
        flush=True,
    )


def interval(values: NDArray[np.float64], group: NDArray[np.int64]) -> tuple[float, float]:
    """95 % interval of a mean, by resampling whole groups.

    Args:
        values: of each problem.
        group: index of its group.
    """
    count, total = np.bincount(group), np.bincount(group, values)
    random = np.random.default_rng(0)
    drawn = [random.integers(0, len(count), len(count)) for _ in range(DRAWS)]
    low, high = np.percentile([total[item].sum() / count[item].sum() for item in drawn], (2.5, 97.5))
    return float(low), float(high)


def estimate() -> None:
    """Evaluate the estimate on gfx950, and models of one pipeline with the other pipeline's kernels inserted."""
    dataset = read_dataset(*DATA).valid()
    wanted = wanted_for(dataset.problems()[0], dataset.arch)
    show("analytic estimate, CK Tile on gfx950", dataset, answered(estimate_model(wanted), dataset))
    problems = int(dataset.problem_ids.max()) + 1
    fold = np.random.default_rng(0).permutation(problems)[dataset.problem_ids] % HELD_OUT
    for pipeline in sorted(dataset.frame["pipeline"].unique()):
        is_known = (dataset.frame["pipeline"] == pipeline).to_numpy()
        put_in = np.empty(len(dataset))
        for number in range(HELD_OUT):
            held = fold == number
            with trained(dataset.select(is_known & ~held)) as path:
                ref = ModelRef(path, read_spec(path))
                put_in[held] = answered(with_estimate(as_of(ref, wanted), ref, wanted), dataset.select(held))
        show(f"- puts kernels into a model of {pipeline} alone, {HELD_OUT} folds", dataset, put_in)


def answered(model: Model, dataset: Dataset) -> NDArray[np.float64]:
    """Negative rank of each row in the model's answer."""
    return -ranked_rows(model, dataset).place


def with_choice(dataset: Dataset) -> Dataset:
    """Rows of problems with several kernels."""
    return dataset.select(np.bincount(dataset.problem_ids)[dataset.problem_ids] > 1)


def on_other(source: str, dataset: Dataset, arch: str, num_cus: int) -> NDArray[np.float64]:
    """Negative ranks of rows in a shipped model's answers for another GPU, with the features of its hardware."""
    shipped = load_model(ROOT / "models" / source)
    return answered(Model(shipped.path, replace(shipped.spec, arch=arch, hardware={"num_cus": num_cus})), dataset)


@contextmanager
def trained(learned: Dataset) -> Iterator[Path]:
    """Folder of a model trained with the defaults, for the duration of the context."""
    with tempfile.TemporaryDirectory() as folder:
        options = replace(learned.op.training.defaults(len(learned)), targets=(), folds=0, jobs=1)
        save(train(learned, options, lambda *_: None), Path(folder) / "model")
        yield Path(folder) / "model"


def trained_places(learned: Dataset, held: Dataset) -> NDArray[np.float64]:
    """Negative ranks of held-out rows by a model trained, with the defaults, on others."""
    with trained(learned) as path:
        return answered(load_model(path), held)


def gemms() -> None:
    """Evaluate the ranks of the other GPU's winners by models of AITER's GEMMs, and of their own, pool by pool."""
    for target in AITER:
        dataset = read_dataset(ROOT / "data" / f"aiter-gemm-{target}.parquet")
        first = dataset.frame.iloc[dataset.first_rows]
        layer = np.unique(first[["n", "k"]].to_numpy(), axis=0, return_inverse=True)[1].reshape(-1)
        for source in AITER:
            place = ranked_winners(dataset, as_of(reference(f"aiter_gemm_{source}"), wanted_of(dataset, target))).place
            pools = first["family"] + " " + first["library"]
            name = f"GEMMs of {target} by the model of {source}" + (" (learned from)" if target == source else "")
            show_hits(name, place, layer)
            for pool in sorted(pools.unique()) if target != source else ():
                is_in = (pools == pool).to_numpy()
                if is_in.sum() >= FEWEST:
                    show_hits(f"- {pool}", place[is_in], layer[is_in])


def show_hits(what: str, place: NDArray[np.int64], layer: NDArray[np.int64]) -> None:
    """Print how often the winner is first, and among the first five; the interval is by resampling layers."""
    low, high = interval((place < 1).astype(np.float64), np.unique(layer, return_inverse=True)[1])
    print(
        f"{what:62s} {len(place):6d} problems  first {(place < 1).mean():.1%} [{low:.1%}, {high:.1%}]"
        f"  in five {(place < FEW).mean():.1%}",
        flush=True,
    )


def reference(name: str) -> ModelRef:
    """A shipped model."""
    path = ROOT / "models" / name
    return ModelRef(path, read_spec(path))


def wanted_of(dataset: Dataset, arch: str) -> Wanted:
    """Description of a model of a dataset's problems on a GPU."""
    return Wanted(dataset.op.name, None, ANY, arch)


def mixtures() -> None:
    """Evaluate models of mixtures of experts on the other GPU, the estimate, and each element type untrained."""
    for name in (*AITER, "gfx942-mi300"):
        dataset = with_choice(read_dataset(ROOT / "data" / f"aiter-moe-{name}.parquet").valid())
        source = next(arch for arch in AITER if arch != dataset.arch)
        cus = int(dataset.frame["num_cus"].max())
        for stage in ("stage1", "stage2", "both"):
            part = dataset.select((dataset.frame["stage"] == stage).to_numpy())
            what = f"mixtures on {name} by the model of {source}, {stage}"
            show(what, part, on_other(f"aiter_moe_{source}", part, dataset.arch, cus))
            for dtype in sorted(part.frame["dtype"].unique()):
                of_type = part.select((part.frame["dtype"] == dtype).to_numpy())
                alone = estimate_model(wanted_for(of_type.problems()[0], dataset.arch, cus))
                show(f"mixtures on {name} by the estimate, {dtype}, {stage}", of_type, answered(alone, of_type))
    dataset = with_choice(read_dataset(ROOT / "data" / f"aiter-moe-{AITER[0]}.parquet").valid())
    for dtype in sorted(dataset.frame["dtype"].unique()):
        is_held = (dataset.frame["dtype"] == dtype).to_numpy()
        held = dataset.select(is_held)
        show(
            f"mixtures in {dtype} by models of other element types",
            held,
            trained_places(dataset.select(~is_held), held),
        )


def main() -> None:
    """Evaluate the given data."""
    estimate()
    gemms()
    mixtures()


if __name__ == "__main__":
    main()
