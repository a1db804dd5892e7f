"""Shapes derived from models' configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ckh.shapes
from ckh.errors import DataError, UsageError
from ckh.shapes.config import FAMILIES, MODELS
from ckh.shapes.layers import ATTENTION, RECURRENCE, RunOptions
from ckh.shapes.problems import shapes_of
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from ckh.shapes.layers import WeightedProblem

# What meta-llama/Meta-Llama-3-70B and deepseek-ai/DeepSeek-V3 publish.
CONFIGS = json.loads(Path(__file__).with_name("configs.json").read_bytes())
LLAMA_70B, KIMI_K2 = CONFIGS["llama-70b"], CONFIGS["kimi-k2"]


def read(tmp_path: Path, config: dict[str, Any], **wanted: Any) -> list[WeightedProblem]:
    """The problems of a configuration."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return ckh.shapes.read(str(path), **wanted)


def sizes(problems: list[WeightedProblem]) -> dict[str, tuple[int, ...]]:
    """Layer -> M, N, K and count of GEMMs."""
    return {
        problem.layers[0]: (problem.problem.m, problem.problem.n, problem.problem.k, problem.count)
        for problem in problems
        if hasattr(problem.problem, "m")
    }


def test_llama_on_eight_ranks(tmp_path: Path) -> None:
    """Heads, gates and the vocabulary are divided, output projections along K, as in vLLM."""
    result = read(tmp_path, LLAMA_70B, tp=8, tokens=(16,))
    assert sizes(result) == {
        "qkv": (16, 1280, 8192, 80),
        "o": (16, 8192, 1024, 80),
        "gate_up": (16, 7168, 8192, 80),
        "down": (16, 8192, 3584, 80),
        "lm_head": (16, 16032, 8192, 1),
    }
    assert {(shape.op, shape.problem.dtype, shape.problem.layout) for shape in result} == {
        ("gemm_universal", "bf16", "rcr")
    }


def test_last_layer_has_a_row_for_each_sequence(tmp_path: Path) -> None:
    """The vocabulary's GEMM has at most 256 rows, and is counted for each number of tokens."""
    result = sizes(read(tmp_path, LLAMA_70B, tokens=(1, 1024, 4096)))
    assert result["lm_head"] == (256, 128256, 8192, 2)


def test_vocabulary_is_padded(tmp_path: Path) -> None:
    """Whisper-like sizes are padded to multiples of 64, as in vLLM, before they are divided."""
    result = sizes(read(tmp_path, {**LLAMA_70B, "vocab_size": 32001}, tp=2, tokens=(1,)))
    assert result["lm_head"][1] == 32064 // 2


