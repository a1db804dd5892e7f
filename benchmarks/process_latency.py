"""CPU time of `ckh predict`, `ckh search` and `ckh --help` as processes, compared with Python itself.

    python benchmarks/process_latency.py [--rounds 25]

Each command runs once before it is timed, so that answers are cached; `full` is without the cache (`CKH_QUICK=0`).
Times are user and system time.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

_CKH = str(Path(sys.executable).with_name("ckh"))
_CONVOLUTION = [_CKH, "predict", "--n", "16", "--c", "256"]
_GEMM = [_CKH, "predict", "--m", "128", "--n", "1536", "--k", "7168"]
_FIRST_LAYER = [*_CONVOLUTION[:4], "--c", "3", "--k", "64", "--hi", "224", "--y", "7", "--stride", "2"]
_COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], {}),
    "ckh predict, a convolution": (_CONVOLUTION, {}),
    "ckh predict, a convolution, --json": ([*_CONVOLUTION, "--json"], {}),
    "ckh predict, a GEMM": (_GEMM, {}),
    "ckh predict, padded, by a model": ([*_FIRST_LAYER, "--arch", "gfx950"], {}),
    "ckh predict, an estimate": ([*_CONVOLUTION, "--arch", "gfx942"], {}),
    "ckh predict, an estimate, --json": ([*_CONVOLUTION, "--arch", "gfx942", "--json"], {}),
    "ckh predict, a GPU's GEMM by its model": ([*_GEMM, "--arch", "gfx950", "--dtype", "fp8"], {}),
    "ckh predict, a GPU's GEMM by another": ([*_GEMM, "--arch", "gfx942"], {}),
    "ckh predict, a GPU's GEMM, --json": ([*_GEMM, "--arch", "gfx942", "--json"], {}),
    "ckh predict, a GPU's GEMM, full": ([*_GEMM, "--arch", "gfx942"], {"CKH_QUICK": "0"}),
    "ckh predict, a convolution, full": (_CONVOLUTION, {"CKH_QUICK": "0"}),
    "ckh search, a convolution": ([_CKH, "search", *_CONVOLUTION[2:]], {}),
    "ckh search, a GEMM": ([_CKH, "search", *_GEMM[2:]], {}),
    "ckh --help": ([_CKH, "--help"], {}),
}


def milliseconds(command: list[str], environment: dict[str, str]) -> float:
    """Duration of one run."""
    before = _used_s()
    subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=True)
    return (_used_s() - before) * 1e3


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Time all commands, interleaved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for number in range(rounds + 1):
        for name, command in _COMMANDS.items():
            time_ms = milliseconds(*command)
            if number:
                taken[name].append(time_ms)
    for name, times in taken.items():
        print(f"{name:38s}  median {statistics.median(times):6.1f} ms   fastest {min(times):6.1f} ms")


if __name__ == "__main__":
    main()
