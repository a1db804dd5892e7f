"""Tables of answers at 80 columns: parts of kernels' names as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ckh
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
    """The cells of each row of a table, up to the line below it."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if set(line) == {"-", " "})
    end = next(number for number in range(start, len(lines)) if not lines[number] or "--wide" in lines[number])
    return [line.split() for line in lines[start + 1 : end]]


@pytest.mark.usefixtures("narrow")
@pytest.mark.usefixtures("known_host")
@pytest.mark.parametrize(("problem", "arch"), [(CONV, "gfx950"), (CONV, "gfx942"), (GEMM, "host")])
def test_columns_are_parts_of_kernel_names(problem: ConvProblem | GemmProblem, arch: str) -> None:
    """Each row has the tile, waves, instruction and pipeline of the parsed name."""
    result = ckh.answer(problem, arch=arch)
    parse = operation_of_problem(problem).kernels.parse
    rows = rows_of(written(answer_text(result, why=False)))
    for row, cells in zip(result.kernels, rows, strict=True):
        kernel: Any = parse(row.kernel)
        sizes = [
            "x".join(str(getattr(kernel, f"{name}_{axis}")) for axis in "mnk") for name in ("tile", "wave", "warp_tile")
        ]
        assert [*sizes, kernel.pipeline] == cells[3:7]


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
    """Thirty rows differ in more than their rank, and all lines of the table fit."""
    result = ckh.answer(problem, 30, arch=arch)
    lines = written(answer_text(result, why=False)).splitlines()
    start = next(number for number, line in enumerate(lines) if set(line) == {"-", " "})
    rows: list[str] = []
    for line in lines[start + 1 : lines.index("", start)]:
        place, _, rest = line.partition(" ")
        if place.isdigit():
            rows.append(rest)
        else:
            rows[-1] += line
    shown = rows[: len(result.kernels)]
    assert len(set(shown)) == len(result.kernels)
    assert max(map(len, lines[start : lines.index("", start)])) <= 80


def test_wide_shows_names() -> None:
    """With --wide a row ends with the complete name."""
    result = ckh.answer(CONV, arch="gfx950")
    with whole_names(is_whole=True):
        rows = rows_of(written(answer_text(result, why=False)))
    assert [cells[-1] for cells in rows] == [kernel.kernel for kernel in result.kernels]
