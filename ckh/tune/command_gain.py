"""Gain of one command over another, by a number that both print, from rounds of random order."""

from __future__ import annotations

import math
import random
import re
import shlex
import subprocess
from statistics import median

from ckh.assess.verdict import Check, Verdict, VerdictTable
from ckh.bench.supervision.guard import end_guarded, guarded
from ckh.documents import Document
from ckh.errors import DataError, UsageError
from ckh.text.progress import progress
from ckh.tune.gains import is_worth_it, log_ratios, ratio_of_visits


class GainDocument(Document):
    """ckh validate gain --json."""

    schema = "validate_gain"

    before: str
    """Command without the change."""
    after: str
    """Command with it."""
    metric: str
    """Regular expression whose first group is the number."""
    lower_is_better: bool
    before_values: tuple[float, ...]
    """Numbers of the first command, by round."""
    after_values: tuple[float, ...]
    """Numbers of the second one."""
    gain: float
    """Geometric mean of the ratios of the rounds, without the extreme ones; above 1, the second command is better."""
    gain_interval: tuple[float, float]
    """95 % confidence interval of the gain, from round to round."""
    passes: bool
    """Whether the gain exceeds noise and 1 %."""


def compare_commands(
    commands: tuple[str, str], metric: str, rounds: int, *, lower_is_better: bool
) -> tuple[Verdict, GainDocument]:
    """Run two commands in rounds, each in random order, and compare the last numbers that they print.

    Raises `UsageError` for a command or pattern that cannot be parsed, `DataError` for a command that fails or prints
    no positive number.
    """
    try:
        pattern = re.compile(metric)
        words = [shlex.split(command) for command in commands]
    except (re.error, ValueError) as error:
        raise UsageError(f"a command or pattern cannot be parsed: {error}", code="bad-command") from error
    if not pattern.groups or not all(words):
        hint = "such as --metric 'throughput: ([0-9.]+)'"
        raise UsageError("--metric needs a group, and each command a program", hint, code="bad-command")
    values: tuple[list[float], list[float]] = [], []
    order = random.Random(0)
    with progress("running commands", 2 * rounds) as advance:
        for _ in range(rounds):
            for number in order.sample((0, 1), 2):
                values[number].append(_number(words[number], pattern))
                advance(1, commands[number])
    before, after = values if lower_is_better else reversed(values)
    ratio = ratio_of_visits([log_ratios(before, after)])
    passes = is_worth_it(ratio, ()) is True
    text = f"gain {ratio.value:.3f}x (95 % {ratio.interval[0]:.3f}–{ratio.interval[1]:.3f}) in {rounds} rounds"
    rows = [
        (command, *(f"{value:.5g}" for value in (median(own), min(own), max(own))))
        for command, own in zip(commands, values, strict=True)
    ]
    check = Check("gain", "" if passes else "no gain that exceeds noise and 1 %", text)
    table = VerdictTable("", ("command", "median", "least", "greatest"), rows)
    numbers = tuple(values[0]), tuple(values[1])
    document = GainDocument(*commands, metric, lower_is_better, *numbers, ratio.value, ratio.interval, passes)
    return Verdict("ckh validate gain", text, (check,), tables=(table,)), document


def _number(words: list[str], pattern: re.Pattern[str]) -> float:
    """The last number that a command prints; nothing that it starts outlives it."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        guarded(words), stdin=null, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output = process.communicate()[0].decode(errors="replace")
        finally:
            end_guarded(process)
    command = shlex.join(words)
    if process.returncode:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
        raise DataError(f"{command} ended with {process.returncode}: {last}", code="command-failed")
    found = [match[1] for match in pattern.finditer(output) if match[1]]
    if not found:
        raise DataError(f"{command} printed nothing that matches {pattern.pattern}", code="command-failed")
    try:
        value = float(found[-1])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise DataError(f"{command} printed {found[-1]!r}, which is not a positive number", code="command-failed")
    return value
