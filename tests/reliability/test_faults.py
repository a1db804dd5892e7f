"""Faults of the machine: whatever goes wrong, a command ends in a documented way, and then does its work again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