def test_latent_attention_and_experts(tmp_path: Path) -> None:
    """Quantised layers are AITER's, router and vocabulary stay in bf16; low-rank layers are whole on each rank."""
    result = read(tmp_path, KIMI_K2, tp=8, tokens=(64,))
    assert sizes(result) == {
        "qkv_a": (64, 1536 + 512 + 64, 7168, 61),
        "q_b": (64, 8 * 192, 1536, 61),
        "kv_b": (64, 8 * 256, 512, 61),
        "o": (64, 7168, 8 * 128, 61),
        "gate_up": (64, 2 * 18432 // 8, 7168, 1),
        "down": (64, 7168, 18432 // 8, 1),
        "router": (64, 384, 7168, 60),
        "shared_gate_up": (64, 2 * 256, 7168, 60),
        "shared_down": (64, 7168, 256, 60),
        "lm_head": (64, 20480, 7168, 1),
    }
    experts = next(shape for shape in result if shape.op == "aiter_moe")
    assert experts.problem.to_dict() | {"num_cus": 0} == {
        "tokens": 64,
        "model_dim": 7168,
        "inter_dim": 256,
        "experts": 384,
        "topk": 8,
        "stage": "both",
        "dtype": "fp8",
        "quant": "per_1x128",
        "activation": "silu",
        "num_cus": 0,
    }
    assert experts.count == 60
    kinds = {shape.layers[0]: (shape.op, getattr(shape.problem, "family", "")) for shape in result}
    assert kinds["o"] == ("aiter_gemm", "a8w8_blockscale")
    assert kinds["router"] == kinds["lm_head"] == ("gemm_universal", "")


def test_shared_experts_as_routed_ones(tmp_path: Path) -> None:
    """Fused shared experts add one expert per token and remove their GEMMs."""
    result = read(tmp_path, KIMI_K2, tp=8, tokens=(64,), fuse_shared=True)
    assert not any("shared" in name for shape in result for name in shape.layers)
    assert {(shape.problem.experts, shape.problem.topk) for shape in result if shape.op == "aiter_moe"} == {(385, 9)}


def test_a_dtype_quantises(tmp_path: Path) -> None:
    """fp8 replaces quantised layers, fp16 all layers."""
    fp8 = read(tmp_path, LLAMA_70B, tokens=(1,), dtype="fp8")
    assert {shape.layers[0]: shape.problem.dtype for shape in fp8}["lm_head"] == "bf16"
    assert {(shape.op, shape.problem.family) for shape in fp8 if shape.op == "aiter_gemm"} == {("aiter_gemm", "a8w8")}
    fp16 = read(tmp_path, LLAMA_70B, tokens=(1,), dtype="fp16")
    assert {(shape.op, shape.problem.dtype) for shape in fp16} == {("gemm_universal", "fp16")}


def test_an_operation_does_not_quantise_models(tmp_path: Path) -> None:
    """A bf16 model has none of AITER's quantised GEMMs, unless its type is given; then all but the vocabulary's."""
    with expect_refusal(DataError, "unquantised", "bf16", "--dtype fp8"):
        read(tmp_path, LLAMA_70B, tokens=(1,), op="aiter_gemm")
    result = read(tmp_path, LLAMA_70B, tokens=(1,), op="aiter_gemm", dtype="fp8")
    assert {name for shape in result for name in shape.layers} == {"qkv", "o", "gate_up", "down"}


def test_key_value_heads_are_repeated(tmp_path: Path) -> None:
    """Eight heads on sixteen ranks are one per rank."""
    assert sizes(read(tmp_path, LLAMA_70B, tp=16, tokens=(1,)))["qkv"] == (1, (4 + 2) * 128, 8192, 80)


def test_text_of_a_model_with_images(tmp_path: Path) -> None:
    """The text part of a nested configuration counts, with the defaults of transformers."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    result = sizes(read(tmp_path, {"model_type": "gemma3", "text_config": text}, tokens=(1,)))
    assert result["qkv"] == (1, (8 + 2 * 4) * 256, 2560, 34)
    assert result["lm_head"] == (1, 262208, 2560, 1)


def test_vision_transformer() -> None:
    """Patches are a convolution, and each image has 197 rows."""
    result = ckh.shapes.read("vit-b16", batch=(8,))
    patches = next(shape for shape in result if shape.op == "grouped_conv")
    problem = patches.problem
    assert (problem.n, problem.c, problem.k, problem.hi, problem.y, problem.stride_h) == (8, 3, 768, 224, 16, 16)
    assert sizes(result) == {
        "qkv": (8 * 197, 3 * 768, 768, 12),
        "o": (8 * 197, 768, 768, 12),
        "fc1": (8 * 197, 3072, 768, 12),
        "fc2": (8 * 197, 768, 3072, 12),
    }


def test_clip_has_two_towers() -> None:
    """Texts of 77 positions and images of 257 patches have separate products."""
    result = sizes(ckh.shapes.read("clip-vit-l14", batch=(2,)))
    assert result["text_fc1"] == (2 * 77, 3072, 768, 12)
    assert result["vision_fc1"] == (2 * 257, 4096, 1024, 24)
    assert result["vision_projection"] == (2, 768, 1024, 1)


def test_whisper_encodes_and_decodes() -> None:
    """1500 frames are encoded once; decoded tokens attend to them."""
    result = ckh.shapes.read("whisper-large-v3", tokens=(4,))
    convs = [shape.problem for shape in result if shape.op == "grouped_conv"]
    assert [(conv.c, conv.k, conv.hi, conv.wi, conv.x, conv.stride_w) for conv in convs] == [
        (128, 1280, 1, 3000, 3, 1),
        (1280, 1280, 1, 3000, 3, 2),
    ]
    assert sizes(result)["encoder_fc1"] == (1500, 5120, 1280, 32)
    assert sizes(result)["decoder_cross_kv"] == (1500, 2560, 1280, 32)
    assert sizes(result)["decoder_qkv"] == (4, 3 * 1280, 1280, 32)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "internvl_chat", "llm_config": LLAMA_70B, "vision_config": {"hidden_size": 1024}},
        {
            "model_type": "qwen3_omni_moe",
            "talker_config": {**LLAMA_70B, "intermediate_size": 1024},
            "thinker_config": {"text_config": LLAMA_70B},
        },
        {**LLAMA_70B, "vision_config": {"model_type": "vit"}},
        {"model_type": "llama4", "text_config": LLAMA_70B, "vision_config": {"model_type": "clip"}},
    ],
)
def test_the_text_part_is_found(tmp_path: Path, config: dict[str, Any]) -> None:
    """Under any key, nested or beside the encoder's; the encoder is counted as left out."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(1,)))
    assert sizes(shapes.problems)["down"] == (1, 8192, 28672, 80)
    assert [count for reason, count in shapes.left_out.items() if reason != ATTENTION] == [1]


def test_attention_has_its_share_and_its_operation() -> None:
    """64 heads of 128 and 1024 tokens, by hand: QK^T and PV are batches of heads, left out with their FLOPs."""
    shapes = shapes_of(["llama3-70b"], RunOptions(tokens=(1024,)))
    own = 80 * 2 * (2 * 64 * 1024 * 1024 * 128)
    share = own / (own + sum(item.flops for item in shapes.problems))
    assert shapes.left_out == {ATTENTION: 160}
    expect_values(shapes.changes[0], f"{share:.1%}", "--op gemm_batched")
    batched = shapes_of(["llama3-70b"], RunOptions(tokens=(1024,), tp=8), "gemm_batched").problems
    assert [(item.layers, item.count, item.problem.canonical()) for item in batched] == [
        (("qk",), 80, "gemm_batched_bf16_rcr_b8_m1024_n1024_k128_splitk1"),
        (("pv",), 80, "gemm_batched_bf16_rrr_b8_m1024_n128_k1024_splitk1"),
    ]


@pytest.mark.parametrize(
    ("changes", "windowed"),
    [
        ({"model_type": "mistral"}, 4),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "mistral", "sliding_window": 4096}, 0),  # more than the prompt has
        ({"model_type": "qwen2", "use_sliding_window": False, "max_window_layers": 3}, 0),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3}, 1),
        ({"model_type": "qwen3", "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention"]}, 2),
        ({"model_type": "gemma2"}, 2),  # every other layer
        ({"model_type": "gemma3_text"}, 4),  # all but every sixth
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, 2),
        ({"model_type": "cohere2"}, 3),  # all but every fourth
        ({"model_type": "mimo_v2", "hybrid_layer_pattern": [0, 1, 1, 0]}, 2),
    ],
)
def test_windows_of_attention_have_their_share(tmp_path: Path, changes: dict[str, Any], windowed: int) -> None:
    """Of 1024 tokens each attends to 256 in layers with a sliding window, to all in the others, by hand."""
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    config = {**LLAMA_70B, **sizes, "num_hidden_layers": 4, "sliding_window": 256, **changes}
    path.write_text(json.dumps(config), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(1024,)))
    own = 2 * 2 * 8 * 64 * 1024 * (1024 * (4 - windowed) + 256 * windowed)
    (change,) = (change for change in shapes.changes if ATTENTION in change)
    expect_values(change, f"{own / (own + sum(item.flops for item in shapes.problems)):.1%}", "--op gemm_batched")
    batched = shapes_of([str(path)], RunOptions(tokens=(1024,)), "gemm_batched").problems
    of_layers = {1024: 4 - windowed, 256: windowed}
    assert {item.problem.n: item.count for item in batched if item.layers == ("qk",)} == {
        tokens: count for tokens, count in of_layers.items() if count
    }
    assert sum(item.flops for item in batched) == own


