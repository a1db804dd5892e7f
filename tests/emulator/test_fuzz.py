"""Sanitizers find no error in the emulated GPU for any code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_REPORT = re.compile(r"(\d+) inputs, (\d+) accepted\n")
_COUNTS = {"objects": 500, "metadata": 500, "programs": 1_200}
_LONG = 100_000
_ACCEPTED = 0.05  # share at least, of each kind, so that more is tried than how damage is refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", _COUNTS)
def test_sanitizers_find_nothing(kind: str, sanitized: Path, reliability: str) -> None:
    """Damaged code objects, metadata and programs are refused, or run to a defined end."""
    count = _COUNTS[kind] if reliability == "short" else _LONG
    command = [sys.executable, "-m", "tests.emulator.fuzz", kind, "--library", str(sanitized), "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert not done.returncode, done.stderr
    report = _REPORT.fullmatch(done.stdout)
    assert report, done.stdout
    assert int(report[1]) == count
    assert _ACCEPTED * count < int(report[2]) < count
