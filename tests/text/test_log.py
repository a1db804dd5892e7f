"""Messages to the user."""

from __future__ import annotations

import re
import sys
import time

import pytest

from ckh.errors import DataError
from ckh.text.log import BORROWED, ESTIMATED, MEASURED, emit, painted, print_error, recorded_results, use_colour, warn
from ckh.text.progress import _line, progress
from ckh.text.tabletext import table_text

RESET = "\x1b[0m"
CLEAR = "b\x1b[2J"  # clears a screen


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


def test_an_error_is_a_line_and_a_hint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is a line, and its remedy a second one, on stderr."""
    monkeypatch.setenv("NO_COLOR", "1")
    print_error(DataError("bad.csv:3", "use --strict"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: bad.csv:3 [bad-data]\nhint: use --strict\n"


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("colour", ["", "1"])
def test_a_terminal_gets_lines_that_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    """Warnings and errors are wrapped at 80 columns, with colours or without; a file gets one line."""
    monkeypatch.setenv("FORCE_COLOR", colour)
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    words = "a sentence that goes on and on, much longer than a line of a terminal is, about " + "/a/folder" * 5
    for is_terminal, lines in ((True, 2), (False, 1)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        warn(words, "gate")
        text = re.sub("\x1b\\[[0-9;]*m", "", err := capsys.readouterr().err)
        assert ("\x1b" in err) is bool(colour)
        assert len(text.splitlines()) == lines
        assert max(map(len, text.splitlines())) <= (80 if is_terminal else 1000)
        assert text.split() == ["warning:", *words.split(), "[gate]"]


def test_progress_without_a_terminal_prints_occasional_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a CI log progress is a plain line with counts and the current item, from the beginning, also if stuck."""
    monkeypatch.setattr("ckh.text.progress._FIRST_LINE_S", 0.0)
    monkeypatch.setattr("ckh.text.progress._INTERVAL_S", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)

    def line_with(text: str) -> str:
        while True:
            if lines := [line for line in capsys.readouterr().err.splitlines() if text in line]:
                return lines[0]

    with progress("measuring", 100) as advance:
        assert line_with("0/100") == "measuring: 0/100"
        advance(0, "a")
        assert line_with("0/100 a") == "measuring: 0/100 a"
        advance(52, "b")
        assert re.fullmatch(r"measuring: 52/100 \([\d.]+/s, \d+ s left\) b", line_with("52/100"))
    capsys.readouterr()
    advance(1, "c")
    time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_rate_and_time_left_follow_from_the_elapsed_time() -> None:
    """62 steps in 31 seconds are 2 a second, and leave 19 seconds for the other 38."""
    assert _line("measuring", (0, 62, 100), 31.0, "") == "measuring: 62/100 (2.0/s, 19 s left)"


@pytest.mark.parametrize(("basis", "colour"), [(MEASURED, "\x1b[32m"), (BORROWED, "\x1b[33m"), (ESTIMATED, "\x1b[35m")])
def test_results_are_coloured_by_their_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, basis: str, colour: str
) -> None:
    """Each line is coloured without changing its text; control sequences of foreign text stay escaped."""
    text = f"a {painted(CLEAR, basis)} c\n{painted('d', basis)}\n\x0f\x0em\x1b"
    shown = {}
    for force in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", force)
        monkeypatch.setenv("NO_COLOR", "" if force else "1")
        emit(text)
        shown[force] = capsys.readouterr().out
    assert shown[""] == "a b\\x1b[2J c\nd\n\\x0f\\x0em\\x1b"
    assert shown["1"] == f"a {colour}b\\x1b[2J\x1b[0m c\n{colour}d\x1b[0m\n\\x0f\\x0em\\x1b"
    with recorded_results() as texts:
        emit(text)
    assert texts == [text]
    capsys.readouterr()
    emit(table_text("", ("x", "ms"), [["a", "1"], ["b", ""]], bases={"ms": basis}))
    assert capsys.readouterr().out == f"x  {colour}ms{RESET}\n-  --\na  {colour} 1{RESET}\nb\n"
