"""Tables of answers at 80 columns: parts of kernels' names as columns."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import ckh
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.answer_text import answer_text
from ckh.ops import operation_of_problem
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.problem import AiterMoe
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.text.log import written
from ckh.text.prose import whole_names

ROOT = Path(__file__).parents[2]
CONV = ConvProblem(Direction.FORWARD, n=16, c=256, k=256, g=1, hi=28, wi=28, y=3, x=3, pad_h=1, pad_w=1, dtype="bf16")
GEMM = GemmProblem(128, 1536, 7168, "fp32")


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of a table, whose first one is its number; lines that go on are joined."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if {"tile", "kernel"} & {*line.split()})
    rows: list[list[str]] = []
    for line in lines[start + 1 : next(n for n, line in enumerate(lines) if "--why" in line)]:
        if line[0].isdigit():
            rows.append(line.split())
        else:
            rows[-1] += line.split()
    return rows


def flags_between(first: Any, second: Any) -> list[str]:
    """Names of the fields in which two kernels differ, all of them flags; empty if others differ too."""
    changed = [name for name, value in asdict(first).items() if asdict(second)[name] != value]
    return changed if all(isinstance(getattr(first, name), bool) for name in changed) else []


@pytest.mark.usefixtures("narrow")
@pytest.mark.usefixtures("known_host")
@pytest.mark.parametrize(("problem", "arch"), [(CONV, "gfx950"), (CONV, "gfx942"), (GEMM, "host")])
def test_columns_are_parts_of_kernel_names(problem: ConvProblem | GemmProblem, arch: str) -> None:
    """Each row has the tile, waves, instruction and pipeline of the parsed name; figures only where there are some."""
    result = ckh.answer(problem, arch=arch)
    parse = operation_of_problem(problem).kernels.parse
    figures = 2 if result.kernels[0].tflops else 0
    for place, *cells in rows_of(written(answer_text(result, why=False))):
        kernel: Any = parse(result.kernels[int(place) - 1].kernel)
        sizes = [
            "x".join(str(getattr(kernel, f"{name}_{axis}")) for axis in "mnk") for name in ("tile", "wave", "warp_tile")
        ]
        assert [*sizes, kernel.pipeline] == cells[figures : figures + 4]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("problem", "arch"), [(GemmProblem(128, 1536, 7168, "bf16"), "gfx942"), (CONV, "gfx90a"), (CONV, "gfx950")]
)
def test_kernels_that_differ_by_a_flag_share_a_row(problem: ConvProblem | GemmProblem, arch: str) -> None:
    """The row names the later ones with their flag; no two rows differ by one alone."""
    result = ckh.answer(problem, 30, arch=arch)
    parse = operation_of_problem(problem).kernels.parse
    kernels = [parse(row.kernel) for row in result.kernels]
    rows = rows_of(written(answer_text(result, why=False)))
    joined = {int(place): int(row[0]) for row in rows for place in re.findall(r"row (\d+):", " ".join(row))}
    assert sorted([*joined, *(int(row[0]) for row in rows)]) == [*range(1, 1 + len(kernels))]
    assert all(first < place for place, first in joined.items())
    assert all(len(flags_between(kernels[first - 1], kernels[place - 1])) == 1 for place, first in joined.items())
    alone = [kernels[int(row[0]) - 1] for row in rows]
    assert not any(len(flags_between(*pair)) == 1 for pair in combinations(alone, 2))
    assert joined or arch == "gfx950"


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    "asked",
    [
        "--n 16 --c 256 --arch gfx950",
        "--n 16 --c 256 --arch gfx942",
        "--m 128 --n 1536 --k 7168 --arch gfx942",
        "--m 4096 --n 4096 --k 4096 --arch gfx950 --dtype fp8",
        "--op aiter_gemm --family a8w8_bpreshuffle --m 16 --n 7168 --k 2048 --arch gfx950",
    ],
)
def test_an_answer_has_ten_lines(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Problem, basis, five kernels and one command that goes on; --why has the problem's text and the counts."""
    texts = []
    for more in ([], ["--why"], ["--json"]):
        assert run(["predict", *asked.split(), *more]) == ExitCode.OK
        texts.append(capsys.readouterr().out)
    lines, document = texts[0].splitlines(), json.loads(texts[2])
    assert 8 <= len(lines) <= 10
    assert max(map(len, lines)) <= 80
    following = " ".join(texts[0].partition("next ")[2].replace("\\\n", " ").split())
    assert following == (document["next_command"] or "")
    for part in (document["problem"], f"{document['candidates']} candidates"):
        assert part in texts[1]
        assert part not in texts[0]


@pytest.mark.usefixtures("narrow")
@pytest.mark.usefixtures("known_host")
@pytest.mark.parametrize(
    ("problem", "arch"),
    [
        (CONV, "gfx90a"),
        (GEMM, "host"),
        (GemmProblem(128, 1536, 7168, "bf16"), "gfx942"),
        (AiterGemm(16, 7168, 2048, num_cus=256, family="a8w8_bpreshuffle"), "gfx950"),
        (AiterMoe(64, 7168, 256, 256, 8, num_cus=304), "gfx942"),
    ],
)
def test_all_rows_are_distinct(problem: ConvProblem, arch: str) -> None:
    """The rows of thirty kernels differ in more than their rank, and all lines up to the hint fit."""
    text = written(answer_text(ckh.answer(problem, 30, arch=arch), why=False))
    rows = rows_of(text)
    assert len({tuple(row[1:]) for row in rows}) == len(rows) > 5
    assert max(map(len, text.partition("--why")[0].splitlines())) <= 80


def test_wide_shows_names() -> None:
    """With --wide a row ends with the complete name."""
    result = ckh.answer(CONV, arch="gfx950")
    with whole_names(is_whole=True):
        rows = rows_of(written(answer_text(result, why=False)))
    assert [cells[-1] for cells in rows] == [kernel.kernel for kernel in result.kernels]
