"""Problems of groups: identity, refusals, work, sets, files, kernels, features, estimate and answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import DataError, ExitCode
from ckh.learn.analytic.estimate import estimated_us
from ckh.ops import operation
from ckh.ops.base import Encoding, TiledSizes
from ckh.ops.gemm_grouped.operation import GROUPED_RULES, POOLS, parse_grouped_kernel
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_grouped.problem_sets import SETS, evenly, unevenly
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.problem import GemmProblem
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

ARCH = load_arch("gfx942")
OP, GEMM = operation("gemm_grouped"), operation("gemm_universal")
SHAPE = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
NAME = f"gemm_grouped_{SHAPE}"


def problem(ms: str, **fields: Any) -> GemmGroupedProblem:
    """Groups of these M, by default 128 x 64 in fp16."""
    return GemmGroupedProblem(ms=ms, **{"n": 128, "k": 64, "dtype": "fp16", **fields})


def test_texts_hold_the_identity() -> None:
    """M are a multiset: their order and how runs are split do not matter; groups without rows are part of it."""
    item = problem("64x8+512+0x2", layout="rrr", split_k=2)
    assert item == problem("0+64x3+512x1+64x5+0", layout="rrr", split_k=2)
    assert hash(item) == hash(replace(item))
    assert item != problem("512+64x8+0", layout="rrr", split_k=2)
    assert item.all_m == (512, *(64,) * 8, 0, 0)
    assert (item.m, item.num_groups) == (1024, 11)


def test_work_is_that_of_all_groups() -> None:
    """Operations are of all rows; the weight of a group without rows is not read."""
    parts = [GemmProblem(m, 128, 64, "fp16") for m in (96, 32, 32)]
    result = problem("96+32x2+0x5")
    assert result.flops == sum(part.flops for part in parts)
    assert result.bytes == sum(part.bytes for part in parts)


def test_spreads_of_rows() -> None:
    """Rows are all spread; unevenly, a quarter of the experts has half of them and another quarter a quarter."""
    assert evenly(10, 4) == "3x2+2x2"
    assert evenly(3, 4) == "1x3+0"
    assert unevenly(1024, 8) == "256x2+128x2+64x4"
    for rows, experts, spread in ((1, 4, unevenly), (77, 6, unevenly), (4097, 128, evenly), (4097, 128, unevenly)):
        result = problem(spread(rows, experts))
        assert (result.m, result.num_groups) == (rows, experts)


def test_experts_of_known_models() -> None:
    """Mixtral routes a token to 2 of 8 experts of 14336; DeepSeek-V3 to 8 of 256 of 2048, on eight GPUs."""
    mixtral = set(SETS.load("experts-mixtral-8x7b", None, "bf16"))
    assert {
        GemmGroupedProblem(ms="128x8", n=2 * 14336, k=4096, dtype="bf16"),
        GemmGroupedProblem(ms="128x8", n=4096, k=14336, dtype="bf16"),
        GemmGroupedProblem(ms="1x2+0x6", n=4096, k=14336, dtype="bf16"),
    } <= mixtral
    deepseek = set(SETS.load("experts-deepseek-v3", None, "bf16"))
    assert GemmGroupedProblem(ms="256x32", n=7168, k=2048, dtype="bf16") in deepseek
    assert GemmGroupedProblem(ms="512x8+256x8+128x16", n=2 * 2048, k=7168, dtype="bf16") in deepseek
    qwen = set(SETS.load("experts-qwen3-30b-a3b", None, "bf16"))
    assert GemmGroupedProblem(ms="32x128", n=2 * 768, k=2048, dtype="bf16") in qwen


def test_files(tmp_path: Path) -> None:
    """Files have the columns ms, n and k, in place of m."""
    path = tmp_path / "own.csv"
    path.write_text("ms,n,k,layout\n64x8+512,128,64,rrr\n8,16,32,\n", encoding="utf-8")
    expected = (problem("512+64x8", layout="rrr"), problem("8", n=16, k=32))
    assert SETS.load(str(path), None, None) == expected
    path.write_text("m,n,k\n64,128,64\n", encoding="utf-8")
    with expect_refusal(DataError, "missing-column", "ms"):
        SETS.load(str(path), None, None)
    path.write_text("ms,n,k\n64y8,128,64\n", encoding="utf-8")
    with expect_refusal(DataError, "bad-problem", "own.csv:2", "64y8"):
        SETS.load(str(path), None, None)


def test_rules_hold_for_every_group() -> None:
    """A kernel applies if gemm_universal's applies to each group; limits of offsets are those of the largest group."""
    kernel = parse_grouped_kernel(NAME)
    transposed = replace(kernel, layout="crr")
    assert GROUPED_RULES.check(kernel, ARCH, problem("7+512x3+0")) == []
    assert GROUPED_RULES.check(transposed, ARCH, problem("128x3+256+0", layout="crr")) == []
    assert len(GROUPED_RULES.check(transposed, ARCH, problem("128x3+250", layout="crr"))) == 2
    assert GROUPED_RULES.check(kernel, ARCH, problem("65536x1000")) == []
    assert len(GROUPED_RULES.check(kernel, ARCH, problem(f"{2**25}+4"))) == 2
    host = load_arch("host")
    own = next(kernel for kernel in POOLS.of(host, "fp32", "crr") if kernel.pad_m)
    assert len(GROUPED_RULES.check(own, host, problem("64x2", dtype="fp32", layout="crr"))) == 1


