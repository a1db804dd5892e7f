"""How many first kernels to measure: places of good kernels, the conformal number of them, and who states it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.judging.calibrate import WITHIN, covering, covering_sets, first_places
from ckh.learn.models.artifact import load_model
from ckh.learn.models.calibration import CALIBRATION_NAME, Calibration
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.running import probing
from ckh.training import TrainOptions
from tests.learn.conftest import HOST, TREES, build, measured, problems, saved, time_ms

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.learn.answers.ranking import Ranking

LAYER = ckh.problem("conv_forward_bf16_nhwgc_2d_n16_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1")
LARGER = replace(problems()[0], n=512)
FLAT = [problem for problem in problems() if problem.ndim == 2]
POOL = [kernel for kernel in conv_pool(Direction.FORWARD, HOST, 2) if kernel.tile_m == kernel.tile_n == 64]
SETS = Calibration((), (), 1.0, ((0.0, 0.8, 1.2),), 20, ((0.0, 7), (0.02, 3), (0.05, 1)))


def rows(*, failed: tuple[int, ...] = (), without: tuple[int, ...] = ()) -> tuple[Dataset, Dataset]:
    """All kernels of a tile on each problem, and the rows that have a time."""
    made = [(problem, kernel, time_ms(problem, kernel)) for problem in FLAT for kernel in POOL]
    draw = np.random.default_rng(3)
    made = [(problem, kernel, ms * draw.uniform(1, 1.3)) for problem, kernel, ms in made]
    kept = [row for number, row in enumerate(made) if number not in without]
    tried = build(kept, failed)
    return tried, tried.valid()


def test_each_layer_counts_alike_and_one_more_is_allowed_for() -> None:
    """Of L layers 95 % of L + 1 must be covered: all of 19, none are enough of 18, and 38 of 39."""
    places = np.arange(1.0, 20)
    assert covering(places, np.arange(19)) == 19
    assert covering(places[:18], np.arange(18)) is None
    assert covering(np.arange(1.0, 40), np.arange(39)) == 38
    many: NDArray[np.float64] = np.r_[np.ones(39), np.full(100, 9.0)]  # a layer of a hundred problems
    assert covering(many, np.r_[np.arange(39), np.full(100, 39)]) == 1
    assert covering(many, np.arange(139)) == 9
    assert covering(np.r_[places, np.nan], np.arange(20)) == 19  # a problem without candidates is none
    assert covering(np.r_[np.arange(1.0, 39), np.inf], np.arange(39)) == 38
    assert covering(np.r_[places[1:], np.inf], np.arange(19)) is None


def test_the_stated_share_of_new_layers_is_covered() -> None:
    """Numbers from 60 layers of unequal size: on average at least 95 % of new layers are covered, and not all."""
    draw = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        level = draw.gamma(2.0, 2.0, 120)
        layer = np.repeat(np.arange(120), draw.integers(1, 9, 120))
        place = (1.0 + draw.poisson(level[layer])).astype(np.float64)
        known = layer < 60
        count = covering(place[known], layer[known])
        assert count is not None
        covered.append(np.mean([(place[layer == new] <= count).mean() for new in range(60, 120)]))
    assert 0.95 <= np.mean(covered) < 0.98


def test_places_are_those_of_an_answers_rows() -> None:
    """Compared with a loop over all kernels; equal scores are a row of which only the first kernel is measured."""
    tried, valid = rows()
    score = np.round(np.random.default_rng(1).normal(size=len(valid)), 1)  # with ties
    result = first_places(tried, valid, score)
    ms, place_of = valid.frame["latency_ms"].to_numpy(), {name: at for at, name in enumerate(map(ckh_name, POOL))}
    for number in range(len(FLAT)):
        of = np.flatnonzero(valid.problem_ids == number)
        seen: dict[float, Any] = {}
        for row in sorted(of, key=lambda row: (-score[row], place_of[valid.frame["kernel"][row]])):
            seen.setdefault(score[row], ms[row])
        for column, within in enumerate(WITHIN):
            near = [place for place, time in enumerate(seen.values(), 1) if time <= (1 + within) * ms[of].min()]
            assert result[number, column] == (near[0] if near else np.inf)


def ckh_name(kernel: Any) -> str:
    """The complete name of a kernel."""
    from ckh.ops.grouped_conv.kernel import kernel_name

    return kernel_name(kernel)


def test_failed_kernels_count_and_missing_ones_may_be_the_best() -> None:
    """A failure of the first problem adds a place to each; without a row of it, and of a twelfth, nothing is known."""
    tried, valid = rows()
    score = -valid.frame["latency_ms"].to_numpy()
    assert (first_places(tried, valid, score) == 1).all()
    slow = int(np.argmin(score[valid.problem_ids == 0]))
    tried, failing = rows(failed=(slow,))
    score = -failing.frame["latency_ms"].to_numpy()
    assert first_places(tried, failing, score).tolist() == [[2] * 3, *[[1] * 3] * (len(FLAT) - 1)]
    tried, missing = rows(without=(slow,))
    assert np.isinf(first_places(tried, missing, -missing.frame["latency_ms"].to_numpy())).all()


def test_nothing_is_stated_of_few_layers_or_of_unmeasured_candidates() -> None:
    """Twelve layers are too few; of 24 kernels of a pool with 300, a model ranks others too."""
    tried, valid = rows()
    assert covering_sets(tried, valid, -valid.frame["latency_ms"].to_numpy()) == ()
    some = measured().valid()
    assert np.isinf(first_places(measured(), some, -some.frame["latency_ms"].to_numpy())).all()


@pytest.fixture
def ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranking:
    """An answer of a model that states sets, on the CPU that measured them."""
    saved(tmp_path / "mine")
    (tmp_path / "mine" / CALIBRATION_NAME).write_text(SETS.to_json(), encoding="utf-8")
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "a test")
    return ranking_of(measured().problems()[0], load_model(tmp_path / "mine"))


def test_a_number_is_stated_where_it_was_calibrated(ranking: Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for sizes, a device or a list of kernels that the folds did not have, nor for all kernels."""
    assert ranking.answer(1, "").sets == {0.0: 7, 0.02: 3, 0.05: 1}
    assert ranking.answer(1, "ckh predict --n 1").next_command.endswith(" --probe auto")
    assert ranking_of(LARGER, ranking.model).answer(1, "").sets == {}
    rows = ranking.answer(1, "").rows
    assert ranking.answer(1, "").replaced(rows=rows._replace(candidates=3)).sets == {0.05: 1}
    note = ckh.answer(LAYER, arch="gfx950").rows.headers
    assert note is not None
    lacking = rows._replace(headers=note._replace(reasons={"a reason": 1}))
    assert ranking.answer(1, "").replaced(rows=lacking).sets == {}
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "another")
    assert ranking.answer(1, "").sets == {}


