"""Answers with known CK Tile headers: kernels that these cannot build are marked and rank last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from ckh.archs import load_arch
from ckh.bench.compilation.hip_toolchain import known_ck_tile
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.answer_rows import tied
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.api import rank, rank_many
from ckh.learn.answers.ranking import ranking_of
from ckh.ops.grouped_conv.kernel import ConvKernel
from ckh.ops.grouped_conv.measuring.hip_rules import detect_conv, missing
from ckh.problems import Direction
from ckh.quick.answer import text_of
from ckh.quick.prepare import prepare
from ckh.quick.request import parse
from ckh.text.log import written
from tests.bench.fake_hipcc import write_headers

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.base import Kernel

PROBLEM = ckh.ConvProblem(Direction.BWD_WEIGHT, n=8, c=64, k=64, g=1, hi=14, wi=14, y=3, x=3, dtype="bf16")
FORWARD = PROBLEM.replaced(variant=Direction.FORWARD)  # has a model on gfx950
LINE = "--variant bwd_weight --n 8 --c 64 --hi 14 --dtype bf16 --arch"


def without_compv4(include: Path) -> Path:
    """Create an include folder without that pipeline."""
    (write_headers(include) / "ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp").unlink()
    return include


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Headers like those of mid-2025 in the environment, without compv4 and others."""
    include = without_compv4(tmp_path / "include")
    monkeypatch.setenv("CK_TILE_INCLUDE", str(include))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path))
    return include


def lacks(kernel: Kernel, arch: str) -> list[str]:
    """The reasons for which `emit` refuses a kernel with the headers in the environment."""
    result = known_ck_tile()
    assert result is not None
    assert isinstance(kernel, ConvKernel)
    return missing(kernel, detect_conv(result), load_arch(arch))


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_kernels_that_headers_cannot_build_rank_last(arch: str) -> None:
    """Both parts keep their order, each kernel has its reason, and the rest of the answer is unchanged."""
    model = AnsweringModels(arch).answering(PROBLEM)
    plain = ranking_of(PROBLEM, model)
    ranked = rank(PROBLEM, arch=arch)
    reasons = [candidate.not_in_headers for candidate in ranked]
    assert reasons == [(lacks(candidate.kernel, arch) or [""])[0] for candidate in ranked]
    built = sum(not reason for reason in reasons)
    assert 0 < built < len(ranked)
    assert not any(reasons[:built])
    order = [candidate.kernel for candidate in plain.ranked]
    assert [candidate.kernel for candidate in ranked] == sorted(order, key=lambda kernel: bool(lacks(kernel, arch)))
    score = {candidate.kernel: (candidate.score, candidate.tflops) for candidate in plain.ranked}
    assert {candidate.kernel: (candidate.score, candidate.tflops) for candidate in ranked} == score


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize("top", [None, 3, 500])
def test_many_problems_are_ranked_as_each(top: int | None) -> None:
    """`rank_many` equals `rank`, also for rows of ties, with speeds and without."""
    problems = [
        PROBLEM,
        FORWARD,
        PROBLEM.replaced(variant=Direction.BWD_DATA),
    ]
    for arch in ("gfx942", "gfx950"):
        many = rank_many(problems, top, arch=arch)
        assert many == [rank(problem, top, arch=arch) for problem in problems]
        without = rank_many(problems, top, arch=arch, tflops=False)
        assert [[item.kernel for item in row] for row in without] == [[item.kernel for item in row] for row in many]


def document(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    """Return the output of `ckh predict --json`."""
    assert run(["predict", *line.split(), "--json"]) == ExitCode.OK
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_predict_names_the_headers(
    arch: str, headers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folder, interface and counts with headers; only the interface without."""
    known = document(capsys, f"{LINE} {arch} --top 300")
    told = known["headers"]
    assert (told["include"], told["interface"]) == (str(headers), "mid2025")
    shown = [(row["ties"], row["not_in_headers"]) for row in known["kernels"]]
    assert told["not_built"] == sum(told["reasons"].values()) == sum(ties for ties, reason in shown if reason) > 0
    assert set(told["reasons"]) >= {reason for _, reason in shown if reason}
    assert run(["predict", *f"{LINE} {arch} --top 300 --why".split()]) == ExitCode.OK
    text = capsys.readouterr().out
    assert text.count("headers") >= sum(bool(reason) for _, reason in shown) + len(told["reasons"])
    monkeypatch.setenv("CK_TILE_INCLUDE", "/nonexistent")  # so that none are found elsewhere
    unknown = document(capsys, f"{LINE} {arch} --top 300")
    assert unknown["headers"] == {"include": None, "interface": "late2025", "not_built": 0, "reasons": {}}
    assert not any(row["not_in_headers"] for row in unknown["kernels"])
    assert document(capsys, "--c 48 --arch host")["headers"] is None


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", " --json", " --why", " --top 40 --json"])
def test_quick_answers_know_headers_too(
    flags: str, headers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prepared answers depend on the headers: for another folder, or none, they are prepared again."""
    line = f"predict --n 8 --c 64 --dtype bf16 --arch gfx950{flags}".split()
    asked = parse(line)
    assert asked is not None
    other, lacking = without_compv4(headers.parent / "other"), []
    for include in (str(headers), str(other), ""):
        monkeypatch.setenv("CK_TILE_INCLUDE", include)
        assert text_of(asked) is None
        assert run(line) == ExitCode.OK
        printed = capsys.readouterr().out
        assert prepare(asked)
        assert written(text_of(asked) or "") == printed
        lacking.append("not in these headers" in printed or "have no pipeline compv4" in printed)
    assert lacking == [bool(flags), bool(flags), False]


def test_rows_do_not_mix_kinds() -> None:
    """Ties share a row only if the headers can build all of them or none."""
    score, lacks = [3.0, 3.0, 3.0, 1.0], [False, False, True, True]
    assert tied(score) == [(0, 3), (3, 4)]
    assert tied(score, lacks.__getitem__) == [(0, 2), (2, 3), (3, 4)]
    assert tied(score, lacks.__getitem__, None, 1, 1) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert tied(score, lacks.__getitem__, 2) == [(0, 2), (2, 3)]
