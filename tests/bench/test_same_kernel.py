"""The script that compares kernels with Composable Kernel's own, and the comparison of two of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real import compiles, skip_without_compiler

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "same_kernel.py"
_NAME = (
    "_ZN7ck_tile6kentryILi1ENS_19UniversalGemmKernelINS_28UniversalGemmPipelineProblemIDF16_DF16_f"
    "LNS_21GemmPipelineSchedulerE1ELb{loop}ELNS_10TailNumberE{tail}ENS_12element_wise11PassThroughE"
    "LNS_21memory_operation_enumE{operation}ELi1ELb0EEEvDpT1_"
)
_REMARKS = """\
a.cpp:7:0: remark: Function Name: {name} [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     TotalSGPRs: {sgprs} [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     VGPRs: 96 [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     AGPRs: 16 [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     ScratchSize [bytes/lane]: 8 [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     Occupancy [waves/SIMD]: 4 [-Rpass-analysis=kernel-resource-usage]
a.cpp:7:0: remark:     LDS Size [bytes/block]: 16384 [-Rpass-analysis=kernel-resource-usage]
"""
# The smallest GEMM and the smallest convolution.
SHORT = (
    "gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16",
    "grouped_conv_bwd_weight_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_vec4_8_8",
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("same_kernel", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_resources_of_each_case_are_parsed_from_remarks(script: ModuleType) -> None:
    """By whether the main loop runs, how it ends, and whether results are stored or added."""
    names = [_NAME.format(loop=loop, tail=tail, operation=op) for loop, tail, op in ((1, 10, 0), (0, 2, 1))]
    remarks = "".join(_REMARKS.format(name=name, sgprs=30 + i) for i, name in enumerate(names))
    assert {case: str(item) for case, item in script.taken(remarks).items()} == {
        ("1", "10", "0"): "30, 96, 16, 16384, 8",
        ("0", "2", "1"): "31, 96, 16, 16384, 8",
    }


def test_kernels_are_equal_if_all_common_cases_are(script: ModuleType) -> None:
    """The case with a main loop is shown, or the first that differs; without a common case they are not the same."""
    item, other = script.Taken(30, 96, 16, 16384, 0), script.Taken(31, 96, 16, 16384, 0)
    loop, short, added = ("1", "10", "0"), ("0", "2", "0"), ("1", "10", "1")
    assert script.row("k", {loop: item, short: other}, {loop: item, short: other, added: item}) == (
        ["k", str(item), str(item), "2 of 2"],
        True,
    )
    assert script.row("k", {loop: item, short: item}, {loop: item, short: other}) == (
        ["k", str(item), str(other), "1 of 2"],
        False,
    )
    assert script.row("k", {loop: item}, {short: item})[1] is False


def test_twelve_configurations_and_more_are_compared(script: ModuleType) -> None:
    """Each direction, compv3, compv4, mem, basic_v1, and GEMMs in three dtypes."""
    kernels = [script.parse_name(name) for name in script.NAMES]
    convolutions = [kernel for kernel in kernels if hasattr(kernel, "variant")]
    gemms = [kernel for kernel in kernels if not hasattr(kernel, "variant")]
    assert len(kernels) >= 12
    assert len({kernel.variant for kernel in convolutions}) == 3
    assert {kernel.pipeline for kernel in kernels} >= {"compv3", "compv4", "mem", "basic_v1"}
    assert len({kernel.dtype for kernel in gemms}) >= 3


@pytest.mark.slow
@compiles()
def test_kernels_match_cks_launchers(script: ModuleType) -> None:
    """A GEMM and a convolution use as many registers, LDS and scratch as CK's own, in every case of their loops."""
    skip_without_compiler()
    if (ck := script.ck_source()) is None:
        pytest.skip("Composable Kernel's examples and tile engine are not beside its headers")
    rows = list(script.compare(SHORT, "gfx942", ck))
    assert [cells for cells, is_same in rows if not is_same] == []
