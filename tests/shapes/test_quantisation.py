"""Element types and scaling of a model's modules, by its quantization_config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import DataError, UsageError
from ckh.ops import operation
from ckh.shapes.layers import ATTENTION, RECURRENCE, RunOptions
from ckh.shapes.problems import counts_of, shapes_of
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from ckh.shapes.problems import ShapesFound

CONFIGS = json.loads(Path(__file__).with_name("configs.json").read_bytes())
LLAMA, DEEPSEEK, NEXT = (CONFIGS[name] for name in ("llama", "deepseek", "next"))
FLOAT = {"num_bits": 8, "type": "float"}
FP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
NVFP4 = {**FP4, "group_size": 16}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
FP8_TOKEN = {
    "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"},
    "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_token", "is_dynamic": True},
}
MXFP4 = {name: {"dtype": "fp4", "qscheme": "per_group", "group_size": 32} for name in ("weight", "input_tensors")}
ROW, BLOCK = "a8w8 fp8", "a8w8_blockscale fp8"


def found(tmp_path: Path, model: dict[str, Any], quantisation: Any, **wanted: Any) -> ShapesFound:
    """The problems of a model with a quantization_config, for one token."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**model, "quantization_config": quantisation}), encoding="utf-8")
    return shapes_of([str(path)], RunOptions(tokens=(1,), **wanted))


def kinds(shapes: ShapesFound) -> dict[str, dict[str, int]]:
    """Layer -> family or quantisation, and element type -> count."""
    result: dict[str, dict[str, int]] = {}
    for item in shapes.problems:
        kind = getattr(item.problem, "family", None) or getattr(item.problem, "quant", "")
        for name in item.layers:
            result.setdefault(name, {})[f"{kind} {item.problem.dtype}".strip()] = item.count
    return result


def left_out(shapes: ShapesFound) -> dict[str, int]:
    """What is left out, but for products without a weight, which every model has."""
    return {reason: count for reason, count in shapes.left_out.items() if reason not in (ATTENTION, RECURRENCE)}


def groups(weights: dict[str, Any], inputs: dict[str, Any] | None, *targets: str) -> dict[str, Any]:
    """A group of compressed-tensors."""
    return {"targets": list(targets or ("Linear",)), "weights": weights, "input_activations": inputs}


