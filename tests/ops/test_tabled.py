"""An operation that the guide states by a table goes through conversion, training, evaluation and prediction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import DataError, ExitCode, UsageError
from ckh.ops.conformance import CHECKS, Example
from ckh.ops.tabled import Tabled
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs" / "adding-an-operation.md").read_text(encoding="utf-8")
CODE, POINT, COMMANDS = (
    re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0] for language in ("python", "toml", "sh")
)
ROWS, COLS, BLOCKS = (1024, 4096, 8192), (100, 1000, 4096, 16384), (128, 256, 512)


def microseconds(rows: int, cols: int, block: int, way: str) -> float:
    """Time of a kernel: one pass is faster for long rows, and a block that is longer than a row wastes time."""
    passes = 1.3 if way == "online" else 1 + cols / 16384
    return rows * passes * block * -(-cols // block) / 1e6 + 2


@pytest.fixture
def ckh(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command with the page's package installed, in a folder with a table of times."""
    info = tmp_path / "ckh_softmax-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ckh-softmax\nVersion: 1.0\n", encoding="utf-8")
    lines = POINT.replace('project.entry-points."ckh.operations"', "ckh.operations").replace('"', "")
    (info / "entry_points.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "ckh_softmax.py").write_text(CODE, encoding="utf-8")
    times = (
        f"softmax_{dtype}_block{block}_{way},{rows},{cols},{microseconds(rows, cols, block, way):.4f}"
        for dtype, rows, cols, block, way in product(("fp16", "fp32"), ROWS, COLS, BLOCKS, ("online", "twopass"))
    )
    (tmp_path / "times.csv").write_text("\n".join(["name,rows,cols,us", *times]), encoding="utf-8")
    (tmp_path / "shapes.csv").write_text("rows,cols\n4096,1000\n", encoding="utf-8")
    own = {"CKH_CACHE_DIR": "cache", "CKH_DATA_DIR": "data", "PYTHONPATH": "."}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ckh", *command],
            cwd=tmp_path,
            env={**os.environ, **{name: str(tmp_path / value) for name, value in own.items()}},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
def test_the_pages_commands_work(ckh: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """20 lines are enough; the four commands succeed, and the first kernel is the fastest of the table's."""
    assert len(CODE.splitlines()) <= 20
    small = {"train": ("--trees", "60", "--leaves", "8", "--folds", "3")}
    for line in COMMANDS.splitlines():
        _, command, *options = line.split()
        done = ckh(command, *options, *small.get(command, ()), "--json")
        assert done.returncode == ExitCode.OK, (line, done.stderr)
    sizes = ("--rows", "4096", "--cols", "1000", "--arch", "gfx942", "--model", "softmax-model")
    answer = json.loads(ckh("predict", "--op", "softmax", *sizes, "--json").stdout)
    assert answer["candidates"] == len(BLOCKS) * 2
    best = min(product(BLOCKS, ("online", "twopass")), key=lambda item: microseconds(4096, 1000, *item))
    first = answer["kernels"][0]
    assert "softmax_fp16_block{}_{}".format(*best) in {first["kernel"], *first["tied"]}
    done = ckh("predict", "--op", "softmax", "--rows", "4", "--arch", "gfx942", "--model", "softmax-model")
    assert done.returncode == ExitCode.USAGE
    expect_error(done.stderr, "missing-option", "--cols")


def the_pages() -> Any:
    """Return the record of the page's code."""
    names: dict[str, Any] = {}
    exec(CODE, names)  # noqa: S102 - the page's own example
    return names["OPERATION"]


def test_names_and_problems() -> None:
    """Both come back from their texts; others are refused, as are sizes and element types that no problem has."""
    op = the_pages()
    problem = op.problems.parse("softmax_fp16_rows4_cols100")
    assert (problem.flops, problem.bytes, problem.rows) == (2000, 1600, 4)
    name = "softmax_fp32_block256_online"
    kernel = op.kernels.parse(name)
    assert (kernel.block, kernel.way, kernel.dtype, op.kernels.name(kernel)) == (256, "online", "fp32", name)
    assert op.kernels.mismatch(kernel, problem)
    for wrong in ("softmax_fp32_block0256_online", "softmax_fp32_block256_once", "softmax_bf16_block1_online"):
        with expect_refusal(DataError, "bad-kernel", wrong):
            op.kernels.parse(wrong)
    with expect_refusal(UsageError, "bad-problem"):
        op.problems.parse("softmax_fp16_rows4")
    for changes, code in (({"rows": 0}, "out-of-range"), ({"dtype": "fp9"}, "unknown-dtype")):
        with expect_refusal(UsageError, code):
            problem.replaced(**changes)


def test_features_are_those_of_sizes_and_parameters() -> None:
    """Each size as a logarithm and in pieces of each integer; a word is its place in the pattern."""
    op = the_pages()
    kernels = [op.kernels.parse(f"softmax_fp16_block256_{way}") for way in ("twopass", "online")]
    columns = op.problems.features([op.problems.parse("softmax_fp16_rows4_cols1000")])
    columns |= op.kernels.features(kernels, None)
    names = ["log2_rows", "block", "way", "cols_per_block", "cols_fills_block"]
    assert op.training.engine.matrix(columns, {}, names).tolist() == [[2, 256, way, 4, 1000 / 1024] for way in (1, 0)]


@pytest.mark.parametrize("check", ["record", "sets"])
def test_it_conforms(check: str) -> None:
    """The record passes the checks that need neither an installed package nor a model."""
    op = the_pages()
    assert list(CHECKS[check](Example(op, [op.problems.parse("softmax_fp16_rows4_cols100")], "gfx942"))) == []


def test_a_pattern_need_not_state_the_element_type() -> None:
    """Then all problems and kernels have the declared one."""
    op = Tabled("copy", "copies", ("count",), "copy{unroll}", lambda p: p.count, lambda p: p.count, "fp32").operation()
    kernel = op.kernels.parse("copy8")
    assert (kernel.unroll, kernel.dtype) == (8, "fp32")
    assert op.problems.parse("copy_fp32_count9").dtype == "fp32"
