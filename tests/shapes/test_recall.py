"""AITER's untuned lists: shapes that models' configurations give, and the share of a checkout that is understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.aiter_files import read_tables
from benchmarks.shapes_recall import recalls

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_exact_recall_of_public_lists() -> None:
    """17 of 25 lists are found completely; the missing shapes of the others are known."""
    every = {recall.name: recall for recall in recalls()}
    assert (len(every), sum(not item.missing for item in every.values())) == (25, 17)
    assert sum(len(item.found) for item in every.values()) == 145
    missing = {name: item.missing for name, item in every.items() if item.missing}
    assert missing["llama70B_untuned_gemm_bf16.csv"] == [(192, 1024)]
    assert missing["dsv32_a8w8_blockscale_bpreshuffle_untuned_gemm.csv"] == [(128, 7168)]
    assert missing["bf16_untuned_gemm_qwen3next.csv"] == [(513, 2048)]
    assert missing["a8w8_gemm_model_config/Mixtral-8x7B-Instruct-v0.1-TP4.csv"] == [(4096, 14336), (14336, 4096)]


def test_share_understood_of_a_checkout(tmp_path: Path) -> None:
    """Rows of untuned and tuned tables are used, left out or not understood; other files are refused."""
    folder = tmp_path / "aiter" / "configs" / "model_configs"
    folder.mkdir(parents=True)
    (folder / "a8w8_untuned_gemm_x.csv").write_text("M,N,K\n16,1280,8192\ninf,1,2\n", encoding="utf-8")
    (folder / "odd_untuned_attention.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    head = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    row = "gfx942,304,16,1280,8192,torch.float8_e4m3fnuz,asm,0,0,9.5,of_asm,1,1,0\n"
    (folder.parent / "a8w8_bpreshuffle_tuned_gemm.csv").write_text(head + row, encoding="utf-8")
    tables = {table.name.rpartition("/")[2]: table for table in read_tables(tmp_path)}
    account = tables["a8w8_untuned_gemm_x.csv"].account
    assert (account.used, account.bad.total()) == (1, 1)
    assert tables["odd_untuned_attention.csv"].refused
    assert list(tables["a8w8_bpreshuffle_tuned_gemm.csv"].lines)
