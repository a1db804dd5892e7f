"""Estimates of `ckh validate oracle --on-device` for hold-outs of which every kernel was measured.

    python benchmarks/oracle_sample.py

Replays it on the measured times: the model's first five, and 59 random kernels of each problem, the mean of 20 draws.
Prints the mean efficiency as estimated without the sample, with it, by the estimated best of all, and the true value.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ckh.assess.oracle import SAMPLE, Contest, Remeasured, contests, measured_again, with_sample
from ckh.assess.times import times_of
from ckh.data.dataset import read_dataset
from ckh.learn.judging.judged_answers import first_kernels, ranked_rows
from ckh.learn.models.artifact import load_model

ROOT = Path(__file__).parents[1]
FIRST, SEEDS = 5, 20
PAIRS = {
    **{f"grouped_conv_{v}_fp32_host": f"host-holdout-{v}" for v in ("forward", "bwd_data", "bwd_weight")},
    "gemm_universal_fp32_host": "host-llm",
}


def replay(model: str, data: str) -> list[float]:
    """Mean efficiency without a sample, with one, by the estimated best, and the true value."""
    dataset = read_dataset(ROOT / "data" / f"{data}.parquet")
    loaded, times = load_model(ROOT / "models" / model), times_of(dataset)
    first, ranked = first_kernels(loaded, dataset, FIRST), ranked_rows(loaded, dataset)
    texts = [problem.canonical() for problem in dataset.problems()]
    ns: dict[str, dict[str, float]] = {text: {} for text in texts}
    names = dataset.frame["kernel"].astype(str).to_numpy(dtype=object)
    for problem, name, ms in zip(dataset.problem_ids.tolist(), names, times.latency_ms.tolist(), strict=True):
        ns[texts[problem]][name] = ms * 1e6
    # The best kernel of another day is unknown here: the model's first choice is used instead.
    plain = [
        replace(contest, kernels=(contest.kernels[1], *contest.kernels[1:])) for contest in contests(dataset, first)
    ]
    told = []
    for seed in range(SEEDS):
        drawn = with_sample(plain, lambda problem: list(ns[problem]), SAMPLE, seed)
        for some in (plain, drawn):
            again = [_timed(contest, ns[contest.problem]) for contest in some]
            told.append([np.mean([remeasured.first_efficiency for remeasured in again])])
        told[-1].append(np.mean([remeasured.estimated_efficiency for remeasured in again]))
    assert ranked.is_measured(times.problem).all()
    true = float(times.efficiency()[ranked.best_ranked(times.problem)].mean())
    without, (with_it, estimated) = told[0][0], np.mean([item for item in told if len(item) > 1], axis=0)
    return [float(without), float(with_it), float(estimated), true]


def _timed(contest: Contest, ns: dict[str, float]) -> Remeasured:
    times = [[ns[name]] if np.isfinite(ns[name]) else [] for name in contest.kernels]
    return measured_again(contest, times)


def main() -> None:
    """Print a row for each hold-out."""
    print(f"{'':36s} {'first 5':>8s} {'+ sample':>8s} {'estimate':>8s} {'truth':>8s}")
    for model, data in PAIRS.items():
        print(f"{model:36s} " + " ".join(f"{item:8.2%}" for item in replay(model, data)), flush=True)


if __name__ == "__main__":
    main()
