"""The table of quality of all operations, as `ckh predict` answers, in one run.

    python benchmarks/quality.py [--times FILE ...] [--winners FILE] [--base MODEL] [--part NAME ...]

Parts: `estimate` (the analytic estimate on complete times of AITER's fp8 block-scaled GEMMs, by range of M, for each
library and both; `--times` are ck_gemm_fp8_blockscale_gfx950_*.parquet), `conv` (trained on one of AMD's two files of
gfx950, evaluated on the other; the estimate on both), `gemm` (AMD's winners of fp8 GEMMs, held-out layers;
`--winners`), `libraries` (CK or CK Tile, each layer by trees of the others beside `--base`, a model of AITER's GEMMs
without such trees: aiter_libraries.py), `aiter` (winners of data/aiter-gemm-*.parquet, held-out layers) and `moe`
(held-out layers).

Each line states what its data shaped. The constants of the estimate of the first part are chosen on the other layers
(N, K), from a grid, by the mean error of log times. estimate.md states how changes of the estimate are decided.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from benchmarks import aiter_folds, aiter_libraries, aiter_moe_folds, estimate_prior, gemm_winners
from ckh.archs import load_arch
from ckh.data.dataset import read_dataset
from ckh.learn.analytic import estimate
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.models.artifact import wanted_for
from ckh.ops import operation
from ckh.ops.aiter_gemm.kernel import AiterKernel, parse_kernel
from ckh.ops.aiter_gemm.problem import CK, CKTILE, AiterGemm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
PARTS = ("estimate", "libraries", "conv", "gemm", "aiter", "moe")
FAMILY, ARCH = "a8w8_blockscale_bpreshuffle", "gfx950"
RANGES = ((1, 64), (65, 512), (513, 2048), (2049, 10**9))
BOTH = "both"
GRID = {  # of constants that are not in archspecs
    "_WAIT_CLOCKS": (300.0, 450.0, 600.0, 750.0, 900.0, 1200.0),
    "_OF_SCALING": (4, 6, 8, 10, 12),
    "_CHECKED": (1.0, 1.17, 1.34, 1.5),
}
FEW = 5  # first choices
SPILLING = 3  # launch bounds from which times say how registers spill


class Timed(NamedTuple):
    """A GEMM with the times of all kernels of CK and CK Tile."""

    sizes: tuple[int, int, int]
    kernels: list[AiterKernel]
    us: NDArray[np.float64]

    def of(self, library: str) -> NDArray[np.bool_]:
        """Mask of a library's kernels."""
        return np.array([library in (kernel.library, BOTH) for kernel in self.kernels])


def show(operation_name: str, what: str, figures: str, shaped: str) -> None:
    """Print a line of the table."""
    print(f"{operation_name:16} {what:58} {figures:52} {shaped}", flush=True)


