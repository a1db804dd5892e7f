"""Sources of batched and grouped products for AMD GPUs, and what headers lack for them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.ck_tile import template_dir
from ckh.bench.codegen.unit import UnsupportedKernelError, unit_source
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.ops import operation
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

ARCH = load_arch("gfx942")
EMITTED = "_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x16"
BATCHED, GROUPED = "gemm_batched", "gemm_grouped"
# Text of the kernel's header, and the headers that a source includes after gemm_plain.hpp.
TEXTS = {
    BATCHED: "struct BatchedGemmHostArgs : UniversalGemmHostArgs<>",
    GROUPED: "UniversalGemmKernelArgs<1, 1> group_karg;",
}
INCLUDED = {
    BATCHED: ("gemm_{}_classes.hpp", "batched_launch.hpp", "batched_exports.hpp"),
    GROUPED: ("gemm_{}_classes.hpp", "grouped_{}.hpp", "grouped_launch.hpp", "grouped_exports.hpp"),
}


def measured(op: str) -> Any:
    """The module that measures an operation."""
    return import_module(f"ckh.ops.{op}.measured")


def headers_in(folder: Path, op: str, like: GemmHeaders, text: str = "") -> GemmHeaders:
    """Headers like these whose kernel of an operation has this text."""
    path = folder / f"ck_tile/ops/gemm/kernel/{op.removeprefix('gemm_')}_gemm_kernel.hpp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or TEXTS[op], encoding="utf-8")
    persistent = frozenset({"compv3", "mem"}) if op == GROUPED else like.persistent
    return replace(like, common=replace(like.common, include=folder), persistent=persistent)


@pytest.mark.parametrize("like", [MID_2025, LATE_2025])
@pytest.mark.parametrize("op", TEXTS)
def test_sources(op: str, like: GemmHeaders, tmp_path: Path) -> None:
    """A source has the kernel's name and parameters, and includes the launch after an interface's classes."""
    name, module = op + EMITTED, measured(op)
    templates = module.MEASURED.hip.templates
    source = module.HIP.emit(operation(op).kernels.parse(name), headers_in(tmp_path, op, like), ARCH)
    assert f'"ckh-kernel:{name}"' in source
    included = [line.split('"')[1] for line in source.splitlines() if line.startswith("#include")]
    own = [file.format(like.common.interface) for file in INCLUDED[op]]
    assert included == ["gemm_vocabulary.hpp", "gemm_plain.hpp", *own]
    assert [file for file in included if not any((folder / file).is_file() for folder in templates)] == []
    unit = unit_source([source, source.replace("tile_m = 64", "tile_m = 128")], (template_dir(), *templates))
    assert unit.count("using Kernel = KernelOf<" if op == BATCHED else "using KernelOf = ") == 2
    assert unit.count(f'#include "{op.removeprefix("gemm_")}_kernel.hpp"') == 1


@pytest.mark.parametrize(
    ("op", "like", "changes", "text", "word"),
    [
        (BATCHED, LATE_2025, {"pipeline": "compv4"}, "", "compv4"),
        (BATCHED, MID_2025, {"pipeline": "compv5", "wave_m": 1, "wave_n": 1, "wave_k": 2}, "", "compv5"),
        (BATCHED, CURRENT, {}, "", "batched"),
        (BATCHED, LATE_2025, {}, "struct BatchedGemmHostArgs : GemmHostArgs", "batched"),
        (BATCHED, LATE_2025, {"pipeline": "wavelet"}, "", "wavelet"),
        (GROUPED, MID_2025, {"pipeline": "compv4"}, "", "one buffer"),
        (GROUPED, MID_2025, {"persistent": True}, "", "race"),
        (GROUPED, CURRENT, {}, "", "current"),
        (GROUPED, LATE_2025, {}, "struct GemmTransKernelArg { GemmKernelArgs group_karg; }", "grouped"),
        (GROUPED, LATE_2025, {"pipeline": "compv5", "wave_m": 1, "wave_n": 1, "wave_k": 2}, "", "compv5"),
        (GROUPED, LATE_2025, {"pipeline": "compv4"}, "", "compv4"),
    ],
)
def test_what_headers_lack(
    op: str, like: GemmHeaders, changes: dict[str, Any], text: str, word: str, tmp_path: Path
) -> None:
    """Pipelines without what the kernel requires, other interfaces and older kernels are refused."""
    kernels, hip = operation(op).kernels, measured(op).HIP
    kernel: Any = replace(kernels.parse(op + EMITTED), **changes)
    headers = headers_in(tmp_path, op, like, text)
    with pytest.raises(UnsupportedKernelError, match=word):
        hip.emit(kernel, headers, ARCH)
    assert not judge_table(hip.rules(headers), KernelTable.of(kernels.type, [kernel]), ARCH).passed.size


def test_what_headers_have(tmp_path: Path) -> None:
    """Of gemm_universal's pipelines, those with one buffer and one group of waves; none are persistent."""
    hip = measured(BATCHED).HIP
    plain = {"pipelines": ("compv3", "compv4", "compv5", "mem"), "epilogues": ("default",), "interwave": ("mem",)}
    result = hip.found(headers_in(tmp_path, BATCHED, LATE_2025), plain | {"persistent": ("mem",)})
    assert result == plain | {"pipelines": ("compv3", "mem")}
    assert hip.found(headers_in(tmp_path, BATCHED, CURRENT), plain)["pipelines"] == ()
