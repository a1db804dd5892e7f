"""Decomposes the errors of predicted times on the host's hold-outs into common, problem and kernel parts.

    python benchmarks/time_errors.py

For the first five kernels of each problem, in the order of the shipped model: the median error; the median ratio of
predicted to measured time, which is 1 without a drift between the runs of training and hold-out, with its 95 % interval
over problems; the median error after scaling all times to make that ratio 1, which uses the hold-out and so is not a
prediction; and the remaining error after scaling each problem. If pairs were measured twice (GEMMs), the difference
between the two times of a kernel. At the end the share of times within the interval, over all hold-outs. No settings
are chosen by these numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ckh.assess.intervals import estimates, mean_of
from ckh.data.dataset import read_dataset
from ckh.learn.judging.calibrate import SHOWN
from ckh.learn.judging.judged_answers import ranked_rows
from ckh.learn.judging.predicted_times import answered_ratios
from ckh.learn.models.artifact import load_model

ROOT = Path(__file__).parents[1]
HOLDOUTS = {
    **{f"grouped_conv_{item}_fp32_host": f"host-holdout-{item}" for item in ("forward", "bwd_data", "bwd_weight")},
    "gemm_universal_fp32_host": "host-llm",
}


def main() -> None:
    """Print a line for each hold-out, and one for all."""
    covered = []
    for name, file in HOLDOUTS.items():
        model = load_model(ROOT / "models" / name)
        dataset = read_dataset(ROOT / "data" / f"{file}.parquet", columns=lambda op: op.column_names())
        ranked, frame = ranked_rows(model, dataset), dataset.frame
        covered.append(answered_ratios(model, dataset, ranked).covered)
        measured = frame["tflops"].to_numpy(dtype=np.float64)
        rows = np.flatnonzero((ranked.place < SHOWN) & (measured > 0) & np.isfinite(ranked.tflops))
        rows = rows[np.argsort(dataset.problem_ids[rows], kind="stable")]
        starts = np.unique(dataset.problem_ids[rows], return_index=True)[1]
        # Logarithm of the ratio of predicted to measured time.
        off = np.split(np.log(measured[rows] / ranked.tflops[rows]), starts[1:])
        of_problem = np.array([np.median(item) for item in off])
        common = estimates({"": mean_of(of_problem)}, len(of_problem))[""]
        every = np.concatenate(off)
        within = np.concatenate([item - np.median(item) for item in off])
        print(
            f"{name}: error {_error(every):.2%}; predicted over measured {np.exp(np.median(every)):.3f}, mean over "
            f"problems {np.exp(common.value):.3f} [{np.exp(common.low):.3f}, {np.exp(common.high):.3f}]; error without "
            f"a common factor {_error(every - np.median(every)):.2%}, without one for each problem {_error(within):.2%}"
        )
        if "earlier_ms" in frame and frame["earlier_ms"].notna().any():
            apart = np.log(frame["later_ms"].to_numpy()[rows] / frame["earlier_ms"].to_numpy()[rows])
            apart = apart[np.isfinite(apart)]
            print(
                f"  measured twice: {np.median(np.abs(np.expm1(apart))):.2%} apart in the median, the later over the "
                f"earlier {np.exp(np.median(apart)):.3f}; a time lies {np.median(np.abs(np.expm1(apart / 2))):.2%} "
                "from the mean of both"
            )
    share = estimates({"": mean_of(np.concatenate(covered))}, sum(map(len, covered)))[""]
    print(f"within the interval, all hold-outs: {share.value:.1%} [{share.low:.1%}, {share.high:.1%}]")


def _error(off: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.median(np.abs(np.expm1(off))))


if __name__ == "__main__":
    main()
