"""The matrix instructions that CK Tile's headers have for tiles of a wave, read from their dispatcher."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.archs import Triple
    from ckh.bench.codegen.ck_tile import Headers

_DISPATCHER = Path("ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp")
_NAMESPACE = "warp_gemm_dispatcher"
_TILE = r"\s*(\d+),\s*(\d+),\s*(\d+),\s*"
_WARP_GEMM = re.compile(
    rf"Dispatcher<(?:ck_tile::)?(\w+), (?:ck_tile::)?\1, (?:ck_tile::)?\w+,{_TILE}"
    r"(?:false|TransposeC)\b(?:, false)*(?:, I)?>"
)
# Of any two 8-bit types.
_WARP_GEMM_OF_BYTES = re.compile(rf"Dispatcher<A,\s*B,\s*float,{_TILE}false,\s*false,\s*false,\s*I(?:>|,\s*I,)")
_FLOAT_BYTES = ("fp8_t", "bf8_t")
# With operands that LDS transposes, which a lane takes in several accesses.
_ACCESSES = {"Double": (2,), "Quad": (4,), "I": (2, 4)}
_TRANSPOSING = re.compile(
    rf"Dispatcher<(?:ck_tile::)?(\w+), (?:ck_tile::)?\1, (?:ck_tile::)?\w+,{_TILE}false, false, false, "
    r"(?:WGAttrNumAccessEnum::|E)?(Double|Quad|I)>"
)


def dispatcher_macro(headers: Headers) -> str:
    """The definition, for a compiler, of what the dispatcher of headers is called in the namespace `ck_tile::impl`."""
    has_namespace = f"namespace {_NAMESPACE}" in headers.text(_DISPATCHER)
    return f"CKH_WARP_GEMM_DISPATCHER={f'{_NAMESPACE}::Dispatcher' if has_namespace else 'WarpGemmDispatcher'}"


def warp_gemms(headers: Headers) -> frozenset[tuple[str, Triple]]:
    """CK Tile's element type of A and B, and the tile, of every matrix instruction that does not transpose C."""
    return frozenset(_parsed(headers.text(_DISPATCHER)))


def transposing_warp_gemms(headers: Headers) -> frozenset[tuple[str, Triple, int]]:
    """Those that take operands which LDS transposes, as gfx950's can, each with the accesses that a lane makes."""
    single = frozenset((element, tile, 1) for element, tile in warp_gemms(headers))
    found = (match.groups() for match in _TRANSPOSING.finditer(headers.text(_DISPATCHER)))
    return single | {
        (f"ck_tile::{e}", (int(m), int(n), int(k)), accesses)
        for e, m, n, k, words in found
        for accesses in _ACCESSES[words]
    }


def _parsed(dispatcher: str) -> Iterator[tuple[str, Triple]]:
    for found in _WARP_GEMM.finditer(dispatcher):
        element, m, n, k = found.groups()
        yield element if element == "float" else f"ck_tile::{element}", (int(m), int(n), int(k))
    for found in _WARP_GEMM_OF_BYTES.finditer(dispatcher):
        m, n, k = found.groups()
        yield from ((f"ck_tile::{element}", (int(m), int(n), int(k))) for element in _FLOAT_BYTES)
