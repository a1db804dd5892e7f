"""Candidates: the kernels of a rule set or a registry, filtered, with each split of K, and the rejected ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.registry import write_registry
from ckh.data.settings import Settings
from ckh.errors import DataError, UsageError
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.measuring.measured import SetCandidates, candidate_source
from ckh.ops.grouped_conv.rules.sets import refused_of_rule_set, rule_set
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values, has_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.grouped_conv.kernel import ConvKernel

GFX942 = load_arch("gfx942")
FORWARD = (Direction.FORWARD, 2, "fp16")
WEIGHT = (Direction.BWD_WEIGHT, 2, "fp16")


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A few kernels of two directions for gfx942: one in fp32, one that gfx942 rejects, and one with split K."""
    forward = conv_pool(Direction.FORWARD, GFX942, dtype="fp16")[:3]
    weight = conv_pool(Direction.BWD_WEIGHT, GFX942, dtype="fp16")[:2]
    kernels = [
        *forward,
        replace(forward[0], wave_m=3),
        *conv_pool(Direction.FORWARD, GFX942, dtype="fp32")[:1],
        *weight,
        replace(weight[0], split_k=4),
    ]
    write_registry(tmp_path / "registry.json", kernels, arch="gfx942")
    return tmp_path / "registry.json"


def make_candidates(
    name: str, registry: Path | None, filter_text: str | None, split_k: tuple[int, ...]
) -> SetCandidates:
    """Candidates of the settings of a run."""
    settings = Settings(variant="", problems="", kernels="", dtype="fp16", seed=0, samples=1)
    path = None if registry is None else str(registry)
    return candidate_source(replace(settings, rule_set=name, registry=path, filter=filter_text, split_k=split_k))


def splits(kernels: tuple[ConvKernel, ...]) -> list[int]:
    """Split of K of each kernel."""
    return [kernel.split_k for kernel in kernels]


@pytest.mark.parametrize("name", ["default", "tiny", "tests"])
def test_the_kernels_of_a_rule_set(name: str) -> None:
    """The kernels are the rule set's, the rejected ones those of other architectures."""
    kernels, refused = SetCandidates(name).of(*FORWARD, GFX942)
    assert kernels == rule_set(name, *FORWARD, GFX942) != ()
    assert refused == refused_of_rule_set(name, *FORWARD, GFX942)
    assert all(item.reasons for item in refused)


def test_a_filter_applies_to_refused_kernels() -> None:
    """The filter applies to rejected kernels too: others are neither measured nor counted."""
    candidates = make_candidates("default", None, 'pipeline == "compv4" and tile_m >= 64', (1,))
    kernels, refused = candidates.of(*FORWARD, GFX942)
    everything = [*kernels, *(item.kernel for item in refused)]
    assert {kernel.pipeline for kernel in everything} == {"compv4"}
    assert min(kernel.tile_m for kernel in everything) == 64
    pool = conv_pool(Direction.FORWARD, GFX942, dtype="fp16")
    assert kernels == tuple(k for k in pool if k.pipeline == "compv4" and k.tile_m >= 64)
    assert refused


def test_only_backward_weight_is_split() -> None:
    """Each bwd_weight kernel occurs with each split; forward and backward data are unchanged."""
    candidates = SetCandidates("tiny", split_k=(1, 2, 8))
    plain, _ = SetCandidates("tiny").of(*WEIGHT, GFX942)
    split, _ = candidates.of(*WEIGHT, GFX942)
    whole = [kernel for kernel in split if kernel.split_k == 1]
    assert tuple(whole) == plain
    assert {replace(kernel, split_k=1) for kernel in split} == set(plain)
    assert set(splits(split)) == {1, 2, 8}
    for direction in (Direction.FORWARD, Direction.BWD_DATA):
        kernels, refused = candidates.of(direction, 2, "fp16", GFX942)
        assert kernels == rule_set("tiny", direction, 2, "fp16", GFX942)
        assert refused == refused_of_rule_set("tiny", direction, 2, "fp16", GFX942)


def test_an_impossible_split_is_refused_and_counted() -> None:
    """0 parts, more parts than half precision can add, and atomics of odd vectors are rejected with the reason."""
    count = len(rule_set("default", *WEIGHT, GFX942))
    unbuilt = len(refused_of_rule_set("default", *WEIGHT, GFX942))
    kernels, refused = SetCandidates(split_k=(0, 2, 1000)).of(*WEIGHT, GFX942)
    assert set(splits(kernels)) == {2}
    assert len(kernels) + len(refused) == 3 * count + unbuilt
    by_split = {
        split: [kernel.reasons[0] for kernel in refused if kernel.kernel.split_k == split] for split in (0, 1000)
    }
    assert all(has_values(reason, "split_k", 1, 0) for reason in by_split[0])
    assert all(has_values(reason, "fp16", 128, 1000) for reason in by_split[1000])


