"""The error boundary: any failure of a command becomes two lines and an exit code other than 1."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.boundary import guarded
from ckh.errors import EXIT_CODE_MEANING, DataError, ExitCode
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from tests.learn.conftest import saved
from tests.refusals import expect_error

if TYPE_CHECKING:
    from collections.abc import Callable

GUIDE = Path(__file__).parents[1] / "docs/ci.md"
BASH = shutil.which("bash") or "/bin/bash"
CKH = [sys.executable, "-m", "ckh"]
PREDICT = ["predict", "--n", "16", "--arch", "gfx950", "--top"]


def shell(redirection: str, *args: str, quick: str = "1", **variables: str) -> subprocess.CompletedProcess[str]:
    """A command with streams redirected by a shell."""
    command = " ".join([*CKH, *args, redirection])
    environment = {**os.environ, "PYTHONUNBUFFERED": "", "CKH_QUICK": quick, **variables}
    return subprocess.run(
        [BASH, "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment, check=False
    )


def raising(error: BaseException) -> Callable[[], int]:
    """A command that fails."""

    def command() -> int:
        raise error

    return command


@pytest.mark.slow
@pytest.mark.parametrize("quick", ["0", "1"])
def test_a_full_stdout_is_one_line(quick: str) -> None:
    """The full command and quick answers behave alike; the exit code is not that of a gate."""
    done = shell(">/dev/full", *PREDICT, "5", quick=quick)
    assert done.returncode == ExitCode.INPUT_OUTPUT
    assert len(done.stderr.splitlines()) == 1
    expect_error(done.stderr, "stdout", os.strerror(errno.ENOSPC))


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--help"], ["--version"], ["predict", "--help"], ["doctor", "--json"]])
def test_help_to_a_full_stdout_fails(args: list[str]) -> None:
    """Output that could not be printed is not a success."""
    done = shell(">/dev/full", *args)
    assert (done.returncode, len(done.stderr.splitlines())) == (74, 1)


def test_a_closed_stdout_is_reported_before_the_work() -> None:
    """Otherwise the first opened file would become stdout."""
    done = shell(">&-", *PREDICT, "5")
    assert done.returncode == ExitCode.INPUT_OUTPUT
    expect_error(done.stderr, "stdout")
    assert shell(">&- 2>&-", *PREDICT, "5").returncode == 74


@pytest.mark.slow
def test_a_closed_stdin_or_stderr_does_no_harm() -> None:
    """The answer and the exit code are those with open streams."""
    expected = shell("", *PREDICT, "5")
    done = shell("<&- 2>&-", *PREDICT, "5")
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")
    assert shell("2>&-", "predict", "--c", "5", "--g", "3").returncode == ExitCode.USAGE


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_ascii_stream_gets_every_line(encoding: str) -> None:
    """Tables have the same width, and shortened names differ from dots; only the ellipsis is replaced."""
    many = ("predict", "--arch", "gfx90a", "--dtype", "bf16", "--problems", "resnet50", "--top", "2")
    expected, done = (shell("", *many, PYTHONIOENCODING=item, COLUMNS="40") for item in ("utf-8", encoding))
    assert "…" in expected.stdout
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        expected.stdout.replace("…", "~").replace("–", "-"),
        expected.stderr,
    )


@pytest.mark.slow
def test_undecodable_names_keep_their_bytes(tmp_path: Path) -> None:
    """A model folder whose name is not UTF-8 is loaded, prepared and printed, always in the same way."""
    folder = Path(os.fsdecode(bytes(saved(tmp_path / "model")) + b"\xff"))
    (tmp_path / "model").rename(folder)
    command = [*CKH, "predict", "--c", "64", "--model", str(folder)]
    for quick in ("0", "1", "1"):
        environment = {**os.environ, "CKH_QUICK": quick, "CKH_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"model    model\xff, measured on a test" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("quick", ["0", "1"])
def test_a_closed_pipe_is_no_error(quick: str, unbuffered: str) -> None:
    """`| head -1` gives its line, nothing on stderr, and the code of a broken pipe: neither success nor a gate."""
    args = ["predict", "--problems", "holdout", "--dtype", "bf16", "--arch", "gfx950", "--wide", "--top", "300"]
    done = shell("| (read -r line; echo $line)", *args, quick=quick, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout.startswith("problem predicted TFLOPS")


def test_an_internal_error_is_a_line_with_its_location(capsys: pytest.CaptureFixture[str]) -> None:
    """Line, place and remedy; the traceback only with CKH_DEBUG."""
    assert guarded(raising(ValueError("two\nlines"))) == ExitCode.INTERNAL
    out, err = capsys.readouterr()
    assert out == ""
    expect_error(err, "internal", "ValueError: two lines", "(?)", "CKH_DEBUG=1")
    assert len(err.splitlines()) == 2


def test_the_location_of_an_internal_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the last line in ckh's own code; with CKH_DEBUG the full traceback precedes it."""

    def command() -> int:
        parse_kernel_name(3)  # type: ignore[arg-type]  # the internal error
        return 0

    assert guarded(command) == ExitCode.INTERNAL
    line = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"error: .* \w+: .* \(ops/grouped_conv/kernel\.py:\d+\) \[internal\]", line), line
    monkeypatch.setenv("CKH_DEBUG", "0")
    assert guarded(command) == ExitCode.INTERNAL
    assert capsys.readouterr().err.splitlines()[0] == line
    monkeypatch.setenv("CKH_DEBUG", "1")
    assert guarded(command) == ExitCode.INTERNAL
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-2] == line


def test_out_of_memory_in_a_library_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever surrounds the loader's message; another failing import is an internal error."""

    def numpy_of(why: str) -> int:
        raise ImportError(f"IMPORTANT: PLEASE READ THIS {why}") from ImportError(why)

    why = "libx.so: failed to map segment from shared object"
    assert guarded(lambda: numpy_of(why)) == ExitCode.INPUT_OUTPUT
    lines = capsys.readouterr().err.splitlines()
    expect_error("\n".join(lines), "memory", why)
    assert lines[1].startswith("hint: ")
    assert guarded(lambda: numpy_of("no such symbol")) == ExitCode.INTERNAL


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (DataError("bad", "mend it"), ExitCode.BAD_DATA, "error: bad"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), ExitCode.INPUT_OUTPUT, "error: /a/b: Permission"),
        (OSError(errno.ENOSPC, "No space left on device"), ExitCode.INPUT_OUTPUT, "error: a file: No space left"),
        (MemoryError(), ExitCode.INPUT_OUTPUT, "error: not enough memory"),
        (
            OSError("a.so: failed to map segment from shared object"),
            ExitCode.INPUT_OUTPUT,
            "error: not enough memory to",
        ),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ExitCode.INTERNAL, "error: an error inside ckh, BrokenPipeError"),
    ],
)
def test_every_error_has_its_code(
    error: Exception, code: ExitCode, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """File errors name the file; a broken pipe other than stdout is not a closed reader."""
    assert guarded(raising(error)) == code
    assert capsys.readouterr().err.startswith(line)


def test_ctrl_c_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Its code is the shell's."""
    assert guarded(raising(KeyboardInterrupt())) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_the_guide_lists_every_code() -> None:
    """No code is missing, and none is only in the guide."""
    table = GUIDE.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [int(item) for item in ExitCode]
    assert list(EXIT_CODE_MEANING) == list(ExitCode)
