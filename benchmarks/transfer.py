"""What answers are worth where nothing was measured: a model of another GPU or element type, and the analytic estimate.

    python benchmarks/transfer.py [MI200.parquet MI300X.parquet]

The estimate is judged on AMD's measurements of CK Tile's convolutions on gfx950; models of AITER's mixtures of experts
on the other GPU, and on each element type of gfx950 when trained without it (data/). With the find databases of the
MI200 and MI300X as Parquet, the same for MIOpen's solvers: on the other GPU, and on each element type of the MI200 and
sizes that were not learned either. Beside each: a random choice.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.assess.measured import times_of
from ckh.assess.metrics import choices
from ckh.data.conversion import convert
from ckh.data.dataset import read_dataset
from ckh.data.formats import ReadOptions
from ckh.learn.artifact import Model, load_model
from ckh.learn.estimate import estimated_us
from ckh.learn.save import save
from ckh.learn.train import train
from ckh.ops.grouped_conv.names import amd_short_name
from ckh.ops.grouped_conv.pool import conv_pool
from ckh.problems import Direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset

ROOT = Path(__file__).parents[1]
DATA = sorted((ROOT / "data").glob("amd-gfx950-conv-*.parquet"))
GPUS = (("gfx90a", 104), ("gfx942", 304))
MOST_PROBLEMS = 20_000
MOE = ("gfx950", "gfx942")
HELD_OUT = 5  # of so many parts of the sizes one is held out, beside an element type


def show(what: str, dataset: Dataset, scores: NDArray[np.float64]) -> None:
    """Print mean and P10 efficiency of the choices by scores of all rows, and the mean of random choices."""
    times = times_of(dataset)
    efficiency = times.efficiency()
    chosen = efficiency[choices(scores, times.problem, times.count)]
    random = np.bincount(times.problem, efficiency) / np.bincount(times.problem)
    print(
        f"{what:50s} {times.count:6d} problems  {chosen.mean():.1%} / {np.percentile(chosen, 10):.1%}"
        f"  (random {random.mean():.1%})",
        flush=True,
    )


def estimate() -> None:
    """Judge the estimate on gfx950."""
    dataset = read_dataset(*DATA).valid()
    arch = load_arch(dataset.arch)
    known = {amd_short_name(one): one for one in conv_pool(Direction.FORWARD, arch, 2, "bf16")}
    kernels = [known[name] for name in dataset.frame["kernel_name"]]
    scores = np.empty(len(kernels))
    for number, problem in enumerate(dataset.problems()):
        rows = np.flatnonzero(dataset.problem_ids == number)
        sizes = dataset.op.tiled(problem) if dataset.op.tiled else None
        assert sizes is not None
        scores[rows] = -estimated_us(problem, sizes, [kernels[row] for row in rows], arch)
    show("analytic estimate, CK Tile on gfx950", dataset, scores)


def with_choice(dataset: Dataset) -> Dataset:
    """The rows of problems that leave a choice."""
    return dataset.select(np.bincount(dataset.problem_ids)[dataset.problem_ids] > 1)


def on_other(source: str, dataset: Dataset, arch: str, num_cus: int) -> NDArray[np.float64]:
    """The scores of a shipped model on rows of another GPU, with features of that one's hardware."""
    trained = load_model(ROOT / "models" / source)
    model = Model(trained.path, replace(trained.spec, arch=arch, hardware={"num_cus": num_cus}))
    return model.scores(dataset)


def without(dataset: Dataset, left_out: NDArray[np.bool_], held: Dataset) -> NDArray[np.float64]:
    """The scores of held-out rows by a model that was trained, by the defaults, on all rows but those left out."""
    learned = dataset.select(~left_out)
    with tempfile.TemporaryDirectory() as folder:
        options = replace(dataset.op.train_defaults(len(learned)), folds=0, jobs=1)
        save(train(learned, options, lambda *_: None), Path(folder) / "model")
        return load_model(Path(folder) / "model").scores(held)


def mixtures() -> None:
    """Judge models of mixtures of experts on the other GPU, and on each element type that they were trained without."""
    for arch, source in zip(MOE, MOE[::-1], strict=True):
        dataset = with_choice(read_dataset(ROOT / "data" / f"aiter-moe-{arch}.parquet").valid())
        cus = int(dataset.frame["num_cus"].max())
        for stage in (("stage1", "stage2"), ("both",)):
            part = dataset.select(dataset.frame["stage"].isin(stage).to_numpy())
            what = f"mixtures on {arch} by the model of {source}, {' and '.join(stage)}"
            show(what, part, on_other(f"aiter_moe_{source}", part, arch, cus))
    dataset = with_choice(read_dataset(ROOT / "data" / f"aiter-moe-{MOE[0]}.parquet").valid())
    for dtype in sorted(dataset.frame["dtype"].unique()):
        is_held = (dataset.frame["dtype"] == dtype).to_numpy()
        held = dataset.select(is_held)
        show(f"mixtures in {dtype} by models of other element types", held, without(dataset, is_held, held))


def other_dtype(dataset: Dataset) -> None:
    """Judge models of MIOpen's solvers on each element type and a part of the sizes that they were trained without."""
    dtypes = dataset.frame["dtype"].to_numpy()
    is_part = dataset.split_ids % HELD_OUT == 0
    for dtype in sorted(set(dtypes)):
        held = with_choice(dataset.select((dtypes == dtype) & is_part))
        show(f"solvers in {dtype} by models of other types", held, without(dataset, (dtypes == dtype) | is_part, held))


def other_gpu(paths: list[Path]) -> None:
    """Judge each GPU's model of MIOpen's solvers on the other's times, on problems that leave a choice."""
    with tempfile.TemporaryDirectory() as work:
        for (arch, cus), path, (source, _) in zip(GPUS, paths, GPUS[::-1], strict=True):
            out = Path(work) / f"{arch}.parquet"
            convert([path], out, ReadOptions(arch=arch, num_cus=cus, skip_bad=True))
            dataset = read_dataset(out).valid()
            count = np.bincount(dataset.problem_ids)
            drawn = np.random.default_rng(0).permutation(np.flatnonzero(count > 1))[:MOST_PROBLEMS]
            dataset = dataset.select(np.isin(dataset.problem_ids, drawn))
            scores = on_other(f"miopen_conv_{source}", dataset, arch, cus)
            show(f"MIOpen's solvers of {arch} by the model of {source}", dataset, scores)
            if arch == GPUS[0][0]:
                other_dtype(dataset)


def main() -> None:
    """Judge what there are data of."""
    estimate()
    mixtures()
    paths = [Path(argument) for argument in sys.argv[1:]]
    if len(paths) == len(GPUS) and all(path.is_file() for path in paths):
        other_gpu(paths)
    else:
        print("no find databases as Parquet: MIOpen's solvers are not judged")


if __name__ == "__main__":
    main()
