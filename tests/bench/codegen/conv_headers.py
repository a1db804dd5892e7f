"""Features of CK Tile's headers for convolutions, of each interface, and folders of templates of an interface."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ckh.bench.codegen.ck_tile import TEMPLATES, Headers, Interface
from ckh.ops.grouped_conv.measuring.hip_rules import ELEMENTS, ConvHeaders
from ckh.problems import Direction
from tests.bench.fake_hipcc import write_headers

MID_2025 = ConvHeaders(
    common=Headers(
        include=Path("/ck"),
        interface=Interface.MID_2025,
        pipelines=frozenset({"basic_v1", "mem", "compv3", "compv4", "compv5"}),
        double_buffered=frozenset({"compv4"}),
        interwave=frozenset({"mem"}),
    ),
    directions=frozenset({Direction.FORWARD, Direction.BWD_WEIGHT}),
    interwave=frozenset({"mem"}),
    splitting=frozenset({Direction.BWD_WEIGHT}),
)
CURRENT = ConvHeaders(
    common=Headers(
        include=Path("/ck"),
        interface=Interface.CURRENT,
        pipelines=frozenset({"basic_v1", "mem", "compv3", "compv4", "compv6", "comp_async", "basic_async_v1"}),
        double_buffered=frozenset({"compv4", "comp_async"}),
        interwave=frozenset({"basic_v1", "mem"}),
    ),
    directions=frozenset(Direction),
    interwave=frozenset({"basic_v1", "mem"}),
    merging=frozenset({Direction.FORWARD, Direction.BWD_WEIGHT}),
    splitting=frozenset({Direction.BWD_DATA, Direction.BWD_WEIGHT}),
    split_images=frozenset({Direction.FORWARD}),
    explicit=frozenset({Direction.FORWARD, Direction.BWD_WEIGHT}),
    two_stages=frozenset({Direction.BWD_WEIGHT}),
)
LATE_2025 = ConvHeaders(
    common=replace(
        CURRENT.common,
        interface=Interface.LATE_2025,
        pipelines=frozenset({"basic_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async"}),
        interwave=frozenset({"mem"}),
    ),
    directions=frozenset(Direction),
    incomplete=dict.fromkeys(("compv5", "compv6", "comp_async"), "does not fit"),
    interwave=frozenset({"basic_v1", "mem"}),
    warp_gemms=frozenset((ELEMENTS["fp16"], tile) for tile in ((32, 32, 8), (32, 32, 16), (16, 16, 16), (16, 16, 32)))
    | frozenset((ELEMENTS["bf16"], tile) for tile in ((32, 32, 8), (32, 32, 16), (16, 16, 16))),
    transposing=frozenset((ELEMENTS[dtype], (32, 32, 16), 2) for dtype in ("fp16", "bf16")),
    two_buffers=frozenset({Direction.FORWARD, Direction.BWD_WEIGHT}),
    merging=frozenset({Direction.BWD_WEIGHT}),
    splitting=frozenset({Direction.BWD_WEIGHT}),
    split_images=frozenset({Direction.FORWARD}),
    two_stages=frozenset({Direction.BWD_WEIGHT}),
    one_channel={Direction.FORWARD: "AB"},
)
HEADERS = {Interface.MID_2025: MID_2025, Interface.LATE_2025: LATE_2025, Interface.CURRENT: CURRENT}


def write_templates(include: Path, interface: Interface) -> Path:
    """Write an include folder whose templates have the parameters of an interface."""
    write_headers(include)
    for name, (file, wanted) in TEMPLATES.items():
        path = include / file
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = "CK_TILE_HOST auto" if name == "make_kernel" else "struct"
        text = f"template <{', '.join(f'int {item}' for item in wanted[interface])}> {kind} {name}"
        path.write_text(text, encoding="utf-8")
    return include
