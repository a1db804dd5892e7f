"""How many shapes of AITER's untuned lists are derived from models' configurations."""

from __future__ import annotations

import pytest

from benchmarks.shapes_recall import recalls


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
