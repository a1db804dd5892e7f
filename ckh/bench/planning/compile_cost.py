"""CPU seconds to compile a kernel, by kind of kernel: measured on this machine, else constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.bench.devices.device import Device
    from ckh.ops.base import AnyOperation, Kernel

OTHERS = ""  # kind of all kernels without a constant for theirs


def kind_of(kernel: Kernel) -> str:
    """Kind of a kernel, e.g. its pipeline; kernels of a kind take similarly long to compile."""
    return str(getattr(kernel, operation_of_kernel(kernel).kernels.slice_column, OTHERS))


@dataclass(frozen=True, slots=True)
class CompileCosts:
    """Compile times of kernels of an operation.

    Attributes:
        usual: default seconds by kind.
        seen: mean seconds of kinds compiled here, each with the number of kernels.
    """

    usual: Mapping[str, float]
    seen: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of_device(cls, device: Device, op: AnyOperation) -> CompileCosts:
        """Compile times of a device's kernels on this machine."""
        return cls(device.compile_s(op), KernelCache().seconds_by_kind(device.arch.name, op.name))

    @property
    def seen_s(self) -> float | None:
        """Mean of the kernels compiled here; None: there were none."""
        kernels = sum(count for _, count in self.seen.values())
        return sum(seconds * count for seconds, count in self.seen.values()) / kernels if kernels else None

    def of(self, kernel: Kernel) -> float:
        """Seconds for a kernel: the mean of its kind here, else the constant scaled by this machine's speed."""
        kind = kind_of(kernel)
        return self.seen[kind][0] if kind in self.seen else self._usual(kind) * self._slower

    def weights(self, kernels: list[Kernel]) -> list[float]:
        """Share of each kernel in the compile time of a unit."""
        usual = [self._usual(kind_of(kernel)) for kernel in kernels]
        return [item / sum(usual) for item in usual]

    def _usual(self, kind: str) -> float:
        return self.usual.get(kind, self.usual.get(OTHERS, 0.0))

    @property
    def _slower(self) -> float:
        """Ratio of this machine's compile times to the constants, for kernels compiled here."""
        expected = sum(self._usual(kind) * count for kind, (_, count) in self.seen.items())
        took = sum(seconds * count for seconds, count in self.seen.values())
        return took / expected if expected else 1.0
