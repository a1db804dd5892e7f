"""Vector registers read and written by gfx9 instructions, as ranges.

v0 to v255 are 0 to 255, followed by a0 to a255.
"""

from __future__ import annotations

import re

Registers = tuple[tuple[int, int], ...]  # of each operand: first register, and the one after the last
_FIRST_VECTOR = 256  # among the sources of vector instructions
_ACCUMULATORS = 256  # number of a0
_LANES, _WORD_BITS = 64, 32
_SDWA, _DPP = 249, 250
CACHE_CONTROL = ("buffer_inv", "buffer_wb")  # write back or invalidate a cache, without registers
_VOP1, _VOP3 = 0x3F, 0x34  # the encodings, by the highest bits
_NO_SCALAR = 0x7F
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w*)")
_BITS = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "f8f6f4": 8}
_OF_LANE = {"f16": 4, "bf16": 2, "bf16_1k": 4, "i8": 4}  # elements of A per lane, for the shortest instructions
_WIDE = re.compile(r"_(b64|u64|i64|f64)(_|$)|v_pk_\w+_(f32|b32)|v_cvt_pk_f32_")
_DWORDS = re.compile(r"dwordx(\d)|_b(64|96|128)$|_(?:tr_)?b(64|96)_")


def registers_of(name: str, words: tuple[int, ...]) -> tuple[Registers, Registers]:
    """Registers read, and registers written, by a vector, LDS or memory instruction."""
    first, second = words[0], words[1] if len(words) > 1 else 0
    if name.startswith("ds_"):
        return _lds(name, first, second)
    if name.startswith(CACHE_CONTROL):
        return (), ()
    if name.startswith("buffer_"):
        used = first >> 12 & 3  # an index, an offset, both or none
        address = (_vector(second, used.bit_count()),) if used else ()
        return _access(
            name, address, _vector(second >> 8, dwords(name), second >> 23 & 1), in_lds=bool(first >> 16 & 1)
        )
    if name.startswith(("global_", "flat_", "scratch_")):
        place = 8 if _is_store(name) else 24
        data = _vector(second >> place, dwords(name), second >> 23 & 1)
        in_lds = "_lds_" in name or bool(first >> 13 & 1 and not name.startswith("scratch_"))
        return _access(name, _flat_address(name, second), data, in_lds=in_lds)
    if name.startswith(("v_mfma", "v_smfmac")):
        return _matrix(name, *words[-2:])
    return _vector_operands(name, first, second)


def _flat_address(name: str, second: int) -> Registers:
    """Registers of an address: 64 bits without a base in scalar registers, 32 bits for scratch memory."""
    has_base = second >> 16 & _NO_SCALAR != _NO_SCALAR
    if name.startswith("scratch_"):
        return () if has_base else (_vector(second),)
    return (_vector(second, 1 if has_base and name.startswith("global_") else 2),)


def dwords(name: str) -> int:
    """Registers of a lane's data."""
    matched = _DWORDS.search(name)
    if matched is None:
        return 1
    return int(matched[1]) if matched[1] else int(matched[2] or matched[3]) // _WORD_BITS


def matrix_shape(name: str) -> tuple[tuple[int, int, int], int, str] | None:
    """Tile, blocks and element type of a matrix instruction; None if its name does not state them."""
    matched = _SHAPE.search(name)
    if matched is None:
        return None
    m, n, k = (int(matched[part]) for part in (1, 2, 3))
    kind, _, rest = matched[5].partition("_")
    # Names on gfx90a omit the blocks: lanes that one block does not use belong to others.
    of_lane = _OF_LANE.get(f"{kind}_{rest}", _OF_LANE.get(kind, 1))
    return (m, n, k), int(matched[4] or max(1, _LANES * of_lane // (m * k))), kind


def _vector(number: int, count: int = 1, is_accumulator: int = 0) -> tuple[int, int]:
    first = (number & 0xFF) + (_ACCUMULATORS if is_accumulator else 0)
    return first, first + count


def _is_store(name: str) -> bool:
    return "store" in name or "atomic" in name


def _access(name: str, address: Registers, data: tuple[int, int], *, in_lds: bool) -> tuple[Registers, Registers]:
    """Registers read and written by a memory access; with `in_lds`, it loads into LDS."""
    if _is_store(name):
        return (*address, data), ()
    return address, (() if in_lds else (data,))


def _lds(name: str, first: int, second: int) -> tuple[Registers, Registers]:
    is_accumulator, address = first >> 25 & 1, _vector(second)
    count = dwords(name)
    if "permute" in name:
        return (address, _vector(second >> 8)), (_vector(second >> 24),)
    if "write" in name:
        data = [_vector(second >> 8, count, is_accumulator)]
        if name.startswith("ds_write2"):
            data.append(_vector(second >> 16, count, is_accumulator))
        return (address, *data), ()
    return (address,), (_vector(second >> 24, count * (2 if "read2" in name else 1), is_accumulator),)


def _matrix(name: str, first: int, second: int) -> tuple[Registers, Registers]:
    shape = matrix_shape(name)
    if shape is None:
        return (), ()
    (m, n, k), blocks, kind = shape
    bits = _BITS.get(kind, _WORD_BITS)
    in_a, in_b = (max(1, size * k * blocks * bits // _LANES // _WORD_BITS) for size in (m, n))
    sums = max(1, m * n * blocks // _LANES) * (2 if kind == "f64" else 1)
    result = _vector(first, sums, first >> 15 & 1)
    a, b = _vector(second, in_a, second >> 27 & 1), _vector(second >> 9, in_b, second >> 28 & 1)
    third = second >> 18 & 0x1FF
    added = (_vector(third, sums, first >> 15 & 1),) if third >= _FIRST_VECTOR else ()
    return (a, b, *added), (result,)


def _vector_operands(name: str, first: int, second: int) -> tuple[Registers, Registers]:
    count = 2 if _WIDE.search(name) else 1
    if first >> 26 == _VOP3:  # and VOP3P
        sources = [second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF]
        result = _vector(first, count, name.startswith("v_accvgpr_write"))
        if name.startswith("v_accvgpr_read"):
            return (_vector(sources[0], 1, 1),), (result,)
    else:
        source = first & 0x1FF
        is_other_form = source in (_SDWA, _DPP)
        sources = [(second & 0xFF) + _FIRST_VECTOR if is_other_form else source]
        if first >> 25 != _VOP1:
            sources.append((first >> 9 & 0xFF) + _FIRST_VECTOR)
        result = _vector(first >> 17, count)
    reads = tuple(_vector(source, count) for source in sources if source >= _FIRST_VECTOR)
    has_no_result = name.startswith(("v_cmp", "v_readfirstlane", "v_readlane", "v_nop"))
    return reads, (() if has_no_result else (result,))
