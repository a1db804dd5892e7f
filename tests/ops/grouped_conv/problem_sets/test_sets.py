"""Content of the named sets: fixed, distinct, no leaks."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from ckh.errors import UsageError
from ckh.ops.grouped_conv.problem_sets import FAMILIES, NETWORKS, load_problems, problem_set, set_names
from ckh.problems import Direction
from tests.refusals import expect_refusal

TRAINING_SETS = [name for name in set_names() if name == "train" or name.startswith("train-") or name == "host-train"]
DIRECTIONS = list(Direction)
# Number and digest of the problems of all directions. The lists were compared with AMD's generators and files, with
# their counts, and with conditions written independently of the grids.
CONTENT = {
    "train-small": (1294, "1e16816a1d33e10a"),
    "train-medium": (1588, "c5dde4f888c3a28f"),
    "train-large": (276, "9bea68f0c0a7bcda"),
    "train-asymmetric": (303, "87d5783b637d1a94"),
    "train-tiny-batch": (85, "42b789deb63ecfa9"),
    "train-big-batch": (72, "9dcf2dfdb72b6627"),
    "train-grouped": (720, "752bb8a239d5bdcc"),
    "train-depthwise": (144, "13ac2bc02cd15359"),
    "train-strided": (181, "6565f63c6de7b341"),
    "train-dilated": (576, "99b05815a0161356"),
    "train-3d-dense": (426, "4f222c91f7a29686"),
    "train-3d-strided": (72, "ba04b51eaa36497d"),
    "train-2d": (4917, "dd14503e6dfc94e0"),
    "train-3d": (498, "1955d2664b6930bc"),
    "train": (5415, "deab8c605f282bb3"),
    "training": (5869, "80ad55cbca492c44"),
    "validation": (318, "d861dc1895738108"),
    "wide": (4893, "3ddd5eae9af2fcfc"),
    "edge": (4542, "85972f1ceae4684d"),
    "host-train": (1296, "119f967595c35c10"),
    "resnet50": (69, "d2021a15bc9c5eeb"),
    "resnext50": (72, "ba149ebbd0ca1782"),
    "mobilenet-v2": (90, "dbc4ee38380372b4"),
    "mobilenet-v3-large": (132, "988252259cf53183"),
    "efficientnet-b0": (138, "e7d1b4a065e67fdb"),
    "shufflenet-v2": (48, "90e99a7191f234fa"),
    "vgg16": (27, "699eac4f36571294"),
    "densenet121": (198, "e55fc8d146a5a64c"),
    "inception-v3": (129, "43c794326f55d189"),
    "convnext-tiny": (48, "a30fba517c2653a8"),
    "unet": (57, "b1087f7660a5291d"),
    "r3d18": (33, "b72fae85b4cea1e7"),
    "r3d18-8x56": (33, "0730171f08cb878e"),
    "r3d18-8x32": (33, "2355b7d873aa56b6"),
    "r2plus1d18": (75, "72acc283f5fcacb3"),
    "r2plus1d18-16x32": (75, "424d3e0bd160712e"),
    "holdout": (2292, "ee985a72c1c26d2e"),
    "host-holdout": (390, "8465a3524618fa10"),
}


@pytest.mark.slow
def test_sets_never_change() -> None:
    """Training and evaluation sets are fixed, with their order: a deliberate change is recorded here."""
    content = {}
    for name in set_names():
        lines = [problem.canonical() for variant in DIRECTIONS for problem in problem_set(name, variant)]
        content[name] = len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert content == CONTENT


@pytest.mark.parametrize("variant", DIRECTIONS)
def test_train_is_the_union_of_its_subsets(variant: Direction) -> None:
    """`train` is the union of the families, and `train-2d` and `train-3d` partition it."""
    whole = set(problem_set("train", variant))
    assert whole == {p for name in FAMILIES for p in problem_set(f"train-{name}", variant)}
    assert whole == {*problem_set("train-2d", variant), *problem_set("train-3d", variant)}
    assert {p.ndim for p in problem_set("train-3d", variant)} == {3}


@pytest.mark.parametrize("variant", DIRECTIONS)
@pytest.mark.parametrize("training", TRAINING_SETS)
def test_no_training_set_holds_a_holdout_problem(training: str, variant: Direction) -> None:
    """No problem of a training set is in any hold-out set of its direction, `host-train`'s at no batch size."""
    held_out = {p for name in (*NETWORKS, "holdout", "host-holdout") for p in problem_set(name, variant)}
    learned = problem_set(training, variant)
    assert not set(learned) & held_out
    assert training != "host-train" or not {replace(p, n=1) for p in learned} & held_out


@pytest.mark.parametrize("name", set_names())
def test_every_set_is_distinct_and_as_requested(name: str) -> None:
    """A set has no duplicates, the requested direction and dtype, and 3D problems that AMD's columns tell from 2D."""
    problems = problem_set(name, Direction.BWD_WEIGHT, "fp16")
    assert len(set(problems)) == len(problems) > 0
    assert {(p.variant, p.dtype) for p in problems} == {(Direction.BWD_WEIGHT, "fp16")}
    assert all((p.di, p.z) != (1, 1) for p in problems if p.ndim == 3)


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
