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