def compressed(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration of compressed-tensors."""
    by_name = {f"group_{number}": part for number, part in enumerate(parts)}
    return {"quant_method": "compressed-tensors", "config_groups": by_name, **more}


# Name -> a model of `configs.json`, its quantization_config, and what is right, by hand: of each layer the family and
# element type with the number of layers (of all that share its problem), and the number of products that are left out;
# or the code of an error.
CASES = {case["name"]: case for case in json.loads(Path(__file__).with_name("quantisations.json").read_bytes())}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "kinds" in case])
def test_schemes(tmp_path: Path, name: str) -> None:
    """Each module has the type and scales that its method states; one without kernels here is named and counted."""
    case = CASES[name]
    shapes = found(tmp_path, CONFIGS[case["model"]], case["quantisation"])
    assert kinds(shapes) == case["kinds"]
    assert sum(left_out(shapes).values()) == case["left"]
    for reason in left_out(shapes):
        expect_values(reason, *case["why"])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "code" in case])
def test_what_is_not_understood_is_refused(tmp_path: Path, name: str) -> None:
    """Unknown methods, malformed fields, contradictions and impossible sizes are errors that name them."""
    case = CASES[name]
    with expect_refusal(DataError, case["code"], "config.json", *case["why"]):
        found(tmp_path, CONFIGS[case["model"]], case["quantisation"])


@pytest.mark.parametrize(
    "patterns",
    [
        [f"model.layers.{layer}.mlp.{name}_proj" for layer in (0, 3) for name in ("gate", "up", "down")],
        [f"model.layers.{layer}.mlp.{name}_proj" for layer in (0, 3) for name in ("gate_up", "down")],
        ["model.layers.0.mlp", "layers.3.mlp"],
        ["re:.*layers\\.[03]\\.mlp.*"],
        ["model.layers.[03].mlp.*"],
        ["*layers.0.mlp", "language_model.model.layers.3.mlp"],
        ["model\\.layers\\.(0|3)\\.mlp"],
    ],
)
@pytest.mark.parametrize("key", ["ignore", "ignored_layers", "modules_to_not_convert", "exclude", "exclude_modules"])
def test_exclusions(tmp_path: Path, key: str, patterns: list[str]) -> None:
    """Modules that a list excludes, by name, part, wildcard or expression, have the model's type in their layers."""
    result = kinds(found(tmp_path, LLAMA, {"quant_method": "fbgemm_fp8", key: [*patterns, "lm_head"]}))
    assert result["gate_up"] == result["down"] == {"bf16": 2, ROW: 2}
    assert result["qkv"] == result["o"] == {ROW: 4}


def test_similar_names_are_not_excluded(tmp_path: Path) -> None:
    """Neither mlp.gate nor layer 1 excludes mlp.gate_proj or layer 10."""
    model = {**LLAMA, "num_hidden_layers": 12}
    result = kinds(found(tmp_path, model, {**BLOCKS, "ignore": ["mlp.gate", "*mlp.gate", "model.layers.1"]}))
    assert result["gate_up"] == {BLOCK: 11, "bf16": 1}


def test_modules_of_quark(tmp_path: Path) -> None:
    """Layers with a scheme of their own have it; the exclusion of attention covers its low-rank projections."""
    own = {"quant_method": "quark", "global_quant_config": FP8_TOKEN, "layer_quant_config": {"*.mlp.*": MXFP4}}
    result = kinds(found(tmp_path, LLAMA, own))
    assert result["gate_up"] == result["down"] == {"a4w4_blockscale pk_fp4": 4}
    assert result["qkv"] == result["o"] == {ROW: 4}
    excluded = {"quant_method": "quark", "global_quant_config": MXFP4, "exclude": ["re:.*self_attn.*", "*mlp.gate"]}
    result = kinds(found(tmp_path, DEEPSEEK, excluded))
    assert all(result[name] == {"bf16": 4} for name in ("qkv_a", "q_b", "kv_b", "o"))
    assert result["gate_up"] == {"a4w4_blockscale pk_fp4": 1}
    assert result["shared_down"] == {"a4w4_blockscale pk_fp4": 3}
    assert result["experts"] == {"per_1x32 pk_fp4": 3}


def test_targets_of_compressed_tensors(tmp_path: Path) -> None:
    """Groups by name come before those by class; modules without a group are not quantised; experts are modules."""
    both = compressed(groups(FLOAT, FLOAT), groups(FP4, FP4, "re:.*mlp\\..*"))
    result = kinds(found(tmp_path, LLAMA, both))
    assert (result["qkv"], result["down"]) == ({ROW: 4}, {"a4w4_blockscale pk_fp4": 4})
    only = compressed(groups(FP4, FP4, "re:.*mlp.experts.*"))
    result = kinds(found(tmp_path, DEEPSEEK, only))
    assert (result["o"], result["shared_down"], result["experts"]) == (
        {"bf16": 4},
        {"bf16": 3},
        {"per_1x32 pk_fp4": 3},
    )
    int4 = compressed(groups({"num_bits": 4, "type": "int", "group_size": 32}, None), ignore=["re:.*self_attn.*"])
    shapes = found(tmp_path, DEEPSEEK, int4)
    assert "experts" not in kinds(shapes)
    assert sum(left_out(shapes).values()) == 2 + 3 * 2 + 3


def test_fused_modules_of_different_schemes(tmp_path: Path) -> None:
    """Modules that are fused here and have different types are counted as left out, with their types."""
    shapes = found(tmp_path, LLAMA, {"quant_method": "fbgemm_fp8", "ignore": ["model.layers.2.self_attn.k_proj"]})
    assert kinds(shapes)["qkv"] == {ROW: 3}
    ((reason, count),) = left_out(shapes).items()
    assert count == 1
    expect_values(reason, "q_proj fp8", "k_proj bf16")


def test_layers_of_qwen3_next(tmp_path: Path) -> None:
    """linear_ba is excluded in the layers that have it; the gate of the shared expert is a product of one column."""
    names = [f"model.layers.{layer}.linear_attn.in_proj_ba" for layer in range(3)]
    shapes = found(tmp_path, NEXT, {**BLOCKS, "modules_to_not_convert": names})
    result = kinds(shapes)
    assert (result["qkv"], result["linear_qkvz"], result["experts"]) == ({BLOCK: 1}, {BLOCK: 3}, {"per_1x128 fp8": 4})
    (linear_ba,) = (item for item in shapes.problems if "linear_ba" in item.layers)
    assert (linear_ba.problem.n, linear_ba.problem.dtype, linear_ba.count) == (32, "bf16", 3 + 4)  # with the router
    (gate,) = (item for item in shapes.problems if "shared_gate" in item.layers)
    assert (gate.problem.n, gate.problem.k, gate.problem.dtype, gate.count) == (1, 1024, "bf16", 4)
    with expect_refusal(UsageError, "indivisible", "linear_ba", 16, 128):
        found(tmp_path, NEXT, BLOCKS)


def test_blocks_that_ranks_cannot_share(tmp_path: Path) -> None:
    """Sizes of a rank that are not whole blocks of scales are refused, with the ranks that fit."""
    sizes = {"num_attention_heads": 32, "head_dim": 128, "moe_intermediate_size": 1536}
    model = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 8, **sizes}
    with expect_refusal(UsageError, "indivisible", "experts", 192, 8, 128, "--tp 4", "--ep 8"):
        found(tmp_path, model, BLOCKS, tp=8)
    (experts,) = (
        item.problem for item in found(tmp_path, model, BLOCKS, tp=8, ep=8).problems if item.op == "aiter_moe"
    )
    assert (experts.experts, experts.inter_dim) == (8, 1536)
    with expect_refusal(UsageError, "indivisible", "--ep 3", "--tp 8"):
        found(tmp_path, model, BLOCKS, tp=8, ep=3)
    assert kinds(found(tmp_path, model, BLOCKS, tp=4))["experts"] == {"per_1x128 fp8": 4}
    excluded = {**BLOCKS, "ignore": ["re:.*experts.*"]}
    assert kinds(found(tmp_path, model, excluded, tp=8))["experts"] == {"none bf16": 4}


