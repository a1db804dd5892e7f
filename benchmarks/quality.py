"""The table of quality of all operations, as `ckh predict` answers, in one run: docs/results.md is of it.

    python -m benchmarks.quality [--part NAME ...] [--folds {3,5}] [--out quality.txt]

Everything is learned and judged on data/. Parts: `estimate` (the analytic estimate on the GEMMs of an MI355X whose
kernels of CK and CK Tile all have times, by range of M, for each library and both), `libraries` (CK or CK Tile on these
GEMMs, each layer by trees of the others over a model without any of these layers: aiter_libraries.py), `conv` (trained
on one of AMD's two files of gfx950, evaluated on the other; the estimate on both), `gemm` (AMD's winners of fp8 GEMMs,
held-out layers), `aiter` (winners of data/aiter-gemm-*.parquet, held-out layers) and `moe` (held-out layers).

Each line states what its data shaped. The constants of the estimate of the first part are chosen on the other layers
(N, K), from a grid, by the mean error of log times. estimate.md states how changes of the estimate are decided.
`--out` is written after each part, and parts that it has already are shown, not run again. Progress is on stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks import aiter_folds, aiter_libraries, aiter_moe_folds, estimate_prior, gemm_winners, splits
from ckh.archs import load_arch
from ckh.assess.baselines import Learned, random_efficiency
from ckh.assess.metrics import choices
from ckh.assess.times import times_of
from ckh.data.dataset import read_dataset
from ckh.learn.analytic import estimate
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.models.artifact import wanted_for
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops import operation
from ckh.ops.aiter_gemm.kernel import AiterKernel, parse_kernel
from ckh.ops.aiter_gemm.problem import CK, CKTILE, AiterGemm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
TIMES = ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet"
MIXTURES = ("gfx950", "gfx942", "gfx942-mi300")
FAMILY, ARCH = "a8w8_blockscale_bpreshuffle", "gfx950"
RANGES = ((1, 64), (65, 512), (513, 2048), (2049, 10**9))
BOTH = "both"
GRID = {  # of constants that are not in archspecs
    "_WAIT_CLOCKS": (300.0, 450.0, 600.0, 750.0, 900.0, 1200.0),
    "_OF_SCALING": (4, 6, 8, 10, 12),
    "_CHECKED": (1.0, 1.17, 1.34, 1.5),
}
FEW = 5  # first choices
SEEDS = (1, 2, 3)  # of the models whose mean ships
SPILLING = 3  # launch bounds from which times say how registers spill


class Timed(NamedTuple):
    """A GEMM with the times of all kernels of CK and CK Tile."""

    sizes: tuple[int, int, int]
    kernels: list[AiterKernel]
    us: NDArray[np.float64]

    def of(self, library: str) -> NDArray[np.bool_]:
        """Mask of a library's kernels."""
        return np.array([library in (kernel.library, BOTH) for kernel in self.kernels])


def row(operation_name: str, what: str, figures: str, shaped: str) -> str:
    """Return a line of the table."""
    return f"{operation_name:16} {what:58} {figures:52} {shaped}"


