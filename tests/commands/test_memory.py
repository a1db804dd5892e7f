"""Peak memory of the commands by the number of rows: limits per additional row."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.scale import cost, write_amd_csv, write_journal, write_problems

if TYPE_CHECKING:
    from pathlib import Path

FEW, MANY = 60_000, 240_000
QUICK = ("--folds", "0", "--trees", "2", "--targets", "tflops", "--jobs", "1")
# Bytes per row, including a part of the 200,000 rows sampled by LightGBM. Before rows were compact and read in blocks
# it was 1,700, 3,800 and 4,200.
MOST = {"train": 3000, "evaluate": 1500}
# Rows of several blocks of 8 MB, and the limit in bytes per additional row; measured: 12 of a journal, 1 of a CSV.
SOME_BLOCKS, MORE_BLOCKS, MOST_CONVERTED = 200_000, 600_000, 20
JOURNALS, MOST_OF_JOURNALS = (100_000, 300_000), 1.1
PROBLEMS, MOST_OF_PROBLEMS = (1_000, 5_000), 10_000
# Maximum memory in use at a time, in bytes: Arrow's, and what malloc has given out, looked at so often that short
# runs show theirs as well as long ones.
IN_USE = """
import ctypes, sys, threading
import pyarrow
from ckh.entry import run

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype, most, ended = Info, 0, threading.Event()

def look():
    global most
    while not ended.wait(0.004):
        info = mallinfo()
        most = max(most, info.uordblks + info.hblkhd)

looking = threading.Thread(target=look)
looking.start()
code = run(sys.argv[1:])
ended.set()
looking.join()
sys.stderr.write(f"\\n{most + pyarrow.default_memory_pool().max_memory()}")
sys.exit(code)
"""


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Journals of two lengths."""
    paths = [tmp_path_factory.mktemp("journals") / f"{rows}.jsonl" for rows in JOURNALS]
    for path, rows in zip(paths, JOURNALS, strict=True):
        write_journal(path, rows)
    return paths


@pytest.fixture(scope="module")
def csv_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of AMD's benchmark of two lengths."""
    paths = [tmp_path_factory.mktemp("csv") / f"{rows}.csv" for rows in (SOME_BLOCKS, MORE_BLOCKS)]
    for path, rows in zip(paths, (SOME_BLOCKS, MORE_BLOCKS), strict=True):
        write_amd_csv(path, rows)
    return paths


def per_row(sources: list[Path], rows: tuple[int, int], folder: Path, *options: str) -> float:
    """Memory in use of an additional row that convert reads, in bytes.

    Of up to five runs the maximum counts, as the thread that looks may be late for the most of one.
    """
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}
    most, slope = [0.0, 0.0], math.inf
    for attempt in range(5):
        for place, source in enumerate(sources):
            out = str(folder / f"{source.stem}-{attempt}")
            command = [sys.executable, "-c", IN_USE, "convert", str(source), *options, "--out", out]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            most[place] = max(most[place], float(done.stderr.split()[-1]))
        slope = (most[1] - most[0]) / (rows[1] - rows[0])
        if slope < MOST_CONVERTED:
            break
    return slope


@pytest.mark.slow
@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_convert_takes_constant_memory_in_rows(csv_files: list[Path], tmp_path: Path, to: str) -> None:
    """Three times the rows need the same memory, in any output format."""
    slope = per_row(csv_files, (SOME_BLOCKS, MORE_BLOCKS), tmp_path, "--arch", "gfx942", "--to", to)
    assert slope < MOST_CONVERTED, f"{slope:.0f} bytes a row"


@pytest.mark.slow
def test_convert_takes_constant_memory_in_journal_length(journals: list[Path], tmp_path: Path) -> None:
    """Three times the rows of a journal need at most a tenth more, of freed memory in fragments; it was 70 % more."""
    peaks = [math.inf, math.inf]
    for attempt in range(3):  # the minimum, as memory of freed blocks varies by some MB
        for place, path in enumerate(journals):
            used = cost("convert", path, "--out", tmp_path / f"{path.stem}-{attempt}").peak_mb
            peaks[place] = min(peaks[place], used)
        if peaks[1] < MOST_OF_JOURNALS * peaks[0]:
            break
    assert peaks[1] < MOST_OF_JOURNALS * peaks[0], f"{peaks} MB"


@pytest.mark.slow
def test_convert_keeps_no_journal_rows_in_memory(journals: list[Path], tmp_path: Path) -> None:
    """An additional row of a journal adds next to nothing to the memory in use, in Python, NumPy and Arrow."""
    slope = per_row(journals, JOURNALS, tmp_path)
    assert slope < MOST_CONVERTED, f"{slope:.0f} bytes a row"


@pytest.mark.slow
def test_memory_per_row(tmp_path: Path) -> None:
    """Four times the rows need no more than a stated number of bytes per additional row, in train and evaluate."""
    peaks: dict[str, list[float]] = {name: [] for name in MOST}
    for rows in (FEW, MANY):
        table, data, model = (tmp_path / f"{rows}.{name}" for name in ("csv", "parquet", "model"))
        write_amd_csv(table, rows)
        cost("convert", table, "--arch", "gfx942", "--out", data)
        peaks["train"].append(cost("train", "--data", data, "--out", model, *QUICK).peak_mb)
        peaks["evaluate"].append(cost("evaluate", "--model", model, "--data", data, "--with-trained").peak_mb)
    for command, (few, many) in peaks.items():
        slope = (many - few) * 2**20 / (MANY - FEW)
        assert slope < MOST[command], f"{command}: {slope:.0f} bytes a row, of {few} and {many} MB"


@pytest.mark.slow
def test_memory_per_problem(tmp_path: Path) -> None:
    """The JSON of more problems is printed without being held: their answers alone are, of 5 kB each; it was 24 kB."""
    peaks = []
    for count in PROBLEMS:
        write_problems(tmp_path / "list.txt", count)
        many = ("predict", "--problems", tmp_path / "list.txt", "--arch", "gfx942", "--top", "1", "--json")
        peaks.append(cost(*many).peak_mb)
    assert (peaks[1] - peaks[0]) * 2**20 / (PROBLEMS[1] - PROBLEMS[0]) < MOST_OF_PROBLEMS
