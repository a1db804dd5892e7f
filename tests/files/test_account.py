"""The account of a reader: what was used, what is left out and why, and when a file is refused."""

from __future__ import annotations

import json

import pytest

from ckh.commands.bench.output import RegistryDocument
from ckh.documents import json_text
from ckh.errors import DataError, UsageError
from ckh.files.account import MOST_REASONS, OTHERS, Account, LeftOut
from ckh.text.log import begin_result
from tests.refusals import expect_refusal


def test_entries_are_counted_by_reason_with_the_first() -> None:
    """Entries that are known and those that are not are apart; each reason names its first entry."""
    account = Account()
    account.use(3)
    account.leave_out("foreign")
    for line in (4, 7):
        account.take(LeftOut("bad-size", f"M{line}"), f"line {line}")
    assert (account.used, account.total) == (3, 6)
    assert account.known == {"foreign": 1}
    assert account.named(account.bad) == {"bad-size (line 4: M4)": 2}
    account.settle("a.csv")


def test_reasons_are_bounded() -> None:
    """Of a million different messages of a file, only some take memory; the others are counted together."""
    account = Account()
    for line in range(1000):
        account.doubt(f"value {line}", f"line {line}")
    assert (len(account.bad), account.bad.total()) == (MOST_REASONS + 1, 1000)
    assert account.bad[OTHERS] == 1000 - MOST_REASONS
    assert len(account.first) == MOST_REASONS + 1


@pytest.mark.parametrize(
    ("used", "known", "bad", "is_strict", "code"),
    [
        (1, 1, 1, False, ""),
        (1, 1, 0, True, ""),
        (1, 0, 1, True, "bad-row"),
        (0, 1, 0, False, "no-good-row"),
        (0, 1, 1, False, "bad-row"),
        (0, 0, 0, False, "empty"),
    ],
)
def test_only_a_file_without_a_usable_entry_is_refused(
    used: int, known: int, bad: int, is_strict: bool, code: str
) -> None:
    """If strict, one with an entry that is not understood is, too; entries that ckh knows never are."""
    account = Account(is_strict)
    account.use(used)
    if known:
        account.leave_out("known", count=known)
    if bad:
        account.doubt("odd", "line 2", bad)
    if code:
        with expect_refusal(DataError, code, "a.csv"):
            account.settle("a.csv")
    else:
        account.settle("a.csv")


def test_the_error_of_the_only_entry_is_kept() -> None:
    """If all entries have one fault, the error is theirs, with its place, code and hint."""
    account = Account()
    account.refuse(UsageError("N must be 1 or more", "see --help", code="out-of-range"), "a.csv:2")
    with expect_refusal(DataError, "out-of-range", "a.csv:2", "N must be 1", "see --help"):
        account.settle("a.csv")
    strict = Account(is_strict=True)
    with expect_refusal(DataError, "bad-number", "a.csv:3", "--strict"):
        strict.refuse(UsageError("x", code="bad-number"), "a.csv:3")


def test_accounts_add_up() -> None:
    """The account of several inputs has the sum of their entries, and the first of each reason."""
    whole = Account()
    for number in (1, 2):
        part = Account()
        part.use(number)
        part.doubt("odd", f"file {number}")
        whole.add(part)
    assert (whole.used, whole.named(whole.bad)) == (3, {"odd (file 1)": 2})


def test_a_command_names_in_json_what_it_left_out() -> None:
    """What an account reports of files is in each document of the command, but for one with a field of its own."""
    account = Account()
    account.use()
    account.doubt("odd", "line 2", 3)
    account.report("before.json")  # no command runs
    begin_result()
    try:
        account.report("a.json")
        account.report("a.json")
        account.leave_out("foreign")
        account.report("b.json")
        left_out = json.loads(json_text(RegistryDocument("r.json", "host", 3)))["left_out"]
    finally:
        begin_result()
    assert left_out == {"a.json: odd (line 2)": 6, "b.json: odd (line 2)": 3, "b.json: foreign": 1}
    assert "left_out" not in json.loads(json_text(RegistryDocument("r.json", "host", 3)))
