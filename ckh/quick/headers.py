"""What CK Tile's headers on this machine lack for kernels of a prepared pool."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.learn.ranking_text import NO_HEADERS, HeadersNote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.learn.artifact import Model
    from ckh.ops.base import Kernel
    from ckh.ranking.library import RankedCandidate

_VARIABLES = ("CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH", "PATH")  # that say where headers are
_FOLDER = "ck_tile"


class PreparedHeaders(NamedTuple):
    """The headers on this machine, and the kernels of a prepared pool that they cannot build.

    Attributes:
        include: their folder; empty: none were known.
        interface: as of `HeadersNote`.
        numbers: of each kernel of the pool the sentence that refuses it, -1 if none does; empty: of no kernel.
        sentences: the sentences.
    """

    include: str
    interface: str
    numbers: list[int]
    sentences: list[str]

    def reason(self, kernel: int) -> str:
        """Why a kernel cannot be built; empty if it can."""
        number = self.numbers[kernel] if self.numbers else -1
        return "" if number < 0 else self.sentences[number]

    def note(self, choices: Sequence[RankedCandidate]) -> HeadersNote:
        """What they lack for the candidates of an answer."""
        reasons = Counter(filter(None, (self.reason(one.kernel) for one in choices)))
        return HeadersNote(self.include, self.interface, dict(reasons.most_common()))


NONE = PreparedHeaders(NO_HEADERS.include, NO_HEADERS.interface, [], [])


def headers_of(model: Model, pool: Sequence[Kernel]) -> PreparedHeaders | None:
    """What the headers here lack for the pool of a model; None: its kernels are not built with them."""
    from ckh.archs import load_arch
    from ckh.learn.buildable import is_built_by_ckh, lacking

    op, arch = model.spec.op, load_arch(model.spec.arch)
    if not is_built_by_ckh(op, arch):
        return None
    found = lacking(op, arch, pool)
    if found is None:
        return NONE
    return PreparedHeaders(
        found.include, found.interface, found.verdicts.number.tolist(), list(found.verdicts.sentences)
    )


def are_known() -> bool:
    """True if there are headers here."""
    from ckh.bench.hip_toolchain import known_ck_tile

    return known_ck_tile() is not None


def state() -> Iterator[str]:
    """What is found of headers follows from this; nothing is imported for it."""
    values = {name: os.environ.get(name, "") for name in _VARIABLES}
    yield from values.values()
    for folder in (values["CK_TILE_INCLUDE"], f"{values['ROCM_PATH'] or '/opt/rocm'}/include"):
        path = Path(folder, _FOLDER)
        yield f"{path} {path.stat().st_mtime_ns}" if folder and path.exists() else ""


def read_headers(facts: dict[str, Any]) -> PreparedHeaders | None:
    """The headers of prepared facts."""
    return None if facts["headers"] is None else PreparedHeaders(**facts["headers"])
