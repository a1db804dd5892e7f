"""Share of orchestration in a bench run: everything except inputs, reference, kernel, check and timing.

    python benchmarks/orchestration.py [--budget 60s]

Runs `ckh bench` on hold-out layers into a temporary folder (kernels are compiled first, and not counted) and prints the
time by phase. Exits with 1 if orchestration is 10 % or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.10


def main() -> None:
    """Run, print, evaluate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--kernels", default="*_compv3_*")
    options = parser.parse_args()
    command = [sys.executable, "-m", "ckh", "bench", "--problems", "host-holdout", "--kernels", options.kernels]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--device", "host", "--out", str(Path(folder) / "run"), "--budget", options.budget, "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    measuring_s = report["wall_s"] - report["phase_s"]["compile"]
    for phase, seconds in sorted(report["phase_s"].items(), key=lambda item: -item[1]):
        print(
            f"{phase:12s}{seconds:9.2f} s{seconds / measuring_s:9.1%}"
            if phase != "compile"
            else f"{phase:12s}{seconds:9.2f} s"
        )
    print(
        f"{sum(report['statuses'].values())} pairs in {measuring_s:.1f} s; orchestration {report['orchestration']:.1%}"
    )
    sys.exit(report["orchestration"] >= LIMIT)


if __name__ == "__main__":
    main()
