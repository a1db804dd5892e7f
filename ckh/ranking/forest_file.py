"""Packed forests as files: encoding, bounds-checked decoding, and the cache.

A file is a header, the names of the inputs, and the arrays in native byte order, each aligned to eight bytes. All sizes
follow from the counts in the header; header and rest each have a checksum.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import sys
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, ModelError
from ckh.files.paths import cache_dir, write_atomic
from ckh.files.untrusted import read_bytes, unpacked
from ckh.ranking.lightgbm_text import parse_forest
from ckh.ranking.packed import CATEGORICAL, MAX_TREES, PackedForest, low_bits_of, pack
from ckh.text.log import warn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

VERSION = 2  # of the format and of the packing of forests
_MAGIC = b"CKHRANK" + sys.byteorder[:1].encode()
# Version, trees, nodes, leaves, families, tests, words, bytes of names, the two exponents, checksum of the rest; then
# the checksum of the header.
_HEADER = struct.Struct("=8s10iI")
_HEADER_CHECK = struct.Struct("=I")
_START = 56
_EXPONENTS = range(-2048, 2048)


def open_forest(path: Path) -> PackedForest:
    """Open the forest of a LightGBM text, plain or gzipped, through the cache."""
    return forest_of(model_bytes(path), str(path))


def model_bytes(path: Path) -> bytes:
    """Read a model's file."""
    try:
        return read_bytes(path)
    except DataError as error:
        raise ModelError(error.message, error.hint, code=error.code) from error


def forest_of(content: bytes, name: str) -> PackedForest:
    """`open_forest` for the content of a file with this name."""
    key = hashlib.sha256(content).hexdigest()
    try:
        cached = cache_dir("forests") / f"{key}-{VERSION}{sys.byteorder[:1]}.bin"
    except DataError as error:  # no usable cache folder
        _warn_once(error.message)
        return _build(content, name)
    try:
        return read_packed(cached)
    except ModelError:
        forest = _build(content, name)
    with suppress(OSError):  # equivalent to no cache
        write_atomic(cached, encode(forest))
    return forest


@cache
def _warn_once(message: str) -> None:
    """Warn once that there is no cache: a model has several forests, with the same reason."""
    warn(message, "cache")


def _build(content: bytes, name: str) -> PackedForest:
    try:
        forest = pack(parse_forest(model_text(content, name)))
        _check(forest)
    except ModelError as error:
        raise ModelError(f"{name}: {error.message}", error.hint, code=error.code) from error
    return forest


def model_text(content: bytes, name: str) -> str:
    """Decode the text of a file, plain or gzipped."""
    try:
        return unpacked(content, name).decode()
    except DataError as error:
        raise ModelError(error.message, error.hint, code=error.code) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{name} is damaged: it is not text in UTF-8", code="damaged-model") from error


