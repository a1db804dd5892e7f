"""A caveat is a single function, listed once, and shown everywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ckh
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers import caveats
from ckh.learn.answers.answer import Answer, Caveat
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

LAYER = ConvProblem(Direction.FORWARD, n=16, c=256, k=256, g=1, hi=28, wi=28, y=3, x=3, pad_h=1, pad_w=1, dtype="bf16")


def _new(answer: Answer) -> Iterator[Caveat]:
    yield Caveat("new", f"new-{answer.rows.candidates}", {"candidates": answer.rows.candidates})


def test_a_new_caveat_is_shown_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text, JSON, answers for many problems and Python show it with its value."""
    monkeypatch.setattr(caveats, "_CAVEATS", (*caveats._CAVEATS, _new))
    answer = ckh.answer(LAYER, arch="gfx950")
    candidates = len(ckh.rank(LAYER, arch="gfx950"))
    assert answer.caveats[-1][:3] == ("new", f"new-{candidates}", {"candidates": candidates})
    args = ["predict", "--n", "16", "--c", "256", "--arch", "gfx950"]
    assert run(args) == ExitCode.OK
    assert f"new-{candidates}" in capsys.readouterr().out.split()
    assert run([*args, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["caveats"][-1] == {
        "kind": "new",
        "message": f"new-{candidates}",
        "data": {"candidates": candidates},
    }
    problems = tmp_path / "layers.csv"
    problems.write_text("N,C,K,G,Hi,Wi,Y,X\n16,256,256,1,28,28,3,3\n8,256,256,1,28,28,3,3\n", encoding="utf-8")
    assert run(["predict", "--problems", str(problems), "--arch", "gfx950"]) == ExitCode.OK
    words = capsys.readouterr().out.split()
    assert words.count(f"new-{candidates}") == 1
    assert words[words.index(f"new-{candidates}") - 5 :][:3] == ["of", "2", "problems,"]


def test_the_interval_is_around_the_shortest_time() -> None:
    """Both ends in ms, of the fastest row, with three digits."""
    answer = ckh.answer(LAYER, arch="gfx950")
    (caveat,) = (item for item in answer.caveats if item.kind in {"interval", "not-calibrated"})
    shortest = min(row.latency_ms for row in answer.kernels if row.latency_ms is not None)
    low, high = (f"{caveat.data[name] * shortest:#.3g}" for name in ("low", "high"))
    assert f"{low}–{high} ms" in caveat.message


def test_a_first_kernel_that_adds_rounded_parts_is_said_to() -> None:
    """One stage rounds parts of K of a 16-bit gradient before it adds them; others have no such caveat."""
    head, tail = "grouped_conv_bwd_weight", "nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec8_8_8"
    names = {
        f"{head}_bf16_{tail}_splitk4": [(4, "bf16")],
        f"{head}_fp16_{tail}_splitk16": [(16, "fp16")],
        f"{head}_bf16_{tail}_2stage_splitk4": [],
        f"{head}_bf16_{tail}": [],
        f"{head}_fp32_nhwgc_2d_compv3_cshuffle_intrawave_64x64x16_2x2x1_32x32x8_vec4_4_4_splitk4": [],
    }
    for name, expected in names.items():
        problem = LAYER.replaced(variant=Direction.BWD_WEIGHT, dtype=name.split("_")[4])
        answer = ckh.answer(problem, arch="gfx942", kernels=[name])
        found = [caveat for caveat in answer.caveats if caveat.kind == "inexact"]
        for caveat, values in zip(found, expected, strict=True):
            expect_values(" ".join(map(str, caveat.data.values())), *values, "float32")


def test_a_partition_is_estimated_with_a_whole_gpus_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    """Which the answer says for numbers of compute units that no product has: an MI300X in CPX or DPX."""
    for options, cus in ((["--cus", "38"], 38), (["--cus", "152"], 152), (["--cus", "304"], 0), ([], 0)):
        assert run(["predict", "--n", "16", "--c", "256", "--arch", "gfx942", *options, "--json"]) == ExitCode.OK
        document = json.loads(capsys.readouterr().out)
        said = [caveat["data"] for caveat in document["caveats"] if caveat["kind"] == "whole-bandwidth"]
        assert said == ([{"num_cus": cus}] if cus else [])
    assert run(["predict", "--n", "16", "--c", "256", "--arch", "gfx942", "--cus", "38"]) == ExitCode.OK
    expect_values(capsys.readouterr().out, "bandwidth", "gfx942", 38)
