"""Faults of the machine: whatever goes wrong, a command ends in a documented way, and then does its work again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability import tunings
from tests.reliability.faults import COMMANDS, KINDS

SCRIPT = Path(__file__).with_name("faults.py")
SHORT = ("convert", "shapes")
pytestmark = pytest.mark.slow
_ROOTS = {"full-disk", "read-only", "foreign-cache"}  # kinds that mount, or change owners


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(kind: str, reliability: str) -> None:
    """Documented exit codes, no traceback, process or temporary file, old or new files, and the same when repeated."""
    if kind in _ROOTS and os.geteuid() != 0:
        pytest.skip("needs root")
    names, count = (SHORT, 2) if reliability == "short" else (tuple(COMMANDS), 110)
    command = [sys.executable, str(SCRIPT), kind, "--count", str(count), "--commands", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].startswith(f"| {kind} | {count} | 0 |"), done.stdout + done.stderr


def test_no_step_of_a_tuning_is_lost(reliability: str) -> None:
    """Killed, interrupted or on a full disk at each step, the same command finishes with the undisturbed result."""
    kinds = [kind for kind in tunings.KINDS if "disk" not in kind or os.geteuid() == 0]
    count = 2 if reliability == "short" else 110  # of the middle steps
    command = [sys.executable, str(SCRIPT.with_name("tunings.py")), *kinds, "--count", str(count), "--seed", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[:3] for line in rows] == [[f"| {kind}", str(count), "0"] for kind in kinds], done
