"""Explanations: contributions are additive, and sizes and nearest problems agree with plain arithmetic."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.explain import explain, word_of
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops import built_in_names, operation
from tests.learn.conftest import problems, saved
from tests.refusals import expect_error

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model."""
    return saved(tmp_path / "model")


@pytest.mark.parametrize("number", [0, 3, 7, 13])
def test_reasons_add_up_to_the_difference_of_scores(model: Path, number: int) -> None:
    """By groups and by features; the second's score plus the contributions is the first's."""
    ranking = ranking_of(problems()[number], load_model(model))
    said = explain(ranking)
    assert said is not None
    first, second = ranking.best(2)
    assert sum(reason.contribution for reason in said.reasons) == pytest.approx(first.score - second.score, abs=1e-12)
    assert said.difference == pytest.approx(first.score - second.score, abs=1e-12)
    assert (said.first, said.second) == (first.name, second.name)
    sizes = [abs(reason.contribution) for reason in said.reasons]
    assert sizes == sorted(sizes, reverse=True)
    for feature in said.features:
        assert feature.first != feature.second


def test_tile_quantization_by_hand(model: Path) -> None:
    """Tile fill and number of tiles, written out; the host computes one tile at a time."""
    problem = problems()[2]
    ranking = ranking_of(problem, load_model(model))
    said = explain(ranking)
    assert said is not None
    for quantisation, ranked in zip(said.quantisation, ranking.best(2), strict=True):
        kernel, (m, n, k) = ranked.kernel, problem.gemm_sizes
        tiles = [math.ceil(size / tile) for size, tile in ((m, kernel.tile_m), (n, kernel.tile_n), (k, kernel.tile_k))]
        assert quantisation.fill_m == pytest.approx(m / (tiles[0] * kernel.tile_m))
        assert quantisation.fill_n == pytest.approx(n / (tiles[1] * kernel.tile_n))
        assert quantisation.fill_k == pytest.approx(k / (tiles[2] * kernel.tile_k))
        assert quantisation.blocks == quantisation.rounds == tiles[0] * tiles[1] * problem.g
    assert said.roofline.intensity == pytest.approx(problem.flops / problem.bytes)
    assert said.roofline.bound is None
    assert [item.distance for item in said.nearest] == sorted(item.distance for item in said.nearest)
    assert said.nearest[0].problem == problem.canonical()


def test_features_of_every_operation_have_groups() -> None:
    """Features of all operations belong to groups; tile fill, waves and pipeline each have some where applicable."""
    words = {name: {word_of(name) for name in operation(name).training.engine.names} for name in built_in_names()}
    assert {"tile fill", "waves", "memory", "occupancy", "pipeline", "tile shape"} <= words["grouped_conv"]
    assert all({"waves", "memory", "pipeline"} <= word for word in words.values())
    known = {"average_fill_m": "tile fill", "last_wave_fill": "waves", "lds_usage_ratio": "occupancy"}
    known |= {"is_compv3": "pipeline", "log2_input_over_l2": "memory", "cu_utilization": "waves", "log2_N": "problem"}
    assert {name: word_of(name) for name in known} == known


@pytest.mark.slow
def test_a_gpu_has_a_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    """With gfx950's published peak rates: lower bound by the bottleneck, and waves over 256 compute units."""
    args = ["predict", "--n", "4", "--c", "256", "--arch", "gfx950", "--dtype", "bf16", "--explain"]
    assert run([*args, "--json"]) == ExitCode.OK
    said = json.loads(capsys.readouterr().out)["explanation"]
    roofline = said["roofline"]
    assert roofline["bound"] == ("compute" if roofline["intensity"] > roofline["ridge"] else "memory")
    assert 0 < roofline["least_ms"] < 0.1
    for item in said["quantisation"]:
        assert item["rounds"] == math.ceil(item["blocks"] / 256)
        assert item["last_fill"] == pytest.approx((item["blocks"] - 256 * (item["rounds"] - 1)) / 256)
    assert run(args) == ExitCode.OK
    text = capsys.readouterr().out
    assert all(name in text for name in ("why", "first", "second"))


def test_many_problems_are_not_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--explain is for one problem."""
    (tmp_path / "some.txt").write_text(problems()[0].canonical() + "\n", encoding="utf-8")
    assert run(["predict", "--problems", str(tmp_path / "some.txt"), "--explain"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "conflicting-options", "--explain")


def test_scores_without_tree_contributions_are_explained(model: Path) -> None:
    """Without contributions a score difference is not from trees, and no difference is a tie."""
    said = explain(ranking_of(problems()[0], load_model(model)))
    assert said is not None
    for difference, words in ((0.0, "a tie"), (0.25, "not ranked by trees")):
        alike = replace(said, difference=difference, reasons=(), features=())
        assert f"  scores     {difference:+.4f}; {words}" in alike.lines()