def test_chunks_of_attention_have_their_share(tmp_path: Path) -> None:
    """Llama 4's layers with rotated positions attend to chunks, of at most as many tokens as the prompt has."""
    path = tmp_path / "config.json"
    values = json.loads((Path(__file__).with_name("families.json")).read_bytes())["llama4_text"]["config"]
    layers = values["num_hidden_layers"]
    for tokens in (64, 1024):
        path.write_text(json.dumps({**values, "layer_types": None, "attention_chunk_size": 128}), encoding="utf-8")
        batched = shapes_of([str(path)], RunOptions(tokens=(tokens,)), "gemm_batched").problems
        found = {item.problem.n: item.count for item in batched if item.layers == ("qk",)}
        assert found == ({64: layers} if tokens == 64 else {128: layers - layers // 4, 1024: layers // 4})


@pytest.mark.parametrize(
    ("changes", "of_pair"),
    [
        ({}, 16 * (64 + 32 + 64)),  # 16 heads: keys of 64 and 32 rotated, values of 64
        ({"model_type": "deepseek_v32", "index_n_heads": 8, "index_head_dim": 32}, 16 * (64 + 32 + 64) + 8 * 32),
    ],
)
def test_latent_attention_has_its_share(tmp_path: Path, changes: dict[str, Any], of_pair: int) -> None:
    """Products of all pairs of 1024 tokens in four layers, those of an indexer included, by hand."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIGS["deepseek"], **changes}), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(1024,)))
    own = 4 * 2 * 1024 * 1024 * of_pair
    (change,) = (change for change in shapes.changes if ATTENTION in change)
    expect_values(change, f"{own / (own + sum(item.flops for item in shapes.problems)):.1%}", "--op gemm_batched")
    assert shapes.left_out == {ATTENTION: 4 * (2 + bool(changes))}


def test_biases_are_kept(tmp_path: Path) -> None:
    """Qwen2's queries, keys and values have one; of an operation without them the change is told."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_70B, "model_type": "qwen2"}), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(1,)))
    assert [item.layers for item in shapes.problems if item.op == "gemm_multi_d"] == [("qkv",)]
    changes = shapes_of([str(path)], RunOptions(tokens=(1,)), "gemm_universal").changes
    assert [change for change in changes if "bias" in change and "gemm_multi_d" in change]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "ME*-"}, "relu2"),
        ({"model_type": "gemma4_text"}, "gelu"),
    ],
)
def test_experts_of_other_kinds_are_left_out(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    """Those without a gate or with another activation than AITER's are counted with the reason."""
    mamba = {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 1, "ssm_state_size": 64}
    experts = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "enable_moe_block": True}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_70B, **mamba, **experts, **changes}), encoding="utf-8")
    left_out = shapes_of([str(path)], RunOptions(tokens=(1,))).left_out
    assert [text for text in left_out if text != ATTENTION and reason in text]


