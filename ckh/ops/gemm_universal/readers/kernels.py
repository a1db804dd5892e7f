"""Kernels in the tile engine's files: parsed from their names and completed from their configuration."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.kernels.name_grammar import EPILOGUES, MOST
from ckh.kernels.pipelines import MARKED_PADDED_PIPELINES, Scheduler
from ckh.ops.gemm_universal.features import AMD_WAVES
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH, GemmKernel, parse_kernel_name
from ckh.ops.gemm_universal.readers.gemm_rows import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ckh.archs import ArchSpec

BAD_KERNEL = "with a kernel name that does not parse"
INCOMPLETE = "with a kernel name whose missing parameters are stated nowhere"
CONTRADICTION = "with a kernel_config that contradicts the kernel's name"

_FLAGS = frozenset({"pad_m", "pad_n", "pad_k", "persistent"})
_TEXTS = frozenset({"dtype", "layout", "pipeline", "scheduler", "epilogue"})
_WORDS: dict[str, tuple[str, ...]] = {"scheduler": tuple(map(str, Scheduler)), "epilogue": EPILOGUES}
_VECTORS = ("vector_a", "vector_b", "vector_c")


def kernel_of(
    name: object, config: Mapping[str, Any], arch: ArchSpec, parse: Callable[[str], GemmKernel] = parse_kernel_name
) -> GemmKernel:
    """Return the kernel of a name; parameters that a short name omits are taken from a configuration with AMD's fields.

    A configuration does not state vector widths; they are native, as in a full name without them.
    """
    kernel = _parsed(name, arch, parse)
    stated = _stated(config)
    for field, value in stated.items():
        own = getattr(kernel, field)
        # AMD's converter writes padding into configurations of these pipelines, see tile_engine_json.
        is_free = field.startswith("pad_") and kernel.pipeline in MARKED_PADDED_PIPELINES
        if own is not None and own != value and not is_free:
            raise Unusable(CONTRADICTION, f"{name!r} has {field} {own}, its kernel_config {value}")
    if not kernel.is_complete:
        widths = dict.fromkeys(_VECTORS, NATIVE_WIDTH) if stated else {}
        given = {field: value for field, value in {**stated, **widths}.items() if field in kernel.missing}
        kernel = replace(kernel, **given)
    if missing := kernel.missing:
        raise Unusable(INCOMPLETE, f"{name!r} has no " + ", ".join(missing))
    return kernel


def _parsed(name: object, arch: ArchSpec, parse: Callable[[str], GemmKernel]) -> GemmKernel:
    if not isinstance(name, str):
        raise Unusable(BAD_KERNEL, f"the kernel's name is {'missing' if name is None else name}")
    try:
        kernel = parse(name.strip())
    except DataError as error:
        raise Unusable(BAD_KERNEL, error.message) from error
    if kernel.pipeline not in arch.common.pipeline_lds:
        raise Unusable(BAD_KERNEL, f"unknown pipeline {kernel.pipeline!r} in {name!r}")
    return kernel


def _stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a kernel that a configuration states."""
    known = {field.name for field in fields(GemmKernel)} - {"suffix", *_VECTORS}
    stated: dict[str, Any] = {}
    for key, value in config.items():
        field = AMD_WAVES.get(key, key)
        if field in known and value is not None:
            stated[field] = _value(field, value)
    return stated


def _value(field: str, value: Any) -> Any:
    """Convert a value to the field's type."""
    if field in _TEXTS:
        is_right = isinstance(value, str) and (field not in _WORDS or value in _WORDS[field])
    elif field in _FLAGS:
        is_right = isinstance(value, bool) or value in (0, 1)
    else:
        is_right = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST
    if not is_right:
        raise Unusable(CONTRADICTION, f"kernel_config has {field} {value!r}")
    if field == "scheduler":
        return Scheduler(value)
    return bool(value) if field in _FLAGS else value
