"""Peak memory of convert, train and evaluate by the number of rows.

    python benchmarks/memory.py [ROWS ...]

Each number of rows (250,000, 1,000,000 and 2,000,000 by default) is a CSV file of AMD's benchmark with made-up times,
which is converted, trained on and judged in processes of their own. A peak is the largest resident set of a process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.ops.grouped_conv.amd_export import AMD_COLUMNS
from ckh.ops.grouped_conv.names import amd_short_name
from ckh.ops.grouped_conv.pool import conv_pool
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = (250_000, 1_000_000, 2_000_000)
_ARCH = "gfx942"
_TREES = ("--trees", "5", "--folds", "3", "--jobs", "2")
# The peak of a process itself: what wait4 says counts what the parent held when it forked.
_CHILD = """
import re, sys
from ckh.entry import run
code = run(sys.argv[1:])
peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())
sys.stderr.write("\\n" + peak[1])
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak memory of the commands in MB, for so many rows."""

    rows: int
    convert: float
    train: float
    evaluate: float


def write_amd_csv(path: Path, rows: int, seed: int = 0) -> None:
    """A CSV file of AMD's benchmark: every forward kernel on as many problems as it takes, at a speed of its own."""
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(map(amd_short_name, conv_pool(Direction.FORWARD, load_arch(_ARCH), 2, "bf16"))))
    speed = random.uniform(20.0, 200.0, len(names))
    with path.open("w", encoding="ascii", newline="") as file:
        file.write(",".join(AMD_COLUMNS) + "\r\n")
        for problem in range(-(-rows // len(names))):
            n, c, k = (int(2 ** random.integers(low, high)) for low, high in ((0, 7), (4, 11), (4, 11)))
            # Distinct problems: the height is a number of its own.
            high, wide, taps = 7 + problem // 50, 7 + problem % 50, int(random.choice((1, 3)))
            flops = 2 * n * c * k * high * wide * taps * taps
            ms = flops / (speed * random.uniform(0.5, 1.5, len(names))) / 1e9
            size = f"{problem},{n},{c},{k},1,1,{high},{wide},1,{taps},{taps},1,1,1,0,{taps // 2},{taps // 2},1,1,1"
            lines = [
                f"{name},{size},{time:.6g},{flops / time / 1e9:.6g},9\r\n" for name, time in zip(names, ms, strict=True)
            ]
            file.writelines(lines[: rows - problem * len(names)])


def peak_mb(*arguments: str | Path) -> float:
    """The largest resident set of a command of ckh, in MB of 2**20 bytes."""
    command = [sys.executable, "-c", _CHILD, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stderr.rsplit("\n", 1)[1]) / 1024


def measure(folder: Path, rows: int, training: Sequence[str] = _TREES) -> Peaks:
    """The peaks of the three commands on so many rows; files are made in the folder."""
    table, data, model = folder / f"{rows}.csv", folder / f"{rows}.parquet", folder / f"{rows}.model"
    write_amd_csv(table, rows)
    convert = peak_mb("convert", table, "--arch", _ARCH, "--out", data)
    table.unlink()
    train = peak_mb("train", "--data", data, "--out", model, *training)
    return Peaks(rows, convert, train, peak_mb("evaluate", "--model", model, "--data", data))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, default=ROWS, help="numbers of rows")
    options = parser.parse_args()
    print("rows        convert     train  evaluate   (MB, largest resident set)")
    with tempfile.TemporaryDirectory(prefix="ckh-memory-") as folder:
        for rows in options.rows:
            found = measure(Path(folder), rows)
            print(f"{rows:<10,d} {found.convert:8.0f}  {found.train:8.0f}  {found.evaluate:8.0f}", flush=True)


if __name__ == "__main__":
    main()