@pytest.mark.parametrize("config", json.loads((Path(__file__).parent / "bad_configs.json").read_bytes()))
def test_strange_configurations_are_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    """Sizes that are negative, texts or lists of several, and heads wider than the model, by their key."""
    code, key = config.pop("code"), config.pop("key")
    with expect_refusal(DataError, code, key):
        read(tmp_path, {**LLAMA_70B, **config})


def test_a_published_file() -> None:
    """DeepSeek-V3's complete config.json gives the built-in model's shapes."""
    path = Path(__file__).parent / "files" / "deepseek-v3.config.json"
    result, ready = (ckh.shapes.read(name, tp=8) for name in (str(path), "deepseek-v3"))
    assert [(shape.problem, shape.count, shape.layers) for shape in result] == [
        (shape.problem, shape.count, shape.layers) for shape in ready
    ]


def test_unsupported_parts_are_reported(tmp_path: Path) -> None:
    """An image encoder beside the text is counted as skipped."""
    path = tmp_path / "config.json"
    config = {
        "model_type": "qwen3_vl",
        "text_config": {**LLAMA_70B, "model_type": "qwen3_vl_text"},
        "vision_config": {},
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    left_out = shapes_of([str(path)]).left_out
    assert [count for reason, count in left_out.items() if reason != ATTENTION] == [1]


@pytest.mark.parametrize("name", MODELS)
def test_ready_models_have_shapes(name: str) -> None:
    """Each built-in model has problems on one rank, of a family of the table."""
    assert ckh.shapes.read(name)
    assert any(MODELS[name][1]["model_type"] in family.types for family in FAMILIES)


def test_networks_take_a_batch() -> None:
    """ResNet-50's 53 convolutions are counted for the given batch."""
    result = ckh.shapes.read("resnet50", batch=(32,))
    assert sum(shape.count for shape in result) == 53
    assert {shape.problem.n for shape in result} == {32}


def test_an_unknown_type_with_the_usual_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is read as Llama is, with experts if it has them, and a note names the type."""
    more = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024}
    for name, keys in (("llama", {}), ("qwen3_moe", more)):
        known, unknown = (
            read(tmp_path, {**LLAMA_70B, **keys, "model_type": kind}, tokens=(1,)) for kind in (name, f"new-{name}")
        )
        assert [item.problem for item in known] == [item.problem for item in unknown]
        assert f"'new-{name}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{"num_key_value_heads": None}, {"hidden_act": "gelu"}, {"mamba_d_state": 16}, {"vocab_size": None}]
)
def test_an_unknown_type_with_other_keys(tmp_path: Path, changes: dict[str, Any]) -> None:
    """One whose layers may differ is refused, with similar families and tracing of a module."""
    config = {key: value for key, value in {**LLAMA_70B, **changes}.items() if value is not None}
    with expect_refusal(DataError, "unknown-name", "llama9", "llama", "--torch"):
        read(tmp_path, {**config, "model_type": "llama9"})


def test_too_many_layers(tmp_path: Path) -> None:
    """A number of layers that no model has is refused, before each of them takes memory."""
    with expect_refusal(DataError, "out-of-range", 2**31 - 1, "layers"):
        read(tmp_path, {**LLAMA_70B, "num_hidden_layers": 2**31 - 1})


@pytest.mark.parametrize(("size", "code"), [(0, "out-of-range"), (2**40, "out-of-range"), ("8192", "bad-number")])
def test_impossible_sizes(tmp_path: Path, size: object, code: str) -> None:
    """A size of 0 or 2^40, or a text, is refused with its key."""
    with expect_refusal(DataError, code, "hidden_size", size):
        read(tmp_path, {**LLAMA_70B, "hidden_size": size})


def test_missing_field(tmp_path: Path) -> None:
    """A configuration without a size names its key and family."""
    config = {name: value for name, value in LLAMA_70B.items() if name != "intermediate_size"}
    with expect_refusal(DataError, "missing-field", "intermediate_size", "Llama"):
        read(tmp_path, config)


@pytest.mark.parametrize(("tp", "what"), [(3, "num_attention_heads 64"), (128, "num_attention_heads 64")])
def test_ranks_that_do_not_divide(tmp_path: Path, tp: int, what: str) -> None:
    """A number of ranks that does not divide the heads is refused with the size."""
    with expect_refusal(UsageError, "indivisible", what, tp):
        read(tmp_path, LLAMA_70B, tp=tp)
    with pytest.raises(UsageError) as caught:
        read(tmp_path, LLAMA_70B, tp=tp)
    assert caught.value.message.count("config.json") == 1


def test_a_bad_source_among_several(tmp_path: Path) -> None:
    """The good sources are kept; if strict, the bad one is refused."""
    path = tmp_path / "config.json"
    path.write_text("{", encoding="utf-8")
    with expect_refusal(DataError, "bad-json", path):
        ckh.shapes.read(str(path), "llama3-8b", strict=True)
    shapes = shapes_of([str(path), "llama3-8b"], RunOptions())
    assert len(shapes.problems) == 4 * 6 + 4
    assert sum(shapes.account.bad.values()) == 1
    with expect_refusal(DataError, "bad-json", path):
        ckh.shapes.read(str(path))


def test_json_without_a_model_is_refused(tmp_path: Path) -> None:
    """The error for another JSON object names the missing key."""
    with expect_refusal(DataError, "unknown-format", "model_type"):
        read(tmp_path, {"name": "x"})


def test_tokens_have_weights(tmp_path: Path) -> None:
    """Counts are those of the layers by the weights, and problems are in the order of their work."""
    result = read(tmp_path, LLAMA_70B, tp=8, tokens={1: 2000, 64: 200, 8192: 1})
    counts = {(shape.layers[0], shape.problem.m): shape.count for shape in result}
    assert [counts["qkv", m] for m in (1, 64, 8192)] == [80 * 2000, 80 * 200, 80]
    assert [counts["lm_head", m] for m in (1, 64, 256)] == [2000, 200, 1]
    work = [shape.count * shape.problem.m * shape.problem.n * shape.problem.k for shape in result]
    assert work == sorted(work, reverse=True)
    plain = read(tmp_path, LLAMA_70B, tp=8, tokens=(1, 64))
    assert [shape.count for shape in plain] == [80, 80, 80, 80, 1] * 2
    assert [shape.problem.m for shape in plain] == [1] * 5 + [64] * 5


def test_a_workload_has_tokens_and_weights(tmp_path: Path) -> None:
    """Many decode steps for each prefill, in a mixed one; each once otherwise."""
    shapes = {name: read(tmp_path, LLAMA_70B, workload=name) for name in ("decode", "prefill", "mixed")}
    by_name = {
        name: {shape.problem.m: shape.count for shape in own if "qkv" in shape.layers} for name, own in shapes.items()
    }
    decode, prefill = (1, 4, 16, 64, 256), (512, 2048, 8192)
    assert by_name["decode"] == dict.fromkeys(decode, 80)
    assert by_name["prefill"] == dict.fromkeys(prefill, 80)
    assert by_name["mixed"] == dict.fromkeys(decode, 80_000) | dict.fromkeys(prefill, 80)


def test_whispers_decoder_has_weights() -> None:
    """Its encoder runs once per clip."""
    result = sizes(ckh.shapes.read("whisper-large-v3", tokens={4: 7}))
    assert {name: result[name][3] for name in ("encoder_fc1", "decoder_qkv", "decoder_cross_kv", "proj_out")} == {
        "encoder_fc1": 32,
        "decoder_qkv": 32 * 7,
        "decoder_cross_kv": 32 * 7,
        "proj_out": 7,
    }


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        ("1:", "bad-number"),
        ("1:0", "out-of-range"),
        ("1:-1", "bad-number"),
        ("1:nan", "bad-number"),
        ("1:1.5", "bad-number"),
        ("1:2:3", "bad-number"),
        ("1:1000001", "out-of-range"),
        ("64,1,64", "out-of-range"),
        ({1: float("nan")}, "bad-number"),
        ("", "bad-number"),
    ],
)
def test_bad_weights_are_refused(tokens: Any, code: str) -> None:
    """With the part of the text that is wrong."""
    named = next(iter(tokens)) if isinstance(tokens, dict) else tokens.rpartition(",")[2]
    with expect_refusal(UsageError, code, "--tokens", named):
        ckh.shapes.read("llama3-8b", tokens=tokens)


def test_a_workload_is_known_and_excludes_tokens() -> None:
    """Either has an error of its own."""
    with expect_refusal(UsageError, "conflicting-options", "--tokens", "--workload"):
        ckh.shapes.read("llama3-8b", tokens=(1,), workload="decode")
    with expect_refusal(UsageError, "unknown-name", "decod", "decode, prefill, mixed"):
        ckh.shapes.read("llama3-8b", workload="decod")


def test_biases_of_encoders() -> None:
    """All products of ViT, CLIP and Whisper have one but projections and the vocabulary; ViT's queries by its key."""
    for model, without in (("vit-b16", set()), ("clip-vit-l14", {"projection"}), ("whisper-large-v3", {"proj_out"})):
        ops = {name: shape.op for shape in ckh.shapes.read(model, tokens=(4,)) for name in shape.layers}
        plain = {name.removeprefix("text_").removeprefix("vision_") for name in ops if ops[name] == "gemm_universal"}
        assert plain == without
        assert set(ops.values()) == {"gemm_multi_d", "grouped_conv"} | ({"gemm_universal"} if without else set())


def test_queries_of_a_vision_transformer_without_a_bias(tmp_path: Path) -> None:
    """`qkv_bias` false."""
    own = read(tmp_path, {**MODELS["vit-b16"][1], "qkv_bias": False})
    assert {shape.op for shape in own if "qkv" in shape.layers} == {"gemm_universal"}
    assert {shape.op for shape in own if "o" in shape.layers} == {"gemm_multi_d"}


EXPERTS = {"num_experts_per_tok": 8, "moe_intermediate_size": 1536, "num_experts": 64, "n_routed_experts": 64}


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"model_type": "qwen3_moe"}, "bf16"),
        ({"model_type": "minimax_m2"}, "fp32"),
        ({"model_type": "glm4_moe"}, "fp32"),
        ({"model_type": "bailing_moe", "router_dtype": "fp32"}, "fp32"),
    ],
)
def test_routers_in_float32(tmp_path: Path, changes: dict[str, Any], dtype: str) -> None:
    """Routers that vLLM computes in float32, by the family or a key of the configuration."""
    result = read(tmp_path, {**LLAMA_70B, **EXPERTS, **changes}, tokens=(16,))
    assert [shape.problem.dtype for shape in result if "router" in shape.layers] == [dtype]


