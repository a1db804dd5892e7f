"""Lists of GEMM kernels in AMD's file formats: the dispatcher's registry, and configurations of the tile engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.files.jsonfields import JsonFields
from ckh.kernels.declaration import by, column_tokens
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
from ckh.kernels.pipelines import Scheduler
from ckh.kernels.table import SIZES, TRIPLES
from ckh.ops.gemm_universal.features import AMD_WAVES, KERNEL_COLUMNS
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, NATIVE_WIDTH, GemmKernel, kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.kernels.pool import GemmSpace, WaveBlock
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, output_dtype
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import Axis, KernelTable

# AMD's name of a size -> ckh's.
_SIZES = {{ours: theirs for theirs, ours in AMD_WAVES.items()}.get(name, name): name for name in SIZES}
_TOKENS = column_tokens(GemmKernel)
_TRAITS = tuple(name for name in KERNEL_COLUMNS if name not in SIZES)
_SAME = {"default": Scheduler.INTRAWAVE}  # name of the only scheduler, in configurations of preshuffled operands
_ALWAYS_ONE = {"k_block_per_cu", "num_wave_groups"}
# Keys that ckh does not read: they follow from the waves, describe the file, or are of other operations.
_UNREAD = {"block_size", "comment", "gpu_targets", "kernel_set_name", "multi_d_config"}
_SHAPES = {"tile_shape": "tile", "wave_shape": "wave", "warp_tile_shape": "warp_tile"}
_MAJOR = {"r": "row_major", "c": "col_major"}


@dataclass(frozen=True, slots=True)
class ListedKernels:
    """The kernels of a list."""

    kind: type[GemmKernel]  # their class
    rules: Rules[Any]  # their rules
    parse: Callable[[str], GemmKernel]  # the parser of their names
    space: type[GemmSpace] = GemmSpace  # the class of their spaces
    flags: tuple[str, ...] = ()  # fields of a kernel that a configuration states once, as true or false
    left_open: Axis = ((), [()])
    """Fields that a configuration does not state, and the combinations of their values that it stands for."""


def lists_of(of: ListedKernels) -> ListFormat:
    """Return AMD's file formats for lists of an operation's kernels."""

    def read(path: Path, document: dict[str, Any]) -> Registry[Any]:
        if "trait_config" in document:
            return _read_configuration(of, path, document)
        return listed(path, document, "kernels", partial(_of_entry, of))

    return ListFormat(read, partial(_write, of))


def _of_entry(of: ListedKernels, part: JsonFields) -> tuple[GemmKernel, str]:
    """Return the kernel of an entry in a registry of AMD's C++ dispatcher, whose identifier has all parameters."""
    if "identifier" not in part.names():
        part.fail("identifier", "is missing: it is not a kernel of a GEMM")
    identifier, op = part.scalar("identifier", str), of.kind.op_type
    try:
        kernel = of.parse(identifier if identifier.startswith(op) else f"{op}_{identifier}")
        kernel_name(kernel)
    except CkhError as error:
        part.fail("identifier", f"is not a kernel's: {error.message}")
    algorithm = part.part("algorithm")
    for name, ours in _SHAPES.items():
        shape = algorithm.part(name)
        if (said := tuple(shape.scalar(axis, int) for axis in "mnk")) != (known := getattr(kernel, ours)):
            algorithm.fail(name, f"is {by(said)}, the identifier says {by(known)}")
    return kernel, part.scalar("gfx_arch", str)


def _read_configuration(of: ListedKernels, path: Path, document: dict[str, Any]) -> Registry[Any]:
    """Read a configuration of the tile engine, or of the dispatcher's tests, which states element type and layout.

    Where it states neither they come from the problem. Comments are skipped.
    """
    types = document.get("datatype")
    if isinstance(types, dict) and types.get("a") == types.get("b"):  # of each operand
        document = {**document, "datatype": types.get("a")}
    file = JsonFields(path, {name: document[name] for name in document if name[:1] != "_" and name not in _UNREAD})
    if "variant" in document:
        file.fail("variant", "is a convolution's: select its operation with --op")
    tiles, traits = file.part("tile_config"), file.part("trait_config")
    for name in _ALWAYS_ONE & set(file.names()):
        if (value := file.scalar(name, int)) != 1:
            file.fail(name, f"is {value}, ckh's GEMMs have 1")
    if file.has("split_k"):
        note_once(f"split_k {file.scalar('split_k', int)} of {path} is a problem's in ckh: state it by --split-k")
    stated = {name: file.scalar(name, str) for name in ("datatype", "layout", "gpu_target") if file.has(name)}
    own = {name: name in file.names() and file.scalar(name, bool) for name in of.flags}
    file.finish()
    sizes = {ours: read_values(tiles, name, _TOKENS[ours].admits) for name, ours in _SIZES.items()}
    given = (*traits.names(), *(name for name in _TRAITS if name != "persistent"))  # it is false if it is omitted
    said = {name: read_values(traits, name, partial(_admits, name)) if name in given else [False] for name in _TRAITS}
    tiles.finish()
    traits.finish()
    count = prod(map(len, (*sizes.values(), *said.values(), of.left_open[1])))
    space = _space(of, sizes, said)

    def groups(dtype: str) -> list[tuple[Any, ...]]:
        if stated.get("datatype", dtype) != dtype:
            raise UsageError(f"the kernels of {path} are for {stated['datatype']}, not {dtype}", code="mismatch")
        layouts = [stated["layout"]] if "layout" in stated else GEMM_LAYOUTS
        return [(dtype, layout, *own.values()) for layout in layouts]

    def table(arch: ArchSpec, *group: Any) -> KernelTable[Any]:
        dtype, layout, *_ = group
        kernel_table: KernelTable[Any] = space.narrowed(arch, dtype).table(dtype, layout, of.kind, **own)
        if of.left_open[0]:
            kernel_table = kernel_table.crossed(*of.left_open)
        return kernel_table if group in groups(dtype) else kernel_table[:0]

    product_of = KernelProduct(of.rules, table, groups, count)
    return configured(file, "tile_config", product_of, stated.get("gpu_target", ""))


