"""Out-of-distribution parts of an answer are reported, and equal what was left out of the training data."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.cli import run
from ckh.errors import ExitCode, ModelError
from ckh.files.paths import data_dir
from ckh.learn.answers import known as knowing
from ckh.learn.answers.batches import known_candidates
from ckh.learn.answers.known import Known, Outside, find_known
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import list_models, load_model
from ckh.learn.models.calibration import CALIBRATION_NAME, Calibration
from ckh.learn.models.manifest import problem_count
from ckh.learn.models.measured_set import MEASURED_NAME, measured_file, read_measured
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from tests.learn.conftest import HOST, measured, problems, saved, trained
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from pathlib import Path

DATA = measured().valid()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small host model whose data are from a device "a test"."""
    return saved(tmp_path / "model")


def test_a_model_stores_its_measurements(model: Path) -> None:
    """Limits, problems and the best kernel of each equal those of the rows, by a loop."""
    measured_set = read_measured(model)
    assert measured_set is not None
    assert list(measured_set.problems) == [problem.canonical() for problem in DATA.problems()]
    frame = DATA.frame
    assert measured_set.limits_by_size["n"] == (frame["N"].min(), frame["N"].max())
    assert set(measured_set.families) == set(frame["pipeline"])
    for number, (kernel, ms) in enumerate(measured_set.best):
        part = frame[DATA.problem_ids == number]
        assert measured_set.kernels[kernel] == part.loc[part["latency_ms"].idxmin(), "kernel"]
        assert ms == pytest.approx(part["latency_ms"].min(), rel=1e-5)


def test_the_nearest_problem_equals_brute_force(model: Path) -> None:
    """The order by distance in log sizes equals NumPy's over all problems."""
    measured_set = read_measured(model)
    assert measured_set is not None
    here = replace(problems()[3], n=3, c=96, k=24)
    values = np.log2(1 + np.array(measured_set.values, dtype=np.float64))
    place = np.log2([1 + getattr(here, name) for name in measured_set.sizes])
    distance = np.sqrt(((values - place) ** 2).sum(axis=1))
    nearest = measured_set.nearest(here, 5)
    assert [item.distance for item in nearest] == pytest.approx(np.sort(distance)[:5].tolist(), rel=1e-12)
    assert nearest[0].problem == measured_set.problems[int(distance.argmin())]


def test_sizes_outside_are_reported_with_their_factor(model: Path) -> None:
    """Sizes above and below the measured range, with the nearest measured problem; no caveat inside."""
    result = load_model(model)
    inside = ranking_of(problems()[0], result).known(5)
    assert (inside.outside, inside.nearest) == ((), None)
    far = ranking_of(replace(problems()[0], n=64, k=2), result).known(5)
    limits = result.measured.limits_by_size if result.measured else {}
    assert far.outside == (Outside("n", 64, *limits["n"]), Outside("k", 2, *limits["k"]))
    assert [outside.factor for outside in far.outside] == [64 / limits["n"][1], limits["k"][0] / 2]
    assert far.nearest is not None
    assert far.nearest.problem in far.line
    expect_values(far.line, "n = 64", 4, 16)


def test_another_device_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a host model the processor is compared, for a GPU its compute units; unknown values are ignored."""
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "a test")
    assert ranking_of(problems()[0], load_model(model)).known(5) == Known()
    assert knowing.other_device("host", "one CPU, a test", None) == ""
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "another")
    expect_values(ranking_of(problems()[0], load_model(model)).known(5).device, "a test")
    assert knowing.other_device("host", "", None) == ""
    assert knowing.other_device("gfx942", "", None) == ""


def test_another_number_of_compute_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of the same architecture with another number of compute units is another device."""
    node = tmp_path / "0"
    node.mkdir()
    (node / "properties").write_text("simd_count 320\nsimd_per_cu 4\ngfx_target_version 90402\n", encoding="utf-8")
    from ckh.hardware import gpus

    monkeypatch.setattr(knowing, "_DRIVER", tmp_path)
    monkeypatch.setattr(gpus, "visible_gpus", lambda: (gpus.Gpu(0, "gfx942", 80, 2100),))
    expect_values(knowing.other_device("gfx942", "", 304), 304, "gfx942", 80)
    assert knowing.other_device("gfx942", "", 80) == ""
    assert knowing.other_device("gfx950", "", 256) == ""


