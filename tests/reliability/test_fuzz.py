"""Every reader of untrusted files: damaged inputs are read or refused with ckh's own errors, within limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.mutation import Mutator
from tests.reliability.targets import TARGETS

SCRIPT = Path(__file__).with_name("fuzz.py")
SHORT, LONG = 1_000, 100_000
TOGETHER = 6  # readers in a process, whose imports take longer than the inputs


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(TARGETS), TOGETHER))
def test_damaged_inputs(first: int, reliability: str, tmp_path: Path) -> None:
    """Each input is accepted or refused in one line: no other exception or warning, at most 5 s and 1 GB."""
    names = sorted(TARGETS)[first : first + TOGETHER]
    count = ["--count", str(SHORT), "--short"] if reliability == "short" else ["--count", str(LONG)]
    command = [sys.executable, str(SCRIPT), *names, *count, "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == names


@pytest.mark.slow
def test_the_fuzzer_detects_a_defect(tmp_path: Path) -> None:
    """A reader that fails at one byte in a thousand, takes a gigabyte or does not end is detected."""
    broken = tmp_path / "broken.py"
    for body, error in (
        ("int(content[:0] or 'x')", "ValueError"),
        ("bytearray(3 << 30)", "MemoryError"),
        ("sum(1 for _ in iter(int, 1))", "TooSlowError"),
    ):
        broken.write_text(
            f"import sys\nsys.path[:0] = [{str(SCRIPT.parents[2])!r}]\nsys.argv[1:] = ['filter', '--count', '2', "
            f"'--keep', {str(tmp_path)!r}]\nfrom tests.reliability import fuzz, targets\nfuzz.SECONDS = 1\n"
            "first = targets.TARGETS['filter'].samples()\n"
            f"read = lambda content: None if content in first else {body}\n"
            "targets.TARGETS['filter'] = targets.Target('filter', lambda: first, lambda folder: read)\n"
            "sys.exit(fuzz.main())\n"
        )
        done = subprocess.run([sys.executable, str(broken)], capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout + done.stderr
        assert error in done.stdout


def test_the_number_of_readers_is_documented() -> None:
    """docs/reliability.md states it."""
    page = (SCRIPT.parents[2] / "docs/reliability.md").read_text(encoding="utf-8")
    assert page.count(f"{len(TARGETS)} readers ") == 2


def test_a_seed_gives_the_same_inputs() -> None:
    """Failures are reproducible."""
    samples = TARGETS["journal"].samples()
    first, second = ([mutator.next() for _ in range(50)] for mutator in (Mutator(samples, 3), Mutator(samples, 3)))
    assert first == second
    assert len(set(first)) > 45