def test_estimates_and_borrowed_models_state_none() -> None:
    """The MI350's model of convolutions does for itself; not for another GPU, nor do models of winners."""
    own = ckh.answer(LAYER, arch="gfx950")
    assert set(own.sets) == set(WITHIN)
    assert [own.sets[within] for within in WITHIN] == sorted(own.sets.values(), reverse=True)
    gemm = ckh.GemmProblem(m=512, n=4096, k=4096, dtype="fp8")
    for other in (ckh.answer(LAYER, arch="gfx942"), *(ckh.answer(gemm, arch=arch) for arch in ("gfx942", "gfx950"))):
        assert other.sets == {}
        assert not [caveat for caveat in other.caveats if caveat.kind == "measure-first"]


def test_text_and_json_state_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    """In ten lines, and as numbers."""
    args = ["predict", "--n", "16", "--c", "256", "--arch", "gfx950"]
    assert run(args) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert run([*args, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    stated = {item["within"]: item["kernels"] for item in document["measure"]}
    assert stated.keys() == set(WITHIN)
    assert {item["covered"] for item in document["measure"]} == {0.95}
    (line,) = (line for line in lines if line.startswith("measure "))
    assert [word for word in line.replace(":", "").split() if word.isdigit()] == [str(stated[0.02]), "2", "95", "100"]
    assert {"kernels": stated[0.02]} in [item["data"] for item in document["caveats"]]


def test_as_many_are_probed_as_are_stated(ranking: Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three by this model, five where it states no number, and as many as are given."""
    counts = []

    def compare(_device: object, tasks: dict[str, list[object]], *_: object) -> None:
        counts.append([len(kernels) for kernels in tasks.values()])

    monkeypatch.setattr("ckh.bench.supervision.driver.compare_kernels", compare)
    far = ranking_of(LARGER, ranking.model)
    for count in (0, 4):
        probing.probe_all([ranking, far], count, 1.0)
    assert counts == [[3, 5], [4, 4]]


@pytest.mark.parametrize("text", ["many", "-1", "1.5", ""])
def test_a_wrong_number_to_probe_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the value."""
    assert run(["predict", "--n", "1", "--c", "64", "--arch", "host", "--probe", text]) == ExitCode.USAGE
    assert "[bad-number]" in capsys.readouterr().err


@pytest.mark.slow
def test_training_states_them_by_its_folds(tmp_path: Path) -> None:
    """Of 24 layers with all kernels of a tile; not if a quarter of the rows was never tried."""
    layers = [replace(problem, k=k) for problem in FLAT for k in (problem.k, 2 * problem.k)]
    made = [(problem, kernel, time_ms(problem, kernel)) for problem in layers for kernel in POOL]
    options = TrainOptions(folds=3, early_stopping=5, params=TREES)
    whole, partly = (train(build(list(rows)), options, lambda *_: None) for rows in (made, made[: -len(made) // 4]))
    assert whole.calibration is not None
    counts = dict(whole.calibration.sets)
    assert counts.keys() == set(WITHIN)
    assert len(POOL) >= counts[0.0] >= counts[0.02] >= counts[0.05] >= 1
    save(whole, tmp_path / "mine")
    calibration = load_model(tmp_path / "mine").calibration
    assert calibration is not None
    assert calibration.sets == whole.calibration.sets
    assert partly.calibration is None or partly.calibration.sets == ()
