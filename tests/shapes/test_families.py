"""Sizes of each family of decoders, against the modules that its public code has.

`families.json` has configurations, and the matrices of the model that the source makes of them: module, outputs,
inputs, number of layers, whether it has a bias; of experts the parameter, number, size of one, and number of layers.
In LongCat's code 256 of the experts compute nothing; they are counted by its router alone. Where Gemma 4's values are
its keys, servers multiply with both: AITER's list of the 31B model has their outputs, N = 20480, and so has the case.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ckh.shapes.config import FAMILIES, ModelKind
from ckh.shapes.configs import config_of, decoder_of
from ckh.shapes.decoders import Ranks, Weight, weights_of

CASES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_bytes())
# Named by their issue, with no public code at hand that makes a model of a configuration: sizes worked by hand.
STEP3 = {
    "model_type": "step3_text",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "num_attention_groups": 1,
    "head_dim": 256,
    "share_q_dim": 2048,
    "moe_layers_enum": ",".join(map(str, range(4, 60))),
    "moe_num_experts": 48,
    "moe_top_k": 3,
    "moe_intermediate_size": 5120,
    "share_expert_dim": 5120,
    "vocab_size": 128815,
}


def weights(config: dict[str, Any]) -> list[Weight]:
    """The weights of a configuration on one rank."""
    return [weight for weight in weights_of(decoder_of(config_of(config, "test"))) if not weight.unlisted]


@pytest.mark.parametrize("name", CASES)
def test_matrices_are_those_of_the_public_code(name: str) -> None:
    """Outputs for each number of inputs, with or without a bias, however they are fused; and the experts."""
    case = CASES[name]
    wanted, found = Counter[Any](), Counter[Any]()
    for _, n, k, count, has_bias in case["modules"]:
        wanted[k, has_bias] += n * count
    own = weights(case["config"])
    for weight in own:
        n = sum(weight.outputs.values())
        if weight.rule.name == "lm_head":  # padded here
            n = case["config"].get("vocab_size", n) * any(row[0] == "lm_head" for row in case["modules"])
        if weight.mixture is None:
            found[weight.k, weight.has_bias] += n * max(weight.batch, 1) * len(weight.layers) * weight.rule.times
    assert +found == wanted
    experts = [weight for weight in own if weight.mixture is not None]
    sizes = {
        (weight.mixture.experts, part * weight.mixture.inter_dim * weight.mixture.model_dim, len(weight.layers))
        for weight in experts
        if weight.mixture is not None
        for part in (1 + any("gate" in output for output in weight.outputs), 1)
    }
    assert sizes == {tuple(row[1:]) for row in case["experts"]}


def test_every_family_is_tested() -> None:
    """Each family of decoders has a case, or one of another file."""
    tested = {config_of(case["config"], "test").family.name for case in CASES.values()}
    others = {"Step-3", "Step-3.5"}
    assert {family.name for family in FAMILIES if family.kind is ModelKind.DECODER} <= tested | others


def test_step_3() -> None:
    """Queries of 64 heads from a space of 2048, one head of keys and values (vLLM's step3_text.py), by hand."""
    found = {
        weight.rule.name: (sum(weight.outputs.values()), weight.k, len(weight.layers)) for weight in weights(STEP3)
    }
    assert found["qkv_a"] == (2048 + 2 * 256, 7168, 61)
    assert found["q_b"] == (64 * 256, 2048, 61)
    assert found["o"] == (7168, 64 * 256, 61)
    assert found["gate_up"] == (2 * 18432, 7168, 5)
    assert found["router"] == (48, 7168, 56)
    assert found["shared_down"] == (7168, 5120, 56)
    (experts,) = (weight.mixture for weight in weights(STEP3) if weight.mixture is not None)
    assert (experts.experts, experts.topk, experts.inter_dim) == (48, 3, 5120)


def test_step_3_5() -> None:
    """96 heads in windows and 64 in the other layers, each with a gate of a head (vLLM's step3p5.py), by hand."""
    more = {
        "model_type": "step3p5",
        "num_hidden_layers": 4,
        "num_attention_groups": 8,
        "head_dim": 128,
        "layer_types": ["full_attention", *["sliding_attention"] * 3],
        "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8},
        "moe_layers_enum": "3",
    }
    found = {
        (weight.rule.name, sum(weight.outputs.values()), weight.k, len(weight.layers))
        for weight in weights({**STEP3, **more})
    }
    assert {row for row in found if row[0] in ("qkv", "o", "head_gate")} == {
        ("qkv", (64 + 16) * 128, 7168, 1),
        ("qkv", (96 + 16) * 128, 7168, 3),
        ("o", 7168, 64 * 128, 1),
        ("o", 7168, 96 * 128, 3),
        ("head_gate", 64, 7168, 1),
        ("head_gate", 96, 7168, 3),
    }
    assert ("shared_down", 7168, 5120, 1) in found


@pytest.mark.parametrize(
    ("tp", "ep", "experts", "columns"), [(8, 1, 256, 256), (8, 8, 32, 2048), (8, 2, 128, 512), (1, 16, 16, 2048)]
)
def test_experts_on_ranks(tp: int, ep: int, experts: int, columns: int) -> None:
    """DeepSeek-V3's 256 experts of 2048 columns: whole on ranks of expert parallelism, divided on the others."""
    model = decoder_of(config_of(CASES["deepseek_v3"]["config"], "test"))
    own = type(model)(model.config, model.layers, Ranks(tp, ep))
    (mixture,) = (weight.mixture for weight in weights_of(own) if weight.mixture is not None)
    assert (mixture.experts, mixture.inter_dim, mixture.topk) == (experts, columns, 8)
    (fused,) = (weight.mixture for weight in weights_of(own, fuse_shared=True) if weight.mixture is not None)
    assert (fused.experts, fused.topk) == (experts + 1, 9)
