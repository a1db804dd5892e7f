"""Hold-outs by whole problems, of `ckh convert --split` and `ckh train --holdout`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset, share_of, split_off, write_dataset
from ckh.errors import DataError, ExitCode, UsageError
from ckh.learn.models.manifest import problem_id, trained_problems
from tests.learn.conftest import measured
from tests.ops.gemm_universal import tile_engine

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--trees", "5", "--leaves", "7", "--folds", "3", "-j", "1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A dataset of 14 problems."""
    write_dataset(measured(), tmp_path / "all.parquet")
    return tmp_path / "all.parquet"


@pytest.mark.parametrize(("text", "share"), [("20%", 0.2), ("0.25", 0.25), (None, 0.0)])
def test_shares_are_fractions_or_percent(text: str | None, share: float) -> None:
    """Without a text there is none."""
    assert share_of(text, "--split") == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "100%", "20", "many", "nan", ""])
def test_other_shares_are_refused(text: str) -> None:
    """Including a whole number without a percent sign."""
    with pytest.raises(UsageError, match="--split"):
        share_of(text, "--split")


def test_whole_layers_are_held_out() -> None:
    """Of 14 problems a fifth, the same again, with all rows; no layer is in both parts."""
    rest, held = split_off(measured(), 0.2)
    assert len(held.problems()) == 3
    assert {*rest.problems(), *held.problems()} == {*measured().problems()}
    assert len(rest) + len(held) == len(measured())
    op = measured().op
    assert not {op.layer(problem) for problem in rest.problems()} & {op.layer(problem) for problem in held.problems()}
    assert held.problems() == split_off(measured(), 0.2)[1].problems()
    with pytest.raises(DataError, match="14 problems"):
        split_off(measured(), 0.99)


def test_the_next_command_names_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It trains on one file and evaluates on the other, of two of twelve problems; its digest is the file's."""
    source = tile_engine.write(tmp_path / "results.json", tile_engine.names()[:3])
    out, held = tmp_path / "mine.parquet", tmp_path / "mine-holdout.parquet"
    call = ["convert", str(source), "--arch", "gfx942", "--split", "20%", "--out"]
    assert run([*call, str(out), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["holdout"] == str(held)
    assert shlex.split(document["next"])[-2:] == ["--data", str(held)]
    assert document["sha256"] == read_dataset(out).content_hash
    assert [len(read_dataset(path).problems()) for path in (out, held)] == [10, 2]
    assert run([*call, str(out)]) == ExitCode.USAGE  # without --force
    assert run([*call, str(tmp_path / "a.csv"), "--to", "csv"]) == ExitCode.USAGE


@pytest.mark.slow
def test_a_model_is_not_trained_on_its_hold_out(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The manifest has the other problems, and the printed command evaluates the model on those held out."""
    out = data.with_name("model")
    assert run(["train", str(data), "--holdout", "30%", "--out", str(out), *SMALL]) == ExitCode.OK
    printed = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
    held = read_dataset(data.with_name("model-holdout.parquet"))
    ids = {problem_id(problem) for problem in measured().problems()}
    assert set(trained_problems(out) or ()) == ids - {problem_id(problem) for problem in held.problems()}
    command = shlex.split(printed.partition("next: ckh ")[2])
    assert command == ["evaluate", "--model", str(out), "--data", str(data.with_name("model-holdout.parquet"))]
    assert run([*command, "--among", "measured", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["efficiency"]["problems"] == len(held.problems()) == 4