def spread(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Mean, tenth percentile and least of efficiencies."""
    item = np.asarray(values, np.float64)
    return f"{len(item)}: mean {item.mean():.1%}, P10 {np.percentile(item, 10):.1%}, min {item.min():.1%}"


def timed() -> list[Timed]:
    """GEMMs of which all kernels have times."""
    times = aiter_libraries.of_own(aiter_libraries.times_in(TIMES))
    complete = {problem: us for problem, us in times.items() if len(us) > aiter_libraries.ALL}
    return [
        Timed((problem.m, problem.n, problem.k), list(map(parse_kernel, us)), np.array([*us.values()]))
        for problem, us in complete.items()
    ]


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


def of_estimate(folds: int) -> list[str]:
    """Choices among complete times by range of M."""
    del folds
    items, lines = timed(), []
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
            lines.append(row("aiter_gemm", f"{what}, {library}, {rows}", spread(chosen), shaped))
    ratios = [us / item.us for item, us in zip(items, scores["estimate as it ships"], strict=True)]
    near = np.abs(np.log(np.concatenate(ratios)))
    share = f"{np.mean(near < np.log(1.25)):.1%}"
    return [*lines, row("aiter_gemm", "times within 25 % of the estimate's", share, "constants")]


def of_convolutions(folds: int) -> list[str]:
    """Each of AMD's files by a model of the other, and both by the estimate."""
    del folds
    data, lines = {number: read_dataset(path).valid() for number, path in estimate_prior.FILES.items()}, []
    for learned, judged in ((20, 30), (30, 20)):
        held = estimate_prior.with_wide_channels(data[judged])
        by_model = estimate_prior.chosen(data[learned], held, estimate_prior.options_of(data[learned], 1.0))
        lines.append(row("grouped_conv", f"{learned}-kernel file -> {judged}-kernel file", spread(by_model), "recipe"))
        by_estimate = estimate_prior.efficiency(estimate_model(wanted_for(held.problems()[0], ARCH)), held)
        lines.append(row("grouped_conv", f"estimate, {judged}-kernel file", spread(by_estimate), "form; a check"))
        times, known = times_of(held), Learned([data[learned]])
        for what, scores in (
            ("nearest problem", known.nearest_problem_scores(held)),
            ("best average kernel", known.single_kernel_scores(held)),
        ):
            by_baseline = times.efficiency()[choices(scores, times.problem, times.count)]
            lines.append(row("grouped_conv", f"{what}, {judged}-kernel file", spread(by_baseline), "nothing"))
        lines.append(row("grouped_conv", f"random, {judged}-kernel file", spread(random_efficiency(times)), "nothing"))
    return lines


def of_libraries(folds: int) -> list[str]:
    """Choices between CK and CK Tile on held-out layers."""
    del folds
    times, lines = aiter_libraries.times_in(TIMES), list[str]()
    data = read_dataset(ROOT / "data" / f"aiter-gemm-{ARCH}.parquet")
    layers = {(problem.n, problem.k) for problem in times}
    is_other = np.array([(problem.n, problem.k) not in layers for problem in data.problems()])
    learned = data.select(is_other[data.problem_ids])
    with TemporaryDirectory() as work:
        bases = [Path(work) / str(seed) for seed in SEEDS]
        for seed, base in zip(SEEDS, bases, strict=True):
            options = replace(learned.op.training.defaults(len(learned)), seed=seed)
            save(train(learned, options, lambda *_: None), base)
        answers = aiter_libraries.left_out(bases, times, learned)
    aiter_libraries.judge(times, answers, lambda what, of: lines.append(row("aiter_gemm", what, spread(of), "recipe")))
    return lines


def hits(at: Sequence[int] | NDArray[np.int64]) -> str:
    """Shares of winners that are first, and in the first five."""
    place = np.asarray(at)
    return f"{len(place)}: first {np.mean(place < 1):.1%}, in five {np.mean(place < FEW):.1%}"


def of_gemms(folds: int) -> list[str]:
    """Places of AMD's winners of fp8 GEMMs on held-out layers."""
    places = gemm_winners.held_out(ROOT / "data" / "amd-gfx950-gemm-fp8-winners.parquet", folds, 1)
    return [
        row("gemm_universal", f"winners, held-out layers, {what}", hits(at), "recipe") for what, at in places.items()
    ]


def of_winners(folds: int) -> list[str]:
    """Places of AITER's winners on held-out layers of the data that ships."""
    lines = []
    for arch in ("gfx942", "gfx950"):
        data = read_dataset(ROOT / "data" / f"aiter-gemm-{arch}.parquet")
        results = list(aiter_folds.judged(data, data, folds, data.op.training.defaults(len(data))))
        model = np.concatenate([ranked.place for _, ranked, _ in results])
        other = np.concatenate([baseline for _, _, baseline in results])
        folds_of = aiter_libraries.folds_of(data, folds)
        near = np.concatenate(
            [splits.nearest(held, data.select(folds_of != fold)) for fold, (held, _, _) in enumerate(results)]
        )
        for what, at in (("model", model), ("wins most at this M", other), ("nearest problems' winners", near)):
            lines.append(row("aiter_gemm", f"{arch}, thinned winners, held-out layers, {what}", hits(at), "recipe"))
    return lines


def of_mixtures(folds: int) -> list[str]:
    """Answers for mixtures of experts on held-out layers."""
    del folds
    data, lines = read_dataset(*(ROOT / "data" / f"aiter-moe-{name}.parquet" for name in MIXTURES)), []
    for stage, held in aiter_moe_folds.judged(data, aiter_moe_folds.RECIPE).items():
        for what, parts in held.efficiency.items():
            values = np.concatenate(parts)
            known = spread(values[np.isfinite(values)])
            shaped = "recipe" if what == "predict" else "nothing"
            lines.append(row("aiter_moe", f"{stage}, held-out layers, {what}", known, shaped))
    return lines


PARTS: dict[str, Callable[[int], list[str]]] = {
    "estimate": of_estimate,
    "libraries": of_libraries,
    "conv": of_convolutions,
    "gemm": of_gemms,
    "aiter": of_winners,
    "moe": of_mixtures,
}


def finished(path: Path | None) -> dict[str, list[str]]:
    """Lines of the parts that a file has, each below a line with its name."""
    parts: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
        if line.startswith("# "):
            parts[line.removeprefix("# ")] = []
        else:
            parts[next(reversed(parts))].append(line)
    return parts


def main() -> None:
    """Print the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--folds", type=int, choices=(3, 5), default=5, help="of the parts gemm and aiter")
    parser.add_argument("--out", type=Path, help="file of finished parts, to continue")
    given = parser.parse_args()
    done, begun = finished(given.out), time.monotonic()
    print(row("operation", "what", "problems: figures", "shaped"), flush=True)
    for number, name in enumerate(given.part, 1):
        key = f"{name}, {given.folds} folds"
        if key not in done:
            print(f"{name}, part {number} of {len(given.part)}", file=sys.stderr, flush=True)
            done[key] = PARTS[name](given.folds)
            print(f"{name} finished after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        if given.out is not None:
            text = "".join(f"# {key}\n" + "".join(f"{line}\n" for line in lines) for key, lines in done.items())
            given.out.write_text(text, encoding="utf-8")
        print(*done[key], sep="\n", flush=True)


if __name__ == "__main__":
    main()
