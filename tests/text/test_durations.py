"""Durations are parsed and formatted in the same notation."""

from __future__ import annotations

import pytest

from ckh.errors import UsageError
from ckh.text.durations import format_duration, parse_budget, parse_duration
from tests.refusals import expect_refusal


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("20m", 1200),
        ("1h30m", 5400),
        ("2h", 7200),
        ("1.5h", 5400),
        ("0.25", 0.25),
        ("1m30", 90),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    """Hours, minutes and seconds add up; a number alone is seconds."""
    assert parse_duration(text) == seconds


def test_a_budget_needs_its_unit() -> None:
    """15 may be meant as minutes; with units it is a duration."""
    assert [parse_budget(text) for text in ("15m", "15s", "1h30m")] == [900, 15, 5400]
    for text in ("15", "1m30"):
        with expect_refusal(UsageError, "bad-number", f"{text}m or {text}s?"):
            parse_budget(text)


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-5", "5d", "five", "5 m", "1h ", ".5", "1e3", "h", "inf", "nan", "5ms"]
)
def test_invalid_durations_are_refused(text: str) -> None:
    """Nothing is guessed, and zero is refused; the message quotes the input."""
    with expect_refusal(UsageError, "bad-number", repr(text)) as error:
        parse_duration(text)
    assert "1h30m" in error.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7530, "2 h 5 min"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    """The two largest units, a decimal only below ten seconds."""
    assert format_duration(seconds) == text
