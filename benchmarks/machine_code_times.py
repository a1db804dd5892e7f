"""Efficiency of choosing by the simulated machine code of `ckh explain`, on AMD's convolutions of gfx950.

    python benchmarks/machine_code_times.py

The 20 kernels are compiled for gfx950 (HIPCC, CK_TILE_INCLUDE), or taken from ckh's cache. A kernel's time is its
launch, and the larger of the memory's time and the simulated clocks of its blocks: of as many as a compute unit holds
at once, times the rounds of blocks. Nothing is fitted to the measurements. Prints mean / P10 efficiency of the first
choice among the measured kernels, by the estimate and by its weighted geometric means with the machine code, whose
weight is given, for the tiles of compv3 and for all kernels. The oracle is the fastest of all kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from ckh.learn.analytic.estimate import bounded_us, estimated_parts, estimated_us
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import wanted_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.isa.anatomy import Anatomy, FunctionDocument
    from ckh.isa.codefile import CodeFile
    from ckh.learn.models.artifact import Model

ROOT = Path(__file__).parents[1]
FILES = {number: ROOT / "data" / f"amd-gfx950-conv-{number}kernels.parquet" for number in (20, 30)}
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 1.0)
SOURCES = (
    "the estimate, registers and LDS by the tile",
    "the estimate, registers and LDS by the compiler",
    "machine code",
)
_TIMEOUT_S = 3600.0


def complete_kernels(dataset: Dataset) -> list[Any]:
    """The complete kernel of each row, by its short name: the candidate of `ckh predict` that matches."""
    codes, names = factorize(dataset.frame["kernel"])
    answer = next(iter(rankings_of(dataset.problems()[:1], estimate_of(dataset))))
    positions, matched = KernelJoin(dataset.op, [str(name) for name in names]).pairs(answer.pool)
    of_code = dict(zip(matched.tolist(), positions.tolist(), strict=True))
    return [answer.pool[of_code[code]] for code in codes.tolist()]


def estimate_of(dataset: Dataset) -> Model:
    """The estimate for a dataset's problems."""
    return estimate_model(wanted_for(dataset.problems()[0], dataset.arch))


def compiled(kernels: Sequence[Any], dataset: Dataset) -> dict[Any, CodeFile]:
    """Machine code of kernels."""
    emission = measured_of(dataset.op).hip
    assert emission is not None
    builder = KernelBuilder(open_device(HIP_KIND, DeviceOptions(dataset.arch)), _TIMEOUT_S)
    built = builder.build(kernels, 1, lambda _steps, _text: None)
    return {kernel: read_code(Path(built[kernel].library), dataset.arch, emission.functions) for kernel in kernels}


class Simulated(NamedTuple):
    """Simulated clocks of the blocks that a compute unit holds at once."""

    ends: float
    """Before and after the iterations of the function's loop."""
    trip: float
    """Of an iteration of the loop."""
    outside: float
    """Iterations over K outside of the loop."""

    @classmethod
    def of(cls, anatomy: Anatomy) -> Simulated:
        """Read them from the anatomy of a kernel for a problem."""
        assert anatomy.simulated is not None
        assert anatomy.trips is not None
        ends = anatomy.simulated.before_clocks + anatomy.simulated.after_clocks
        share, trip = anatomy.simulated.shares["trips"], anatomy.simulated.trip_clocks
        return cls(ends, trip, anatomy.trips - (ends * share / (1 - share) / trip if trip else 0.0))

    def clocks(self, trips: int) -> float:
        """Clocks for so many iterations over K."""
        return self.ends + self.trip * max(trips - self.outside, 0.0)


def times_us(dataset: Dataset, kernels: Sequence[Any], code: dict[Any, CodeFile]) -> NDArray[np.float64]:
    """Times of rows by each of `SOURCES`, in microseconds, shape (3, rows)."""
    estimate = estimate_of(dataset).estimate
    assert estimate is not None
    names = {kernel: dataset.op.kernels.name(kernel) for kernel in code}
    arch, problems = load_arch(dataset.arch), dataset.problems()
    tiled = dataset.op.problems.tiled
    assert tiled is not None
    functions: dict[Any, FunctionDocument] = {}
    simulated: dict[Any, Simulated] = {}
    result = np.empty((3, len(dataset)))
    rows = zip(kernels, dataset.problem_ids.tolist(), range(len(dataset)), strict=True)
    for kernel, number, row in sorted(rows, key=lambda item: str(item[0])):  # a kernel is decoded once
        problem, sizes = problems[number], tiled(problems[number])
        asked = Asked("", "", kernel, problem, sizes)
        assert sizes is not None
        assert asked.trips is not None
        if (kernel, asked.trips) not in functions:
            some = anatomy_of(code[kernel], asked).functions
            functions[kernel, asked.trips] = next(function for function in some if function.runs)
        function = functions[kernel, asked.trips]
        registers = estimate.compiled.get(names[kernel])
        parts = estimated_parts(problem, sizes, kernel, arch, function.resources)
        key = kernel, function.name, parts.blocks_at_once
        if key not in simulated:
            simulated[key] = Simulated.of(anatomy_of(code[kernel], asked))
        clocks = parts.rounds * simulated[key].clocks(asked.trips)
        work_us = clocks / arch.hardware.max_clock_mhz
        result[:2, row] = [estimated_us(problem, sizes, [kernel], arch, [item])[0] for item in (None, registers)]
        result[2, row] = parts.launch_us + bounded_us(work_us, parts.memory_us)
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
    tile, compiler, machine_code = SOURCES
    ways = [
        (tile, (1.0, 0.0, 0.0)),
        (compiler, (0.0, 1.0, 0.0)),
        *((f"{machine_code}, weight {weight}", (0.0, 1 - weight, weight)) for weight in WEIGHTS),
    ]
    for what in ("compv3", "all pipelines"):
        for name, weights in ways:
            cells = []
            for number, dataset in files.items():
                score = np.array(weights) @ np.log(times[number])
                is_left_out = (dataset.frame["pipeline"] != "compv3").to_numpy() & (what == "compv3")
                cells.append(efficiency(dataset, np.where(is_left_out, np.inf, score)))
            both = [*cells, np.concatenate(cells)]
            shown = (f"{item.mean():.2%} / {np.percentile(item, 10):.2%}" for item in both)
            print(f"{what}: {name}: " + ", ".join(f"{a} {b}" for a, b in zip((20, 30, "both"), shown, strict=True)))


if __name__ == "__main__":
    main()
