"""Golden choices: the chosen kernel for each problem of a list, and what has changed since, with measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ckh.assess.verdict import Check
from ckh.documents import Document, json_text
from ckh.errors import DataError
from ckh.files.jsonfields import JsonFields
from ckh.files.outputs import FileKind, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEMA = "selection"
_NAMES = ("schema", "schema_version", "ckh_version")

GOLDEN = FileKind("file of golden choices", lambda path: b'"schema": "ckh.selection"' in head_of(path))


class Golden(Document):
    """The file of golden choices that ckh validate selection --create writes."""

    schema = _SCHEMA

    op: str
    """Operation of all problems."""
    arch: str
    """Architecture of the choices."""
    kernels: Mapping[str, str]
    """Canonical text of a problem -> full name of the first choice."""

    def text(self) -> str:
        """Format as a file that `read_golden` reads."""
        return json_text(self)


@dataclass(frozen=True, slots=True)
class Change:
    """A problem whose choice changed; times are None where the kernel failed or was not measured."""

    json_properties: ClassVar = ("slowdown",)

    problem: str
    """Canonical text."""
    was: str
    """The golden kernel."""
    now: str
    """The current choice; empty if no kernel applies."""
    was_ms: float | None = None
    """Measured time of the golden kernel."""
    now_ms: float | None = None
    """Measured time of the current choice."""
    failed: str = ""
    """Why the current choice has no time although it was measured; empty otherwise."""

    @property
    def slowdown(self) -> float | None:
        """Relative increase of the time with the new choice; None if unknown."""
        if self.was_ms is None or self.now_ms is None:
            return None
        return self.now_ms / self.was_ms - 1.0

    @property
    def is_known(self) -> bool:
        """Return True if the effect of the change is known."""
        return self.slowdown is not None or bool(self.failed) or not self.now

    def failure(self, most: float, *, allows_unmeasured: bool) -> str:
        """Return the reason why a gate must reject the change; empty if it may pass."""
        if not self.now:
            return f"{self.problem}: no kernel applies any more"
        if self.failed:
            return f"{self.problem}: the current choice failed: {self.failed}"
        if self.slowdown is None:
            return "" if allows_unmeasured else f"{self.problem}: the choice changed, and not both were measured"
        slower = f"{self.slowdown:.1%} slower ({self.was_ms:.4g} ms -> {self.now_ms:.4g} ms)"
        return f"{self.problem}: the current choice is {slower}" if self.slowdown > most else ""


def read_golden(path: Path) -> Golden:
    """Read a file of golden choices."""
    fields = JsonFields.read(path)
    schema, *_ = (fields.scalar(name, str) for name in _NAMES)
    if schema != f"ckh.{_SCHEMA}":
        raise DataError(
            f"{path}: its schema is {schema!r}, not golden choices", "make one with --create", code="not-golden"
        )
    op, arch, choices = fields.scalar("op", str), fields.scalar("arch", str), fields.part("kernels")
    fields.finish()
    kernels = {problem: choices.scalar(problem, str) for problem in choices.names()}
    if not kernels:
        raise DataError(f"{path} has no choices", "make one with --create", code="not-golden")
    return Golden(op, arch, kernels)


def changes(golden: Golden, now: Mapping[str, str]) -> list[Change]:
    """Return the problems whose choice differs now, in the order of the golden choices."""
    return [
        Change(problem, was, now.get(problem, ""))
        for problem, was in golden.kernels.items()
        if now.get(problem, "") != was
    ]


def checks(golden: Golden, result: list[Change], most: float, *, allows_unmeasured: bool) -> tuple[Check, ...]:
    """Return a check for each problem of the golden choices."""
    changed = {change.problem: change for change in result}
    return tuple(
        Check(problem)
        if problem not in changed
        else Check(
            problem,
            changed[problem].failure(most, allows_unmeasured=allows_unmeasured),
            f"was {changed[problem].was}\nis  {changed[problem].now or 'none'}",
        )
        for problem in golden.kernels
    )
