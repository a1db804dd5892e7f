"""`ckh validate kernels` on the command line."""

from __future__ import annotations

import json

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from tests.refusals import has_values

ARGS = ["validate", "kernels", "--variant", "forward", "--ndim", "2", "--device", "host"]


@pytest.mark.slow
def test_the_pipelines_of_the_host_work(capsys: pytest.CaptureFixture[str]) -> None:
    """The six pipelines of the host run and are right, the other two are refused."""
    assert run([*ARGS, "--matrix", "pipelines", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["matrix"], document["arch"], document["ok"]) == ("pipelines", "host", True)
    assert document["statuses"] == {"ok": 6, "invalid": 2}
    refused = {item["case"]: item["reason"] for item in document["findings"] if item["status"] == "invalid"}
    assert set(refused) == {"comp_async", "basic_async_v1"}
    assert all(has_values(reason, "host", name) for name, reason in refused.items())
    assert all(item["case"] in item["built"] for item in document["findings"] if item["status"] == "ok")


def test_a_wrong_direction_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """It is wrong usage, in one line."""
    assert run(["validate", "kernels", "--variant", "sideways"]) == ExitCode.USAGE
    assert "unknown direction 'sideways'" in capsys.readouterr().err


def test_without_a_gpu_kernels_are_only_compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running on an absent architecture ends with exit code 3 and the reason."""
    monkeypatch.setenv("CKH_HIP_LIBRARY", "/nowhere/libamdhip64.so")
    assert run(["validate", "kernels", "--device", "hip", "--arch", "gfx942"]) == ExitCode.NO_DEVICE
    assert "no usable device" in capsys.readouterr().err
