"""The tiles and variants that a model has learned from, in its directory. It says nothing of kernels of any other.

A model of a folder without the file is taken to know all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ckh.files.jsonfields import model_fields

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from ckh.ops.grouped_conv.kernel import ConvKernel

LEARNED_NAME = "kernels.json"
_TILE = ("tile_m", "tile_n", "tile_k")
_VARIANT = ("pipeline", "wave_mode", "has_dsb", "has_si")


@dataclass(frozen=True, slots=True)
class LearnedKernels:
    """Tiles (M, N, K) and variants (pipeline, scheduler, double smem buffer, split image) of the training data.

    A variant is known if its pipeline is, and each of its options: those that its pipeline was measured with, and those
    that varied within some other pipeline, so that the model has learned what they do.
    """

    tiles: frozenset[tuple[Any, ...]]
    variants: frozenset[tuple[Any, ...]]

    def reason(self, kernel: ConvKernel) -> str:
        """Why the model says nothing of a kernel; empty if it does."""
        variant = (kernel.pipeline, str(kernel.scheduler), int(kernel.double_smem_buffer), int(kernel.split_image))
        if not self._knows(variant):
            options = [name for name, is_set in zip(("dsb", "split image"), variant[2:], strict=True) if is_set]
            return " ".join(["the model has not learned from", kernel.pipeline, str(kernel.scheduler), *options])
        tile = (kernel.tile_m, kernel.tile_n, kernel.tile_k)
        return "" if tile in self.tiles else "the model has not learned from the tile " + "x".join(map(str, tile))

    def new_kind(self, kernel: ConvKernel) -> str:
        """The pipeline of a kernel if no training row had it; empty if one had."""
        return "" if kernel.pipeline in {one[0] for one in self.variants} else kernel.pipeline

    def _knows(self, variant: tuple[Any, ...]) -> bool:
        own = [one for one in self.variants if one[0] == variant[0]]
        varied = {
            place
            for place in range(1, len(variant))
            for pipeline in {one[0] for one in self.variants}
            if len({one[place] for one in self.variants if one[0] == pipeline}) > 1
        }
        return bool(own) and all(
            place in varied or variant[place] in {one[place] for one in own} for place in range(1, len(variant))
        )


def learned_file(frame: pd.DataFrame, before: Path | None) -> bytes | None:
    """The file's content, from training rows and the model that was continued; None if that one knows all kernels.

    Raises:
        ModelError: the file of the model that was continued is damaged.
    """
    known = LearnedKernels(frozenset(), frozenset()) if before is None else learned_kernels(before)
    if known is None:
        return None
    tiles, variants = (frozenset(frame[list(names)].itertuples(index=False, name=None)) for names in (_TILE, _VARIANT))
    document = {"tiles": sorted(known.tiles | tiles), "variants": sorted(known.variants | variants)}
    return (json.dumps(document, indent=1, default=int) + "\n").encode()


def learned_kernels(model: Path) -> LearnedKernels | None:
    """The kernels that the model in a folder has learned from; None if it does not say.

    Raises:
        ModelError: the file is damaged.
    """
    path = model / LEARNED_NAME
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else None


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> LearnedKernels:
    with model_fields(path) as fields:
        tiles, variants = fields.rows("tiles", (int, int, int)), fields.rows("variants", (str, str, int, int))
        fields.finish()
    return LearnedKernels(frozenset(map(tuple, tiles)), frozenset(map(tuple, variants)))