def test_unmeasured_kernel_families_are_reported(model: Path) -> None:
    """A model trained on some pipelines has a caveat if others are among its first kernels."""
    path = model / MEASURED_NAME
    document = json.loads(gzip.decompress(path.read_bytes()))
    first = ranking_of(problems()[0], load_model(model)).best(1)[0].kernel
    document["families"].remove(first.pipeline)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    known = ranking_of(problems()[0], load_model(model)).known(1)
    assert known.families == (first.pipeline,)
    expect_values(known.line, known.families[0])


def test_kernel_families_left_out_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pipelines without training rows are listed by --why and in JSON; the answer is in distribution."""
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "a test")
    some = measured().select(measured().frame["pipeline"].isin(["compv4", "compv6"]).to_numpy())
    save(train(some, replace(trained().options, folds=0), lambda _s, _t: None), tmp_path / "two")
    left_out = sorted({kernel.pipeline for kernel in conv_pool(Direction.FORWARD, HOST)} - {"compv4", "compv6"})
    args = ["predict", "--model", str(tmp_path / "two"), "--n", "4", "--c", "64"]
    line = ", ".join(left_out)
    assert run(args) == ExitCode.OK
    assert line not in capsys.readouterr().out
    assert run([*args, "--why"]) == ExitCode.OK
    assert line in " ".join(capsys.readouterr().out.split())
    assert run([*args, "--json"]) == ExitCode.OK
    known_part = json.loads(capsys.readouterr().out)["known"]
    assert (known_part["is_known"], known_part["left_out"], known_part["families"]) == (True, left_out, [])
    assert run([*args, "--require", "known"]) == ExitCode.OK
    candidates = known_candidates(problems()[0], load_model(tmp_path / "two"))
    mem = frozenset(kernel for kernel in conv_pool(Direction.FORWARD, HOST) if kernel.pipeline in {"mem", "compv4"})
    assert list(candidates.among(mem).left_out) == ["mem"]


def test_a_damaged_file_is_refused(model: Path) -> None:
    """Without it nothing would be out of distribution; a folder without the file, as AMD's, is still a model."""
    path, whole = model / MEASURED_NAME, (model / MEASURED_NAME).read_bytes()
    document = json.loads(gzip.decompress(whole))
    best, sizes = document["best"], document["sizes"]
    changes: list[tuple[str, object]] = [
        ("best", best[1:]),
        ("best", [[99, 1.0]] * len(best)),
        ("best", [[0, float("nan")]] * len(best)),
        ("best", [[0, 0.0]] * len(best)),
        ("limits", [[1, "8"]] * len(sizes)),
        ("limits", [[8, 1]] * len(sizes)),
        ("values", [[1.5] * len(sizes)] * len(best)),
        ("sizes", ["canonical", *sizes[1:]]),
        ("sizes", [sizes[0], *sizes[:-1]]),
        ("kernels", [1]),
        ("version", 2),
    ]
    cases = [("", b""), ("", whole[:-20]), ("", b"[]"), ("version", b"{}")]
    cases += [(name, json.dumps({**document, name: value}).encode()) for name, value in changes]
    for name, content in cases:
        path.write_bytes(content)
        with pytest.raises(ModelError) as refused:
            ranking_of(problems()[0], load_model(model)).known(3)
        assert f"{path}: {name}" in refused.value.message or not name, refused.value.message
    path.unlink()
    assert ranking_of(problems()[0], load_model(model)).known(3).outside == ()


def test_a_continued_model_knows_both_datasets(model: Path) -> None:
    """Limits cover the start's data and the new data, and problems are from both."""
    before = read_measured(model)
    frame = DATA.frame.assign(N=DATA.frame["N"] * 8)
    (model / MEASURED_NAME).write_bytes(measured_file(type(DATA)(frame), before))
    both = read_measured(model)
    assert before is not None
    assert both is not None
    assert both.limits_by_size["n"] == (1, 8 * before.limits_by_size["n"][1])
    assert set(before.problems) < set(both.problems)


