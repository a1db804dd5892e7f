"""Instances of Composable Kernel, as described by its Python package, in terms of CK Tile.

They differ from CK Tile's kernels with the same tile: a model or an estimate for the latter only suggests which are
fast.
"""

from __future__ import annotations

from typing import Any

from ckh.kernels.pipelines import Scheduler

_PIPELINES = {"v1": "basic_v1", "v2": "mem", "v3": "compv3", "v4": "compv4", "v5": "compv5"}
_DTYPES = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F8": "fp8", "BF8": "bf8", "I8": "int8"}
_WARP_TILE_K = {32: 16, 16: 32}  # of CK Tile's matrix instructions for two-byte types, by M
_LEAST_WARP_TILE_K = 16


def tiled_fields(instance: Any) -> dict[str, Any] | None:
    """Tile, waves, instruction, pipeline and scheduler of an instance, by field; None if a value is unknown."""
    scheduler = _last_word(instance.block_gemm_pipeline_scheduler).lower()
    pipeline = _PIPELINES.get(_last_word(instance.block_gemm_pipeline_version))
    wave_m = instance.m_per_block // (instance.m_per_xdl * instance.m_xdl_per_wave)
    wave_n = instance.n_per_block // (instance.n_per_xdl * instance.n_xdl_per_wave)
    if pipeline is None or scheduler not in list(Scheduler) or min(wave_m, wave_n) < 1:
        return None
    tile = (instance.m_per_block, instance.n_per_block, instance.k_per_block)
    warp_tile_k = _WARP_TILE_K.get(instance.m_per_xdl, _LEAST_WARP_TILE_K)
    warp_tile = (instance.m_per_xdl, instance.n_per_xdl, warp_tile_k)
    fields: dict[str, Any] = {"pipeline": pipeline, "scheduler": Scheduler(scheduler)}
    for name, sizes in (("tile", tile), ("wave", (wave_m, wave_n, 1)), ("warp_tile", warp_tile)):
        fields |= {f"{name}_{axis}": int(size) for axis, size in zip("mnk", sizes, strict=True)}
    return fields


def dtype_of(name: str) -> str | None:
    """Name of an element type in ckh."""
    return _DTYPES.get(name)


def pads(specialization: str) -> dict[str, bool]:
    """Padded axes, parsed from a name such as `GemmSpecialization::MNKPadding`."""
    word = _last_word(specialization)
    axes = word.removesuffix("Padding") if word.endswith("Padding") else ""
    return {f"pad_{axis}": axis.upper() in axes for axis in "mnk"}


def whole(sizes: Any) -> tuple[int, ...] | None:
    """Sizes or strides as integers; None if one is not yet known."""
    try:
        return tuple(int(size) for size in sizes)
    except (TypeError, ValueError):
        return None


def _last_word(text: str) -> str:
    return str(text).rpartition("::")[2]
