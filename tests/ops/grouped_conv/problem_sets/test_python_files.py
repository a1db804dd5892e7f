"""AMD's Python problem files: their problems are read, and nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.errors import DataError, ExitCode
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.grouped_conv.problem_sets import load_problems, problem_set
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.grouped_conv.problem import ConvProblem

GOOD = "N=1, C=8, K=16, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1"
LINE = "conv_forward_fp32_nhwgc_2d_n1_c8_k16_g1_i28x28_f3x3_s1x1_p1x1_d1x1"


def _write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _call(problem: ConvProblem) -> str:
    values = ", ".join(f"{column}={getattr(problem, name)}" for column, name in CONV_COLUMNS.items())
    return f"    GroupedConvProblem({values}, direction={str(problem.variant)!r}),"


@pytest.mark.parametrize("variant", Direction)
def test_problems_round_trip(tmp_path: Path, variant: Direction) -> None:
    """2D and 3D problems of each direction, with Di=1 and Z=1 stated in 2D, are restored in order."""
    problems = (*problem_set("host-holdout", variant, "bf16"), *problem_set("train-3d", variant, "bf16"))
    path = _write(tmp_path / "p.py", "PROBLEMS = [", *map(_call, problems), "]")
    assert load_problems(path, dtype="bf16") == problems


def test_nothing_is_executed(tmp_path: Path) -> None:
    """Statements around the list have no effect, even if importing the file would end the process."""
    ruin = tmp_path / "ruin"
    lines = ["import os, nowhere", f"open({str(ruin)!r}, 'w')", "os.abort()", f"P = [m.GroupedConvProblem({GOOD})]"]
    assert [p.canonical() for p in load_problems(_write(tmp_path / "p.py", *lines))] == [LINE]
    assert not ruin.exists()


def test_computed_problems_are_skipped_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems in loops, of variables or with positional values are counted, with the line of the first."""
    others = ["for n in (1, 2):", f"    P.append(GroupedConvProblem({GOOD.replace('1', 'n', 1)}))"]
    others += [f"GroupedConvProblem(**sizes, {GOOD})", "GroupedConvProblem(1, 8, 16)"]
    path = _write(tmp_path / "p.py", f"P = [GroupedConvProblem({GOOD})]", *others)
    assert len(load_problems(path)) == 1
    expect_values(capsys.readouterr().err, f"{path}:3", "3 of 4")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "no GroupedConvProblem"),
        ("for n in (1, 2):\n    GroupedConvProblem(N=n)", "no GroupedConvProblem"),
        ("x = (", ":1: not Python"),
        ("x = " + "-" * 200_000 + "1", "not a Python file that can be read"),
        ("x = 1" + "+1" * 200_000, "not a Python file that can be read"),
        ("x = 1\0", "not"),
        (f"GroupedConvProblem({GOOD}, N=2)", ":1: duplicate value"),
        (f"GroupedConvProblem({GOOD}, n=2)", ":1: duplicate value"),
        ("\nGroupedConvProblem(C=8, K=16, Hi=28, Wi=28, Y=3, X=3)", ":2: N missing"),
        (f"GroupedConvProblem({GOOD}, G=3)", ":1: C=8 is not divisible by G=3"),
        (f"GroupedConvProblem({GOOD}, G=True)", ":1: G must be an integer, not True"),
        (f"GroupedConvProblem({GOOD}, G=1.0)", ":1: G must be an integer, not 1.0"),
        (f"GroupedConvProblem({GOOD}, G='1')", ":1: G must be an integer, not '1'"),
        (f"GroupedConvProblem({GOOD}, G=-1)", ":1: G must be 1 or more"),
        (f"GroupedConvProblem({GOOD}, G=2147483648)", ":1: G must be 1 or more"),
        (f"GroupedConvProblem({GOOD}, G=0x{'f' * 9000})", ":1: G has more than 63 bits"),
        (f"GroupedConvProblem({GOOD}, strides=1)", ":1: unknown keys: 'strides'"),
        (f"GroupedConvProblem({GOOD}, direction='up')", ":1: unknown direction 'up'"),
        (f"GroupedConvProblem({GOOD}, direction=1)", ":1: variant must be text, not 1"),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    """The error names the file and, if there is one, the line."""
    path = _write(tmp_path / "p.py", content)
    with pytest.raises(DataError, match=message) as caught:
        load_problems(path)
    assert caught.value.message.startswith(path)
    assert "\n" not in caught.value.message


def test_another_direction_is_refused(tmp_path: Path) -> None:
    """A direction in the file is not replaced; without one the requested direction applies."""
    forward = _write(tmp_path / "f.py", f"GroupedConvProblem({GOOD}, direction='forward')")
    with expect_refusal(DataError, "mismatch", "variant", "forward", "bwd_data"):
        load_problems(forward, Direction.BWD_DATA)
    silent = _write(tmp_path / "s.py", f"GroupedConvProblem({GOOD})")
    assert load_problems(silent, Direction.BWD_DATA)[0].variant is Direction.BWD_DATA


def test_a_large_file_is_refused_unparsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a Python file is below that of text, as a syntax tree takes many times its memory."""
    monkeypatch.setattr("ckh.files.python_lists.MAX_SOURCE_BYTES", 1 << 20)
    with expect_refusal(DataError, "too-large", "1"):
        load_problems(_write(tmp_path / "p.py", "#" * (1 << 20), "x = ("))


def test_odd_strings_give_no_warning(tmp_path: Path) -> None:
    """Python's warnings about the file's source are suppressed."""
    assert len(load_problems(_write(tmp_path / "p.py", r"x = '\d'", f"GroupedConvProblem({GOOD})"))) == 1


def test_predict_exits_as_for_other_unreadable_files(tmp_path: Path) -> None:
    """A file without problems is bad data."""
    path = _write(tmp_path / "p.py", "x = 1")
    assert run(["predict", "--problems", path, "--arch", "gfx950"]) == ExitCode.BAD_DATA
