"""Peak memory and CPU time of convert, train, evaluate and bench by the number of rows.

    python benchmarks/memory.py [ROWS ...] [--only convert|journal|csv|train|evaluate|resume ...]
    python benchmarks/memory.py 10000000 --only evaluate --sample 500000 --jobs 1

Each number of rows (250,000, 1,000,000 and 2,000,000 by default) is a CSV file of AMD's benchmark with synthetic times,
which is converted, written as CSV again, trained on and evaluated in separate processes, and a journal of `ckh bench`
with as many rows, which is converted; `resume` is `ckh bench --resume --dry-run` of a run on this host with as many. A
peak is the maximum resident set size of a process; seconds are its CPU time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import structs

from ckh.archs import load_arch
from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.planning.plan import Plan, Task
from ckh.bench.planning.results import plan_records
from ckh.bench.supervision.runner import new_record
from ckh.data.journal import JOURNAL_NAME
from ckh.data.journal_records import ResultRow, RunRecord, record_line
from ckh.data.settings import Settings
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.ops.grouped_conv.kernel import amd_short_name, kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel

COMMANDS = ("convert", "journal", "csv", "train", "evaluate", "resume")
ROWS = (250_000, 1_000_000, 2_000_000)
_ARCH = "gfx942"
_TREES = ("--trees", "5", "--folds", "3")
# The peak of the process itself: wait4's value includes the parent's memory at the fork.
_CHILD = """
import re, sys, time
from ckh.entry import run
code = run(sys.argv[1:])
peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())
sys.stderr.write(f"\\n{peak[1]} {time.process_time()}")
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A problem with its synthetic time on each kernel, in ms."""

    problem: ConvProblem
    ms: NDArray[np.float64]


def _pool() -> tuple[ConvKernel, ...]:
    """Kernels with distinct short names."""
    by_name = {amd_short_name(kernel): kernel for kernel in conv_pool(Direction.FORWARD, load_arch(_ARCH), 2, "bf16")}
    return tuple(by_name.values())


def _measured(kernels: int, rows: int, seed: int, dtype: str = "bf16") -> Iterator[_Measured]:
    """As many problems as needed, with a different speed of each kernel."""
    random = np.random.default_rng(seed)
    speed = random.uniform(20.0, 200.0, kernels)
    for number in range(-(-rows // kernels)):
        n, c, k = (int(2 ** random.integers(low, high)) for low, high in ((0, 7), (4, 11), (4, 11)))
        # Distinct problems, by their height.
        high, wide, taps = 7 + number // 50, 7 + number % 50, int(random.choice((1, 3)))
        problem = ConvProblem(
            Direction.FORWARD, n=n, c=c, k=k, g=1, hi=high, wi=wide, y=taps, x=taps,
            pad_h=taps // 2, pad_w=taps // 2, dtype=dtype,
        )  # fmt: skip
        yield _Measured(problem, problem.flops / (speed * random.uniform(0.5, 1.5, kernels)) / 1e9)


def write_amd_csv(path: Path, rows: int, seed: int = 0) -> None:
    """A CSV file of AMD's benchmark: every forward kernel on as many problems as needed."""
    names = list(map(amd_short_name, _pool()))
    with path.open("w", encoding="ascii", newline="") as file:
        file.write(",".join(AMD_COLUMNS) + "\r\n")
        for number, measured in enumerate(_measured(len(names), rows, seed)):
            size = ",".join(map(str, (number, *measured.problem.columns().values())))
            lines = [
                f"{name},{size},{ms:.6g},{measured.problem.flops / ms / 1e9:.6g},9\r\n"
                for name, ms in zip(names, measured.ms.tolist(), strict=True)
            ]
            file.writelines(lines[: rows - number * len(names)])


def write_journal(path: Path, rows: int, seed: int = 0) -> None:
    """A journal with this many rows, the last ones of each problem being remeasurements."""
    kernels, arch = _pool(), load_arch(_ARCH)
    names = list(map(kernel_name, kernels))
    run = RunRecord(
        run_id="run",
        ckh_version="0",
        started="2026-01-01T00:00:00",
        device_kind="hip",
        arch=_ARCH,
        device="made up",
        clock_mhz=2100,
        hardware=arch.hardware.to_dict(),
        compiler="none",
        flags=(),
        seed=seed,
        samples=3,
        variant="forward",
        problems="made up",
        kernels="all",
        dtype="bf16",
    )
    again = names[::10]
    with path.open("w", encoding="ascii") as file:
        file.write(record_line(run))
        for number, measured in enumerate(_measured(len(names), rows, seed)):
            text = measured.problem.canonical()
            pairs = [
                *zip(names, measured.ms.tolist(), strict=True),
                *zip(again, (measured.ms[::10] * 1.01).tolist(), strict=True),
            ]
            file.writelines(
                record_line(_row(text, name, ms, is_again=place >= len(names)))
                for place, (name, ms) in enumerate(pairs[: max(0, rows - number * len(pairs))])
            )


