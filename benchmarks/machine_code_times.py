"""Efficiency of choosing by the simulated machine code of `ckh explain`, on AMD's convolutions of gfx950.

    python benchmarks/machine_code_times.py

The 20 kernels are compiled for gfx950 (HIPCC, CK_TILE_INCLUDE), or taken from ckh's cache. A kernel's time is its
launch, and the larger of the memory's time and the simulated clocks of its blocks: of as many as a compute unit holds
at once, times the rounds of blocks. Nothing is fitted to the measurements. Prints mean / P10 efficiency of the first
choice among the measured kernels, by the estimate, by the machine code and by weighted geometric means of both (the
weight is the machine code's), for the tiles of compv3 and for all kernels. The oracle is the fastest of all kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pandas import factorize

from ckh.archs import load_arch
from ckh.assess.times import times_of
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.data.dataset import Dataset, read_dataset
from ckh.isa.codefile import read_code
from ckh.isa.describe import Asked, anatomy_of
from ckh.learn.analytic.estimate import estimated_parts
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.analytic.transfer import EstimateModel
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import wanted_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.isa.anatomy import Anatomy
    from ckh.isa.codefile import CodeFile

ROOT = Path(__file__).parents[1]
FILES = {number: ROOT / "data" / f"amd-gfx950-conv-{number}kernels.parquet" for number in (20, 30)}
WEIGHTS = (0.1, 0.3, 0.5, 0.7)
_TIMEOUT_S = 3600.0


def complete_kernels(dataset: Dataset) -> list[Any]:
    """The complete kernel of each row, by its short name: the candidate of `ckh predict` that matches."""
    codes, names = factorize(dataset.frame["kernel"])
    answer = next(iter(rankings_of(dataset.problems()[:1], estimate_of(dataset))))
    positions, matched = KernelJoin(dataset.op, [str(name) for name in names]).pairs(answer.pool)
    of_code = dict(zip(matched.tolist(), positions.tolist(), strict=True))
    return [answer.pool[of_code[code]] for code in codes.tolist()]


def estimate_of(dataset: Dataset) -> EstimateModel:
    """The estimate for a dataset's problems, without a calibration of this machine."""
    return EstimateModel(wanted_for(dataset.problems()[0], dataset.arch), uses_calibration=False)


def compiled(kernels: Sequence[Any], dataset: Dataset) -> dict[Any, CodeFile]:
    """Machine code of kernels."""
    emission = measured_of(dataset.op).hip
    assert emission is not None
    builder = KernelBuilder(open_device(HIP_KIND, DeviceOptions(dataset.arch)), _TIMEOUT_S)
    built = builder.build(kernels, 1, lambda _steps, _text: None)
    return {kernel: read_code(Path(built[kernel].library), dataset.arch, emission.functions) for kernel in kernels}


def simulated_clocks(anatomy: Anatomy) -> float:
    """Simulated clocks of the blocks that a compute unit holds at once, from their start to their end."""
    assert anatomy.simulated is not None
    outside = anatomy.simulated.before_clocks + anatomy.simulated.after_clocks
    return outside / (1 - anatomy.simulated.shares["trips"])


def times_us(dataset: Dataset, kernels: Sequence[Any], code: dict[Any, CodeFile]) -> NDArray[np.float64]:
    """Estimated time of each row, and its time by machine code, in microseconds; shape (2, rows)."""
    arch, problems = load_arch(dataset.arch), dataset.problems()
    tiled = dataset.op.problems.tiled
    assert tiled is not None
    known: dict[Any, tuple[float, Any]] = {}
    result = np.empty((2, len(dataset)))
    for row, (kernel, number) in enumerate(zip(kernels, dataset.problem_ids.tolist(), strict=True)):
        problem = problems[number]
        asked = Asked("", "", kernel, problem, tiled(problem))
        assert asked.sizes is not None
        at_once = estimated_parts(problem, asked.sizes, kernel, arch).blocks_at_once
        key = kernel, asked.trips, at_once
        if key not in known:
            anatomy = anatomy_of(code[kernel], asked).anatomy
            resources = next(function.resources for function in anatomy.functions if function.runs)
            known[key] = simulated_clocks(anatomy), resources
        clocks, resources = known[key]
        parts = estimated_parts(problem, asked.sizes, kernel, arch, resources)
        simulated_us = max(parts.rounds * clocks / arch.hardware.max_clock_mhz, parts.memory_us)
        result[:, row] = parts.us, parts.launch_us + simulated_us
    return result


def efficiency(dataset: Dataset, us: NDArray[np.float64]) -> NDArray[np.float64]:
    """Efficiency of the row with the shortest of these times for each problem, shape (problems,)."""
    order = np.lexsort((us, dataset.problem_ids))
    first = np.unique(dataset.problem_ids[order], return_index=True)[1]
    return np.asarray(times_of(dataset).efficiency()[order[first]])


def main() -> None:
    """Print a line for each set of candidates and each way to choose."""
    files = {number: read_dataset(path).valid() for number, path in FILES.items()}
    rows = {number: complete_kernels(dataset) for number, dataset in files.items()}
    code = compiled(sorted({kernel for some in rows.values() for kernel in some}, key=str), files[20])
    times = {number: times_us(dataset, rows[number], code) for number, dataset in files.items()}
    ways = [("the estimate", 0.0), *((f"machine code, weight {weight}", weight) for weight in WEIGHTS)]
    for what in ("compv3", "all pipelines"):
        for name, weight in (*ways, ("machine code alone", 1.0)):
            cells = []
            for number, dataset in files.items():
                estimated, simulated = np.log(times[number])
                score = np.exp((1 - weight) * estimated + weight * simulated)
                is_left_out = (dataset.frame["pipeline"] != "compv3").to_numpy() & (what == "compv3")
                cells.append(efficiency(dataset, np.where(is_left_out, np.inf, score)))
            both = [*cells, np.concatenate(cells)]
            shown = (f"{item.mean():.2%} / {np.percentile(item, 10):.2%}" for item in both)
            print(f"{what}: {name}: " + ", ".join(f"{a} {b}" for a, b in zip((20, 30, "both"), shown, strict=True)))


if __name__ == "__main__":
    main()
