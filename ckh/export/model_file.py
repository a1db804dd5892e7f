"""The file of an exported model, which ckh/export/c/ckh_fill.c reads.

A header (magic, byte order, version, key of the programs, bytes of the whole, CRC-32 of what follows), then arrays in a
fixed order, each with the size of its elements and their number, padded to eight bytes. Little-endian.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.export.groups import CONV, DIRECTIONS, DTYPES
from ckh.learn.spec import ANY, TFLOPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.export.programs import GroupProgram
    from ckh.learn.spec import ModelSpec
    from ckh.ops.base import Kernel
    from ckh.ranking.packed import PackedForest
    from ckh.ranking.plan import Block, Plan

ProgramData = list[tuple[Any, str]]  # arrays, and the types that they are written with

VERSION = 2
HEADER = struct.Struct("<8sIIQQII")
MAGIC = b"CKHMODEL"
BYTE_ORDER_MARK = 0x01020304
_ARRAY = struct.Struct("<II")
_EMPTY = -1


class _Arrays:
    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, values: Any, dtype: str) -> None:
        """The next array."""
        array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
        data = array.tobytes()
        self._parts.append(_ARRAY.pack(array.itemsize, array.size) + data.ljust((len(data) + 7) // 8 * 8, b"\0"))

    def content(self) -> bytes:
        """All of them."""
        return b"".join(self._parts)


def model_file(
    name: str,
    spec: ModelSpec,
    forests: Mapping[str, PackedForest],
    groups: Sequence[GroupProgram],
    kind: str,
    key: int,
    *,
    programs: Sequence[ProgramData] | None = None,
) -> bytes:
    """The content of a model's file.

    Args:
        name: what the model is called.
        spec: what it is for.
        forests: by target; the first orders.
        groups: its groups.
        kind: the kind of its problems.
        key: of the programs.
        programs: the programs, where they are data and part of the file.
    """
    arrays = _Arrays()
    name_of = spec.op.kernel_name
    kernels = kernels_of(spec, groups)
    numbers = {kernel: index for index, kernel in enumerate(kernels)}
    _add_texts(arrays, [name, spec.purpose, *kernels])
    targets = list(forests)
    logs = [int(target in spec.log_targets) for target in targets]
    arrays.add(
        [
            int(kind != CONV),
            _code(None if spec.variant is None else str(spec.variant), DIRECTIONS),
            _code(None if spec.dtype == ANY else spec.dtype, DTYPES),
            len(targets),
            targets.index(TFLOPS) if TFLOPS in targets else -1,
            *(logs * 2)[:2],
            len(groups),
        ],
        "i4",
    )
    if programs is not None:
        arrays.add([len(programs)], "i4")
        for values, dtype in (array for program in programs for array in program):
            arrays.add(values, dtype)
    for forest in forests.values():
        _add_forest(arrays, forest)
    for group in groups:
        _add_group(arrays, group, [numbers[name_of(one.kernel)] for one in group.group.candidates])
    body = arrays.content()
    header = HEADER.pack(MAGIC, BYTE_ORDER_MARK, VERSION, key, HEADER.size + len(body), zlib.crc32(body), 0)
    return header + body


def kernels_of(spec: ModelSpec, groups: Sequence[GroupProgram]) -> dict[str, Kernel]:
    """The kernels of groups by their complete names, in the order of their numbers in C."""
    return {spec.op.kernel_name(one.kernel): one.kernel for group in groups for one in group.group.candidates}


def _code(value: str | None, table: tuple[str, ...]) -> int:
    return -1 if value is None else table.index(value)


def _add_texts(arrays: _Arrays, texts: Sequence[str]) -> None:
    encoded = [text.encode() + b"\0" for text in texts]
    arrays.add(np.frombuffer(b"".join(encoded), np.uint8), "u1")
    arrays.add(np.cumsum([0, *map(len, encoded)])[:-1], "i4")


def _add_forest(arrays: _Arrays, forest: PackedForest) -> None:
    arrays.add([forest.high_exponent, forest.low_exponent], "i4")
    for values, dtype in (
        (forest.roots, "i4"),
        (forest.nodes, "i4"),
        (forest.leaves, "i8"),
        (forest.families, "i4"),
        (forest.thresholds, "f8"),
        (forest.sets, "i4"),
        (forest.words, "u4"),
    ):
        arrays.add(values, dtype)


def _add_group(arrays: _Arrays, one: GroupProgram, names: Sequence[int]) -> None:
    if one.body is None:
        arrays.add([*one.group.key, _EMPTY, 0, 0, 0, 0], "i4")
        for _ in range(3):
            arrays.add([], "i4")
        return
    made, rules, plans = one.body.made, one.body.rules, one.body.made.plans
    blocks = plans[0].blocks
    counts = made.pool.tiles, made.pool.variants, len(blocks), len(rules.reasons)
    arrays.add([*one.group.key, one.body.program, *counts], "i4")
    arrays.add(names, "i4")
    arrays.add(rules.begins, "i4")
    arrays.add(np.array(rules.steps, np.int32).reshape(-1, 3), "i4")
    for leaf in made.graph.leaves:
        arrays.add(leaf.values, "f8")
    arrays.add(plans[0].class_starts, "i4")
    arrays.add(plans[0].class_masks, "u8")
    for plan in plans:
        arrays.add(plan.masks, "i4")
        arrays.add(plan.families, "i4")
        arrays.add(plan.variant_masks, "u8")
    for index in range(len(blocks)):
        _add_block(arrays, plans, index)


def _add_block(arrays: _Arrays, plans: Sequence[Plan], index: int) -> None:
    block: Block = plans[0].blocks[index]
    arrays.add([block.tiles.start, block.tiles.stop - block.tiles.start], "i4")
    values: tuple[NDArray[Any], ...] = (block.candidates, block.tile_of, block.variant_of)
    for column in values:
        arrays.add(column, "i4")
    for plan in plans:
        arrays.add(plan.blocks[index].masks, "u8")
