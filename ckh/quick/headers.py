"""Kernels of a prepared pool that CK Tile's headers on this machine cannot build."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.learn.answers.answer import NO_HEADERS, HeadersNote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel
    from ckh.quick.kinds import KernelKind

_VARIABLES = ("CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH", "PATH")  # determine the location of the headers
_FOLDER = "ck_tile"


class PreparedHeaders(NamedTuple):
    """The headers on this machine, and the reasons why they cannot build kernels of a prepared pool."""

    include: str
    interface: str
    sentences: Sequence[str]

    def lack(self, number: int) -> str:
        """Return a reason by its index; empty for -1."""
        return "" if number < 0 else self.sentences[number]

    def note(self, candidates: Mapping[KernelKind, int]) -> HeadersNote:
        """Summarize the reasons for the candidates of an answer, given the number of each kind."""
        reasons: Counter[str] = Counter()
        for kind, count in candidates.items():
            if kind.lack >= 0:
                reasons[self.lack(kind.lack)] += count
        return HeadersNote.of(self.include, self.interface, reasons)


NONE = PreparedHeaders(NO_HEADERS.include, NO_HEADERS.interface, ())


def headers_of(model: Model, pool: Sequence[Kernel]) -> tuple[PreparedHeaders | None, list[int]]:
    """Reasons why these headers cannot build kernels of a pool, and the index of each kernel's reason, -1 for none."""
    from ckh.archs import load_arch
    from ckh.learn.answers.buildable import is_built_by_ckh, lacking

    op, arch = model.spec.op, load_arch(model.spec.arch)
    result = lacking(op, arch, pool)
    if result is None:
        return NONE if is_built_by_ckh(op, arch) else None, [-1] * len(pool)
    headers = PreparedHeaders(result.include, result.interface, result.verdicts.sentences)
    return headers, result.verdicts.number.tolist()


def state() -> Iterator[str]:
    """Everything that determines the headers found; computed without imports."""
    values = {name: os.environ.get(name, "") for name in _VARIABLES}
    yield from values.values()
    for folder in (values["CK_TILE_INCLUDE"], f"{values['ROCM_PATH'] or '/opt/rocm'}/include"):
        path = Path(folder, _FOLDER)
        yield f"{path} {path.stat().st_mtime_ns}" if folder and path.exists() else ""


def read_headers(facts: dict[str, Any]) -> PreparedHeaders | None:
    """Return the headers from prepared facts."""
    return None if facts["headers"] is None else PreparedHeaders(*facts["headers"])
