"""Random order, after the starts; with a prior, first the top of the model in random order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckh.search.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP_SHARE = 0.02
_TOP_MIN = 50


class RandomOrder(Strategy):
    """Every configuration is as likely as every other; with a prior, the best 2 % of the model (at least 50) first."""

    def _propose(self) -> Iterator[int]:
        order = self._by_prior()
        if self._prior is not None:
            top = max(_TOP_MIN, int(np.ceil(_TOP_SHARE * len(order))))
            order = np.concatenate([self._rng.permutation(order[:top]), self._rng.permutation(order[top:])])
        self._expected = list(dict.fromkeys([*self._starts, *order.tolist()]))
        yield from self._expected
