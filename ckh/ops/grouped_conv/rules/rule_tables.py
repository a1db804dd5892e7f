"""The curated tiles of each direction, read from the text files in this folder.

A tile's vector widths are resolved for the two classes of dtypes, half (fp16, bf16) and fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.kernels.pipelines import PIPELINES, Scheduler

if TYPE_CHECKING:
    from ckh.archs import Triple
    from ckh.problems import Direction

HALF_DTYPES = ("fp16", "bf16")
RULE_DTYPES = (*HALF_DTYPES, "fp32")

WAVES: dict[str, Triple] = {
    "S": (1, 1, 1),
    "M": (2, 1, 1),
    "N": (1, 2, 1),
    "MN": (2, 2, 1),
    "M4": (4, 1, 1),
    "N4": (1, 4, 1),
    "MK": (2, 1, 2),
}


@dataclass(frozen=True, slots=True)
class Pipe:
    """A pipeline with its scheduler."""

    pipeline: str
    scheduler: Scheduler = Scheduler.INTRAWAVE


# Word in the curated tables -> pipeline; an x denotes interwave.
PIPES: dict[str, Pipe] = {
    row.curated + ("x" if scheduler is Scheduler.INTERWAVE else ""): Pipe(row.name, scheduler)
    for row in PIPELINES.values()
    for scheduler in Scheduler
    if row.curated and (row.interwave or scheduler is Scheduler.INTRAWAVE)
}

_NONE = "-"
_COLUMNS = 7


@dataclass(frozen=True, slots=True)
class CuratedTile:
    """A block tile of one direction with everything it is combined with."""

    tile: Triple
    inputs: frozenset[str]
    waves: tuple[Triple, ...]
    half_vectors: tuple[Triple, ...]
    fp32_vectors: tuple[Triple, ...]
    half_pipes: tuple[Pipe, ...]
    fp32_pipes: tuple[Pipe, ...]

    def is_for(self, ndim_spatial: int, dtype: str) -> bool:
        """True if the tile is among the plain kernels of a dtype and number of dimensions."""
        return ("f" if dtype not in HALF_DTYPES else f"h{ndim_spatial}") in self.inputs

    def vectors(self, dtype: str) -> tuple[Triple, ...]:
        """Vector widths of A, B, C that the tile is tried with; empty if it is not for the dtype."""
        return self.half_vectors if dtype in HALF_DTYPES else self.fp32_vectors

    def pipes(self, dtype: str) -> tuple[Pipe, ...]:
        """Pipelines that the tile is tried with; empty if it is not for the dtype."""
        return self.half_pipes if dtype in HALF_DTYPES else self.fp32_pipes


@cache
def curated_tiles(variant: Direction) -> tuple[CuratedTile, ...]:
    """Return the tiles of a direction, by size."""
    return tuple(_tile(columns) for columns in read_columns(f"{variant}.txt", _COLUMNS))


def read_columns(name: str, count: int) -> tuple[list[str], ...]:
    """Read the lines of a table in this folder, split at bars, without comments and empty lines.

    Raises:
        DataError: a line does not have that many columns.
    """
    path = Path(__file__).with_name(name)
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            columns = [column.strip() for column in line.split("|")]
            if len(columns) != count:
                raise DataError(f"{path}:{number}: there are {len(columns)} columns, not {count}", code="bad-row")
            rows.append(columns)
    return tuple(rows)


def triple(text: str, separator: str = "/") -> Triple:
    """Parse three integers such as 8/8/4."""
    a, b, c = map(int, text.split(separator))
    return a, b, c


def words(column: str) -> list[str]:
    """Split a column, possibly empty, into words."""
    return [] if column == _NONE else column.split()


def _tile(columns: list[str]) -> CuratedTile:
    tile, inputs, waves, half_vectors, fp32_vectors, half_pipes, fp32_pipes = columns
    return CuratedTile(
        tile=triple(tile, "x"),
        inputs=frozenset(inputs.split()),
        waves=tuple(WAVES[code] for code in waves.split()),
        half_vectors=tuple(map(triple, words(half_vectors))),
        fp32_vectors=tuple(map(triple, words(fp32_vectors))),
        half_pipes=tuple(PIPES[code] for code in words(half_pipes)),
        fp32_pipes=tuple(PIPES[code] for code in words(fp32_pipes)),
    )
