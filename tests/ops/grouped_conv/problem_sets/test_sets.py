"""Content of the named sets: counts, distinctness, no leaks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import pytest

from ckh.errors import UsageError
from ckh.ops.grouped_conv.problem_sets import amd_families, load_problems, problem_set, set_names
from ckh.ops.grouped_conv.problem_sets.holdout import HOST_QUOTAS, NETWORKS, LayerKind, kind, network
from ckh.problems import Direction
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.problem import ConvProblem

TRAINING_SETS = [name for name in set_names() if name == "train" or name.startswith("train-") or name == "host-train"]
HOLDOUT_SETS = [*NETWORKS, "holdout", "host-holdout"]
DIRECTIONS = list(Direction)

# Number of entries with AMD's duplicates (2D and 3D), distinct 2D; then all distinct ones without hold-out layers.
AMD_COUNTS = {
    Direction.FORWARD: (1718, 168, 1614, 1746),
    Direction.BWD_DATA: (1482, 168, 1394, 1506),
    Direction.BWD_WEIGHT: (2225, 168, 2069, 2163),
}


def _shape(problem: ConvProblem) -> ConvProblem:
    return replace(problem, variant=Direction.FORWARD, dtype="fp32", n=1)


def _identity(problem: ConvProblem) -> ConvProblem:
    return replace(problem, dtype="fp32")


@pytest.mark.parametrize("variant", DIRECTIONS)
def test_amd_counts(variant: Direction) -> None:
    """AMD's families have as many entries as its files, and the sets as many distinct ones as are not held out."""
    entries = [p for name in amd_families.FAMILIES for p in amd_families.family(name, variant)]
    plane = [p for p in entries if p.ndim == 2]
    left = set(entries) - set(problem_set("holdout"))
    counts = (len(plane), len(entries) - len(plane), len(set(plane)), len(left))
    assert counts == AMD_COUNTS[variant]
    assert len(problem_set("train", variant)) == len(left)


@pytest.mark.parametrize(
    ("variant", "counts"),
    [
        (Direction.FORWARD, [480, 480, 60, 90, 32, 12, 288, 48, 48, 180, 144, 24]),
        (Direction.BWD_DATA, [280, 480, 84, 90, 32, 12, 216, 48, 60, 180, 144, 24]),
        (Direction.BWD_WEIGHT, [576, 720, 144, 144, 32, 48, 216, 48, 81, 180 + 36, 144, 24]),
    ],
)
def test_amd_family_counts(variant: Direction, counts: list[int]) -> None:
    """Each family has as many entries as its section of AMD's file."""
    assert [len(list(amd_families.family(name, variant))) for name in amd_families.FAMILIES] == counts


@pytest.mark.parametrize("variant", DIRECTIONS)
def test_train_is_the_union_of_its_subsets(variant: Direction) -> None:
    """`train` is the union of the families, and `train-2d` and `train-3d` partition it."""
    whole = set(problem_set("train", variant))
    parts = [set(problem_set(f"train-{name}", variant)) for name in amd_families.FAMILIES]
    assert whole == set().union(*parts)
    assert whole == {*problem_set("train-2d", variant), *problem_set("train-3d", variant)}
    assert {p.ndim for p in problem_set("train-3d", variant)} == {3}


