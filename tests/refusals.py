"""Checks of errors and warnings by code and named values, independent of their sentences."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError
from ckh.files.account import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from ckh.errors import CkhError


@contextmanager
def expect_refusal(kind: type[CkhError], code: str, *values: object) -> Iterator[pytest.ExceptionInfo[CkhError]]:
    """Expect an error of a class and a code, whose message or hint names values in this order."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, caught.value.message
    expect_values(f"{caught.value.message}\n{caught.value.hint}", *values)


def left_out_of(
    capsys: pytest.CaptureFixture[str], read: Callable[[Account | None], Any], where: str, reason: str, code: str
) -> Any:
    """Expect that one entry is counted and left out, and refused if strict; return what is read of the others.

    Args:
        capsys: captures the warning.
        read: reads a file with an account; None: a warning describes the entry.
        where: file and line of the entry.
        reason: part of what is wrong with it.
        code: of the error if the account is strict.
    """
    account = Account()
    others = read(account)
    ((text, count),) = account.bad.items()
    assert reason in text
    assert (count, account.first[text], account.known) == (1, where, {})
    assert account.used == len(others)
    assert capsys.readouterr().err == ""
    assert read(None) == others
    expect_warning(capsys.readouterr().err, "left-out", where.rpartition(":")[0], 1, text, where)
    with expect_refusal(DataError, code, "--strict") as caught:
        read(Account(is_strict=True))
    assert caught.value.message == f"{where}: {text}"
    return others


def expect_error(stderr: str, code: str, *values: object) -> None:
    """Expect an error of a code as the last one on stderr, whose message or hint names values in this order."""
    errors = [number for number, line in enumerate(stderr.splitlines()) if line.startswith("error: ")]
    assert errors, stderr
    message, *hint = stderr.splitlines()[errors[-1] : errors[-1] + 2]
    assert message.endswith(f" [{code}]"), stderr
    expect_values("\n".join([message, *hint]), *values)


def expect_warning(stderr: str, code: str, *values: object) -> None:
    """Expect a warning of a code on stderr that names values in this order."""
    warnings = [line for line in stderr.splitlines() if line.startswith("warning: ") and line.endswith(f" [{code}]")]
    assert any(has_values(line, *values) for line in warnings), stderr


def expect_values(text: str, *values: object) -> None:
    """Expect values in a text, in this order."""
    assert has_values(text, *values), (text, values)


def expect_reasons(reasons: Iterable[str], *expected: Sequence[object]) -> None:
    """Expect as many reasons as rows of values, each with the values of its row, in this order."""
    for reason, values in zip(reasons, expected, strict=True):
        expect_values(reason, *values)


def has_values(text: str, *values: object) -> bool:
    """True if the values are in the text, in this order, and none is only a part of a number."""
    place = 0
    for value in map(str, values):
        while (place := text.find(value, place)) >= 0 and _in_number(text, place, value):
            place += 1
        if place < 0:
            return False
        place += len(value)
    return True


def _in_number(text: str, place: int, value: str) -> bool:
    """True if the value at a place begins or ends inside a number."""
    before, after = text[:place][-1:], text[place + len(value) :][:1]
    return (value[:1].isdigit() and before.isdigit()) or (value[-1:].isdigit() and after.isdigit())
