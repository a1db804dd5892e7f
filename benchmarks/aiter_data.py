"""Thins winners: of neighbouring sizes with the same winner, the first, the last and powers of two are kept.

    python benchmarks/collected.py aiter_gemm_tuned.parquet all.parquet
    python benchmarks/aiter_data.py all.parquet data/aiter-gemm.parquet

AITER's tables have thousands of row counts for some layers, most with the same winner as their neighbours. So that
these layers do not dominate, and the dataset is small, at most 24 of the remaining row counts are kept per layer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ckh.assess.winners import winner_rows
from ckh.data.dataset import Dataset, read_dataset, write_dataset
from ckh.data.numbering import group_numbers

MOST_SIZES = 24  # per layer


def thinned(dataset: Dataset) -> Dataset:
    """Rows of the problems that are kept."""
    op = dataset.op
    rows = winner_rows(dataset)
    layer = group_numbers(
        dataset.frame, [name for name in (*op.problems.identity, "arch", *op.apart) if name != op.problems.grows_with]
    )[rows]
    size = dataset.frame[op.problems.grows_with].to_numpy()[rows]
    winner = dataset.frame["kernel"].to_numpy(dtype=object)[rows]
    order = np.lexsort((size, layer))
    layer, winner = layer[order], winner[order]
    same = (layer[1:] == layer[:-1]) & (winner[1:] == winner[:-1])
    is_inside = np.concatenate([[False], same]) & np.concatenate([same, [False]])
    is_inside &= (size[order] & (size[order] - 1)) > 0
    kept = np.ones(len(rows), dtype=bool)
    kept[order[is_inside]] = False
    for item in np.unique(layer):
        sizes = order[(layer == item) & ~is_inside]
        if len(sizes) > MOST_SIZES:
            spread = np.unique(np.linspace(0, len(sizes) - 1, MOST_SIZES).round().astype(int))
            kept[np.delete(sizes, spread)] = False
    return dataset.select(kept[dataset.problem_ids])


def main() -> None:
    """Read, thin and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    dataset = read_dataset(arguments.source)
    part = thinned(dataset)
    write_dataset(part, arguments.out)
    print(f"{len(dataset)} rows of {len(dataset.problems())} problems, {len(part)} of {len(part.problems())} are kept")


if __name__ == "__main__":
    main()