def test_default_backward_weight_kernels_include_gpu_winners() -> None:
    """Split-K in float32, merged groups and two stages beside the pool; on the host and for a given split, the pool."""
    result, refused = SetCandidates().of(*WEIGHT, GFX942)
    assert set(rule_set("default", *WEIGHT, GFX942)) < set(result)
    assert set(splits(result)) == {1, 4, 16}
    options = {(kernel.num_groups_to_merge, kernel.two_stage) for kernel in result}
    assert options == {(1, False), (1, True), (2, True), (4, True), (8, True)}
    assert {(kernel.split_k, kernel.two_stage) for kernel in result} == {(1, False), (1, True), (4, True), (16, True)}
    single, _ = SetCandidates().of(Direction.BWD_WEIGHT, 2, "fp32", GFX942)  # whose parts are float32 sums
    assert {(kernel.split_k, kernel.two_stage) for kernel in single} == {(1, False), (4, False), (16, False)}
    assert not any(kernel.explicit_gemm or kernel.streamk for kernel in result)
    assert all(not CONV_RULES.of_arch(kernel, GFX942) for kernel in result)
    assert refused
    for candidates, arch in ((SetCandidates(split_k=(2,)), GFX942), (SetCandidates(), load_arch("host"))):
        plain, _ = candidates.of(*WEIGHT, arch)
        assert {replace(kernel, split_k=1) for kernel in plain} == set(rule_set("default", *WEIGHT, arch))


def test_a_filter_selects_a_split() -> None:
    """The filter is applied to kernels with their split."""
    kernels, refused = make_candidates("tiny", None, "split_k > 1 or tile_m > 16", (1, 4)).of(*WEIGHT, GFX942)
    assert all(kernel.split_k > 1 or kernel.tile_m > 16 for kernel in kernels)
    assert 4 in splits(kernels)
    assert all(item.kernel.split_k > 1 or item.kernel.tile_m > 16 for item in refused)


def test_the_kernels_of_a_registry(registry: Path) -> None:
    """Kernels of the problem's kind are unchanged, and the architecture's rules apply."""
    candidates = make_candidates("default", registry, None, (1,))
    kernels, refused = candidates.of(*FORWARD, GFX942)
    pool = conv_pool(Direction.FORWARD, GFX942, dtype="fp16")
    assert kernels == pool[:3]
    assert [item.kernel for item in refused] == [replace(pool[0], wave_m=3)]
    expect_values(refused[0].reasons[0], "gfx942", "waves 3x")
    assert len(candidates.of(Direction.FORWARD, 2, "fp32", GFX942)[0]) == 1
    assert candidates.of(Direction.BWD_DATA, 2, "fp16", GFX942) == ((), ())
    assert candidates.of(Direction.FORWARD, 3, "fp16", GFX942) == ((), ())


def test_splits_of_a_registry_are_kept_by_default(registry: Path) -> None:
    """With requested splits, a kernel that a registry has with two splits occurs once with each."""
    kernels, _ = make_candidates("default", registry, None, (1,)).of(*WEIGHT, GFX942)
    assert splits(kernels) == [1, 1, 4]
    kernels, _ = make_candidates("default", registry, None, (1, 4)).of(*WEIGHT, GFX942)
    assert sorted(splits(kernels)) == [1, 1, 4, 4]
    assert len(set(kernels)) == 4


def test_a_registry_of_another_architecture_is_refused(registry: Path) -> None:
    """The error names both architectures."""
    candidates = make_candidates("default", registry, None, (1,))
    with expect_refusal(UsageError, "mismatch", "gfx942", "gfx90a"):
        candidates.of(*FORWARD, load_arch("gfx90a"))


def test_invalid_settings_are_refused(registry: Path, tmp_path: Path) -> None:
    """A rule set with a registry, an unknown rule set, a missing registry and a bad filter are refused at once."""
    with expect_refusal(UsageError, "conflicting-options", "--registry", "--rule-set"):
        make_candidates("tiny", registry, None, (1,))
    with pytest.raises(UsageError, match="huge"):
        make_candidates("huge", None, None, (1,)).of(*FORWARD, GFX942)
    with expect_refusal(DataError, "unreadable", "none.json"):
        make_candidates("default", tmp_path / "none.json", None, (1,))
    with pytest.raises(UsageError, match="tile_q"):
        make_candidates("default", None, "tile_q > 4", (1,))
