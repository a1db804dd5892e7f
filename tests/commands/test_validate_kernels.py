"""`ckh validate kernels` on the command line."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from ckh.api.validating import KernelFinding, KernelsDocument
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.schema import Status
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


@pytest.mark.usefixtures("narrow")
def test_lines_of_the_verdict_fit_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer, and --wide shows the kernel and the reason whole."""
    kernel = "grouped_conv_bwd_data_fp32_nhwgc_2d_basic_v1_cshuffle_intrawave_128x64x128_8x2x1_16x16x32"
    reason = "the tiles of A and B take 49152 bytes of LDS, mem with a double smem buffer has 32768 on gfx942"
    properties = {"direction": "bwd_data", "pipeline": "basic_v1", "scheduler": "intrawave", "epilogue": "cshuffle"}
    finding = partial(KernelFinding, properties, older_binary=False, problem="")
    document = KernelsDocument(
        matrix="pipelines",
        arch="gfx942",
        ok=True,
        statuses={"verified": 3, "invalid": 1},
        findings=(
            finding("basic_v1", Status.VERIFIED, "", kernel, 12345, class_executed=True),
            finding("mem_double", Status.INVALID, reason, "", 0, class_executed=False),
            finding("compv3", Status.VERIFIED, "", kernel, 0, class_executed=True),
            finding("compv4", Status.VERIFIED, "", kernel, 0, class_executed=True, older_binary=True),
        ),
        caution="",
    )
    monkeypatch.setattr("ckh.api.validating.tried_kernels", lambda *_, **__: document)
    assert run(["validate", "kernels"]) == ExitCode.OK
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert run(["validate", "kernels", "--wide"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert kernel in shown
    assert f"invalid: {reason}" in shown
    assert re.findall(r"  (?:its class.*?)?\b(on \d+|was|older)\b", shown) == ["on 12345", "was", "older"]
