"""Achievable efficiency of choosing by a repeated measurement on the host's hold-outs, compared with the models'.

    python benchmarks/host_ceiling.py

Each kernel's time is resampled with the spread of its samples; the fastest is chosen, and evaluated in the measured
times. That is an estimate, not a measurement: a median has a smaller error than its samples, and two runs differ more
than samples of one. For GEMMs, whose hold-out was measured twice, the true value is printed too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ckh.assess.metrics import choices
from ckh.assess.noise import scored_again
from ckh.assess.times import times_of
from ckh.data.dataset import Dataset, read_dataset
from ckh.learn.models.artifact import load_model

ROOT = Path(__file__).parents[1]
HOLDOUTS = {
    **{f"grouped_conv_{item}_fp32_host": f"host-holdout-{item}" for item in ("forward", "bwd_data", "bwd_weight")},
    "gemm_universal_fp32_host": "host-llm",
}
_DRAWS = 40


def drawn_again(measured: Dataset, seed: int = 0) -> float:
    """Mean efficiency of choosing by resampled times."""
    times, random = times_of(measured), np.random.default_rng(seed)
    efficiency, spread = times.efficiency(), measured.frame["spread"].to_numpy(np.float64)
    errors = np.where(np.isfinite(spread), spread, np.nanmedian(spread))
    result = []
    for _ in range(_DRAWS):
        noisy = times.latency_ms * np.exp(errors * random.standard_normal(len(errors)))
        result.append(efficiency[choices(-noisy, times.problem, times.count)].mean())
    return float(np.mean(result))


def main() -> None:
    """Print a line for each hold-out."""
    for model, name in HOLDOUTS.items():
        measured = read_dataset(ROOT / "data" / f"{name}.parquet").valid()
        times = times_of(measured)
        chosen = choices(load_model(ROOT / "models" / model).scores(measured), times.problem, times.count)
        again = scored_again(measured, chosen, None)
        twice = f", measured twice {again.repeated[again.is_known].mean():.2%}" if again.is_known.any() else ""
        model_mean = times.efficiency()[chosen].mean()
        print(f"{name:26s} model {model_mean:.2%}, drawn again {drawn_again(measured):.2%}{twice}", flush=True)


if __name__ == "__main__":
    main()