def spread(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Mean, tenth percentile and least of efficiencies."""
    item = np.asarray(values)
    return f"{len(item)}: mean {item.mean():.1%}, P10 {np.percentile(item, 10):.1%}, min {item.min():.1%}"


def timed(paths: Sequence[Path]) -> list[Timed]:
    """GEMMs of files of complete times; a file is a session."""
    result = []
    for path in paths:
        rows = pd.read_parquet(path)
        rows = rows[rows["all_candidates"] & rows["library"].isin([CK, CKTILE]) & rows["us"].notna()]
        for sizes, part in rows.groupby(["m", "n", "k"]):
            m, n, k = map(int, sizes)
            result.append(Timed((m, n, k), list(map(parse_kernel, part["kernel"])), part["us"].to_numpy()))
    return result


def estimated(item: Timed) -> NDArray[np.float64]:
    """Estimated microseconds of each kernel."""
    problem, tiled = AiterGemm(*item.sizes, family=FAMILY), operation("aiter_gemm").problems.tiled
    assert tiled is not None
    return estimate.estimated_us(problem, tiled(problem), item.kernels, load_arch(ARCH))


def error(item: Timed, us: NDArray[np.float64]) -> float:
    """Mean error of log times; slow kernels weigh less, those whose registers spill nothing."""
    weight = item.us.min() / item.us * [kernel.per_cu < SPILLING for kernel in item.kernels]
    return float((weight * np.abs(np.log(us / item.us))).sum() / weight.sum())


def left_out(items: Sequence[Timed]) -> list[NDArray[np.float64]]:
    """Estimates of each GEMM with the constants that are best on the other layers."""
    shipped = {name: getattr(estimate, name) for name in GRID}
    every = []
    for values in product(*GRID.values()):
        for name, value in zip(GRID, values, strict=True):
            setattr(estimate, name, value)
        every.append([estimated(item) for item in items])
    for name, value in shipped.items():
        setattr(estimate, name, value)
    errors = np.array([[error(item, us) for item, us in zip(items, row, strict=True)] for row in every])
    layers = [item.sizes[1:] for item in items]
    others = np.array([[layer != own for layer in layers] for own in layers])
    return [every[(errors @ mask).argmin()][number] for number, mask in enumerate(others)]


def of_estimate(paths: Sequence[Path]) -> None:
    """Print the choices among complete times by range of M."""
    items = timed(paths)
    scores = {
        "estimate, constants of other layers": left_out(items),
        "estimate as it ships": [estimated(item) for item in items],
    }
    for (what, of_items), library in product(scores.items(), (CK, CKTILE, BOTH)):
        shaped = "constants" if "ships" in what else "form"
        for low, high in RANGES:
            chosen = []
            for item, score in zip(items, of_items, strict=True):
                if low <= item.sizes[0] <= high:
                    mask = item.of(library)
                    chosen.append(item.us[mask].min() / item.us[mask][score[mask].argmin()])
            rows = f"M {low} to {high}" if high < RANGES[-1][1] else f"M from {low}"
            show("aiter_gemm", f"{what}, {library}, {rows}", spread(chosen), shaped)
    ratios = [us / item.us for item, us in zip(items, scores["estimate as it ships"], strict=True)]
    near = np.abs(np.log(np.concatenate(ratios)))
    show("aiter_gemm", "times within 25 % of the estimate's", f"{np.mean(near < np.log(1.25)):.1%}", "constants")


def of_convolutions() -> None:
    """Print each of AMD's files by a model of the other, and both by the estimate."""
    data = {number: read_dataset(path).valid() for number, path in estimate_prior.FILES.items()}
    for learned, judged in ((20, 30), (30, 20)):
        held = estimate_prior.with_wide_channels(data[judged])
        by_model = estimate_prior.chosen(data[learned], held, estimate_prior.options_of(data[learned], 1.0))
        show("grouped_conv", f"{learned}-kernel file -> {judged}-kernel file", spread(by_model), "recipe")
        by_estimate = estimate_prior.efficiency(estimate_model(wanted_for(held.problems()[0], ARCH)), held)
        show("grouped_conv", f"estimate, {judged}-kernel file", spread(by_estimate), "form; a check")


def of_libraries(base: Path) -> None:
    """Print the choices between CK and CK Tile on held-out layers."""
    times = aiter_libraries.times_in(ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet")
    answers = aiter_libraries.left_out(base, times)
    aiter_libraries.judge(times, answers, lambda what, of: show("aiter_gemm", what, spread(of), "recipe"))


def of_winners() -> None:
    """Print the places of AITER's winners on held-out layers of the data that ships."""
    for arch in ("gfx942", "gfx950"):
        data = read_dataset(ROOT / "data" / f"aiter-gemm-{arch}.parquet")
        options = data.op.training.defaults(len(data))
        results = list(aiter_folds.judged(data, data, 5, options))
        place = np.concatenate([ranked.place for _, ranked, _ in results])
        other = np.concatenate([baseline for _, _, baseline in results])
        for what, at in (("model", place), ("wins most at this M", other)):
            hits = f"{len(at)}: first {np.mean(at < 1):.1%}, in five {np.mean(at < FEW):.1%}"
            show("aiter_gemm", f"{arch}, thinned winners, held-out layers, {what}", hits, "recipe")


def of_mixtures() -> None:
    """Print the answers for mixtures of experts on held-out layers."""
    data = read_dataset(*(ROOT / "data" / f"aiter-moe-{arch}.parquet" for arch in ("gfx950", "gfx942")))
    for stage, held in aiter_moe_folds.judged(data, data.op.training.defaults(len(data))).items():
        for what, parts in held.efficiency.items():
            values = np.concatenate(parts)
            show("aiter_moe", f"{stage}, held-out layers, {what}", spread(values[np.isfinite(values)]), "recipe")


def main() -> None:
    """Print the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=Path, nargs="*", default=[])
    parser.add_argument("--winners", type=Path)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=PARTS)
    given = parser.parse_args()
    show("operation", "what", "problems: figures", "shaped")
    if "estimate" in given.part and given.times:
        of_estimate(given.times)
    if "libraries" in given.part and given.base is not None:
        of_libraries(given.base)
    if "conv" in given.part:
        of_convolutions()
    if "gemm" in given.part and given.winners is not None:
        gemm_winners.folds(given.winners, 5, 1)
    if "aiter" in given.part:
        of_winners()
    if "moe" in given.part:
        of_mixtures()


if __name__ == "__main__":
    main()
