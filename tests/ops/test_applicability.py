"""Kernels of AITER that a size refuses: none was measured, and none is exported."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.kernels.judging import judge_table
from ckh.kernels.table import KernelTable
from ckh.ops.aiter.applicability import WholeTiles, whole_tiles
from ckh.ops.aiter_gemm.kernel import AiterKernel, candidates, kernel_pool
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.kernel import moe_pool
from ckh.ops.aiter_moe.problem import QUANTS, AiterMoe

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
TILE = re.compile(r"_(?:[0-9]+)x(?P<m>[0-9]+)x(?P<n>[0-9]+)x(?P<k>[0-9]+)_")
FP4 = "torch.float4_e2m1fn_x2"


def leftovers(name: str, row: Mapping[Any, Any], *, is_packed: bool) -> dict[str, int]:
    """Return what a product of a kernel of CK leaves over, by its name: of the sizes that must be whole tiles."""
    tile = TILE.search(name)
    assert tile is not None, name
    first = "gemm1" in name
    k, n = ("model_dim", "inter_dim") if first else ("inter_dim", "model_dim")
    step = int(tile["k"]) * (2 if is_packed and "moe_ck2stages" in name else 1)
    left = {k: int(row[k]) % step}
    return left | ({n: int(row[n]) % int(tile["n"])} if "moe_ck2stages" in name else {})


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "least"), [("gfx942", 1100), ("gfx950", 3400)])
def test_no_measured_mixture_breaks_the_table(arch: str, least: int) -> None:
    """The tiles in the names of all kernels that AMD measured divide the sizes; pairs of FP4 count twice."""
    frame = read_dataset(ROOT / "data" / f"aiter-moe-{arch}.parquet").valid().frame
    for row in frame.to_dict("records"):
        for name in row["kernel"].split("+"):
            assert not any(leftovers(name, row, is_packed=row["dtype"] == "pk_fp4").values()), row["kernel"]
    assert len(frame) >= least


def test_no_measured_product_of_fp4_breaks_the_table() -> None:
    """K of each winner is a multiple of the 256 values of a tile, in each part of its split."""
    frame = read_dataset(ROOT / "data" / "aiter-gemm-gfx950.parquet").valid().frame
    frame = frame[(frame["dtype"] == "pk_fp4") & (frame["library"] == "ck")]
    assert len(frame) >= 90
    for row in frame.to_dict("records"):
        tile = TILE.search(row["kernel"])
        assert tile is not None
        assert row["k"] % (2 * int(tile["k"]) * 2 ** int(row["split_k"])) == 0


FAMILY_OF = {"ck": "a4w4_blockscale", "asm": "a8w8_blockscale_bpreshuffle", "flydsl": "a8w8_bpreshuffle"}


@pytest.mark.parametrize("whole", whole_tiles(), ids=lambda row: f"{row.op}-{row.library}-{row.dtypes[0]}-{row.tile}")
def test_each_row_of_the_table_refuses_a_kernel(whole: WholeTiles) -> None:
    """Of the kernels of its library, those whose tile does not divide an odd multiple of 32; of others none."""
    arch, size = load_arch("gfx950"), 32 * 97
    pools: list[tuple[Any, tuple[Any, ...]]] = []
    for dtype in whole.dtypes:
        if whole.op == "aiter_gemm":
            problem: Any = AiterGemm(16, 512, 512, FAMILY_OF[whole.library], dtype)
            problem = replace(problem, **{whole.size: size})
            pools.append((problem, kernel_pool(problem.family, "any", "gfx950")))
            continue
        for quant in (quant for quant, own in QUANTS.items() if own == dtype):
            kind = ("stage" + whole.tile[-1], dtype, quant)
            sizes = {"model_dim": 3072, "inter_dim": 3072, whole.size: size}
            for activation in ("silu", "swiglu"):
                problem = AiterMoe(16, sizes["model_dim"], sizes["inter_dim"], 8, 2, *kind, activation)
                pools.append((problem, moe_pool("gfx950", *kind, activation)))
    judged = 0
    for problem, pool in pools:
        if not pool:
            continue
        table = KernelTable.of(type(pool[0]), pool)
        refused = judge_table((whole.rule,), table, arch, problem).number >= 0
        for kernel, is_refused in zip(pool, refused.tolist(), strict=True):
            is_own = ("cktile" in kernel.name) == (whole.library == "cktile")
            if isinstance(kernel, AiterKernel):
                is_own = whole.parts == "split_k" or kernel.library == whole.library
            step = getattr(kernel, whole.tile) * whole.values << (kernel.split_k if whole.parts == "split_k" else 0)
            assert is_refused == (is_own and size % step > 0), kernel.name
            judged += is_refused
    assert judged


def test_a_k_that_nobody_measured_is_unproved() -> None:
    """Dense products of FP4 whose K is no multiple of 256 have no kernel, and the reason says that it is unproved."""
    result = candidates(AiterGemm(16, 512, 384, "a4w4_blockscale", "pk_fp4"), load_arch("gfx950"))
    assert not len(result.kernels)
    assert all("K = 384" in reason for reason in result.refused)
    assert sum("unproved" in reason for reason in result.refused) == len(result.refused)
    assert [re.findall(r"(\d+) is;", reason) for reason in result.refused] == [["512"], ["512"]], "the padding"
    split = candidates(AiterGemm(16, 512, 768, "a4w4_blockscale", "pk_fp4"), load_arch("gfx950"))
    assert {kernel.split_k for kernel in split.kernels} == {0}


@pytest.mark.slow
def test_no_exported_row_breaks_the_table(tmp_path: Path) -> None:
    """Of mixtures of all kinds and odd sizes, those whose tiles divide them are exported, the others are not."""
    table, out = tmp_path / "untuned_fmoe.csv", tmp_path / "out"
    head = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
    kinds = [f"{FP4},{FP4},QuantType.per_1x32", "torch.bfloat16,torch.bfloat16,QuantType.No"]
    kinds += [f"torch.float8_e4m3fn,torch.float8_e4m3fn,QuantType.{quant}" for quant in ("per_Token", "per_1x128")]
    rows = [
        f"64,{model_dim},{inter_dim},32,4,ActivationType.Silu,torch.bfloat16,{kind},1,0"
        for kind in kinds
        for model_dim in (2880, 3072, 4160)
        for inter_dim in (128, 192, 224, 256, 320, 384, 640, 704, 768, 1408)
    ]
    table.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    call = ["export", "--to", "aiter", "--op", "aiter_moe", "--problems", str(table), "--arch", "gfx950"]
    assert run([*call, "--out", str(out)]) == ExitCode.NO_KERNEL, "of some mixtures"
    with (out / "predicted" / "tuned_fmoe.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    for row in written:
        for name in (row["kernelName1"], row["kernelName2"]):
            assert not any(leftovers(name, row, is_packed=row["q_dtype_w"] == FP4).values()), row
    sizes = {(row["q_type"], row["model_dim"], row["inter_dim"]) for row in written}
    assert ("QuantType.per_1x32", "3072", "256") in sizes
    assert not {("QuantType.per_1x32", "3072", inter_dim) for inter_dim in ("128", "384", "640", "1408")} & sizes
    assert 20 <= len(written) < len(rows)
