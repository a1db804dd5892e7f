"""Parts of K that CK Tile cannot add atomically: by what its headers of November 2025 compiled, and did not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.ck_tile import Interface
from ckh.kernels.judging import given
from ckh.ops.grouped_conv.kernel import parse_kernel_name
from ckh.ops.grouped_conv.measuring import hip_rules

MERGED = "basic_v1_cshuffle_intrawave_128x32x32_1x1x1_32x32x16_vec8_8_8_bpc2_gm8_2stage"


@pytest.mark.parametrize(
    ("dtype", "kernel", "compiles"),
    [
        ("bf16", f"{MERGED}_splitk16", False),
        ("bf16", MERGED, True),
        ("bf16", "basic_v1_cshuffle_intrawave_16x256x32_1x1x1_16x16x32_vec8_8_1_bpc2_gm8_2stage_splitk16", True),
        ("fp16", "compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_2stage_splitk2", True),
    ],
)
def test_wide_atomics_of_fp32_are_refused(dtype: str, kernel: str, compiles: bool) -> None:
    """The rule agrees with the compiler on gfx950, whose static assertion the first kernel breaks."""
    headers: Any = SimpleNamespace(common=SimpleNamespace(interface=Interface.LATE_2025))
    (rule,) = given((hip_rules._atomics,), headers=headers)
    result = parse_kernel_name(f"grouped_conv_bwd_weight_{dtype}_nhwgc_2d_{kernel}")
    assert (not [*rule(result, load_arch("gfx950"))]) == compiles
