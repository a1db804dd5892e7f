"""The device `emulated` on the command line: real kernels, verified or wrong, without times."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.bench.devices.device import EMULATED_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import emulated_runtime
from ckh.cli import run
from ckh.data.journal import read_journal
from ckh.errors import DataError, DeviceError, ExitCode, UsageError
from ckh.files.paths import cache_dir
from ckh.schema import Status
from ckh.tune import steps
from tests.emulator.damage import Damage, damaged
from tests.emulator.keep import KEPT
from tests.refusals import expect_error, expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.emulator.launch import EmulatorLibrary

KERNEL = KEPT[0]


@pytest.fixture
def bench(compiled: Callable[[bytes], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of a kept kernel: the compiler "builds" its library."""
    compiled(KERNEL.library())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.txt").write_text(KERNEL.name + "\n")
    (tmp_path / "problems.txt").write_text(f"{KERNEL.problems()[0].canonical()}\n")
    sources = ["--problems", "problems.txt", "--kernels", "kernels.txt", "--dtype", "fp16"]
    return ["bench", "--device", EMULATED_KIND, *sources, "--timeout", "5m", "--out", "run"]


@pytest.mark.slow
def test_a_run_is_verified_and_has_no_times(bench: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are verified and name the emulated device; no field has a time, so that no dataset and model takes them."""
    assert run([*bench, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["statuses"] == {"verified": 1}
    assert document["next"].startswith("ckh validate kernels --device emulated")
    journal = read_journal(Path(document["out"]))
    assert (journal.runs[0].device_kind, journal.runs[0].device) == ("emulated", "emulated gfx942")
    assert {(row.status, row.latency_ms, row.samples_ns) for row in journal.rows} == {(Status.VERIFIED, None, ())}
    assert run(["convert", "run", "--out", "rows.parquet"]) == ExitCode.BAD_DATA
    error = capsys.readouterr().err.splitlines()[0]
    expect_values(error, "gfx942", "[not-measured]")
    assert not os.path.lexists("rows.parquet")
    for command in (["train", "--data", "run"], ["evaluate", "--model", "none", "--data", "run"]):
        assert run(command) not in (ExitCode.OK, ExitCode.GATE_FAILED)


@pytest.mark.slow
def test_a_tuning_ends_at_verified_kernels(
    bench: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its run has verified rows, no dataset and no model follow, and the summary has no time."""
    assert bench
    monkeypatch.setattr(steps, "PLAN", ("--kernels", "kernels.txt"))
    line = ["tune", "problems.txt", "--device", EMULATED_KIND, "--arch", KERNEL.arch, "--dtype", "fp16"]
    assert run([*line, "--budget", "10m", "--out", "tuned", "--json"]) == ExitCode.OK
    document = json.loads(capfd.readouterr().out)
    assert len(document["shapes"]) == 1
    assert (document["today_ms"], document["tuned_ms"], document["gain"], document["model"]) == (None,) * 4
    assert {row.status for row in read_journal(Path("tuned/run")).rows} == {Status.VERIFIED}
    assert {path.name for path in Path("tuned").iterdir()} == {
        *("tune.json", "shapes.csv", "shapes.json", "before.json", "run", "summary.md")
    }


@pytest.mark.slow
def test_a_wrong_kernel_is_a_row(
    bench: list[str], tmp_path: Path, library: EmulatorLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel without its barriers fails with the race, and the run ends with the exit code of no kernel."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    (tmp_path / "kept.so").write_bytes(damaged(KERNEL.library(), Damage.BARRIERS, KERNEL.arch, library))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(cache))
        assert run([*bench, "--json"]) == ExitCode.NO_KERNEL
    assert json.loads(capsys.readouterr().out)["statuses"] == {"launch_error": 1}
    (message, *_) = {row.message for row in read_journal(tmp_path / "run").rows}
    assert "emulator: LDS race" in message


def test_large_problems_are_refused(bench: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without --problems a run is refused in one line: the default problems would take days."""
    at = bench.index("--problems")
    assert run([*bench[:at], *bench[at + 2 :]]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "missing-option", "--problems")


def test_options_of_real_gpus_are_refused() -> None:
    """Neither GPUs nor cold caches can be chosen, nor an architecture that is not emulated."""
    for options in (DeviceOptions(gpus=(0,)), DeviceOptions(cold=True), DeviceOptions(arch="gfx1100")):
        with pytest.raises(UsageError):
            open_device(EMULATED_KIND, options)


def test_a_missing_c_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error is one line, and nothing is built."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with expect_refusal(DeviceError, "no-compiler", "/nonexistent/cc"):
        emulated_runtime()
    monkeypatch.setenv("CC", "false")
    with expect_refusal(DeviceError, "no-emulator"):
        emulated_runtime()
    assert not list(cache_dir("emulator").rglob("*.so"))


def test_a_library_writable_by_others_is_not_loaded(runtime: Path) -> None:
    """The cache's permission rules apply."""
    real = runtime.resolve()
    real.chmod(0o777)
    try:
        with pytest.raises(DataError, match="is not loaded"):
            emulated_runtime()
    finally:
        real.chmod(0o700)
