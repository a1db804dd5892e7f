"""Lists of convolution kernels in AMD's file formats.

Formats read: registries of the dispatcher (`GroupedConvRegistry`, of Python and of C++), instances of the code
generator, and configurations of the tile engine. Written: registries and configurations.
"""

from __future__ import annotations

import json
import re
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, DataError
from ckh.files.jsonfields import JsonFields
from ckh.kernels.declaration import NUMBER
from ckh.kernels.lists import (
    KernelProduct,
    ListFormat,
    Registry,
    WrittenList,
    configured,
    listed,
    read_values,
    written_lists,
)
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES, PIPELINE_CODES, PIPELINES, Scheduler, blocks_per_cu
from ckh.kernels.table import KernelTable
from ckh.ops.grouped_conv.kernel import DIRECTIONS, ConvKernel, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import table_of, tile_axis
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES, DEFAULT_SPECIALIZATION, tiles_of
from ckh.problems import DTYPE_BYTES, Direction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.archs import ArchSpec

_THREE = re.compile(rf"{NUMBER}x{NUMBER}x{NUMBER}")
_TABLES = json.loads(Path(__file__).with_name("amd_lists.json").read_bytes())
_INSTANCE = _TABLES["instances"]  # as AMD's loader reads them
# Kernel fields of a configuration: field, allowed values, and the values used if it is missing.
_OPTIONS: dict[str, tuple[list[Any], list[Any]]] = {
    "pipeline": ([*PIPELINES], [*PIPELINE_CODES]),
    "scheduler": ([*map(str, Scheduler)], [*map(str, Scheduler)]),
    **{name: (known, known[:1]) for name, known in _TABLES["options"].items()},
}
# Options that a registry of the dispatcher omits, with the tokens of AMD's names, and further tokens of names.
_FLAGS = {"double_smem_buffer": "_dsb", "split_image": "_si", "two_stage": "_2stage", "explicit_gemm": "_explicit_gemm"}
_SAID_BY_NAME = ("specialization", "streamk", "streamk_persistent", "pad_m", "pad_n", "pad_k", "split_k")


def _read(path: Path, document: dict[str, Any]) -> Registry[ConvKernel]:
    if "trait_config" in document:
        return _read_configuration(path, document)
    if "instances" in document:
        return _read_instances(path, document)
    return listed(path, document, "kernels", _of_registry)


def _of_registry(part: JsonFields) -> tuple[ConvKernel, str]:
    """Return the kernel of a registry entry and its architecture; its name has parameters that the fields omit."""
    name = part.scalar("name", str)
    signature = part.part("signature")
    names = signature.names()
    if not {"variant", "op"} & set(names):
        part.fail("signature", "has no direction (variant or op): it is not a kernel of a convolution")
    direction = _choice(signature, "variant" if "variant" in names else "op", DIRECTIONS)
    dtype = _dtype(signature)
    head: dict[str, Any] = {
        "variant": direction,
        "dtype": dtype,
        "ndim_spatial": signature.scalar("ndim_spatial", int),
        "layout": signature.scalar("layout", str),
    }
    signature.finish()
    algorithm = part.part("algorithm")
    wave, warp = _by(algorithm, "wave"), _by(algorithm, "warp")
    said: dict[str, Any] = {flag: token in name for flag, token in _FLAGS.items()}
    said |= _sizes("wave", wave) | _sizes("warp_tile", warp) | _algorithm(algorithm)
    vectors = algorithm.triple("vector_sizes")
    said |= dict(zip(("vector_a", "vector_b", "vector_c"), vectors, strict=True))
    said["block_per_cu"] = algorithm.scalar("block_per_cu", int)
    algorithm.finish()
    # AMD's names lack the double buffer of pipelines that always have one.
    said["double_smem_buffer"] |= said["pipeline"] in DOUBLE_SMEM_PIPELINES
    kernel = _named(part, {**head, **said, **_of_name(part, name)})
    arch = part.scalar("arch", str)
    part.finish()
    return kernel, arch


def _of_name(part: JsonFields, name: str) -> dict[str, Any]:
    """Return the options that a full name has and the fields of a registry do not; for other names, the defaults."""
    options = (*_SAID_BY_NAME, *_FLAGS)
    try:
        kernel = parse_kernel_name(name)
    except DataError:
        kernel = None
    if kernel is not None and kernel.is_complete:
        return {option: getattr(kernel, option) for option in options}
    if not name:
        part.fail("name", "must not be empty")
    return {"specialization": DEFAULT_SPECIALIZATION, "pad_m": True, "pad_n": True, "pad_k": True}


