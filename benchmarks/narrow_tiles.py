"""Which tiles win at small M: efficiency of the best kernel of each tile, of the times of AITER's CK and CK Tile.

    python benchmarks/narrow_tiles.py data/aiter-gemm-libraries-gfx950.parquet

Of GEMMs whose kernels all have times, each library apart. veto.md says what follows for CK Tile's GEMM kernels.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ckh.data.dataset import read_dataset

RANGES = ((1, 64), (65, 512), (513, 2048))
ALL = 40  # kernels with times, from which on they are all that apply


def main() -> None:
    """Print a table by library, tile_m and range of M."""
    frame = read_dataset(Path(sys.argv[1])).frame
    frame = frame[frame["is_valid"]]
    problem = ["m", "n", "k"]
    frame = frame[frame.groupby(problem)["kernel"].transform("size") >= ALL]
    of_library = [*problem, "library"]
    frame["efficiency"] = frame.groupby(of_library)["latency_ms"].transform("min") / frame["latency_ms"]
    best = frame.groupby([*of_library, "tile_m"])["efficiency"].max().reset_index()
    print("| library, tile_m | " + " | ".join(f"M {low} to {high}" for low, high in RANGES) + " |")
    print("|---|" + "---|" * len(RANGES))
    for (library, tile_m), rows in best.groupby(["library", "tile_m"]):
        means = [rows.loc[rows["m"].between(*limits), "efficiency"].mean() for limits in RANGES]
        print(f"| {library}, {tile_m} | " + " | ".join(f"{mean:.1%}" for mean in means) + " |")
    counts = [len(best.loc[best["m"].between(*limits), problem].drop_duplicates()) for limits in RANGES]
    print("| GEMMs | " + " | ".join(map(str, counts)) + " |")


if __name__ == "__main__":
    main()
