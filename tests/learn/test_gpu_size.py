"""The compute units of the GPU that is asked about reach every answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh
from ckh import archs, cli
from ckh.archs import load_arch
from ckh.errors import ExitCode
from ckh.files.paths import data_dir
from ckh.learn.analytic.corrected import corrected_inputs
from ckh.learn.analytic.transfer import estimate_model
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.explain import quantisation
from ckh.learn.answers.known import other_device
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.judging.judged_answers import answering_model
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.features import CORE_NAMES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.quick.answer import text_of
from ckh.quick.prepare import prepare
from ckh.quick.request import parse
from ckh.ranking.library import is_available
from ckh.text.log import written
from tests.learn.conftest import amd_model
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.models.artifact import Model

CONV = ConvProblem(Direction.FORWARD, 1, 320, 640, 1, 32, 32, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
GEMM = GemmProblem(1024, 4096, 4096, "bf16", "rcr")
GPUS = {"gfx942": 304, "mi300x": 304, "mi325x": 304, "mi300a": 228, "mi308x": 80}
LINE = "--n 1 --c 320 --hi 32 --dtype bf16"


def answering(gpu: str, problem: ConvProblem | GemmProblem) -> Model:
    """The model that answers for a GPU."""
    return AnsweringModels(gpu).answering(problem)


@pytest.mark.parametrize("problem", [CONV, pytest.param(GEMM, marks=pytest.mark.slow)], ids=["estimate", "model"])
def test_substitutes_have_the_compute_units_of_the_named_gpu(problem: ConvProblem | GemmProblem) -> None:
    """The estimate alone, and a model of another GPU that it completes: in features, times and rounds."""
    for gpu, cus in GPUS.items():
        model = answering(gpu, problem)
        ranking = ranking_of(problem, model)
        first = ranking.best(1)[0].kernel
        assert (model.spec.arch, model.hardware["num_cus"], model.num_cus) == ("gfx942", cus, None)
        found = quantisation(ranking, first)
        assert found.rounds == -(-found.blocks // cus)
    estimate = estimate_model(wanted_for(problem, "gfx942", 80))
    assert estimate.inputs.engine.features[0].name == "estimate"
    assert estimate.predict(problem, [first]) == estimate_model(wanted_for(problem, "mi308x")).predict(problem, [first])


def test_python_answers_for_the_named_gpu() -> None:
    """An MI300X and plain gfx942 have the same order, an MI308X another first kernel; for one problem or many."""
    first = {gpu: ckh.rank(CONV, 1, arch=gpu)[0].name for gpu in GPUS}
    assert first["gfx942"] == first["mi300x"] == first["mi325x"] != first["mi308x"]
    assert {gpu: ckh.rank_many([CONV], 1, arch=gpu)[0][0].name for gpu in GPUS} == first


def test_the_gpu_here_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition's compute units count for its architecture's name, not for a product's."""
    monkeypatch.setattr(archs, "cus_here", {"gfx942": 80}.get)
    cus = {gpu: answering(gpu, CONV).gpu.hardware.num_cus for gpu in ("gfx942", "mi300x", "mi308x")}
    assert cus == {"gfx942": 80, "mi300x": 304, "mi308x": 80}


def test_data_are_judged_on_the_measured_gpu() -> None:
    """The model that would answer for measured problems has the compute units of their device."""
    for cus in (80, 304):
        assert answering_model([CONV], "gfx942", cus).gpu.hardware.num_cus == cus


@pytest.mark.slow
@pytest.mark.skipif(not is_available(), reason="ckh was installed without its C part")
def test_quick_answers_are_of_the_named_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prepared answers of one GPU are not another's, and equal the full command's, in C."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path))
    printed = {}
    for gpu in GPUS:
        line = f"{LINE} --k 640 --arch {gpu} --json"
        request = parse(["predict", *line.split()])
        assert request is not None
        assert prepare(request)
        text = text_of(request)
        assert text is not None
        assert cli.run(["predict", *line.split()]) == 0
        printed[gpu] = capsys.readouterr().out
        assert written(text) == printed[gpu]
    first = {gpu: json.loads(text)["kernels"][0]["kernel"] for gpu, text in printed.items()}
    assert first["mi300x"] == first["gfx942"] != first["mi308x"]


@pytest.mark.slow
def test_a_model_of_this_gpu_keeps_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on other compute units than the named product's is said to be; as a feature they stay."""
    assert other_device("gfx942", "", 304, 304) == ""
    expect_values(other_device("gfx942", "", 304, 80), 304, 80)
    monkeypatch.setattr(archs, "cus_here", lambda _arch: 38)
    model = answering("gfx950", CONV)
    assert (model.hardware["num_cus"], model.gpu.hardware.num_cus) == (256, 38)
    trained = load_model(data_dir("models") / "grouped_conv_forward_bf16_gfx950")
    assert (trained.gpu.hardware.num_cus, load_arch("gfx950").hardware.num_cus) == (256, 38)
    assert corrected_inputs(trained.spec, lambda kernels: np.zeros(len(kernels))).engine.features[0].name == "estimate"


def test_amds_models_keep_their_compute_units(tmp_path: Path) -> None:
    """Features of AMD's models of gfx942 have 228 compute units on every GPU; estimates and rounds have the GPU's."""
    amd_model(tmp_path / "amd", CORE_NAMES, arch="gfx942", hardware=None)
    model = load_model(tmp_path / "amd")
    assert (model.hardware["num_cus"], model.gpu.hardware.num_cus) == (228, 304)


def test_other_compute_units_are_those_of_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--cus`, for masks: as of the product that has as many, and in problems that state compute units; not beyond."""
    of_code: list[int] = []
    monkeypatch.setattr("ckh.isa.source.of_compiled", lambda *asked: of_code.append(asked[-1]))

    def answer(line: str) -> dict[str, Any]:
        assert cli.run(["predict", *line.split(), "--json", "--explain"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    named, masked, whole = (answer(f"{LINE} --k 640 --arch {gpu}") for gpu in ("mi308x", "mi300x --cus 80", "mi300x"))
    assert masked["kernels"] == named["kernels"] != whole["kernels"]
    assert masked["explanation"] == named["explanation"]
    assert of_code == [80, 80, 304]
    gemm = "--op aiter_gemm --family a8w8_bpreshuffle --m 16 --n 7168 --k 2048 --arch gfx942 --cus 80"
    assert "_cu80_" in answer(gemm)["problem"]
    assert "_cu304_" in answer(f"{gemm} --num-cus 304")["problem"]
    assert cli.run(["predict", *f"{LINE} --arch mi300x --cus 305".split()]) == ExitCode.USAGE
    expect_values(capsys.readouterr().err, 304, 305, "[out-of-range]", "--cus")


def test_explain_counts_the_rounds_of_the_named_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """In the document of `ckh predict --explain`."""
    rounds = {}
    for gpu in ("gfx942", "mi308x"):
        assert cli.run(["predict", *f"{LINE} --k 4096 --arch {gpu} --explain --json".split()]) == 0
        first, _ = json.loads(capsys.readouterr().out)["explanation"]["quantisation"]
        rounds[gpu] = first["rounds"], -(-first["blocks"] // GPUS[gpu])
    assert all(stated == computed for stated, computed in rounds.values())
    assert rounds["gfx942"] != rounds["mi308x"]
