"""Named sets of GEMM problems: published sizes, coverage, limits, and no leaks."""

from __future__ import annotations

import hashlib
from collections import Counter
from math import gcd
from statistics import median

import pytest

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.gemm_universal.problem_sets import (
    HOST_RANKS,
    MODELS,
    TOKENS,
    layers,
    load_problems,
    problem_set,
    projections,
    rows_of,
    set_names,
    shard,
)
from tests.refusals import expect_refusal

TRAINING_SETS = ("gemm-train", "host-gemm-train")
AMD_SETS = ("wide", "edge")
HOLDOUT_SETS = tuple(name for name in set_names() if name not in {*TRAINING_SETS, *AMD_SETS})

# (N, K) from the models' papers and model cards, independent of the rules.
WEIGHTS = {
    "llama3-8b": {
        "qkv": (6144, 4096),
        "o": (4096, 4096),
        "gate_up": (28672, 4096),
        "down": (4096, 14336),
        "lm_head": (128256, 4096),
    },
    "llama3-70b": {
        "qkv": (10240, 8192),
        "o": (8192, 8192),
        "gate_up": (57344, 8192),
        "down": (8192, 28672),
        "lm_head": (128256, 8192),
    },
    "deepseek-v3": {
        "q_a": (1536, 7168),
        "q_b": (24576, 1536),
        "kv_a": (576, 7168),
        "kv_b": (32768, 512),
        "o": (7168, 16384),
        "gate_up": (36864, 7168),
        "down": (7168, 18432),
        "router": (256, 7168),
        "expert_gate_up": (4096, 7168),
        "expert_down": (7168, 2048),
        "shared_gate_up": (4096, 7168),
        "shared_down": (7168, 2048),
        "lm_head": (129280, 7168),
    },
    "qwen3-0.6b": {
        "qkv": (4096, 1024),
        "o": (1024, 2048),
        "gate_up": (6144, 1024),
        "down": (1024, 3072),
        "lm_head": (151936, 1024),
    },
    "qwen3-32b": {
        "qkv": (10240, 5120),
        "o": (5120, 8192),
        "gate_up": (51200, 5120),
        "down": (5120, 25600),
        "lm_head": (151936, 5120),
    },
    "qwen3-30b-a3b": {
        "qkv": (5120, 2048),
        "o": (2048, 4096),
        "router": (128, 2048),
        "expert_gate_up": (1536, 2048),
        "expert_down": (2048, 768),
        "lm_head": (151936, 2048),
    },
    "mixtral-8x7b": {
        "qkv": (6144, 4096),
        "o": (4096, 4096),
        "router": (8, 4096),
        "expert_gate_up": (28672, 4096),
        "expert_down": (4096, 14336),
        "lm_head": (32000, 4096),
    },
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_match_published_ones(name: str) -> None:
    """Every projection derived from a configuration has its published size."""
    assert {p.name: (p.n, p.k) for p in projections(MODELS[name])} == WEIGHTS[name]


@pytest.mark.parametrize(
    ("name", "num_layers", "billions"),
    [("llama3-8b", 32, 8.03), ("llama3-70b", 80, 70.55), ("qwen3-8b", 36, 8.19), ("qwen3-32b", 64, 32.76)],
)
def test_weights_add_up_to_the_models_published_size(name: str, num_layers: int, billions: float) -> None:
    """Layers times projections, the head and an embedding of its size give the parameter count of the model card."""
    *layer, head = projections(MODELS[name])
    total = num_layers * sum(p.n * p.k for p in layer) + 2 * head.n * head.k
    assert total / 1e9 == pytest.approx(billions, rel=2e-3)


def test_mixtures_add_up_to_their_published_sizes() -> None:
    """DeepSeek-V3 has 671 billion parameters (61 layers, 3 of them dense), Mixtral 46.7 (32 layers)."""
    deepseek = {p.name: p.n * p.k for p in projections(MODELS["deepseek-v3"])}
    attention = sum(deepseek[name] for name in ("q_a", "q_b", "kv_a", "kv_b", "o"))
    dense = deepseek["gate_up"] + deepseek["down"]
    expert = deepseek["expert_gate_up"] + deepseek["expert_down"]
    total = 61 * attention + 3 * dense + 58 * (257 * expert + deepseek["router"]) + 2 * deepseek["lm_head"]
    assert total / 1e9 == pytest.approx(671.0, rel=2e-3)
    mixtral = {p.name: p.n * p.k for p in projections(MODELS["mixtral-8x7b"])}
    each = mixtral["qkv"] + mixtral["o"] + mixtral["router"] + 8 * (mixtral["expert_gate_up"] + mixtral["expert_down"])
    assert (32 * each + 2 * mixtral["lm_head"]) / 1e9 == pytest.approx(46.7, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "tokens", "rows"),
    [("mixtral-8x7b", 1, 1), ("mixtral-8x7b", 100, 25), ("deepseek-v3", 32, 1), ("deepseek-v3", 8192, 256)],
)
def test_experts_get_equal_shares_of_tokens(name: str, tokens: int, rows: int) -> None:
    """Two of eight experts, or eight of 256, process each token; a share below one is one row."""
    model = MODELS[name]
    by_name = {p.name: rows_of(model, p, tokens) for p in projections(model)}
    assert (by_name["expert_down"], by_name["router"], by_name["lm_head"]) == (rows, tokens, tokens)