def _dtype(signature: JsonFields) -> str:
    """Return the element type of a signature, which C++ states for each tensor."""
    if "dtype" in signature.names():
        return str(_choice(signature, "dtype", dict.fromkeys(DTYPE_BYTES)) or "")
    dtypes = [signature.scalar(f"dtype_{tensor}", str) for tensor in ("in", "wei", "out")]
    if len(set(dtypes)) > 1:
        signature.fail(
            "dtype_in",
            f"is {dtypes[0]}, the others are {dtypes[1]} and {dtypes[2]}: mixed element types are not supported",
        )
    return dtypes[0]


def _read_instances(path: Path, document: dict[str, Any]) -> Registry[ConvKernel]:
    """Read instances of the code generator, which have no architecture."""
    file = JsonFields(path, document)
    head: dict[str, Any] = {
        "variant": _choice(file, "variant", DIRECTIONS),
        "ndim_spatial": file.scalar("ndim_spatial", int),
        "layout": file.scalar("layout", str),
        "dtype": file.scalar("datatype", str),
        "pad_m": True,
        "pad_n": True,
        "pad_k": True,
    }
    return listed(path, document, "instances", partial(_of_instance, head), _INSTANCE["defaults"])


def _of_instance(head: Mapping[str, Any], part: JsonFields) -> tuple[ConvKernel, str]:
    if (kind := part.scalar("kind", str)) != _INSTANCE["defaults"]["kind"]:
        part.fail("kind", f"is {kind}, of which ckh has no kernels")
    part.scalar("id", int)
    said = _algorithm(part)
    said["pipeline"] = _INSTANCE["pipelines"].get(said["pipeline"], said["pipeline"])
    for ours, theirs in (("wave", "warp"), ("warp_tile", "warp_tile")):
        said |= {f"{ours}_{axis}": part.scalar(f"{theirs}_{axis}", int) for axis in "mnk"}
    said |= {f"vector_{operand}": part.scalar(f"vector_size_{operand}", int) for operand in "abc"}
    said |= {flag: part.scalar(flag, bool) for flag in _FLAGS}
    said["specialization"] = part.scalar("specialization", str)
    is_null = part.is_null("streamk_reduction_strategy")
    strategy = _INSTANCE["strategy"] if is_null else part.scalar("streamk_reduction_strategy", str).lower()
    said["streamk"] = strategy if part.scalar("streamk_enabled", bool) else None
    said["streamk_persistent"] = part.scalar("streamk_persistent", bool)
    said["block_per_cu"] = blocks_per_cu(said["pipeline"])
    part.finish()
    return _named(part, {**head, **said}), ""


def _algorithm(part: JsonFields) -> dict[str, Any]:
    """Return the fields common to a registry and an instance."""
    return {
        **{f"tile_{axis}": part.scalar(f"tile_{axis}", int) for axis in "mnk"},
        "pipeline": part.scalar("pipeline", str),
        "epilogue": part.scalar("epilogue", str),
        "scheduler": _choice(part, "scheduler", {str(scheduler): scheduler for scheduler in Scheduler}),
        "num_wave_groups": part.scalar("num_wave_groups", int),
        "num_groups_to_merge": part.scalar("num_groups_to_merge", int),
    }


def _named(part: JsonFields, values: dict[str, Any]) -> ConvKernel:
    """Return the kernel of these values, which must be valid in a name."""
    kernel = ConvKernel(**values)
    try:
        is_said = parse_kernel_name(kernel_name(kernel)) == kernel
    except CkhError as error:
        part.fail("algorithm", f"has an invalid value: {error.message}")
    if not is_said:
        part.fail("algorithm", "has values that contradict each other")
    return kernel


def _choice(part: JsonFields, name: str, known: Mapping[str, Any]) -> Any:
    value = part.scalar(name, str)
    if value not in known:
        part.fail(name, f"is {value!r}, of which ckh has no kernels: it has {', '.join(known)}")
    return known[value] or value


def _by(part: JsonFields, name: str) -> tuple[int, ...]:
    """Parse three sizes such as 2x2x1."""
    text = part.scalar(name, str)
    if not _THREE.fullmatch(text):
        part.fail(name, "must be three sizes such as 2x2x1")
    return tuple(map(int, text.split("x")))


def _sizes(what: str, sizes: Sequence[int]) -> dict[str, int]:
    return {f"{what}_{axis}": size for axis, size in zip("mnk", sizes, strict=True)}


