"""`ckh validate gain` runs two commands in turn, and compares a number that both print."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.files.child import module_command
from tests.jsonschemas import require_described

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = (100.0, 104.0, 98.0, 102.0, 60.0), (110.0, 111.0, 109.0, 112.0, 108.0)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that prints the next of its arguments after the first at each run, and writes its name to a log."""
    path = tmp_path / "serve"
    path.write_text(
        f"#!{sys.executable} -S\nimport sys\n_, name, *values = sys.argv\n"
        f"open('{tmp_path}/log', 'a').write(name)\n"
        f"print('warm 1.0 tok/s')\n"
        f"print(values[open('{tmp_path}/log').read().count(name) - 1], 'tok/s', file=sys.stderr)\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def line(script: Path, old: tuple[float, ...], new: tuple[float, ...], direction: str, *more: str) -> list[str]:
    """Arguments of the command."""
    before, after = (f"{script} {name} {' '.join(map(str, of))}" for name, of in (("o", old), ("n", new)))
    what = ["--before", before, "--after", after, "--metric", r"([\d.]+) tok/s"]
    return ["validate", "gain", *what, direction, *more]


def test_the_gain_is_that_of_the_rounds(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By hand: the middle three ratios, and 2.7764 standard errors of the five logarithms; the order is random."""
    assert run([*line(script, OLD, NEW, "--higher-is-better", "--json")]) == ExitCode.GATE_FAILED
    document = json.loads(capfd.readouterr().out)
    require_described("validate_gain", document)
    assert (tuple(document["before_values"]), tuple(document["after_values"])) == (OLD, NEW)
    logs = sorted(math.log(new / old) for old, new in zip(OLD, NEW, strict=True))
    mean = sum(logs) / 5
    half = 2.7764451 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 4 / 5)
    center = sum(logs[1:4]) / 3
    assert document["gain"] == pytest.approx(math.exp(center))
    assert document["gain_interval"] == pytest.approx([math.exp(center - half), math.exp(center + half)])
    assert not document["passes"]  # one slow run: the interval includes 1
    rounds = [script.with_name("log").read_text()[start : start + 2] for start in range(0, 10, 2)]
    assert set(rounds) == {"on", "no"}


@pytest.mark.parametrize(
    ("new", "direction", "code"),
    [
        (110.0, "--higher-is-better", ExitCode.OK),
        (110.0, "--lower-is-better", ExitCode.GATE_FAILED),
        (90.0, "--lower-is-better", ExitCode.OK),
        (100.5, "--higher-is-better", ExitCode.GATE_FAILED),
    ],
)
def test_the_exit_code_is_the_verdict(
    script: Path, capfd: pytest.CaptureFixture[str], new: float, direction: str, code: ExitCode
) -> None:
    """A gain by the stated direction and above 1 % passes."""
    assert run(line(script, (100.0,) * 3, (new,) * 3, direction, "--rounds", "3")) == code
    ratio = new / 100 if "higher" in direction else 100 / new
    assert f"gain {ratio:.3f}x" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "metric", "code"),
    [
        ("sh -c 'echo 3; exit 1'", "(3)", ExitCode.BAD_DATA),
        ("/nowhere/bench", "(3)", ExitCode.BAD_DATA),
        ("echo fast", r"(\d+)", ExitCode.BAD_DATA),
        ("echo nan", "(.+)", ExitCode.BAD_DATA),
        ("echo -3", "(.+)", ExitCode.BAD_DATA),
        ("echo 0", "(.+)", ExitCode.BAD_DATA),
        ("echo 1,5", "(.+)", ExitCode.BAD_DATA),
        ("echo '3", "(3)", ExitCode.USAGE),
        ("", "(3)", ExitCode.USAGE),
        ("echo 3", "(3", ExitCode.USAGE),
        ("echo 3", "3", ExitCode.USAGE),
    ],
)
def test_commands_without_a_number_are_refused(
    capfd: pytest.CaptureFixture[str], command: str, metric: str, code: ExitCode
) -> None:
    """In one line, and not with the exit code of a gate: failures, missing programs, numbers that are none."""
    what = ["--before", command, "--after", command, "--metric", metric, "--higher-is-better"]
    assert run(["validate", "gain", *what]) == code
    assert len([line for line in capfd.readouterr().err.splitlines() if line.startswith("error:")]) == 1


def test_an_interrupt_ends_the_command_too(tmp_path: Path) -> None:
    """SIGINT ends ckh with its code, and what the command started."""
    command = f"sh -c 'sleep 300 & echo $! > {tmp_path}/pid; wait'"
    what = ["--before", command, "--after", command, "--metric", "(3)", "--lower-is-better"]
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # shells let what they run beside ignore it
    ckh = module_command("ckh", "validate", "gain", *what)
    with subprocess.Popen(ckh, stderr=subprocess.DEVNULL, preexec_fn=heeded) as process:  # noqa: PLW1509 - there are no threads
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == ExitCode.INTERRUPTED
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