def test_gpt_oss(tmp_path: Path) -> None:
    """Its attention is excluded; its experts, of MXFP4 weights alone, have the sizes of AITER's list for it.

    gptoss_untuned_fmoe.csv: 3072 x 3072, 1536 and 512 on 1, 2 and 8 ranks, bf16 tokens below 256, else fp8.
    """
    model = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 201088,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
    }
    excluded = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    shapes = found(tmp_path, model, {"quant_method": "mxfp4", "modules_to_not_convert": excluded})
    *dense, _ = shapes.problems
    assert [(item.problem.n, item.problem.k, item.problem.dtype, item.count) for item in dense] == [
        (5120, 2880, "bf16", 36),
        (2880, 4096, "bf16", 36),
        (128, 2880, "bf16", 36),
        (201088, 2880, "bf16", 1),
    ]
    assert left_out(shapes) == {}
    for tp, inter_dim in ((1, 3072), (2, 1536), (8, 512)):
        for tokens, dtype in ((255, "bf16"), (256, "fp8")):
            path = tmp_path / "config.json"
            mixtures = shapes_of([str(path)], RunOptions(tokens=(tokens,), tp=tp), "aiter_moe")
            ((problem, count),) = ((item.problem, item.count) for item in mixtures.problems)
            assert (problem.model_dim, problem.inter_dim, problem.experts, problem.topk) == (3072, inter_dim, 128, 4)
            assert (problem.dtype, problem.quant, problem.activation, count) == (dtype, "per_1x32", "swiglu", 36)
    experts = found(tmp_path, model, None).problems[-1].problem
    assert (experts.inter_dim, experts.experts, experts.topk, experts.activation) == (2880, 128, 4, "swiglu")


