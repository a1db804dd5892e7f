"""The account of a reader of foreign files: what it used, what it left out, and why.

Every reader of measurements, problems, shapes, tables, registries and models keeps one. An entry is what the file
consists of: a row, a line, a node, a kernel. Nothing is refused for single entries: a file is bad if nothing of it is
usable, or with `--strict` if it has an entry that ckh does not understand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, DataError
from ckh.text.log import warn_left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_REASONS = 64  # distinct reasons that are kept apart: messages may hold values of the file
OTHERS = "for other reasons"
_NAMED = 3


class LeftOut(Exception):  # noqa: N818 - it is not an error of the program: the reader counts it
    """An entry is left out: the reason, and for one that ckh does not understand, what is wrong with it."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason, self.detail = reason, detail


@dataclass(slots=True)
class Account:
    """Numbers of entries that were used, known but left out, and not understood; those are errors if it is strict."""

    is_strict: bool = False
    used: int = 0
    passed: int = 0  # lines of a log that state nothing, or continue a statement; they are not reported
    known: Counter[str] = field(default_factory=Counter)  # by reason, e.g. of another library
    bad: Counter[str] = field(default_factory=Counter)  # by reason, e.g. with an impossible size
    first: dict[str, str] = field(default_factory=dict)  # where and what the first entry of a reason is
    error: DataError | None = None  # the first
    counts: Counter[Any] = field(default_factory=Counter)  # executions of problems, if the file states them

    def use(self, count: int = 1) -> None:
        """Count entries that are used."""
        self.used += count

    def leave_out(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count entries that ckh knows and leaves out."""
        self._count(self.known, reason, where, count)

    def doubt(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count entries that ckh does not understand."""
        self._count(self.bad, reason, where, count)

    def refuse(self, error: CkhError, where: str) -> None:
        """Count an entry that raised an error, or raise it if the account is strict."""
        message = error.message.removeprefix(f"{where}: ")
        hint = " and ".join(filter(None, (error.hint, "omit --strict to leave it out" if self.is_strict else "")))
        self.error = self.error or DataError(f"{where}: {message}", hint, code=error.code)
        if self.is_strict:
            raise self.error from error
        self.doubt(message, where)

    def take(self, why: LeftOut, where: str) -> None:
        """Count an entry that a reader left out."""
        if why.detail:
            self.doubt(why.reason, f"{where}: {why.detail}")
        else:
            self.leave_out(why.reason, where)

    def add(self, other: Account) -> None:
        """Add the account of another reader."""
        self.used += other.used
        self.passed += other.passed
        self.known += other.known
        self.bad += other.bad
        self.first = other.first | self.first
        self.error = self.error or other.error

    @property
    def total(self) -> int:
        """Number of all entries."""
        return self.used + self.passed + self.known.total() + self.bad.total()

    @property
    def left_out(self) -> dict[str, int]:
        """Number of entries that are not used, by reason."""
        return dict(self.bad + self.known)

    def named(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Numbers by reason, each with its first entry."""
        firsts = {reason: f" ({self.first[reason]})" if reason in self.first else "" for reason in counts}
        return {reason + firsts[reason]: count for reason, count in counts.items()}

    def words(self) -> list[str]:
        """How many entries are left out for each reason, and which is the first."""
        return [f"{count} {reason}" for reason, count in self.named(self.left_out).items()]

    def report(self, name: str) -> None:
        """Print a warning for each reason, which `--json` has too."""
        for reason, count in self.named(self.left_out).items():
            warn_left_out(name, reason, count)

    def settle(self, name: str) -> None:
        """Refuse a file of which nothing is used, and if the account is strict, one that is not understood in full."""
        if self.used and not (self.is_strict and self.bad):
            return
        if self.error is not None and len(self.left_out) == 1:
            raise self.error
        words = self.words()
        if not words:
            raise DataError(f"{name} has no entries", code="empty")
        shown = "; ".join(words[:_NAMED] + [f"{len(words) - _NAMED} further reasons"] * (len(words) > _NAMED))
        if not self.bad:
            raise DataError(f"{name}: none of {self.total} is usable: {shown}", code="no-good-row")
        hint = "correct them, or omit --strict" if self.used else ""
        raise DataError(f"{name}: {self.bad.total()} bad of {self.total}: {shown}", hint, code="bad-row")

    def _count(self, counts: Counter[str], reason: str, where: str, count: int) -> None:
        if reason not in counts and len(counts) >= MOST_REASONS:
            reason = OTHERS
        counts[reason] += count
        if where and reason not in self.first:
            self.first[reason] = where
