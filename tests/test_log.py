"""What is said to the person."""

from __future__ import annotations

import sys

import pytest

from ckh.errors import DataError
from ckh.log import print_error, use_colour
from ckh.progress import progress


@pytest.mark.parametrize(
    ("no_color", "force_color", "expected"),
    [("1", "1", False), ("", "1", True), ("", "", False)],
)
def test_colour_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, no_color: str, force_color: str, expected: bool
) -> None:
    """NO_COLOR wins over FORCE_COLOR, which wins over the terminal."""
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", force_color)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert use_colour() is expected


def test_an_error_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error says what is wrong in a line and what to do in a second, on stderr."""
    monkeypatch.setenv("NO_COLOR", "1")
    print_error(DataError("bad.csv: line 3: C is not a number", "mend it, or pass --skip-bad"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: bad.csv: line 3: C is not a number\nhint: mend it, or pass --skip-bad\n"


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a CI log progress is a plain line with rate and time left, at most one per half minute."""
    clock = iter([0.0, 10.0, 31.0, 32.0])
    monkeypatch.setattr("ckh.progress.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with progress("measuring", 100) as advance:
        advance(10, "a")
        advance(52, "b")
        advance(1, "c")
    assert capsys.readouterr().err == "measuring: 62/100 (2.0/s, 19 s left) b\n"