def _admits(name: str, value: Any) -> bool:
    return _TOKENS[name].admits(value) or (name == "scheduler" and value in _SAME)


def _space(of: ListedKernels, sizes: Mapping[str, list[Any]], traits: Mapping[str, list[Any]]) -> GemmSpace:
    tile, wave, warp_tile = (
        tuple(product(*(sizes[name] for name in TRIPLES[what]))) for what in ("tile", "wave", "warp_tile")
    )
    return of.space(
        tiles=tile,
        blocks=tuple(WaveBlock(*block) for block in product(wave, warp_tile)),
        pipelines=tuple(traits["pipeline"]),
        schedulers=tuple(dict.fromkeys(Scheduler(_SAME.get(name, name)) for name in traits["scheduler"])),
        epilogues=tuple(traits["epilogue"]),
        pads=tuple(product(*(traits[name] for name in TRIPLES["pads"]))),
        persistent=tuple(traits["persistent"]),
    )


def _write(of: ListedKernels, kernels: Sequence[GemmKernel], arch: ArchSpec, name: str) -> dict[str, WrittenList]:
    """Return, per group, a registry and, for kernels of native widths, the smallest configuration."""

    def registry(group: Sequence[GemmKernel]) -> object:
        entries = [_entry(kernel, arch.name) for kernel in group]
        return {"metadata": {"registry_name": name, "total_kernels": len(group)}, "kernels": entries}

    def configuration(group: Sequence[GemmKernel]) -> tuple[object, int] | None:
        if not all(_is_configured(of, kernel) for kernel in group):
            return None
        first = group[0]
        document = _configuration(group) | {flag: getattr(first, flag) for flag in of.flags}
        described = _read_configuration(of, Path(name), document).product
        assert described is not None
        table = described.table(arch, *attrgetter(*GROUP_FIELDS, *of.flags)(first))
        return document, len(of.rules.judge(table, arch).passed)

    def words(kernel: GemmKernel) -> str:
        return "_".join([kernel.dtype, kernel.layout, *(flag for flag in of.flags if getattr(kernel, flag))])

    return written_lists(kernels, words, registry, configuration)


def _is_configured(of: ListedKernels, kernel: GemmKernel) -> bool:
    """Return whether a configuration can stand for a kernel."""
    names, rows = of.left_open
    is_plain = kernel.vectors == (NATIVE_WIDTH,) * 3 and not kernel.suffix
    return is_plain and tuple([getattr(kernel, name) for name in names]) in rows


def _configuration(kernels: Sequence[GemmKernel]) -> dict[str, Any]:
    """Return the smallest configuration that describes all of these kernels."""
    return {
        "tile_config": {name: _there(kernels, ours) for name, ours in _SIZES.items()},
        "trait_config": {name: _there(kernels, name) for name in _TRAITS},
        "k_block_per_cu": 1,
    }


def _there(kernels: Sequence[GemmKernel], name: str) -> dict[str, list[Any]]:
    values = {getattr(kernel, name) for kernel in kernels}
    return {"values": [str(value) if isinstance(value, Scheduler) else value for value in sorted(values)]}


def _entry(kernel: GemmKernel, arch: str) -> dict[str, Any]:
    identifier = kernel_name(kernel).removeprefix(f"{kernel.op_type}_")
    layouts = dict(zip(("layout_a", "layout_b", "layout_c"), (_MAJOR[letter] for letter in kernel.layout), strict=True))
    shapes = {name: dict(zip("mnk", getattr(kernel, ours), strict=True)) for name, ours in _SHAPES.items()}
    traits = {"pipeline": kernel.pipeline, "scheduler": str(kernel.scheduler), "epilogue": kernel.epilogue}
    return {
        "name": identifier,
        "identifier": identifier,
        "signature": {
            "dtype_a": kernel.dtype,
            "dtype_b": kernel.dtype,
            "dtype_c": output_dtype(kernel.dtype),
            **layouts,
        },
        "algorithm": {**shapes, **traits, "persistent": kernel.persistent},
        "gfx_arch": arch,
    }


LISTS = lists_of(ListedKernels(GemmKernel, GEMM_RULES, parse_kernel_name))
