"""`ckh predict --probe`: measures on this machine, stores the results, and reports them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.ops.grouped_conv.features import NAMES_83
from tests.learn.conftest import amd_model, saved

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--n", "1", "--c", "16", "--hi", "8")


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model, and no earlier measurements."""
    (tmp_path / "models").mkdir()
    saved(tmp_path / "models" / "mine")
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))


def predict(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """The JSON document of a call."""
    assert run(["predict", *args, "--json"]) == ExitCode.OK
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
@pytest.mark.usefixtures("host_by_default")
def test_probe_measures_the_top_candidates_and_stores_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kernels are compiled and timed here; later they come first, by their times, and nothing is measured."""
    before = predict(capsys, *SMALL, "--top", "300")
    assert before["measured"] is None
    names = [item["kernel"] for item in before["kernels"]]
    alike = [name for item in before["kernels"][:2] for name in item["tied"]]
    probed = predict(capsys, *SMALL, "--top", "300", "--probe", "2")
    times = {item["kernel"]: item["latency_ms"] for item in probed["measured"]["kernels"]}
    assert list(times) == names[:2]
    assert all(0 < time < 1000 for time in times.values())
    rest = [item["kernel"] for item in probed["kernels"][2:]]
    assert [item["kernel"] for item in probed["kernels"][:2]] == sorted(names[:2], key=times.__getitem__)
    assert [name for name in rest if name not in alike] == names[2:]  # unmeasured kernels of a tie are rows again
    assert [item["measured_latency_ms"] for item in probed["kernels"][:3]] == [*sorted(times.values()), None]

    def no_measuring(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("ckh.bench.supervision.driver.compare_kernels", no_measuring)
    assert predict(capsys, *SMALL, "--top", "300") == probed
    assert predict(capsys, *SMALL, "--top", "300", "--probe", "2") == probed
    assert predict(capsys, *SMALL, "--top", "300", "--no-measured") == before
    assert run(["predict", *SMALL]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    said = next(place for place, line in enumerate(lines) if line.startswith("measured the first 2 on "))
    assert "measured ms" in lines[said + 1]


def test_a_model_of_another_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no gfx950 here: the error is one line, and nothing is stored."""
    amd_model(tmp_path / "forward", NAMES_83)
    args = ["predict", "--model", str(tmp_path / "forward"), "--c", "64", "--probe", "2"]
    assert run(args) == ExitCode.NO_DEVICE
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith("error: ")
    assert not (tmp_path / "user").exists()
