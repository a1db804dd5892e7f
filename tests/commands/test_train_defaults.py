"""`ckh train` without data and folder, and `ckh bench` without options."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckh.api import training_data
from ckh.api.training_data import TrainRequest
from ckh.archs import MEASURED_GPU
from ckh.bench.planning.plan import full_name
from ckh.cli import run
from ckh.errors import ExitCode
from tests.learn.conftest import kernels
from tests.refusals import expect_error, expect_values, expect_warning

SIZES = "N,C,K,Hi,Wi,Y,X\n1,8,8,6,6,3,3\n2,8,16,5,5,3,3\n"
KERNELS = [full_name(kernel) for kernel in kernels()[:2]]  # of one alone there is nothing to learn


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate folder to work in and for models, on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr(training_data, "default_arch", lambda: MEASURED_GPU)


@pytest.mark.slow
def test_without_measurements_shipped_data_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    """The output names the data and the folder, which has the shipped model's name.

    As it cannot be compared with the shipped model of the same data, it is installed only on request.
    """
    model = Path("mine", "models", "grouped_conv_forward_bf16_gfx950").resolve()
    kept = Path("mine", "models-not-installed", model.name).resolve()
    line = ["train", "--op", "grouped_conv", "--rank", "tflops", "--trees", "5", "--folds", "0"]
    assert run(line) == ExitCode.OK
    said = capsys.readouterr().err
    expect_values(
        " ".join(said.split()), "amd-gfx950-conv-20kernels.parquet", "amd-gfx950-conv-30kernels.parquet", model
    )
    expect_warning(said, "not-installed", kept)
    assert (kept / "feature_spec.json").is_file()
    assert not model.exists()
    assert run([*line, "--install"]) == ExitCode.OK
    assert (model / "feature_spec.json").is_file()


@pytest.mark.slow
def test_complete_runs_take_precedence_over_shipped_data(capsys: pytest.CaptureFixture[str]) -> None:
    """The newest is named; a run without an end in its journal is not used."""
    Path("p.csv").write_text(SIZES)
    Path("kernels").write_text("\n".join(KERNELS))
    assert run(["bench", "--problems", "p.csv", "--kernels", "kernels", "--out", "runs/a", "--samples", "1"]) == 0
    capsys.readouterr()
    assert run(["train", "--op", "grouped_conv", "--trees", "5", "--folds", "0", "--out", "model"]) == ExitCode.OK
    expect_values(" ".join(capsys.readouterr().err.split()), "runs/a", "model")
    journal = Path("runs", "a", "journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"complete"' not in line))
    assert training_data.measured(TrainRequest({}, {}, op="grouped_conv")) is None


@pytest.mark.slow
def test_nothing_to_train_on_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without measured or shipped data for the GPU, one line has a remedy, and nothing is written."""
    monkeypatch.setattr(training_data, "default_arch", lambda: "gfx1201")
    assert run(["train", "--op", "grouped_conv"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    expect_error(error, "no-training-data", "grouped_conv forward", "gfx1201")
    assert not Path("mine").exists()