def read_packed(path: Path) -> PackedForest:
    """Map the forest in a packed file into memory."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # mmap raises ValueError for an empty file
        raise ModelError(f"cannot read the packed model {path}: {error}", code="unreadable") from error
    try:
        return decode(content)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", code=error.code) from error


def encode(forest: PackedForest) -> bytes:
    """Encode a forest as the content of a packed file."""
    names = "\n".join(forest.feature_names).encode()
    arrays = [getattr(forest, name) for name in _layout((0,) * 6)]
    body = b"".join(map(_padded, [names, *(np.ascontiguousarray(array).tobytes() for array in arrays)]))
    counts = [len(forest.roots), len(forest.nodes), len(forest.leaves), len(forest.families), len(forest.thresholds)]
    fields = [*counts, len(forest.words), len(names), forest.high_exponent, forest.low_exponent]
    header = _HEADER.pack(_MAGIC, VERSION, *fields, zlib.crc32(body))
    return header + _HEADER_CHECK.pack(zlib.crc32(header)) + body


def decode(content: bytes | mmap.mmap) -> PackedForest:
    """Decode the forest in a packed file; its arrays are views of the content."""
    if (
        len(content) < _START
        or zlib.crc32(content[: _HEADER.size]) != _HEADER_CHECK.unpack_from(content, _HEADER.size)[0]
    ):
        raise ModelError("damaged packed model", code="damaged-model")
    magic, version, *fields, check = _HEADER.unpack_from(content)
    if magic != _MAGIC or version != VERSION:
        raise ModelError("packed model of another version", code="other-version")
    *counts, name_bytes, high_exponent, low_exponent = fields
    if min(*counts, name_bytes) < 0 or counts[0] > MAX_TREES:
        raise ModelError("damaged packed model", code="damaged-model")
    layout = _layout(tuple(counts))
    end = _START + _rounded(name_bytes)
    starts = []
    for dtype, shape in layout.values():
        starts.append(end)
        end += _rounded(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    if end != len(content) or zlib.crc32(memoryview(content)[_START:]) != check:
        raise ModelError("damaged packed model", code="damaged-model")
    arrays: dict[str, NDArray[Any]] = {
        name: np.frombuffer(content, dtype, int(np.prod(shape, dtype=np.int64)), start).reshape(shape)
        for start, (name, (dtype, shape)) in zip(starts, layout.items(), strict=True)
    }
    try:
        names = tuple(content[_START : _START + name_bytes].decode().split("\n"))
    except UnicodeDecodeError as error:
        raise ModelError("damaged packed model", code="damaged-model") from error
    forest = PackedForest(names, **arrays, high_exponent=high_exponent, low_exponent=low_exponent, is_input=False)
    _check(forest)
    return forest


def _layout(counts: tuple[int, ...]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    trees, nodes, leaves, families, tests, words = counts
    index, number, part = np.dtype(np.int32), np.dtype(np.float64), np.dtype(np.int64)
    return {
        "roots": (index, (trees,)),
        "nodes": (index, (nodes, 3)),
        "leaves": (part, (leaves, 2)),
        "families": (index, (families, 4)),
        "thresholds": (number, (tests,)),
        "sets": (index, (tests, 2)),
        "words": (np.dtype(np.uint32), (words,)),
    }


def _rounded(size: int) -> int:
    return (size + 7) // 8 * 8


def _padded(part: bytes) -> bytes:
    return part.ljust(_rounded(len(part)), b"\0")


def _check(forest: PackedForest) -> None:
    """Refuse a forest with an index out of bounds: evaluation does no bounds checks."""
    if not (_are_trees(forest) and _are_families(forest) and _are_sets(forest) and _are_exponents(forest)):
        raise ModelError("damaged packed model: an index is out of range", code="damaged-model")


def _are_trees(forest: PackedForest) -> bool:
    """True if each node except the roots, and each leaf, has one parent, and each node comes after its parent."""
    nodes, leaves = len(forest.nodes), len(forest.leaves)
    children = forest.nodes[:, 1:]
    if not (_within(children, -leaves, nodes) and _within(forest.roots, -leaves, nodes)):
        return False
    if not ((children < 0) | (children > np.arange(nodes)[:, None])).all():
        return False
    everything = np.concatenate([children.ravel(), forest.roots])
    seen = np.bincount(everything + leaves, minlength=nodes + leaves)
    return len(seen) == nodes + leaves and bool((seen == 1).all())


def _are_families(forest: PackedForest) -> bool:
    families, tests = forest.families, len(forest.thresholds)
    feature, flags, first, count = families.astype(np.int64).T
    ends = np.cumsum(count)
    tiled = np.array_equal(first, ends - count) and (count > 0).all() and (ends[-1] if len(ends) else 0) == tests
    inputs = _within(feature, 0, len(forest.feature_names)) and _within(flags, 0, 16)
    return bool(tiled) and inputs and _within(forest.nodes[:, 0], 0, tests)


def _are_sets(forest: PackedForest) -> bool:
    start, count = forest.sets.astype(np.int64).T
    is_set = np.repeat((forest.families[:, 1] & CATEGORICAL) != 0, forest.families[:, 3])
    inside = (start >= 0) & (count >= 0) & (start + count <= len(forest.words))
    rising = (forest.thresholds[1:] > forest.thresholds[:-1]) | is_set[1:]
    rising[forest.families[1:, 2] - 1] = True
    return bool(inside.all() and rising.all() and not np.isnan(forest.thresholds).any())


def _are_exponents(forest: PackedForest) -> bool:
    return forest.high_exponent in _EXPONENTS and forest.low_bits == low_bits_of(len(forest.roots))


def _within(values: NDArray[np.integer], low: int, high: int) -> bool:
    return not len(values) or bool(low <= values.min() and values.max() < high)
