"""A kernel's registers in short form, and the table of them in a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ckh
from ckh.archs import load_arch
from ckh.assess.report import Choice
from ckh.commands.report import _machine_code
from ckh.isa import brief as briefs
from ckh.isa.brief import brief
from ckh.learn.models.artifact import load_model
from ckh.ops import operation
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.isa.keep import LEAST

ROOT = Path(__file__).parents[2]
CONV = operation("grouped_conv")
PROBLEM = ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
SHORT = "grouped_conv_forward_bf16_2d_16x64x64_compv3_intrawave"


def shipped_line(name: str) -> list[object]:
    """A kernel's line in archspecs/compiled: its name, then eight counts of resources."""
    lines = (ROOT / "archspecs" / "compiled" / "gfx950-grouped_conv.jsonl").read_text(encoding="utf-8").splitlines()
    return next(row for row in map(json.loads, lines[1:]) if row[0] == name)


@pytest.fixture
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel was compiled here."""
    monkeypatch.setattr(briefs, "of_compiled", lambda *_: None)


@pytest.mark.usefixtures("not_compiled")
def test_shipped_registers_are_known_by_complete_and_by_short_names() -> None:
    """Registers equal the file's; blocks of four waves on four SIMDs equal the waves per SIMD."""
    result = brief(CONV, LEAST, PROBLEM, "gfx950")
    assert result is not None
    _, vgprs, agprs, sgprs, lds, *_, occupancy = shipped_line(LEAST)[:9]
    taken = result.resources
    assert (result.kernel, taken.vgprs, taken.agprs, taken.sgprs, taken.lds_bytes) == (LEAST, vgprs, agprs, sgprs, lds)
    assert result.blocks_per_cu == occupancy
    assert result.bound_by == "vector registers"
    assert result.clocks == {}
    assert brief(CONV, SHORT, PROBLEM, "gfx950") == result


@pytest.mark.usefixtures("not_compiled")
def test_unknown_kernels_have_no_registers() -> None:
    """A kernel that does not ship, and an architecture without a file."""
    assert brief(CONV, LEAST.replace("16x64x64", "256x256x64"), PROBLEM, "gfx950") is None
    assert brief(CONV, LEAST, PROBLEM, "gfx1200") is None
    assert load_arch("gfx1200").is_gpu


@pytest.mark.slow
@pytest.mark.usefixtures("decoder")
def test_clocks_of_a_kernel_that_was_compiled(least: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They equal those of `ckh explain`, counted by hand in its test; the table has a column per pipe."""
    anatomy = ckh.explain(LEAST, code_object=least)
    monkeypatch.setattr(briefs, "of_compiled", lambda name, *_: anatomy if name == LEAST else None)
    result = brief(CONV, SHORT, PROBLEM, "gfx950")
    assert result is not None
    assert (result.clocks["vector ALU"], result.clocks["matrix"]) == (464, 64)
    other = SHORT.replace("16x64x64", "64x64x64")
    worst = [Choice(PROBLEM.canonical(), LEAST, 2.0, best, 1.0, True, 0.5, False, "") for best in (SHORT, other, other)]  # noqa: FBT003
    table = _machine_code(worst, load_model(ROOT / "models" / "grouped_conv_forward_bf16_gfx950").spec)
    assert table is not None
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["kernel"] == LEAST, row["chosen"], row["best"]) for row in rows] == [
        (True, "3", "1"),
        (False, "", "2"),
    ]
    assert [row["vector ALU clocks"] for row in rows] == ["464", ""]
    (main,) = [function for function in anatomy.functions if function.runs]
    assert rows[0]["VGPRs"] == str(main.resources.vgprs)


@pytest.mark.usefixtures("not_compiled")
def test_the_host_has_no_machine_code() -> None:
    """Without a known kernel there is no table."""
    spec = load_model(ROOT / "models" / "grouped_conv_forward_fp32_host").spec
    name = "grouped_conv_fwd_fp32_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_4x1x1_16x16x16"
    assert _machine_code([Choice(PROBLEM.canonical(), name, 2.0, name, 1.0, True, 0.5, False, "")], spec) is None  # noqa: FBT003