@pytest.mark.parametrize(
    "changes", [{"model_type": "glm_moe_dsa"}, {"model_type": "deepseek_v3", "moe_router_dtype": "float32"}]
)
def test_float32_results_are_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Routers with bf16 operands and a result in float32, which no kernel stores: their number and share, by hand."""
    latent = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_70B, **EXPERTS, **latent, **changes, "v_head_dim": 128}), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(16,)))
    share = 80 * 2 * 16 * 64 * 8192 / sum(item.flops for item in shapes.problems)
    (change,) = (change for change in shapes.changes if "fp32" in change)
    expect_values(change, "bf16", "80 calls of router", f"{share:.1%}")


def test_attention_of_images_is_of_each() -> None:
    """Four images of 197 patches: 12 heads of each, not one sequence of all."""
    batched = ckh.shapes.read("vit-b16", batch=(4,), op="gemm_batched")
    assert [shape.problem.canonical() for shape in batched] == [
        "gemm_batched_bf16_rcr_b48_m197_n197_k64_splitk1",
        "gemm_batched_bf16_rrr_b48_m197_n64_k197_splitk1",
    ]


def test_attention_across_whisper() -> None:
    """Tokens attend to the encoder's 1500 positions: 20 heads of 64."""
    batched = ckh.shapes.read("whisper-large-v3", tokens=(4,), op="gemm_batched")
    across = [shape.problem.canonical() for shape in batched if "cross" in shape.layers[0]]
    assert across == [
        "gemm_batched_bf16_rcr_b20_m4_n1500_k64_splitk1",
        "gemm_batched_bf16_rrr_b20_m4_n64_k1500_splitk1",
    ]


