"""Damaged caches: answers are the same, or files are rebuilt. For kernels see test_kernel_cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckh.ranking.library import is_available

SCRIPT = Path(__file__).with_name("damage.py")
SHORT, LONG = 50, 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["forests", "answers", "probes"])
def test_answers_survive_damage(kind: str, reliability: str) -> None:
    """For packed forests, prepared answers and measured times there is no different answer and no crash."""
    if kind == "answers" and not is_available():
        pytest.skip("ckh was installed without its C part")
    count = SHORT if reliability == "short" else LONG
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, "--count", str(count)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout + done.stderr
    assert f"{kind}: {count} damages" in done.stdout
