"""Files of problems: canonical texts, CSV, JSON, and AMD's Python, which is not executed.

Entries that are not understood are left out and counted (`ckh.files.account`). Duplicate problems are read once.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.files.jsonfields import JsonError, parse_json
from ckh.files.python_lists import WrittenForm, written_problems
from ckh.files.untrusted import by_column, csv_rows, integer, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

P = TypeVar("P")
_SUFFIXES = (".txt", ".csv", ".json", ".py")
_COUNT = "count"  # column or key that states a problem's executions
_BEFORE_FIRST, _BETWEEN = re.compile(r"\s*\[\s*"), re.compile(r"\s*,\s*")


def is_problem_file(source: str) -> bool:
    """True if the suffix is that of a problem file."""
    return Path(source).suffix.lower() in _SUFFIXES


def read_entries(
    path: Path,
    make: Callable[[object], P],
    header: Callable[[Path, int, list[str]], list[str]],
    texts: Collection[str],
    in_python: WrittenForm,
    account: Account | None = None,
) -> tuple[P, ...]:
    """Read the distinct problems of a file, in order.

    Args:
        path: the file.
        make: makes a problem of a text or of named values; raises `UsageError`.
        header: checks the columns of a CSV, and returns their names, empty for those that are ignored.
        texts: the columns that are not integers.
        in_python: how problems stand in Python.
        account: counts the entries and executions; None: a warning describes the entries that are left out.
    """
    own = Account() if account is None else account
    problems: dict[P, None] = {}
    text, suffix = read_text(path), path.suffix.lower()
    if suffix == ".csv":
        entries: Iterator[tuple[int, object]] = _csv(path, text, header, texts)
    elif suffix == ".json":
        entries = _json(path, text)
    else:
        entries = _lines(text) if suffix == ".txt" else iter(written_problems(path, text, in_python))
    for line, entry in entries:
        try:
            if isinstance(entry, CkhError):
                raise entry
            count, problem = _count(entry), make(entry)
            problems[problem] = None
            own.counts[problem] += count
            own.use()
        except CkhError as error:  # noqa: PERF203 - one entry is no reason to drop the others
            own.refuse(error, f"{path}:{line}")
    if not own.total:
        raise DataError(f"{path}: no problems in this file", code="no-problems")
    own.settle(str(path))
    if account is None:
        own.report(str(path))
    return tuple(problems)


def _count(entry: object) -> int:
    """Take the number of executions that an entry states; 0: none."""
    count = entry.pop(_COUNT, None) if isinstance(entry, dict) else None
    if count is not None and (type(count) is not int or not 1 <= count < 1 << 31):
        raise UsageError(f"{_COUNT} must be a positive integer, not {count!r:.40}", code="bad-number")
    return count or 0


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if content := line.partition("#")[0].strip():
            yield number, content


def _csv(
    path: Path, text: str, header: Callable[[Path, int, list[str]], list[str]], texts: Collection[str]
) -> Iterator[tuple[int, dict[str, Any] | CkhError]]:
    """Yield the named values of each row, or what is wrong with it."""
    names: list[str] = []
    for line, cells in csv_rows(path, text):
        if not names:
            named = zip(cells, header(path, line, cells), strict=True)
            names = [_COUNT if cell.lower() == _COUNT else name for cell, name in named]
            continue
        try:
            row: dict[str, Any] = {name: cell for name, cell in by_column(names, cells).items() if name and cell}
            yield line, row | {name: integer_of(name, row[name]) for name in row.keys() - set(texts)}
        except CkhError as error:
            yield line, error


def integer_of(name: str, value: object) -> int:
    """Return the integer of a cell, or of a value in JSON."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return integer(value if isinstance(value, str) else "")
    except ValueError:
        raise UsageError(f"{name} must be an integer, not {value!r}", code="bad-number") from None


def _json(path: Path, text: str) -> Iterator[tuple[int, object]]:
    if not text.strip():
        return
    try:
        whole = parse_json(text, unique=True)
    except JsonError as error:
        raise DataError(
            f"{path}:{error.line}: {error}" if error.line else f"{path}: {error}", code="bad-json"
        ) from error
    if not isinstance(whole, list):
        raise DataError(f"{path}: expected a list of problems, found {type(whole).__name__}", code="unknown-format")
    line, end, decoder = 1, 0, json.JSONDecoder()
    for number, _ in enumerate(whole):  # again, one by one, to find their lines
        between = (_BETWEEN if number else _BEFORE_FIRST).match(text, end)
        assert between is not None, "what was read as a list is one"
        start = between.end()
        line += text.count("\n", end, start)
        entry, end = decoder.raw_decode(text, start)
        yield line, entry
        line += text.count("\n", start, end)