def test_one_of_eight_ranks_holds_an_eighth_of_each_large_weight() -> None:
    """N or K is divided by eight; if eight ranks share four key-value heads, each rank has one."""
    share = {p.name: (p.n, p.k) for p in projections(shard(MODELS["llama3-8b"], HOST_RANKS))}
    assert share == {
        "qkv": (768, 4096),
        "o": (4096, 512),
        "gate_up": (3584, 4096),
        "down": (4096, 1792),
        "lm_head": (16032, 4096),
    }
    few = {p.name: p.n for p in projections(shard(MODELS["qwen3-30b-a3b"], HOST_RANKS))}
    assert (few["qkv"], few["router"], few["expert_gate_up"]) == ((4 + 2) * 128, 128, 192)
    latent = {p.name: (p.n, p.k) for p in projections(shard(MODELS["deepseek-v3"], HOST_RANKS))}
    assert [latent[name] for name in ("q_a", "q_b", "kv_a")] == [(1536, 7168), (3072, 1536), (576, 7168)]
    assert all(
        size % HOST_RANKS == 0 for m in MODELS.values() for size in map(m.size, ("heads", "vocabulary", "intermediate"))
    )


def test_tokens_run_from_one_to_8192() -> None:
    """All powers of two are present, and some other numbers."""
    assert {2**i for i in range(14)} < set(TOKENS)
    assert {3, 12, 100, 768, 1000, 3072} < set(TOKENS)
    assert (min(TOKENS), max(TOKENS), len(TOKENS)) == (1, 8192, 22)


@pytest.mark.parametrize("training", TRAINING_SETS)
def test_no_training_set_holds_a_holdout_weight(training: str) -> None:
    """No problem of a training set is in a hold-out set, nor a hold-out weight at another M."""
    held_out = {p for name in HOLDOUT_SETS for p in problem_set(name)}
    learned = set(problem_set(training))
    assert learned
    assert not learned & held_out
    assert not {(p.n, p.k) for p in learned} & {(p.n, p.k) for p in held_out}


def test_llm_contains_all_models() -> None:
    """`llm` is the union of the models' sets; each has the model's layers at every number of tokens."""
    whole = problem_set("llm", "bf16")
    assert set(whole) == {p for name in MODELS for p in problem_set(f"llm-{name}", "bf16")}
    assert set(problem_set("llm-llama3-8b")) == set(layers(MODELS["llama3-8b"], TOKENS))
    assert len(whole) == 922


@pytest.mark.parametrize("name", set_names())
def test_every_set_is_distinct_and_as_requested(name: str) -> None:
    """A set has no duplicates, and the requested dtype and layout."""
    problems = problem_set(name, "fp8", "crr")
    assert len(set(problems)) == len(problems) > 0
    assert {(p.dtype, p.layout) for p in problems} == {("fp8", "crr")}


