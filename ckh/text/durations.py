"""Parsing and formatting of durations."""

from __future__ import annotations

import re

from ckh.errors import UsageError

_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([hms]?)")


def parse_budget(text: str) -> float:
    """Seconds in "90s", "20m", "1h30m"; a number needs its unit."""
    seconds = parse_duration(text)
    if text[-1].isdigit():
        raise UsageError(f"--budget {text}: {text}m or {text}s?", "write the unit", code="bad-number")
    return seconds


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "20m", "1h30m"."""
    parts = _PART.findall(text)
    seconds = sum(float(number) * _UNIT_S[unit or "s"] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds <= 0:
        raise UsageError(f"{text!r} is not a duration", "write it like 90s, 20m or 1h30m", code="bad-number")
    return seconds


def format_duration(seconds: float) -> str:
    """Seconds as "12 s", "3 min 20 s" or "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"  # noqa: PLR2004 - small enough for a decimal
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
