"""Kernels joined by their names, which may be short."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ckh.ops.base import AnyOperation, Kernel


class KernelJoin:
    """Join of named kernels with the kernels of pools, computed once per pool.

    Two kernels match if their names parse to the same kernel. AMD's shorter names lack fields: such a name matches
    every kernel that agrees in the others.
    """

    def __init__(self, op: AnyOperation, names: Sequence[str]) -> None:
        self.count = len(names)
        self._complete: dict[Kernel, list[int]] = defaultdict(list)
        # Kernels with short names: by the fields that they have, then by the values of these.
        self._open: dict[tuple[str, ...], dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
        for code, name in enumerate(names):
            with suppress(DataError):  # a kernel unknown to the operation is in no pool
                self._add(op, code, op.kernels.parse(name))
        self._pools: dict[int, tuple[Sequence[Kernel], NDArray[np.intp], NDArray[np.intp]]] = {}

    def pairs(self, pool: Sequence[Kernel]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return indices of kernels in a pool, and of the names that they match, pair by pair."""
        known = self._pools.get(id(pool))
        if known is None:
            pairs = set(_pairs(pool, lambda kernel: kernel, self._complete))
            for stated, codes in self._open.items():
                pairs |= set(_pairs(pool, _values(stated), codes))
            position, code = np.array(sorted(pairs), np.intp).reshape(-1, 2).T
            known = pool, position, code  # with the pool, so that its id is not reused
            self._pools[id(pool)] = known
        return known[1], known[2]

    def _add(self, op: AnyOperation, code: int, kernel: Kernel) -> None:
        self._complete[kernel].append(code)
        try:
            op.kernels.name(kernel)
        except UsageError:  # a short name
            stated = tuple(field.name for field in fields(kernel) if getattr(kernel, field.name) is not None)
            self._open[stated][_values(stated)(kernel)].append(code)


def _values(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*names)


def _pairs(pool: Sequence[Kernel], key: Callable[[Any], Any], codes: dict[Any, list[int]]) -> Iterable[tuple[int, int]]:
    for position, kernel in enumerate(pool):
        for code in codes.get(key(kernel), ()):
            yield position, code