@pytest.mark.parametrize("variant", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("training", TRAINING_SETS)
def test_no_training_set_holds_a_holdout_problem(training: str, dtype: str, variant: Direction) -> None:
    """No problem of a training set is in any hold-out set of its direction, whatever the dtype."""
    held_out = {_identity(p) for name in HOLDOUT_SETS for p in problem_set(name, variant)}
    learned = {_identity(p) for p in problem_set(training, variant, dtype)}
    assert learned
    assert not learned & held_out


def test_host_train_holds_no_layer_at_any_batch() -> None:
    """`host-train` contains no hold-out layer at another batch size either."""
    held_out = {_shape(p) for p in problem_set("holdout")}
    assert not {_shape(p) for p in problem_set("host-train")} & held_out


@pytest.mark.parametrize("name", set_names())
def test_every_set_is_distinct_and_as_requested(name: str) -> None:
    """A set has no duplicates, and the requested direction and dtype."""
    problems = problem_set(name, Direction.BWD_WEIGHT, "fp16")
    assert len(set(problems)) == len(problems) > 0
    assert {(p.variant, p.dtype) for p in problems} == {(Direction.BWD_WEIGHT, "fp16")}


@pytest.mark.parametrize("name", set_names())
def test_no_3d_problem_is_a_2d_one_in_disguise(name: str) -> None:
    """AMD's columns, which do not state 2D or 3D, distinguish a set's 3D problems by their depth."""
    assert all((p.di, p.z) != (1, 1) for p in problem_set(name) if p.ndim == 3)


def test_host_train_covers_the_families_at_cpu_size() -> None:
    """`host-train` has the documented work, memory, kinds and batches."""
    problems = problem_set("host-train")
    mflop = [p.flops / 1e6 for p in problems]
    kinds = Counter(kind(p) for p in problems)
    assert len(problems) == 432
    assert min(mflop) >= 0.5
    assert max(mflop) <= 250
    assert 20 <= median(mflop) <= 40
    assert max(p.bytes for p in problems) < 64_000_000
    assert 0.15 <= kinds[LayerKind.DEPTHWISE] / len(problems) <= 0.25
    assert 0.12 <= kinds[LayerKind.VOLUME] / len(problems) <= 0.18
    assert 0.27 <= sum(p.z == p.y == p.x == 1 for p in problems) / len(problems) <= 0.36
    assert min(kinds.values()) >= 10
    assert {p.n for p in problems} == {1, 2, 3, 4, 8, 16}
    assert 0.5 <= sum(p.n == 1 for p in problems) / len(problems) <= 0.7
    assert {1, 2, 4} <= {p.stride_h for p in problems}
    assert {1, 3, 5, 7} <= {p.y for p in problems}
    assert {(1, 7), (7, 1), (1, 3), (3, 1), (2, 2)} <= {(p.y, p.x) for p in problems}
    assert {2, 4, 8, 32} <= {p.g for p in problems}
    assert {1, 2, 3, 4, 6} <= {p.dilation_h for p in problems}


def test_host_holdout_is_stratified_and_cheap() -> None:
    """`host-holdout` has every kind, many networks, unscaled layers at batch 1 and little work in total."""
    problems = problem_set("host-holdout")
    kinds = Counter(kind(p) for p in problems)
    used = [name for name in NETWORKS if set(network(name)) & set(problems)]
    assert set(problems) <= set(problem_set("holdout"))
    assert len(problems) == 130
    assert {p.n for p in problems} == {1}
    assert all(0.5e6 <= p.flops <= 300e6 for p in problems)
    assert 8e9 <= sum(p.flops for p in problems) <= 12e9
    assert set(kinds) == set(LayerKind)
    assert all(kinds[name] <= quota for name, quota in HOST_QUOTAS.items())
    assert len(used) == len(NETWORKS)


def test_holdout_is_large() -> None:
    """`holdout` is every network's layers at batch 1 and 8."""
    problems = problem_set("holdout")
    assert len(problems) == 764
    assert Counter(p.n for p in problems) == {1: 382, 8: 382}
    assert all(set(problem_set(name)) <= set(problems) for name in NETWORKS)


@pytest.mark.slow
def test_sets_are_the_same_in_another_process() -> None:
    """The order of a set does not depend on the process or its hash seed."""
    script = (
        "import hashlib; from ckh.ops.grouped_conv.problem_sets import problem_set, set_names\n"
        "text = '\\n'.join(p.canonical() for name in set_names() for p in problem_set(name))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("train", "3e19d8ba00468dab"),
        ("host-train", "9db310dbffe5eac7"),
        ("training", "8d0edb4c5d058ac2"),
        ("validation", "be2f0379ea43405e"),
        ("wide", "9e4a67535066eff8"),
        ("edge", "491644f471ddf9c5"),
        ("holdout", "dc60fd391273532d"),
        ("host-holdout", "7aad3fb6d6718274"),
    ],
)
def test_sets_never_change(name: str, digest: str) -> None:
    """Training and evaluation sets are fixed: a deliberate change is recorded here."""
    text = "\n".join(p.canonical() for p in problem_set(name))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("call", [problem_set, load_problems])
def test_an_unknown_set_is_refused_with_the_names(call: object) -> None:
    """An unknown name is a usage error whose hint lists the sets."""
    assert callable(call)
    with pytest.raises(UsageError, match="resnet51") as caught:
        call("resnet51")
    assert "resnet50, " in caught.value.hint


@pytest.mark.parametrize("call", [problem_set, load_problems])
def test_an_unshipped_amd_list_is_refused_with_a_remedy(call: object) -> None:
    """The name of an unpublished list is a usage error that states so and asks for the file."""
    assert callable(call)
    with expect_refusal(UsageError, "unpublished-set", "crawler") as caught:
        call("crawler")
    assert "--problems FILE" in caught.value.hint


def test_an_unknown_dtype_or_direction_is_refused() -> None:
    """An unknown dtype or direction is a usage error."""
    with pytest.raises(UsageError, match="fp31"):
        problem_set("train", dtype="fp31")
    with pytest.raises(UsageError, match="sideways"):
        problem_set("train", "sideways")  # type: ignore[arg-type]
