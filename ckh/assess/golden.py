"""Golden choices: which kernel was chosen for each problem of a list, and what changed since, by measurement."""

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
    """Architecture that the choices are for."""
    kernels: Mapping[str, str]
    """Canonical text of a problem -> complete name of the first choice."""

    def text(self) -> str:
        """As a file has it; `read_golden` reads it back."""
        return json_text(self)


@dataclass(frozen=True, slots=True)
class Change:
    """A problem whose choice changed; times are None where nothing was measured, or the kernel failed."""

    json_properties: ClassVar = ("slowdown",)

    problem: str
    """Canonical text."""
    was: str
    """The golden kernel."""
    now: str
    """The kernel that is chosen now; empty if none applies."""
    was_ms: float | None = None
    """Measured time of the golden kernel."""
    now_ms: float | None = None
    """Measured time of the kernel that is chosen now."""
    failed: str = ""
    """Why the kernel that is chosen now has no time although it was measured; empty otherwise."""

    @property
    def slowdown(self) -> float | None:
        """How much longer the new choice takes, relative; None if unknown."""
        if self.was_ms is None or self.now_ms is None:
            return None
        return self.now_ms / self.was_ms - 1.0

    @property
    def is_known(self) -> bool:
        """True if a measurement says what the change is worth."""
        return self.slowdown is not None or bool(self.failed) or not self.now

    def failure(self, most: float, *, allows_unmeasured: bool) -> str:
        """Why a gate must not let it pass; empty if it may.

        Args:
            most: the slowdown that is allowed.
            allows_unmeasured: whether a change that nobody measured may pass.
        """
        if not self.now:
            return f"{self.problem}: no kernel applies any more"
        if self.failed:
            return f"{self.problem}: the kernel that is chosen now failed: {self.failed}"
        if self.slowdown is None:
            return "" if allows_unmeasured else f"{self.problem}: another kernel is chosen, and nobody measured both"
        slower = f"{self.slowdown:.1%} slower ({self.was_ms:.4g} ms -> {self.now_ms:.4g} ms)"
        return f"{self.problem}: the kernel that is chosen now is {slower}" if self.slowdown > most else ""


def read_golden(path: Path) -> Golden:
    """The choices of a file.

    Raises:
        DataError: it cannot be read, or holds none.
    """
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
    """The problems whose choice is another now, in the order of the golden choices.

    Args:
        golden: what was chosen.
        now: what is chosen, by problem; a problem that no kernel applies to is left out.
    """
    return [
        Change(problem, was, now.get(problem, ""))
        for problem, was in golden.kernels.items()
        if now.get(problem, "") != was
    ]


def checks(golden: Golden, found: list[Change], most: float, *, allows_unmeasured: bool) -> tuple[Check, ...]:
    """A check for each problem of the golden choices."""
    changed = {one.problem: one for one in found}
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
