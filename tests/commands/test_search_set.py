"""`ckh search set` on the command line, and the commands that read its registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import ExitCode
from tests.learn.conftest import measured, saved
from tests.refusals import expect_error

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(host_asked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A measured dataset, and a model of it in the search path."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    saved(tmp_path / "models" / "mine")
    path = tmp_path / "measured.parquet"
    write_dataset(measured(), path)
    return path


def document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """The JSON document of a successful command."""
    assert run([*args, "--json"]) == ExitCode.OK
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def test_a_set_reaches_its_stated_figures(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mean and worst efficiency are those of the best of its kernels on each measured problem."""
    result = document(capsys, "search", "set", "--size", "50", "--keep", "0.97", "--data", str(data))
    frame = measured().frame
    times = frame.assign(ms=np.where(frame["is_valid"], frame["latency_ms"], np.inf), problem=measured().problem_ids)
    best = times.groupby("problem")["ms"].min()
    of_set = times[times["kernel"].isin(result["kernels"])].groupby("problem")["ms"].min()
    assert result["efficiency_mean"] == pytest.approx((best / of_set).mean())
    assert result["efficiency_mean"] >= 0.97 - 1e-9
    assert result["efficiency_min"] == pytest.approx((best / of_set).min())
    assert result["keeps"]
    assert [step["kernels"] for step in result["curve"]] == [*range(1, len(result["curve"]) + 1)]


def test_the_registry_of_a_set_limits_later_commands(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`predict` ranks only those kernels, in the order among all; `export` and `bench` use no others."""
    registry, exported = tmp_path / "set.json", tmp_path / "c"
    result = document(capsys, "search", "set", "--size", "4", "--data", str(data), "--write-registry", str(registry))
    asked = ["predict", "--c", "16", "--hi", "7", "--top", "400"]
    all_kernels = [item["kernel"] for item in document(capsys, *asked)["kernels"]]
    limited = [item["kernel"] for item in document(capsys, *asked, "--kernels", str(registry))["kernels"]]
    assert limited == [name for name in all_kernels if name in result["kernels"]]
    assert 0 < len(limited) <= 4
    model = str(tmp_path / "models" / "mine")
    args = ["export", "--model", model, "--to", "c", "--out", str(exported), "--registry", str(registry)]
    assert document(capsys, *args)["models"][0]["kernels"] == len(result["kernels"])
    plan = document(
        capsys, "bench", "--device", "host", "--registry", str(registry), "--dry-run", "--problems", "host-train"
    )
    assert plan["kernels"] <= len(result["kernels"])


@pytest.mark.parametrize(
    ("args", "code", "value"),
    [
        (["--size", "3"], "usage", "--data"),
        (["--data", "DATA"], "usage", "--size"),
        (["--size", "3", "--data", "DATA", "--c", "16"], "usage", "--c"),
        (["--size", "3", "--data", "DATA", "--problems", "host-train"], "not-measured", "host-train"),
        (["--size", "3", "--data", "DATA", "--write-registry", "DATA", "--force"], "unsafe-output", ".parquet"),
    ],
)
def test_contradictory_options_are_refused(
    args: list[str], code: str, value: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one error, and the data are unchanged."""
    before = data.read_bytes()
    assert run(["search", "set", *(str(data) if arg == "DATA" else arg for arg in args)]) == ExitCode.USAGE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    expect_error(stderr, code, value)
    assert data.read_bytes() == before
