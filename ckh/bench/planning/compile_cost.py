"""The CPU seconds of a compiler for a kernel, by the kernel's kind: as seen on this machine, or else constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.bench.devices.device import Device
    from ckh.ops.base import AnyOperation, Kernel

OTHERS = ""  # the kind that stands for all that have no constant of their own


def kind_of(kernel: Kernel) -> str:
    """The kind of a kernel that compiling takes alike, e.g. its pipeline."""
    return str(getattr(kernel, operation_of_kernel(kernel).kernels.slice_column, OTHERS))


@dataclass(frozen=True, slots=True)
class CompileCosts:
    """The cost of compiling kernels of an operation.

    Attributes:
        usual: seconds by kind, where none was seen.
        seen: the same of kinds that were compiled here, each with how many kernels.
    """

    usual: Mapping[str, float]
    seen: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of_device(cls, device: Device, op: AnyOperation) -> CompileCosts:
        """The costs on this machine for a device's kernels."""
        return cls(device.compile_s(op), KernelCache().seconds_by_kind(device.arch.name, op.name))

    @property
    def seen_s(self) -> float | None:
        """The mean of what was compiled here; None: nothing was."""
        kernels = sum(count for _, count in self.seen.values())
        return sum(seconds * count for seconds, count in self.seen.values()) / kernels if kernels else None

    def of(self, kernel: Kernel) -> float:
        """Seconds for a kernel: those of its kind here, else the constant at this machine's speed."""
        kind = kind_of(kernel)
        return self.seen[kind][0] if kind in self.seen else self._usual(kind) * self._slower

    def weights(self, kernels: list[Kernel]) -> list[float]:
        """The share of each of some kernels that were compiled together in what that took."""
        usual = [self._usual(kind_of(kernel)) for kernel in kernels]
        return [one / sum(usual) for one in usual]

    def _usual(self, kind: str) -> float:
        return self.usual.get(kind, self.usual.get(OTHERS, 0.0))

    @property
    def _slower(self) -> float:
        """How much longer this machine takes than the constants say, of what was compiled here."""
        expected = sum(self._usual(kind) * count for kind, (_, count) in self.seen.items())
        took = sum(seconds * count for seconds, count in self.seen.values())
        return took / expected if expected else 1.0
