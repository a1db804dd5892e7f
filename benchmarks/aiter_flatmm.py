"""Ranks of AITER's measured winners among its CK Tile kernels for a8w8_bpreshuffle, by the estimate of gemm_preshuffle.

    python benchmarks/aiter_flatmm.py aiter_gemm_tuned.parquet

Each row of the file is the fastest kernel of one tuning run (`family`, `gfx`, `cus`, `M`, `N`, `K`, `library`,
`kernel`, `last`). AITER's kernels are CK Tile's flatmm whose results are scaled by rows and columns; here they are
those of gemm_preshuffle with the same tile, waves and instruction, so that kernels that differ in the number of blocks
per compute unit are one. The newest winner of a problem is compared with the order of the applicable kernels of AITER's
list: by the estimate (ties: the expected share), at random, and by how often each won on other layers (N, K), weighted
by the distance of M.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.models.artifact import wanted_for
from ckh.ops.aiter_gemm.kernel import AiterKernel, kernel_pool, parse_kernel
from ckh.ops.aiter_gemm.problem import CKTILE
from ckh.ops.gemm_preshuffle.kernel_rules import GemmPreshuffleKernel, parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem

FAMILY = "a8w8_bpreshuffle"
PLACES = (1, 5)
HEAD = "gemm_preshuffle_fp8_rcr_flatmm_cshuffle_intrawave_False_False_False_False"
DRAWS = 2000


def ours(kernel: AiterKernel) -> GemmPreshuffleKernel:
    """The kernel of gemm_preshuffle with the geometry that AITER's name states at its end."""
    geometry = kernel.base.removesuffix("_default").split("_")[-3:]
    return parse_preshuffle_kernel("_".join([HEAD, *geometry]))


def shares(better: int, ties: int) -> list[float]:
    """Expected shares of a kernel in the first places, behind `better` others and among `ties` equal ones."""
    return [min(max((place - better) / ties, 0.0), 1.0) for place in PLACES]


def evaluated(rows: pd.DataFrame, arch: str, num_cus: int) -> dict[str, list[list[float]]]:
    """Shares of the winners in the first places, by what orders the kernels."""
    pool = list(dict.fromkeys(map(ours, kernel_pool(FAMILY, CKTILE, arch))))
    rows = rows.sort_values("last").drop_duplicates(["M", "N", "K"], keep="last")
    winners = [ours(parse_kernel(name)) for name in rows["kernel"]]
    problems = [
        GemmPreshuffleProblem(int(m), int(n), int(k), "fp8")
        for m, n, k in rows[["M", "N", "K"]].itertuples(index=False)
    ]
    model = estimate_model(wanted_for(problems[0], arch, num_cus))
    result: dict[str, list[list[float]]] = {"estimate": [], "wins most on other layers": [], "random": []}
    for problem, winner in zip(problems, winners, strict=True):
        own = [kernel for kernel in pool if problem.n % kernel.tile_n == problem.k % kernel.tile_k == 0]
        if winner not in own:
            continue
        weights = dict.fromkeys(own, 0.0)
        for other, won in zip(problems, winners, strict=True):
            if won in weights and (other.n, other.k) != (problem.n, problem.k):
                weights[won] += float(np.exp(-abs(np.log2(other.m / problem.m))))
        at = own.index(winner)
        scores = (model.predict(problem, own), np.array([*weights.values()]), np.zeros(len(own)))
        for places, score in zip(result.values(), map(np.asarray, scores), strict=True):
            places.append(shares(int((score > score[at]).sum()), int((score == score[at]).sum())))
    return result


def main() -> None:
    """Print the shares of each device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("winners", type=Path)
    rows = pd.read_parquet(parser.parse_args().winners)
    rows = rows[(rows["family"] == FAMILY) & (rows["library"] == CKTILE) & rows["kernel"].str.startswith(FAMILY)]
    random = np.random.default_rng(0)
    for (arch, num_cus), some in rows.groupby(["gfx", "cus"]):
        for what, places in evaluated(some, str(arch), int(str(num_cus))).items():
            first, among = np.array(places).T
            draws = first[random.integers(0, len(first), (DRAWS, len(first)))].mean(axis=1)
            low, high = np.percentile(draws, (2.5, 97.5))
            print(
                f"{arch}, {num_cus} CUs, {len(first)} problems, {what}: first {first.mean():.1%} "
                f"({low:.0%} - {high:.0%}), in the first five {among.mean():.1%}"
            )


if __name__ == "__main__":
    main()