@pytest.mark.parametrize(
    ("name", "most", "total"),
    [("host-llm", 5e8, 15.5e9), ("host-gemm-train", 2e9, 141.9e9)],
)
def test_host_sets_suit_one_thread(name: str, most: float, total: float) -> None:
    """Every problem has at least 1 MFLOP and at most 128 MB, and K is not split; the hold-out's are smaller."""
    problems = problem_set(name)
    assert all(1e6 <= p.flops <= most and p.bytes <= 128e6 and p.split_k == 1 for p in problems)
    assert sum(p.flops for p in problems) == pytest.approx(total, rel=0.01)
    assert 1.5e7 <= median(p.flops for p in problems) <= 1.5e8
    assert {p.m for p in problems} >= {1, 4, 12}
    assert max(p.m for p in problems) >= 2048


def test_host_llm_has_layers_of_every_model() -> None:
    """Each model contributes layers, at several numbers of tokens."""
    problems = set(problem_set("host-llm"))
    for model in MODELS.values():
        assert len(problems & set(layers(shard(model, HOST_RANKS), TOKENS))) >= 8


@pytest.mark.parametrize(("name", "least", "aligned"), [("gemm-train", 800, 10), ("host-gemm-train", 900, 11)])
def test_training_covers_edges_and_all_regimes(name: str, least: int, aligned: int) -> None:
    """Training has dimensions of one, primes, non-multiples, all of AMD's shape families and K regimes."""
    problems = problem_set(name)
    assert len(problems) >= least
    for axis in "mnk":
        sizes = [p.size(axis) for p in problems]
        assert sizes.count(1) >= 2
        assert sum(size > 1 and all(size % d for d in range(2, size)) for size in sizes if size < 1100) >= 10
        assert sum(gcd(size, 16) < 8 for size in sizes) >= len(problems) // 12
        assert sum(size % 64 == 0 for size in sizes) >= len(problems) // aligned
    regimes = Counter((sum(p.m >= m for m in (32, 256)), sum(p.k >= k for k in (512, 4096))) for p in problems)
    assert len(regimes) == 9
    assert min(regimes.values()) >= 5
    assert sum(p.m == p.n == p.k for p in problems) >= least // 15
    assert sum(p.m <= 64 for p in problems) >= least * 2 // 5  # where language models spend most time


def test_training_of_gpus_splits_k() -> None:
    """Deep problems occur with K split in 2, 4 and 8 parts; hold-out layers are not split."""
    assert {1, 2, 4, 8} == {p.split_k for p in problem_set("gemm-train")}
    assert {p.split_k for p in problem_set("llm")} == {1}
    assert max(p.m for p in problem_set("gemm-train")) > 4096


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("gemm-train", "445eb0104b226179"),
        ("host-gemm-train", "3aae88de222bd070"),
        ("llm", "0fc2ae090de78095"),
        ("host-llm", "f7033ffb8dfe1c08"),
        ("wide", "85b8fb96e38d6b65"),
        ("edge", "343532f20a318001"),
    ],
)
def test_sets_never_change(name: str, digest: str) -> None:
    """Training and evaluation sets are fixed: a deliberate change is recorded here."""
    text = "\n".join(p.canonical() for p in problem_set(name))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_unknown_sets_dtypes_and_layouts_are_refused() -> None:
    """An unknown name is a usage error whose hint lists the sets; unknown dtypes and layouts are usage errors too."""
    with pytest.raises(UsageError, match="llama4") as caught:
        problem_set("llama4")
    assert "host-llm" in caught.value.hint
    with expect_refusal(UsageError, "unpublished-set", "crawler"):
        load_problems("crawler", None, None)
    with pytest.raises(UsageError, match="fp31"):
        problem_set("llm", "fp31")
    with pytest.raises(UsageError, match="rrc"):
        problem_set("llm", layout="rrc")
    assert problem_set("llm-qwen3-0.6b")[0] == GemmProblem(1, 4096, 1024)
