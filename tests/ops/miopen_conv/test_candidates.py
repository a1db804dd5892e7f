"""Candidate solvers of a problem, and reasons for the exclusion of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from ckh.errors import CkhError
from ckh.files.paths import data_dir
from ckh.ops.miopen_conv.kernels.pool import (
    CANDIDATES_NAME,
    SolverCandidate,
    candidates,
    group_name,
    make_table,
    read_candidates,
)
from ckh.ops.miopen_conv.problem import MiopenProblem, parse_miopen_problem
from ckh.ops.miopen_conv.readers.fdb import FdbDevice
from ckh.ops.miopen_conv.readers.solver_table import from_frame, read_parquet
from ckh.problems import Direction
from tests.refusals import expect_reasons

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = FdbDevice("gfx90a", 104)
DENSE_3X3 = MiopenProblem(Direction.FORWARD, 2, 8, 16, 1, 14, 14, 3, 3, pad_h=1, pad_w=1)


@pytest.fixture
def many(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame's rows with 60 heights each and channels 16, 32, ...: enough for common properties."""
    made: pd.DataFrame = pd.concat(
        [frame.assign(Hi=14 + i, C=16 * (1 + i % 3), time_ms=1.0) for i in range(60)], ignore_index=True
    )
    return made


def test_few_rows_derive_no_condition(frame: pd.DataFrame) -> None:
    """A solver measured once is a candidate for its whole group unless its name excludes it; most measured first."""
    table = make_table(from_frame(frame, DEVICE).frame)
    assert candidates(DENSE_3X3, table).solvers == ("ConvBinWinogradRxSf3x2", "GemmFwdRest")
    assert candidates(DENSE_3X3, table).refused == {"GemmFwd1x1_0_2 is for 1x1 filters": 1}


def test_known_candidates_are_extended(frame: pd.DataFrame, many: pd.DataFrame) -> None:
    """A table extended by new rows equals the table of all rows, and a solver requires what both have in common."""
    first = make_table(from_frame(many, DEVICE).frame)
    wider = many.assign(C=8 * (1 + many["Hi"] % 3))
    added = make_table(from_frame(wider, DEVICE).frame, first)
    both = make_table(pd.concat([from_frame(many, DEVICE).frame, from_frame(wider, DEVICE).frame], ignore_index=True))
    assert added == both
    needs = {candidate.solver: candidate.divisors for group in added.groups.values() for candidate in group}
    assert needs["GemmFwdRest"] == {"c_per_group": 8, "k_per_group": 16}
    others = frame.assign(direction="B")
    assert set(make_table(from_frame(others, DEVICE).frame, first).groups) > set(first.groups)


def test_a_solver_for_1x1_filters_is_no_candidate_for_others() -> None:
    """The solver's name decides, even if it was measured on too few problems."""
    table = read_candidates(data_dir("models") / "miopen_conv_gfx942")
    sizes = "n16_c256_k256_g1_i28x28"
    other = parse_miopen_problem(f"miopen_conv_forward_fp16_nchw_2d_{sizes}_f3x3_s1x1_p1x1_d1x1")
    own = parse_miopen_problem(f"miopen_conv_forward_fp16_nchw_2d_{sizes}_f1x1_s1x1_p0x0_d1x1")
    assert "GemmFwd1x1_0_2" in candidates(own, table).solvers
    solver_candidates = candidates(other, table)
    assert not [name for name in solver_candidates.solvers if "1x1" in name]
    assert solver_candidates.refused["GemmFwd1x1_0_2 is for 1x1 filters"] == 1


def test_many_rows_derive_a_condition(many: pd.DataFrame) -> None:
    """After 60 problems a solver of strided 1x1 filters and channels divisible by 16 is a candidate for such only."""
    table = make_table(from_frame(many, DEVICE).frame)
    assert candidates(DENSE_3X3, table).solvers == ()
    expect_reasons(
        sorted(candidates(DENSE_3X3, table).refused),
        ("ConvAsm1x1U", "Y = 1"),
        ("ConvBinWinogradRxSf3x2", "c_per_group", 16),
        ("GemmFwd1x1_0_2", "Y = 1"),
        ("GemmFwdRest", "c_per_group", 16),
    )
    assert set(candidates(DENSE_3X3, table).refused.values()) == {1}
    wide = MiopenProblem(Direction.FORWARD, 2, 48, 16, 1, 14, 14, 3, 3, pad_h=1, pad_w=1)
    assert candidates(wide, table).solvers == ("ConvBinWinogradRxSf3x2", "GemmFwdRest")
    strided = MiopenProblem(Direction.FORWARD, 2, 48, 16, 1, 14, 14, 1, 1, 2, 2)
    assert candidates(strided, table).solvers == ("ConvAsm1x1U", "GemmFwd1x1_0_2")


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"dtype": "fp16"}, "forward fp16 nchw 2D dense"),
        ({"layout": "nhwc"}, "forward fp32 nhwc 2D dense"),
        ({"g": 2}, "forward fp32 nchw 2D grouped"),
        ({"variant": Direction.BWD_DATA}, "bwd_data fp32 nchw 2D dense"),
    ],
)
def test_an_unmeasured_group_has_no_candidates(frame: pd.DataFrame, changes: dict[str, str], group: str) -> None:
    """Another direction, dtype, layout or grouping is another group; an unmeasured group gives that reason."""
    problem = MiopenProblem(**{**DENSE_3X3.to_dict(), **changes})
    assert group_name(problem) == group
    solver_candidates = candidates(problem, make_table(from_frame(frame, DEVICE).frame))
    assert solver_candidates.solvers == ()
    expect_reasons(solver_candidates.refused, (group,))
    assert list(solver_candidates.refused.values()) == [1]


def test_the_file_reads_back(tmp_path: Path, many: pd.DataFrame) -> None:
    """The table restored from a model's directory equals the original."""
    table = make_table(from_frame(many, DEVICE).frame)
    (tmp_path / CANDIDATES_NAME).write_text(table.to_json())
    assert read_candidates(tmp_path) == table
    weight = table.groups["bwd_weight fp32 nchw 2D dense"][0]
    assert isinstance(weight, SolverCandidate)
    assert (weight.measured, weight.fixed["Y"], weight.divisors) == (60, 3, {"c_per_group": 16, "k_per_group": 16})


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"groups": {"a": {"b": {"measured": "x"}}}}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str | None) -> None:
    """A file that is missing, not JSON or malformed is an error that names it."""
    if content is not None:
        (tmp_path / CANDIDATES_NAME).write_text(content)
    with pytest.raises(CkhError, match=r"candidates\.json"):
        read_candidates(tmp_path)


@pytest.mark.slow
def test_no_measured_solver_is_refused(mi200: Path) -> None:
    """For the problems of 600 sizes that are not in the table, over 99.9 % of the measured solvers are candidates."""
    times = read_parquet(mi200, DEVICE, skip_bad=True)
    sizes = times.size_ids()
    order = np.random.default_rng(0).permutation(sizes.max() + 1)
    table = make_table(times.select(order[sizes] >= 600).frame)
    assert json.loads(table.to_json())["groups"]
    held = times.select(order[sizes] < 600)
    of = [set(candidates(problem, table).solvers) for problem in held.problems()]
    names = held.frame["kernel"]
    result = [name in of[i] for i, name in zip(held.problem_ids(), names, strict=True)]
    assert np.mean(result) > 0.999