def write_host_run(folder: Path, rows: int, seed: int = 0) -> None:
    """A run on this host's folder whose journal has its plan, with one pair more than rows, and the rows."""
    kernels = conv_pool(Direction.FORWARD, load_arch(HOST_KIND), 2, "fp32")
    settings = Settings(variant="forward", problems="made up", kernels="all", dtype="fp32", seed=seed, samples=3)
    measured = list(_measured(len(kernels), rows + 1, seed, "fp32"))
    tasks = [Task(item.problem, kernels) for item in measured]
    tasks[-1] = Task(measured[-1].problem, kernels[: rows + 1 - len(kernels) * (len(tasks) - 1)])
    plan = Plan(tuple(tasks), {})
    run = new_record(open_device(HOST_KIND, DeviceOptions()).identity(), settings, plan.pairs)
    folder.mkdir()
    with (folder / JOURNAL_NAME).open("w", encoding="ascii") as file:
        file.writelines(map(record_line, (run, *plan_records(run.run_id, plan))))
        for number, item in enumerate(measured):
            text, left = item.problem.canonical(), rows - number * len(kernels)
            for kernel, ms in list(zip(map(kernel_name, kernels), item.ms.tolist(), strict=True))[:left]:
                file.write(record_line(structs.replace(_row(text, kernel, ms, is_again=False), run_id=run.run_id)))


def _row(problem: str, kernel: str, ms: float, *, is_again: bool) -> ResultRow:
    samples = (ms * 1e6, ms * 1e6, ms * 1e6)
    return ResultRow("run", problem, kernel, Status.OK, "", ms, ms, 0.01, samples, 4, remeasured=is_again)


class Cost(NamedTuple):
    """Maximum resident set size of a command, in MB of 2**20 bytes, and its CPU seconds."""

    peak_mb: float
    seconds: float


def cost(*arguments: str | Path) -> Cost:
    """Cost of a ckh command."""
    command = [sys.executable, "-c", _CHILD, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    peak_kb, seconds = done.stderr.rsplit("\n", 1)[1].split()
    return Cost(int(peak_kb) / 1024, float(seconds))


def measure(
    folder: Path,
    rows: int,
    names: Sequence[str] = COMMANDS,
    training: Sequence[str] = _TREES,
) -> dict[str, Cost]:
    """Cost of these commands and their prerequisites for a number of rows; files are made in the folder."""
    table, data, model = folder / f"{rows}.csv", folder / f"{rows}.parquet", folder / f"{rows}.model"
    result: dict[str, Cost] = {}

    def note(name: str, *arguments: str | Path) -> None:
        result[name] = cost(*arguments)
        print(f"{name}: {result[name].peak_mb:.0f} MB, {result[name].seconds:.1f} s", file=sys.stderr, flush=True)

    if "journal" in names:
        journal = folder / f"{rows}.jsonl"
        write_journal(journal, rows)
        note("journal", "convert", journal, "--out", folder / f"{rows}.of-journal.parquet")
        journal.unlink()
    if "resume" in names:
        write_host_run(folder / f"{rows}.run", rows)
        note("resume", "bench", "--resume", "--out", folder / f"{rows}.run", "--device", HOST_KIND, "--dry-run")
        shutil.rmtree(folder / f"{rows}.run")
    if set(names) <= {"journal", "resume"}:
        return result
    write_amd_csv(table, rows)
    note("convert", "convert", table, "--arch", _ARCH, "--out", data)
    if "csv" in names:
        note("csv", "convert", table, "--arch", _ARCH, "--to", "csv", "--out", folder / f"{rows}.again.csv")
    table.unlink()
    if not {"train", "evaluate"}.isdisjoint(names):
        note("train", "train", "--data", data, "--out", model, *training)
    if "evaluate" in names:
        note("evaluate", "evaluate", "--model", model, "--data", data, "--with-trained")
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, default=ROWS, help="numbers of rows")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS, help="commands")
    parser.add_argument("--sample", default="2000000", help="train on so many rows at most")
    parser.add_argument("--jobs", default="2", help="threads of train")
    options = parser.parse_args()
    training = (*_TREES, "--sample", options.sample, "--jobs", options.jobs)
    print("rows        " + "".join(f"{name:>18}" for name in COMMANDS) + "   (MB, largest resident set; s of CPU)")
    with tempfile.TemporaryDirectory(prefix="ckh-memory-") as folder:
        for rows in options.rows:
            result = measure(Path(folder), rows, options.only, training)
            texts = {name: f"{item.peak_mb:.0f} MB {item.seconds:.1f} s" for name, item in result.items()}
            print(f"{rows:<12,d}" + "".join(f"{texts.get(name, ''):>18}" for name in COMMANDS), flush=True)


if __name__ == "__main__":
    main()