def test_a_requested_type(tmp_path: Path) -> None:
    """A type of 8 bits replaces those of quantised modules, and keeps their own scaling; one of 16 replaces all."""
    part = {**BLOCKS, "modules_to_not_convert": ["model.layers.0.mlp"]}
    own, fp8 = (kinds(found(tmp_path, LLAMA, part, dtype=dtype)) for dtype in (None, "fp8"))
    assert own == fp8
    assert own["down"] == {BLOCK: 3, "bf16": 1}
    assert kinds(found(tmp_path, LLAMA, part, dtype="pk_fp4"))["down"] == {"a4w4_blockscale pk_fp4": 3, "bf16": 1}
    assert kinds(found(tmp_path, LLAMA, part, dtype="fp16"))["down"] == {"fp16": 4}
    for other in ({"quant_method": "bitsandbytes"}, {"quant_method": "awq"}):
        assert kinds(found(tmp_path, LLAMA, other, dtype="fp8"))["down"] == {ROW: 4}


def test_other_kinds_of_models(tmp_path: Path) -> None:
    """Encoders take one scheme for all modules; exclusions of theirs are refused."""
    model = {
        "model_type": "vit",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 16,
    }
    for whole in ({"quant_method": "fbgemm_fp8"}, compressed(groups(FLOAT, FLOAT))):
        assert kinds(found(tmp_path, model, whole))["fc1"] == {ROW: 12}
    with expect_refusal(DataError, "unsupported", "ViT", "--dtype"):
        found(tmp_path, model, {"quant_method": "fbgemm_fp8", "ignore": ["fc1"]})


def test_two_quantisations(tmp_path: Path) -> None:
    """Those of both names must be the same."""
    path = tmp_path / "config.json"
    both = {**LLAMA, "quantization_config": BLOCKS, "compression_config": {"quant_method": "fbgemm_fp8"}}
    path.write_text(json.dumps(both), encoding="utf-8")
    with expect_refusal(DataError, "bad-field", path, "compression_config"):
        shapes_of([str(path)])


def test_patterns_that_match_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line counts them, and those of excluded layers, but not those of modules without products."""
    matching = ["lm_head", "re:.*self_attn.*", "model.embed_tokens", "model.visual.blocks.0"]
    found(tmp_path, LLAMA, {**BLOCKS, "ignore": matching})
    assert "patterns" not in capsys.readouterr().err
    groups_of = groups(FP4, FP4, "re:.*self_attn.*"), groups(FLOAT, FLOAT)
    found(tmp_path, LLAMA, compressed(*groups_of, ignore=[*matching, "model.layers.9", "self_atn"]))
    expect_values(capsys.readouterr().err, "3 patterns", "model.layers.9", "self_atn", "re:.*self_attn.*")


def test_the_older_name_of_the_field(tmp_path: Path) -> None:
    """compression_config is read as well."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "compression_config": compressed(groups(FLOAT, FLOAT))}), encoding="utf-8")
    assert kinds(shapes_of([str(path)], RunOptions(tokens=(1,))))["qkv"] == {ROW: 4}


def test_counts_of_a_model_of_several_types(tmp_path: Path) -> None:
    """The counts of problems are those of their modules, not of all modules in their type."""
    part = {**BLOCKS, "modules_to_not_convert": ["model.layers.0.mlp"]}
    found(tmp_path, LLAMA, part)
    path = str(tmp_path / "config.json")
    for name, count in (("gemm_universal", 1), ("aiter_gemm", 3)):
        shapes = shapes_of([path], RunOptions(), name)
        down = [item.problem for item in shapes.problems if item.layers == ("down",)]
        counts = counts_of(operation(name), path, down)
        assert counts is not None
        assert {counts[problem] for problem in down if problem.dtype != "fp8" or name == "aiter_gemm"} == {count}


