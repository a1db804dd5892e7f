"""A tuning continues where it stopped, unless its settings have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.errors import CkhError, ExitCode
from ckh.ops import operation
from ckh.tune import steps
from ckh.tune.settings import FILE, TuneSettings, progress_of

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = TuneSettings(("config.json",), ("--tp", "8"), device="host", dtype="fp32", budget="15m", to="c")
DONE = ["shapes", "before", "bench", "convert", "train", "export"]


def _with(folder: Path, done: list[str]) -> None:
    progress = progress_of(folder, SETTINGS)
    for name in done:
        progress.mark(name)


def test_a_folder_records_finished_steps(tmp_path: Path) -> None:
    """Steps are recorded one by one."""
    _with(tmp_path / "tuned", DONE[:3])
    assert progress_of(tmp_path / "tuned", SETTINGS).done == DONE[:3]


@pytest.mark.parametrize(("change", "left"), [({"budget": "1h"}, DONE[:2]), ({"to": "inductor"}, DONE[:5]), ({}, DONE)])
def test_a_new_budget_or_target_repeats_dependent_steps(
    change: dict[str, str], left: list[str], tmp_path: Path
) -> None:
    """A larger budget repeats measuring, a new target the export."""
    _with(tmp_path, DONE)
    assert progress_of(tmp_path, replace(SETTINGS, **change)).done == left  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"sources": ("other.json",)}, {"device": "hip"}, {"options": ("--tp", "4")}])
def test_settings_are_fixed_once_kernels_were_chosen(change: dict[str, object], tmp_path: Path) -> None:
    """With only a list of shapes the folder starts anew."""
    other = replace(SETTINGS, **change)  # type: ignore[arg-type]
    _with(tmp_path, DONE[:2])
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(CkhError) as caught:
        progress_of(tmp_path, other)
    assert caught.value.code == "run-mismatch"
    assert (tmp_path / FILE).read_bytes() == before
    _with(tmp_path / "listed", DONE[:1])
    assert progress_of(tmp_path / "listed", other).done == []


@pytest.mark.parametrize("text", ["", "[]", '{"settings": 1, "done": []}', '{"settings": {}, "done": {}}'])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    """It is bad data."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CkhError) as caught:
        progress_of(tmp_path, SETTINGS)
    assert caught.value.code in {"bad-field", "bad-json"}


def test_steps_are_commands_of_ckh(tmp_path: Path) -> None:
    """For an operation that ckh does not measure they end with current choices."""
    tune_steps = list(steps.measuring(SETTINGS, tmp_path, "gemm_universal", is_begun=False))
    assert [step.name for step in tune_steps] == ["before", "bench", "convert"]
    assert f"--plan auto --budget 15m --out {tmp_path}/run" in tune_steps[1].line
    begun = list(steps.measuring(SETTINGS, tmp_path, "gemm_universal", is_begun=True))
    assert begun[1].args[:2] == ("bench", "--resume")
    anew = list(steps.measuring(SETTINGS, tmp_path, "gemm_universal", is_begun=True, force=True))
    assert anew[1].args == (*tune_steps[1].args, "--force")
    assert operation("aiter_moe").measured is None
    assert [step.name for step in steps.measuring(SETTINGS, tmp_path, "aiter_moe", is_begun=False)] == ["before"]
    emulated = replace(SETTINGS, device="emulated")
    assert [step.name for step in steps.measuring(emulated, tmp_path, "gemm_universal", is_begun=False)][-1] == "bench"


def test_too_few_problems_train_no_model(tmp_path: Path) -> None:
    """A target that needs a model is refused; others use the measured rows."""
    assert [tune_step.name for tune_step in steps.learning(tmp_path, "gemm_universal", 6, directions=())] == ["train"]
    assert not list(steps.learning(tmp_path, "gemm_universal", 5, directions=()))
    assert not list(steps.learning(tmp_path, "grouped_conv", 9, directions=("forward", "bwd_data")))
    with pytest.raises(CkhError) as caught:
        list(steps.exporting(SETTINGS, tmp_path, "gemm_universal", is_trained=False, problems=5))
    assert caught.value.code == "inapplicable-option"
    module = replace(SETTINGS, to="inductor", device="hip", arch="gfx942", dtype=None)
    (step,) = steps.exporting(module, tmp_path, "gemm_universal", is_trained=False, problems=5)
    assert run(step.args) == ExitCode.OK  # without a model it is the one that ships
    listed = replace(SETTINGS, to="amd-registry")
    (step,) = steps.exporting(listed, tmp_path, "gemm_universal", is_trained=False, problems=5)
    assert ("--registry", str(tmp_path / "kernels.json")) == step.args[step.args.index("--registry") :][:2]
