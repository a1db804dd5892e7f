"""What answers are worth where nothing was measured: another GPU's model, and the analytic estimate.

    python benchmarks/transfer.py [MI200.parquet MI300X.parquet]

The estimate is judged on AMD's measurements of CK Tile's convolutions on gfx950 (data/). With the find databases of
the MI200 and MI300X as Parquet, the model of MIOpen's solvers of either GPU is judged on the other: no other operation
was measured on two GPUs. Beside each: a random choice.
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
            trained = load_model(ROOT / "models" / f"miopen_conv_{source}")
            model = Model(trained.path, replace(trained.spec, arch=arch, hardware={"num_cus": cus}))
            show(f"MIOpen's solvers of {arch} by the model of {source}", dataset, model.scores(dataset))


def main() -> None:
    """Judge what there are data of."""
    estimate()
    paths = [Path(argument) for argument in sys.argv[1:]]
    if len(paths) == len(GPUS) and all(path.is_file() for path in paths):
        other_gpu(paths)
    else:
        print("no find databases as Parquet: nothing is judged on another GPU")


if __name__ == "__main__":
    main()