def values(item: GemmGroupedProblem | GemmProblem, kernel: str = NAME) -> dict[str, float]:
    """Features of a problem and a kernel of this name."""
    op = OP if isinstance(item, GemmGroupedProblem) else GEMM
    parsed = op.kernels.parse(kernel if op is OP else f"gemm_universal_{SHAPE}")
    columns = op.problems.features([item]) | op.kernels.features([parsed], Encoding(is_gpu=True))
    engine = op.training.engine
    return dict(zip(engine.names, engine.matrix(columns, ARCH.hardware.to_dict())[0].tolist(), strict=True))


def test_features_of_groups() -> None:
    """Tiles are counted group by group; those of one group are gemm_universal's."""
    alone, plain = values(problem("300")), values(GemmProblem(300, 128, 64, "fp16"))
    assert {name: alone[name] for name in GEMM_UNIVERSAL.names} == plain
    many = values(problem("300x40+100x100+0x4", n=256, split_k=2))
    rows, tiles_m = 300 * 40 + 100 * 100, 3 * 40 + 100
    cus = ARCH.hardware.num_cus
    assert many["M"] == rows
    assert (many["num_tiles_m"], many["total_output_tiles"]) == (tiles_m, 2 * tiles_m)
    assert many["waves_of_workgroups"] == np.ceil(2 * 2 * tiles_m / cus)
    assert many["filled_share_m"] == pytest.approx(rows / (128 * tiles_m))
    assert (many["groups"], many["groups_with_rows"], many["largest_m"]) == (144, 140, 300)
    assert many["tiles_of_largest_group"] == 6
    all_m = np.array([300] * 40 + [100] * 100 + [0] * 4)
    assert many["spread_m"] == pytest.approx(all_m.std() / all_m.mean())
    assert many["mean_m"] == pytest.approx(rows / 140)


def test_features_of_several_rows() -> None:
    """Each row has its own groups and its own kernel's tile."""
    kernels = [parse_grouped_kernel(NAME), parse_grouped_kernel(NAME.replace("128x128x64", "64x128x64"))]
    problems = [problem("300x2+10"), problem("65x3")]
    columns = OP.problems.features(problems) | OP.kernels.features(kernels, Encoding(is_gpu=True))
    result = OP.training.engine.quantities(columns, ARCH.hardware.to_dict(), ["num_tiles_m", "largest_m"])
    assert result.tolist() == [[3 + 3 + 1, 300], [2 * 3, 65]]


def test_the_estimate_counts_tiles_of_each_group() -> None:
    """Kernels are ranked as for one product of as many rows as the groups' tiles have, with the groups' bytes."""
    kernels = POOLS.of(ARCH, "fp16", "rcr")[::300]
    item = problem("70x16+200x9", n=4096, k=4096)
    assert OP.problems.tiled is not None
    result = estimated_us(item, OP.problems.tiled(item), kernels, ARCH)
    for kernel, us in zip(kernels, result, strict=True):
        rows = sum(-(-m // kernel.tile_m) * kernel.tile_m for m in item.all_m)
        assert estimated_us(item, TiledSizes(rows, 4096, 4096, 1), [kernel], ARCH)[0] == pytest.approx(us)
    assert (estimated_us(item, TiledSizes(item.m, 4096, 4096, 1), kernels, ARCH) < result).any()


def test_predict(capsys: pytest.CaptureFixture[str]) -> None:
    """Options state a problem; without groups, with bad ones or with options of others it is refused."""
    predict = ["predict", "--op", "gemm_grouped", "--arch", "gfx942", "--dtype", "fp16", "--n", "1024", "--k", "128"]
    assert run([*predict, "--ms", "64x8+512", "--layout", "NN", "--json", "--top", "1"]) == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["problem"] == "gemm_grouped_fp16_rrr_m512+64x8_n1024_k128_splitk1"
    assert answer["kernels"][0]["kernel"].startswith("gemm_grouped_fp16_rrr_")
    assert run(predict) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "missing-option", "--ms")
    assert run([*predict, "--ms", "64x8,512"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "bad-problem", "64x8,512")
    assert run([*predict, "--ms", "64", "--batch", "3"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "--batch")