def _read_configuration(path: Path, document: dict[str, Any]) -> Registry[ConvKernel]:
    """Read a configuration of the tile engine, whose tiles are its list of ten."""
    file = JsonFields(path, document)
    if "tile_config" in document:
        file.fail("tile_config", "is a GEMM's: the tile engine's convolutions have a fixed list of tiles")
    variant = _choice(file, "variant", DIRECTIONS)
    traits = file.part("trait_config")
    file.finish()
    said = {name: _values(traits, name, known) for name, (known, _) in _OPTIONS.items() if name in traits.names()}
    dtypes = _values(traits, "data_type", tuple(DTYPE_BYTES)) if "data_type" in traits.names() else None
    ndims = _values(traits, "ndim_spatial", (1, 2, 3)) if "ndim_spatial" in traits.names() else [2]
    traits.finish()
    if variant is Direction.BWD_WEIGHT:
        said.setdefault("two_stage", [False, True])
    options = {name: said.get(name, list(usual)) for name, (_, usual) in _OPTIONS.items()}
    options["scheduler"] = list(map(Scheduler, options["scheduler"]))
    count = len(CONV_TILES) * prod(map(len, options.values()))

    def table(arch: ArchSpec, direction: Direction, ndim: int, dtype: str) -> KernelTable[ConvKernel]:
        if direction is not variant or ndim not in ndims or (dtypes is not None and dtype not in dtypes):
            return KernelTable.of(ConvKernel, ())
        axes = [((name,), [(value,) for value in values]) for name, values in options.items()]
        return table_of(direction, ndim, dtype, tile_axis(tiles_of(arch)), *axes)

    def groups(dtype: str) -> list[tuple[Any, ...]]:
        return [(variant, ndim, dtype) for ndim in ndims]

    return configured(file, "trait_config", KernelProduct(CONV_RULES, table, groups, count))


def _values(part: JsonFields, name: str, known: Sequence[Any]) -> list[Any]:
    """Return the values of a parameter, all of which must be known."""
    return read_values(part, name, lambda value: any(type(value) is type(own) and value == own for own in known), known)


def _write(kernels: Sequence[ConvKernel], arch: ArchSpec, name: str) -> dict[str, WrittenList]:
    """Return a registry and, per direction, number of dimensions and element type, the smallest configuration."""

    def registry(group: Sequence[ConvKernel]) -> object:
        return {"name": name, "kernels": [_registry_entry(kernel, arch.name) for kernel in group]}

    def configuration(group: Sequence[ConvKernel]) -> tuple[object, int] | None:
        document = _configuration(group)
        built = _read_configuration(Path(name), document).built(arch, group[0].dtype)
        return (document, len(built)) if set(group) <= set(built) else None

    def words(kernel: ConvKernel) -> str:
        return f"{kernel.variant}_{kernel.ndim_spatial}d_{kernel.dtype}"

    return written_lists(kernels, words, registry, configuration)


def _configuration(kernels: Sequence[ConvKernel]) -> dict[str, Any]:
    """Return the smallest configuration that has the options of all kernels; it cannot restrict tiles."""
    values: dict[str, Sequence[Any]] = {"data_type": [kernels[0].dtype], "ndim_spatial": [kernels[0].ndim_spatial]}
    for name, (known, _) in _OPTIONS.items():
        used = {str(getattr(kernel, name)) for kernel in kernels}
        values[name] = [value for value in known if str(value) in used]
    return {
        "variant": str(kernels[0].variant),
        "trait_config": {name: {"values": options} for name, options in values.items() if options},
    }


def _registry_entry(kernel: ConvKernel, arch: str) -> dict[str, Any]:
    return {
        "name": kernel_name(kernel),
        "signature": {
            "variant": str(kernel.variant),
            "dtype": kernel.dtype,
            "ndim_spatial": kernel.ndim_spatial,
            "layout": kernel.layout,
        },
        "algorithm": {
            **_sizes("tile", kernel.tile),
            "wave": "x".join(map(str, kernel.wave)),
            "warp": "x".join(map(str, kernel.warp_tile)),
            "pipeline": kernel.pipeline,
            "epilogue": kernel.epilogue,
            "scheduler": str(kernel.scheduler),
            "vector_sizes": list(kernel.vectors),
            "block_per_cu": kernel.block_per_cu,
            "num_wave_groups": kernel.num_wave_groups,
            "num_groups_to_merge": kernel.num_groups_to_merge,
        },
        "arch": arch,
    }


LISTS = ListFormat(_read, _write)
