"""`ckh doctor`: its report on CK Tile's headers, models and tools."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from ckh.bench.codegen.ck_tile import NOT_VERIFIED, Interface
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.cli import run
from ckh.errors import ExitCode
from tests.bench.codegen.conv_headers import write_templates
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.refusals import expect_error, expect_values

STUB = Path(__file__).parent.parent / "bench/codegen/current_stub/include"


def report(include: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """JSON report on headers."""
    assert run(["doctor", "--json", "--ck-include", str(include)]) == ExitCode.OK
    load = json.loads(capsys.readouterr().out)["ck_tile"]
    assert isinstance(load, dict)
    return load


def test_headers_are_listed_with_their_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Interface, version, pipelines and directions, also without a HIP compiler."""
    include = write_templates(tmp_path / "include", Interface.LATE_2025)
    (tmp_path / "CMakeLists.txt").write_text("set(version 1.2.0)\n", encoding="utf-8")
    result = report(include, capsys)
    assert {key: result[key] for key in ("include", "version", "interface", "is_verified", "differs")} == {
        "include": str(include),
        "version": "1.2.0",
        "interface": "late2025",
        "is_verified": True,
        "differs": [],
    }
    assert result["pipelines"] == ["basic_v1", "compv3", "compv4", "mem"]
    operations = result["operations"]
    assert isinstance(operations, dict)
    assert "forward" in operations["grouped_conv"]
    assert "bwd_data" not in operations["grouped_conv"]
    assert operations["gemm_universal"]["epilogues"] == ["cshuffle"]


def test_the_options_of_the_hip_compiler_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of CK's build that it accepts, then the user's."""
    hipcc = str(FakeHipcc(refuses="-fno-offload").write(tmp_path / "bin/hipcc"))
    asked = ["doctor", "--json", "--hipcc", f"{hipcc} -O2", "--ck-include", str(write_headers(tmp_path / "include"))]
    assert run(asked) == ExitCode.OK
    flags = json.loads(capsys.readouterr().out)["hip_flags"]
    assert flags[-1] == "-O2"
    assert "-amdgpu-function-calls=false" in flags
    assert "-fno-offload-uniform-block" not in flags


@pytest.mark.slow
def test_untested_headers_are_marked_not_verified(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the current interface; the text lists the supported features of each operation's kernels."""
    assert report(STUB, capsys)["is_verified"] is False
    assert run(["doctor", "--ck-include", str(STUB)]) == ExitCode.OK
    text = capsys.readouterr().out
    expect_values(text, STUB, "current")
    assert NOT_VERIFIED in text
    assert "CK Tile for grouped_conv" in text


def test_a_template_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such headers are of the nearest interface, and not verified either."""
    include = write_templates(tmp_path, Interface.LATE_2025)
    launch = include / "ck_tile/host/kernel_launch.hpp"
    launch.write_text("template <int MaxThreadPerBlock> CK_TILE_HOST auto make_kernel", encoding="utf-8")
    result = report(include, capsys)
    assert (result["interface"], result["is_verified"]) == ("late2025", False)
    expect_values(str(result["differs"]), "make_kernel", "ck_tile/host/kernel_launch.hpp")


@pytest.mark.slow
def test_the_unified_framework_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says whether headers have it; the line on the headers says that it is switched off."""
    include = write_templates(tmp_path, Interface.CURRENT)
    assert report(include, capsys)["is_unified"] is False
    arch = include / "ck_tile/core/arch/arch.hpp"
    arch.parent.mkdir(parents=True, exist_ok=True)
    arch.write_text("#ifndef USE_NEW_UNIFIED_FRAMEWORK\n")
    assert report(include, capsys)["is_unified"] is True


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "count"), [("gfx1250", 1), ("mi455x", 1), ("gfx942", 0)])
def test_an_untested_architecture_is_reported(arch: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning of the report, and a line of each answer, also of the second call for a kind of problem."""
    assert run(["doctor", "--arch", arch, "--json"]) == ExitCode.OK
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert sum(warning.startswith("gfx1250: ") for warning in warnings) == count
    for k in ("4096", "8192"):
        call = ["predict", "--op", "gemm_universal", "--arch", arch, "--m", "64", "--n", "4096", "--k", k, "--top", "1"]
        assert run(call) == ExitCode.OK
        assert capsys.readouterr().err.count("[unverified-arch]") == count


def test_a_folder_without_headers_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it was requested, no other folder is used instead."""
    assert run(["doctor", "--ck-include", str(tmp_path)]) == ExitCode.NO_DEVICE
    expect_error(capsys.readouterr().err, "no-headers", tmp_path)


def test_every_model_names_its_device(capsys: pytest.CaptureFixture[str]) -> None:
    """As in `ckh predict`: the device, or the architecture if the data name no device."""
    assert run(["doctor"]) == ExitCode.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "models/" in line]
    (place,) = (row[-1] for row in rows if row[0].endswith("grouped_conv_forward_bf16_gfx950"))
    assert place == "gfx950"


def checks(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, Any]]:
    """Results of the checks by name."""
    assert run(["doctor", "--json", *options]) == ExitCode.OK
    return {load["name"]: load for load in json.loads(capsys.readouterr().out)["checks"]}


def test_detected_tools_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU and ROCm the C++ compiler and the headers work, and each fault has a remedy and exit code 3."""
    for name in ("HIPCC", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CKH_HIP_LIBRARY", "/nonexistent/libamdhip64.so")
    result = checks(capsys, "--hipcc", "/nonexistent/hipcc", "--ck-include", str(STUB))
    assert {name: item["exit_code"] for name, item in result.items()} == {
        "GPU": 3,
        "HIP compiler": 3,
        "CK Tile headers": 0,
        "C++ compiler": 0,
    }
    assert [item["ok"] for item in result.values()] == [item["exit_code"] == 0 for item in result.values()]
    assert all(bool(item["remedy"]) is not item["ok"] for item in result.values())


def test_a_full_disk_is_not_blamed_on_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its check reports the failed write, with the exit code for that."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))

    def full(_cache: KernelCache) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(KernelCache, "workshop", full)
    check = checks(capsys)["C++ compiler"]
    assert (check["exit_code"], "No space left" in check["found"]) == (ExitCode.INPUT_OUTPUT, True)