@pytest.mark.parametrize(
    ("changes", "of_token"),
    [
        (CONFIGS["next"], 3 * 3 * 2 * 16 * 128 * 128),  # the delta rule in three of four layers
        (
            {"model_type": "falcon_h1", "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_n_groups": 1}
            | {"mamba_d_state": 256, "num_hidden_layers": 4},
            4 * 2 * 2 * 24 * 64 * 256,
        ),
        (
            {"model_type": "jamba", "mamba_d_state": 16, "num_hidden_layers": 8, "attn_layer_offset": 4},
            7 * 2 * 2 * 2 * 8192 * 16,
        ),
        (
            {"model_type": "minimax", "head_dim": 128, "num_hidden_layers": 2, "attn_type_list": [0, 1]},
            2 * 2 * 64 * 128 * 128,
        ),
    ],
)
def test_recurrences_have_their_share(tmp_path: Path, changes: dict[str, Any], of_token: int) -> None:
    """Updating and reading the states of linear attention and Mamba, by hand: left out with their FLOPs."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_70B, **changes}), encoding="utf-8")
    shapes = shapes_of([str(path)], RunOptions(tokens=(16,)))
    share = 16 * of_token / (16 * of_token + sum(item.flops for item in shapes.problems))
    assert shapes.left_out[RECURRENCE]
    (change,) = (change for change in shapes.changes if RECURRENCE in change)
    expect_values(change, f"{share:.1%}")
