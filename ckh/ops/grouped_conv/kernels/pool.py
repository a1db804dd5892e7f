"""Pools: the candidate convolution kernels of an architecture, and the kernels known to a model.

A file in a model's directory lists the tiles and variants of its training data; the model does not predict other
kernels. A model without the file is assumed to know all kernels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ckh.files.jsonfields import model_fields
from ckh.kernels.pools import Pools
from ckh.kernels.table import SIZES, TRIPLES, KernelTable
from ckh.ops.grouped_conv.kernel import ConvKernel, kernel_name, parse_kernel_name, usual_fields
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import PIPELINE_VARIANTS, PipelineVariant, tiles_of
from ckh.ops.grouped_conv.requested import has_few_channels
from ckh.ops.grouped_conv.rules.full import full_candidates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    from ckh.archs import ArchSpec
    from ckh.kernels.table import Axis
    from ckh.ops.grouped_conv.kernels.variants import ConvTile
    from ckh.ops.grouped_conv.problem import ConvProblem
    from ckh.problems import Direction

LEARNED_NAME = "kernels.json"
_LEARNED_VARIANT = ("pipeline", "wave_mode", "has_dsb", "has_si")


@dataclass(frozen=True, slots=True)
class LearnedKernels:
    """Tiles (M, N, K) and variants (pipeline, scheduler, double smem buffer, split image) of the training data.

    A variant is known if its pipeline is, and each of its options was either measured with this pipeline or varied
    within some other pipeline, so that the model has learned its effect.
    """

    tiles: frozenset[tuple[Any, ...]]
    variants: frozenset[tuple[Any, ...]]

    def reason(self, kernel: ConvKernel) -> str:
        """Reason why the model does not predict a kernel; empty if it does."""
        variant = (kernel.pipeline, str(kernel.scheduler), int(kernel.double_smem_buffer), int(kernel.split_image))
        if not self._knows(variant):
            options = [name for name, is_set in zip(("dsb", "split image"), variant[2:], strict=True) if is_set]
            return " ".join(["the model has not learned from", kernel.pipeline, str(kernel.scheduler), *options])
        tile = (kernel.tile_m, kernel.tile_n, kernel.tile_k)
        return "" if tile in self.tiles else "the model has not learned from the tile " + "x".join(map(str, tile))

    def new_kind(self, kernel: ConvKernel) -> str:
        """Return the pipeline of a kernel if it is absent from the training data, else an empty text."""
        return "" if kernel.pipeline in {variant[0] for variant in self.variants} else kernel.pipeline

    def _knows(self, variant: tuple[Any, ...]) -> bool:
        own = [known for known in self.variants if known[0] == variant[0]]
        varied = {
            place
            for place in range(1, len(variant))
            for pipeline in {variant[0] for variant in self.variants}
            if len({variant[place] for variant in self.variants if variant[0] == pipeline}) > 1
        }
        return bool(own) and all(
            place in varied or variant[place] in {known[place] for known in own} for place in range(1, len(variant))
        )


def learned_file(frame: pd.DataFrame, before: Path | None) -> bytes | None:
    """Return the file's content, from training rows and the continued model; None if that model knows all kernels."""
    known = LearnedKernels(frozenset(), frozenset()) if before is None else learned_kernels(before)
    if known is None:
        return None
    tiles, variants = (
        frozenset(frame[list(names)].itertuples(index=False, name=None))
        for names in (TRIPLES["tile"], _LEARNED_VARIANT)
    )
    document = {"tiles": sorted(known.tiles | tiles), "variants": sorted(known.variants | variants)}
    return (json.dumps(document, indent=1, default=int) + "\n").encode()


def learned_kernels(model: Path) -> LearnedKernels | None:
    """Return the kernels known to the model in a folder; None if it has no such file."""
    path = model / LEARNED_NAME
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else None


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> LearnedKernels:
    with model_fields(path) as fields:
        tiles, variants = fields.rows("tiles", (int, int, int)), fields.rows("variants", (str, str, int, int))
        fields.finish()
    return LearnedKernels(frozenset(map(tuple, tiles)), frozenset(map(tuple, variants)))


def conv_pool(
    variant: Direction, arch: ArchSpec, ndim_spatial: int = 2, dtype: str | None = None
) -> tuple[ConvKernel, ...]:
    """Return the kernels of the architecture's ten tiles and thirty variants that pass all its rules, in table order.

    The default dtype is the architecture's.
    """
    return POOLS.of(arch, variant, ndim_spatial, dtype or arch.default_dtype)


def tile_axis(rows: Iterable[ConvTile]) -> Axis:
    """Return tiles, with their waves and warp tiles, as an axis of a table of kernels."""
    return SIZES, [(*row.tile, *row.wave, *row.warp_tile) for row in rows]


def variant_axis() -> Axis:
    """Return the thirty variants as an axis of a table of kernels."""
    return PipelineVariant._fields, list(PIPELINE_VARIANTS)


def table_of(variant: Direction, ndim_spatial: int, dtype: str, *axes: Axis) -> KernelTable[ConvKernel]:
    """Return the kernels of a product of axes; their other fields are the pool's."""
    return KernelTable.product(ConvKernel, axes, variant=variant, dtype=dtype, **usual_fields(ndim_spatial))


def _group(kernel: ConvKernel) -> tuple[Direction, int, str]:
    return kernel.variant, kernel.ndim_spatial, kernel.dtype


# Groups: direction, number of dimensions, dtype.
POOLS = Pools(
    ConvKernel,
    CONV_RULES,
    lambda arch, variant, ndim, dtype: table_of(variant, ndim, dtype, tile_axis(tiles_of(arch)), variant_axis()),
    _group,
    parse_kernel_name,
    kernel_name,
    learned_kernels,
)
# AMD's curated kernels, among them those of narrow vectors and merged groups, for few channels per group.
FEW_CHANNELS_POOLS = Pools(
    ConvKernel,
    CONV_RULES,
    lambda arch, variant, ndim, dtype: KernelTable.of(ConvKernel, full_candidates(variant, ndim, dtype, arch)),
    _group,
    parse_kernel_name,
    kernel_name,
)


def takes_few_channels(problem: ConvProblem, arch: ArchSpec) -> bool:
    """True if a problem's candidates are those for few channels."""
    return arch.vector_divisibility and has_few_channels(problem.c, problem.k, problem.g)
