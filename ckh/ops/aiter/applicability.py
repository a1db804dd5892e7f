"""Sizes that kernels of AITER refuse, by operation, library and element type: applicability.json as rules.

AITER does not check them: a server that picks such a kernel for a shape ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.kernels.judging import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRODUCTS = {"1": " of the first product", "2": " of the second product"}  # by the last letter of columns of kernels
_SHOWN = {"k": "K"}
_CK, _LIBRARY, _SPLIT = "ck", "library", "split_k"


@dataclass(frozen=True, slots=True)
class WholeTiles:
    """A size of problems that must be a multiple of a kernel's tile."""

    op: str
    library: str
    dtypes: tuple[str, ...]  # of problems
    size: str  # field of problems
    tile: str  # field of kernels
    values: int  # elements that the tile counts as one
    parts: str
    """Field of kernels with the binary logarithm of the number of parts; `library` where only kernels of the library
    are meant, whole; empty for kernels for two products."""
    measured: bool  # whether AMD measured or reported a kernel that breaks it
    why: str  # the evidence, which the sentence states where nothing was measured

    @property
    def rule(self) -> Rule:
        """The rule of a problem; kernels for two products state by their version, 0 or not, whose they are."""
        other = self.parts or f"version{self.tile[-1]}"
        return Rule(self._broken, ("problem",), (self.tile, other), {})

    def _broken(self, problem: Any, tile: int, other: Any) -> Iterator[str]:
        split = other if self.parts == _SPLIT else 0
        is_its = other == self.library if self.parts == _LIBRARY else self.parts or bool(other) == (self.library == _CK)
        if not tile or problem.dtype not in self.dtypes or not is_its:
            return
        size, step = getattr(problem, self.size), tile * self.values << split
        if size % step:
            values = f" = {tile * self.values} values" if self.values > 1 else ""
            parts = f" in each of {1 << split} parts" if split else ""
            product = _PRODUCTS.get(self.tile[-1], "")
            rest = f"{values}{parts}{product}, {size + step - size % step} is"
            rest += "" if self.measured else f"; {self.why}"
            name, tile_name = _SHOWN.get(self.size, self.size), self.tile.rstrip("".join(_PRODUCTS))
            yield f"{name} = {size} is not a multiple of {tile_name} {tile}{rest}"


def whole_tiles() -> list[WholeTiles]:
    """Return all sizes that must be whole tiles."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return [WholeTiles(**{**row, "dtypes": tuple(row["dtypes"])}) for row in rows]


def rules_of(op: str) -> tuple[Rule, ...]:
    """Return the rules of an operation's kernels."""
    return tuple(row.rule for row in whole_tiles() if row.op == op)
