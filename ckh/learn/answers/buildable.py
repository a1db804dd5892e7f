"""Candidates that CK Tile's headers on this machine can build; the others rank last in an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.learn.answers.answer import HeadersNote
from ckh.learn.models.scoring import Remembered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Verdicts
    from ckh.ops.base import AnyOperation, Kernel

_POOLS = 32  # cached pools


@dataclass(frozen=True, slots=True, eq=False)
class Lacking:
    """Kernels of a pool that the headers cannot build."""

    include: str
    interface: str
    pool: Sequence[Kernel]
    verdicts: Verdicts

    def kind(self, order: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return 0 for pool kernels that can be built, and 1 for others; shape (kernels,)."""
        return (self.verdicts.number[order] >= 0).astype(np.intp)

    def reasons(self, order: NDArray[np.intp]) -> list[str]:
        """Reason why each of these kernels cannot be built, empty if it can."""
        sentences = (*self.verdicts.sentences, "")
        return [sentences[number] for number in self.verdicts.number[order].tolist()]

    def note(self, order: NDArray[np.intp]) -> HeadersNote:
        """Summarize the reasons for candidates, for an answer."""
        return HeadersNote.of(self.include, self.interface, Counter(filter(None, self.reasons(order))))


_known: Remembered[Lacking] = Remembered(_POOLS)


def is_built_by_ckh(op: AnyOperation, arch: ArchSpec) -> bool:
    """True if kernels of an operation for an architecture are built with CK Tile's headers."""
    return arch.is_gpu and op.measured is not None and _emission(op) is not None


def lacking(op: AnyOperation, arch: ArchSpec, pool: Sequence[Kernel]) -> Lacking | None:
    """Check a pool against the headers found on this machine; None if there are none, or they do not matter."""
    if not len(pool) or not is_built_by_ckh(op, arch):
        return None
    emission = _emission(op)
    headers = emission.known_headers()
    if headers is None:
        return None
    key = (id(pool), arch.name, headers.include)
    result = _known.get(key)
    if result is None:
        table = pool if isinstance(pool, KernelTable) else KernelTable.of(op.kernels.type, pool)
        result = Lacking(headers.include, headers.interface, pool, judge_table(headers.rules, table, arch))
        _known.put(key, result)
    return result


def _emission(op: AnyOperation) -> Any:
    return None if op.measured is None else getattr(op.measured(), "hip", None)
