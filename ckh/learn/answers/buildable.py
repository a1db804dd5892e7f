"""Which candidates CK Tile's headers on this machine can build: in an answer, the others stand behind them."""

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

_POOLS = 32  # that are kept with what headers lack for them


@dataclass(frozen=True, slots=True, eq=False)
class Lacking:
    """What headers lack for the kernels of a pool.

    Attributes:
        include: their folder.
        interface: which one they have.
        pool: the pool, which is kept so that its identity is not used again.
        verdicts: of its kernels.
    """

    include: str
    interface: str
    pool: Sequence[Kernel]
    verdicts: Verdicts

    def kind(self, order: NDArray[np.intp]) -> NDArray[np.intp]:
        """0 of kernels of the pool, given by their numbers, that can be built, and 1 of others; shape (kernels,)."""
        return (self.verdicts.number[order] >= 0).astype(np.intp)

    def reasons(self, order: NDArray[np.intp]) -> list[str]:
        """Why each of these kernels cannot be built, empty if it can."""
        sentences = (*self.verdicts.sentences, "")
        return [sentences[number] for number in self.verdicts.number[order].tolist()]

    def note(self, order: NDArray[np.intp]) -> HeadersNote:
        """The same of candidates, for an answer."""
        return HeadersNote.of(self.include, self.interface, Counter(filter(None, self.reasons(order))))


_known: Remembered[Lacking] = Remembered(_POOLS)


def is_built_by_ckh(op: AnyOperation, arch: ArchSpec) -> bool:
    """True if kernels of an operation for an architecture are built with CK Tile's headers."""
    return arch.is_gpu and op.measured is not None and _emission(op) is not None


def lacking(op: AnyOperation, arch: ArchSpec, pool: Sequence[Kernel]) -> Lacking | None:
    """What the headers that are found here lack for a pool; None: no headers are known, or they do not matter."""
    if not len(pool) or not is_built_by_ckh(op, arch):
        return None
    emission = _emission(op)
    headers = emission.known_headers()
    if headers is None:
        return None
    key = (id(pool), arch.name, headers.include)
    found = _known.get(key)
    if found is None:
        table = pool if isinstance(pool, KernelTable) else KernelTable.of(op.kernels.type, pool)
        found = Lacking(headers.include, headers.interface, pool, judge_table(headers.rules, table, arch))
        _known.put(key, found)
    return found


def _emission(op: AnyOperation) -> Any:
    return None if op.measured is None else getattr(op.measured(), "hip", None)
