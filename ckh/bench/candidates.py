"""Where the kernels come from that a run chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ckh.archs import ArchSpec


class CandidateSource(Protocol):
    """Where the kernels for problems come from. Problems of one group have the same."""

    @property
    def origin(self) -> str:
        """Where they come from, in words."""

    def group(self, problem: Any) -> tuple[Any, ...]:
        """What decides which kernels there are for a problem."""

    def of(self, *group: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Kernels of a group (followed by the architecture) that can be built, and those that cannot, with reasons."""

    def problem_reasons(self, kernel: Any, arch: ArchSpec, problem: Any) -> list[str]:
        """Why a kernel does not apply to a problem."""
