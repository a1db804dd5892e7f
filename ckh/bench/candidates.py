"""Where the kernels come from that a run chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import ProblemRules


class CandidateSource(Protocol):
    """Where the kernels for problems come from. Problems of one group have the same."""

    @property
    def origin(self) -> str:
        """Where they come from, in words."""

    def group(self, problem: Any) -> tuple[Any, ...]:
        """What decides which kernels there are for a problem."""

    def of(self, *group: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Kernels of a group (followed by the architecture) that can be built, and those that cannot, with reasons."""

    def problem_rules(self, kernels: Sequence[Any], arch: ArchSpec) -> ProblemRules:
        """What decides which of some kernels apply to a problem."""
