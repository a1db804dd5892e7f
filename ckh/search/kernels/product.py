"""Kernels as a product: bases that an architecture builds, each with every set of values of some options.

A base is a choice of tile, waves, warp tile and pipeline, with its other fields as in the candidate pool. Judging bases
first leaves out, at once, most of what cannot be built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ops.base import Kernel


@dataclass(frozen=True, slots=True)
class Options:
    """Fields of a kernel, and the sets of values that they are tried with."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that strategies see, and its value in a kernel: a number, a text or a bool."""

    name: str
    value: Callable[[Kernel], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """All kernels that may be proposed for a problem on an architecture, numbered base by base.

    Attributes:
        bases: kernels that the architecture builds.
        options: what each base is combined with.
        is_legal: whether a kernel can be built and applies to the problem.
        parameters: what tells the kernels apart.
    """

    bases: tuple[Kernel, ...]
    options: Options
    is_legal: Callable[[Kernel], bool]
    parameters: tuple[Parameter, ...]

    @property
    def plain(self) -> range:
        """Numbers of the kernels that are bases as they stand; none if the bases' own options are not tried."""
        own = tuple(getattr(self.bases[0], name) for name in self.options.names) if self.bases else ()
        if own not in self.options.rows:
            return range(0)
        return range(self.options.rows.index(own), len(self), len(self.options.rows))

    def __len__(self) -> int:
        return len(self.bases) * len(self.options.rows)

    def __getitem__(self, number: int) -> Kernel:
        base, row = divmod(number, len(self.options.rows))
        return replace(self.bases[base], **dict(zip(self.options.names, self.options.rows[row], strict=True)))


def by(sizes: tuple[int, ...]) -> str:
    """Sizes as one category, such as 2x2x1."""
    return "x".join(map(str, sizes))
