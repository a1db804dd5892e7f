"""Speed of `ckh convert` on a CSV file of AMD's benchmark with synthetic times.

    python benchmarks/convert_speed.py [ROWS] [--repeat 3] [--csv FILE --arch ARCH]

Prints seconds and rows per second of each run, a separate process including the start of Python, and the speed-up of
the best over AMD's converter, which takes 64 s for a million rows (stated by others, on their machine; not measured
here).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import write_amd_csv  # type: ignore[import-not-found]  # of this folder

_THEIRS_S = 64.0  # for a million rows


def timed(table: Path, arch: str, out: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a conversion."""
    command = [sys.executable, "-m", "ckh", "convert", str(table), "--arch", arch, "--out", str(out), "--force"]
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = time.perf_counter() - start, os.times()
    system = after.children_system - before.children_system
    return seconds, after.children_user - before.children_user + system


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", type=int, default=1_000_000, help="rows that are made up")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="convert this file instead")
    parser.add_argument("--arch", default="gfx942")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckh-convert-") as folder:
        table = options.csv or Path(folder) / "table.csv"
        if options.csv is None:
            write_amd_csv(table, options.rows)
        with table.open("rb") as file:
            rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1
        result = []
        for _ in range(options.repeat):
            result.append(timed(table, options.arch, Path(folder) / "out.parquet"))
            seconds, processor = (item * 1e6 / rows for item in result[-1])
            print(
                f"{rows:,} rows: {seconds:.2f} s for a million ({1e6 / seconds:,.0f} rows/s), "
                f"{processor:.2f} s of processor time",
                flush=True,
            )
    for what, place in (("time", 0), ("processor time", 1)):
        print(f"{_THEIRS_S * rows / 1e6 / min(item[place] for item in result):.1f} times theirs by {what}")


if __name__ == "__main__":
    main()
