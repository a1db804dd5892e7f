"""Features of CK Tile's headers for GEMM kernels, of each interface, without a folder of headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ckh.bench.codegen.ck_tile import Headers, Interface
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.measuring.hip_rules import ELEMENTS, GemmHeaders

MID_2025 = GemmHeaders(
    common=Headers(
        include=Path("/ck"),
        interface=Interface.MID_2025,
        pipelines=frozenset({"basic_v1", "mem", "compv3", "compv4", "compv5"}),
        double_buffered=frozenset({"compv4"}),
    ),
    has_kernel=True,
    epilogues=frozenset({"cshuffle", "default"}),
    interwave=frozenset({"mem"}),
    persistent=frozenset({"mem", "compv3"}),
    warp_gemms=frozenset(
        {
            *(
                (ELEMENTS[dtype], tile)
                for dtype in ("fp16", "bf16")
                for tile in ((32, 32, 8), (32, 32, 16), (4, 64, 16))
            ),
            *((ELEMENTS[dtype], (16, 16, 16)) for dtype in ("fp16", "bf16")),
            *((ELEMENTS[dtype], tile) for dtype in ("fp8", "bf8") for tile in ((32, 32, 16), (16, 16, 32))),
            (ELEMENTS["int8"], (32, 32, 16)),
        }
    ),
    along_k=frozenset({("basic_v1", Scheduler.INTRAWAVE), ("compv5", Scheduler.INTRAWAVE)}),
    races_between_tiles=True,
)
CURRENT = replace(
    MID_2025,
    common=replace(
        MID_2025.common,
        interface=Interface.CURRENT,
        pipelines=frozenset({"basic_v1", "mem", "compv3", "compv4", "compv5", "compv6", "comp_async"}),
    ),
    interwave=frozenset({"mem", "basic_v1"}),
    persistent=frozenset({"mem", "compv3", "compv4"}),
    warp_gemms=MID_2025.warp_gemms | {("float", (32, 32, 8))},
    along_k=frozenset(),
    races_between_tiles=False,
)
LATE_2025 = replace(
    CURRENT,
    common=replace(CURRENT.common, interface=Interface.LATE_2025, double_buffered=frozenset({"compv4", "comp_async"})),
    interwave=frozenset({"mem"}),
    along_k=MID_2025.along_k,
    transposes_all=True,
    transposing=frozenset(
        {
            (ELEMENTS["fp16"], (32, 32, 8), 1),
            (ELEMENTS["fp16"], (32, 32, 16), 2),
            (ELEMENTS["fp8"], (32, 32, 16), 1),
        }
    ),
)