QWEN_30B = "qwen3-30b-a3b"  # 48 layers, 128 experts of 2048 x 768, 8 per token; 32 heads and 4 of keys, of 128


def test_what_an_operation_leaves_out_has_its_share_and_its_operation() -> None:
    """Experts, router and vocabulary of a quantised mixture, by hand: multiplications of a token."""
    shapes = shapes_of([QWEN_30B], RunOptions(tokens=(1,), dtype="fp8"), "aiter_gemm")
    qkv, o, router, head = (32 + 2 * 4) * 128 * 2048, 32 * 128 * 2048, 128 * 2048, 151936 * 2048
    experts = 8 * 3 * 2048 * 768
    whole = 48 * (qkv + o + router + experts) + head
    bf16, moe = shapes.left_words
    expect_values(bf16, 48 + 1, "router", "lm_head", f"{(48 * router + head) / whole:.1%}", "bf16", "gemm_universal")
    expect_values(moe, 48, "experts", f"{48 * experts / whole:.1%}", "--op aiter_moe")
    assert left_out(shapes) == {"aiter_moe": 48, bf16.split(": ")[2].partition(";")[0]: 49}


def test_a_model_that_is_not_quantised_is_refused_with_what_takes_its_experts() -> None:
    """The message has the type and the option; the hint the share of the experts, and their operation."""
    with expect_refusal(DataError, "unquantised", QWEN_30B, "bf16", "--dtype fp8", "experts", "--op aiter_moe"):
        shapes_of([QWEN_30B], RunOptions(tokens=(1,)), "aiter_gemm")
    assert {shape.problem.dtype for shape in shapes_of([QWEN_30B], op="aiter_moe").problems} == {"bf16"}


def test_weights_of_four_bits_are_not_offered_as_bf16(tmp_path: Path) -> None:
    """A model whose layers have another quantisation is not called a bf16 model for its vocabulary's type."""
    with expect_refusal(DataError, "no-problems", "awq", "lm_head", "bf16", "--dtype fp8 lists"):
        found(tmp_path, LLAMA, {"quant_method": "awq", "bits": 4})
        shapes_of([str(tmp_path / "config.json")], RunOptions(tokens=(1,)), "aiter_gemm")


def test_changes_of_an_operation_are_told(tmp_path: Path) -> None:
    """Scales that an operation lacks, and types and layouts that it assumes, with the number of calls."""
    found(tmp_path, LLAMA, BLOCKS)
    config = str(tmp_path / "config.json")
    change, attention = shapes_of([config], RunOptions(tokens=(1,)), "gemm_universal").changes
    assert ATTENTION in attention
    expect_values(change, "fp8", "block128", "without scales", "gemm_universal", 4 * 4)
    assert len(shapes_of([config], RunOptions(tokens=(1,))).changes) == 1
    (change,) = shapes_of(["resnet50"]).changes
    expect_values(change, "no element type", "fp16", 53)
    log = tmp_path / "bench.log"
    log.write_text("hipblaslt-bench -m 64 -n 32 -k 16 --transA N --a_type f8_r --b_type f8_r --scaleA 1\n")
    with expect_refusal(DataError, "no-problems", "rrr", "rcr"):
        shapes_of([str(log)])


@pytest.mark.parametrize(
    ("quantisation", "dtype", "words"),
    [
        (None, "fp8", ("fp8", "bf16")),
        (None, "fp32", ("fp32", "bf16")),
        (BLOCKS, "bf16", ("bf16", "quantisation")),
        (None, "bf16", ()),
        (BLOCKS, None, ()),
    ],
)
def test_a_type_instead_of_the_models_is_said(
    quantisation: Any, dtype: str | None, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with the type and the model's; nothing where they are the same."""
    found(tmp_path, LLAMA, quantisation, dtype=dtype)
    said = capsys.readouterr().err
    assert bool(said) == bool(words)
    expect_values(said, *words)