def test_require_known_refuses(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4 and the reason; without the option the same answer has one line, and exit code 0."""
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "a test")
    args = ["predict", "--model", str(model), "--n", "512", "--c", "64", "--hi", "28"]
    assert run(args) == ExitCode.OK
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("out of distribution: ")]
    expect_values(line, "n = 512", 32)
    assert run([*args, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)["known"]
    assert (document["is_known"], document["device"]) == (False, None)
    assert document["outside"][0]["factor"] == 32
    assert document["nearest"]["distance"] > math.log2(512 / 17) - 1
    assert run([*args, "--require", "known"]) == ExitCode.BAD_DATA
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, "unknown-problem", "n = 512", 32)
    inside = ["predict", "--model", str(model), "--n", "4", "--c", "64", "--hi", "28", "--require", "known"]
    assert run(inside) == ExitCode.OK


def test_the_problem_with_most_caveats_is_the_example(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Caveats shared by all problems do not hide those of a single problem."""
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "another")
    listed = [problems()[0], replace(problems()[0], n=64), problems()[1]]
    (tmp_path / "list.txt").write_text("".join(f"{item.canonical()}\n" for item in listed), encoding="utf-8")
    assert (
        run(["predict", "--model", str(model), "--problems", str(tmp_path / "list.txt"), "--top", "1"]) == ExitCode.OK
    )
    *_, beginning, line = capsys.readouterr().out.splitlines()
    assert beginning == f"3 of 3 problems, e.g. {listed[1].canonical()}:"
    expect_values(line, "out of distribution: ", "a test", "n = 64", 4)


def test_an_interval_is_valid_only_in_distribution(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside it is unchanged; outside, and on another device, text says what it is valid for, and JSON has none."""
    calibration = Calibration(gap=(), share=(), scale=1.0, bands=((0.0, 0.8, 1.2),), problems=20)
    (model / CALIBRATION_NAME).write_text(calibration.to_json(), encoding="utf-8")
    args = ["predict", "--model", str(model), "--c", "64", "--hi", "28", "--n"]
    for here, batch, why in (("a test", "4", []), ("a test", "64", ["sizes"]), ("another", "64", ["device", "sizes"])):
        monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda here=here: here)
        assert run([*args, batch]) == ExitCode.OK
        (line,) = [item for item in capsys.readouterr().out.splitlines() if item.startswith("90 %")]
        line = line.removesuffix("; --why: details")
        expect_values(line, "interval", *why)
        assert ("calibrated" in line) is bool(why)
        assert run([*args, batch, "--json"]) == ExitCode.OK
        document = json.loads(capsys.readouterr().out)
        times = [item["latency_ms"] for item in document["kernels"]]
        expect_values(line, *(f"{factor * min(times):#.3g}" for factor in (0.8, 1.2)))
        assert (document["predicted_interval"], document["no_interval"]) == (
            (None, line) if why else ([0.8, 1.2], None)
        )


def test_limits_alone_are_enough() -> None:
    """Without problems there is no nearest problem, but sizes are still reported."""
    known = find_known(problems()[0], "", lambda: None, {"n": (4, 8)}, [], [])
    assert known.nearest is None
    (doubt,) = known.doubts
    expect_values(doubt, "n = 1", 4, 4)


@pytest.mark.parametrize("folder", [ref.path for ref in list_models([data_dir("models")])], ids=lambda path: path.name)
def test_every_model_that_ships_knows_its_sizes(folder: Path) -> None:
    """Each has the limits of its training data, and the problems unless there are too many."""
    measured_set = read_measured(folder)
    assert measured_set is not None
    assert all(low <= high for low, high in measured_set.limits)
    assert measured_set.families
    assert bool(measured_set.problems) == (problem_count(folder) <= 20_000)


def test_a_ranking_model_explains_missing_times(capsys: pytest.CaptureFixture[str]) -> None:
    """AITER's winners have no times: there is no column for them, and --why says the reason."""
    args = ["predict", "--op", "aiter_gemm", "--arch", "gfx950", "--m", "64", "--n", "7168", "--k", "2048"]
    assert run([*args, "--why"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "no speed" in out
    assert "predicted ms" not in out
    assert run(["predict", "--c", "256", "--why"]) == ExitCode.OK
    assert "no speed" not in capsys.readouterr().out
