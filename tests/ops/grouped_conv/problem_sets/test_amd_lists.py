"""AMD's training and validation lists: completeness, order and overlap."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.ops.grouped_conv.problem_sets import amd_families, load_problems, problem_set
from ckh.ops.grouped_conv.problem_sets.amd_families import MIOPEN_FILE, VALIDATION_FILE
from ckh.problems import Direction

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.grouped_conv.problem import ConvProblem

BACKWARD = [Direction.BWD_DATA, Direction.BWD_WEIGHT]


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _families(variant: Direction) -> set[ConvProblem]:
    result = (p for name in amd_families.FAMILIES for p in amd_families.family(name, variant))
    return {replace(problem, variant=variant) for problem in result}


def test_the_validation_file_has_amds_300_entries() -> None:
    """250 entries are 2D, followed by 50 in 3D; two of the 2D entries are duplicates."""
    rows = _rows(VALIDATION_FILE)
    deep = [row["Di"] != "1" or row["Z"] != "1" for row in rows]
    assert deep == [False] * 250 + [True] * 50
    repeated = [row for row, count in Counter(tuple(row.values()) for row in rows).items() if count > 1]
    assert [tuple(map(int, row[:10])) for row in repeated] == [
        (16, 256, 128, 1, 1, 56, 56, 1, 3, 3),
        (2, 64, 128, 1, 1, 28, 28, 1, 1, 1),
    ]


def test_every_validation_problem_is_a_training_problem_of_amd() -> None:
    """AMD's validation list is drawn from the training grids: a wrongly copied number would not be in them."""
    problems = problem_set("validation")
    assert len(problems) == 298
    assert set(problems) <= _families(Direction.FORWARD)
    assert set(problems) <= set(problem_set("training"))


def test_validation_problems_are_in_amds_order() -> None:
    """The first, two intermediate and the last problem equal those of AMD's file."""
    problems = problem_set("validation", dtype="bf16")
    assert [problems[index].canonical() for index in (0, 3, 34, 297)] == [
        "conv_forward_bf16_nhwgc_2d_n4_c256_k256_g4_i28x28_f1x1_s1x1_p0x0_d1x1",
        "conv_forward_bf16_nhwgc_2d_n8_c64_k128_g1_i112x112_f3x3_s2x2_p1x1_d1x1",
        "conv_forward_bf16_nhwgc_2d_n16_c256_k256_g1_i56x56_f3x3_s1x1_p4x4_d4x4",
        "conv_forward_bf16_ndhwgc_3d_n8_c64_k128_g1_i8x56x56_f3x3x3_s1x1x1_p1x1x1_d1x1x1",
    ]


@pytest.mark.parametrize("variant", BACKWARD)
def test_backward_validation_is_ten_problems_of_the_training_grids(variant: Direction) -> None:
    """AMD has ten for both directions, all of them in its training grids."""
    problems = problem_set("validation", variant)
    assert len(problems) == 10
    assert set(problems) <= _families(variant)
    assert sum(p.y == 1 for p in problems) == 2
    assert {(p.n, p.c, p.k, p.hi) for p in problems} >= {(4, 64, 128, 32), (16, 256, 128, 14), (4, 32, 64, 112)}


def test_miopen_shapes_satisfy_amds_filter() -> None:
    """299 are valid convolutions; C and K are multiples of 16 from 64 on, and N is at most 16, as AMD states."""
    rows = _rows(MIOPEN_FILE)
    assert len(rows) == 299
    assert all(int(row[name]) >= 64 and int(row[name]) % 16 == 0 for row in rows for name in "CK")
    assert max(int(row["N"]) for row in rows) == 16
    problems = load_problems(str(MIOPEN_FILE))
    assert len(problems) == 294
    assert Counter((p.y, p.x) for p in problems).most_common(2)[0][0] == (1, 1)
    assert sum(p.hi != p.wi for p in problems) > 150
    assert max(p.g for p in problems) == 1488


@pytest.mark.parametrize(("variant", "count"), [(Direction.BWD_DATA, 1562), (Direction.BWD_WEIGHT, 2237)])
def test_training_is_complete(variant: Direction, count: int) -> None:
    """`training` is all of AMD's families, whereas `train` excludes the hold-out layers."""
    whole = set(problem_set("training", variant))
    assert whole == _families(variant)
    assert len(whole) == count
    assert whole - set(problem_set("train", variant)) == whole & set(problem_set("holdout", variant))


def test_forward_training_starts_with_the_shapes_of_miopen() -> None:
    """AMD lists them before its grids; six of them are in both."""
    problems, shapes = problem_set("training"), load_problems(str(MIOPEN_FILE))
    assert problems[: len(shapes)] == shapes
    assert set(problems) == {*shapes, *_families(Direction.FORWARD)}
    assert len(problems) == 294 + 1782 - 6 == 2070
