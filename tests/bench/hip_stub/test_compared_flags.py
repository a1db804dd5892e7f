"""`ckh bench --hipcc-flags` on the GPU of stub.c: ratios of times with and without further compiler options."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.compilation.toolchain import Compiler
from ckh.bench.supervision import campaign as campaign_module
from ckh.bench.supervision.limits import BenchLimits
from ckh.cli import run
from ckh.data.journal import read_journal
from ckh.errors import ExitCode
from ckh.schema import Status
from ckh.tune import flags as module
from ckh.tune.flags import compare_flags
from tests.bench.campaigns import Runs
from tests.bench.faults import OTHER_PROBLEM, PROBLEM
from tests.bench.hip_stub.gpu import GpuKernel, StubGpus

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.bench.devices.device import DeviceIdentity, DeviceOptions

OPTIONS = "-O1 -mllvm '-a b'"


class Flagged(StubGpus):
    """A device of the same GPU whose compiler has further options."""

    def identity(self) -> DeviceIdentity:
        """With these options."""
        own = super().identity()
        return replace(own, flags=(*own.flags, "-O1"))


@pytest.mark.slow
def test_both_sets_of_options_are_timed_in_turns(
    hip_library: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratios are those of the kernels' times; rows with the options are in a journal of their own, with its flags."""
    hipcc = []
    plain = [GpuKernel(100.0), GpuKernel(200.0), GpuKernel(50.0)]
    flagged = [GpuKernel(90.0), GpuKernel(220.0), GpuKernel(50.0, "hipLaunchKernel=2")]
    runs = Runs(tmp_path, StubGpus(hip_library, exported, plain), monkeypatch, (PROBLEM, OTHER_PROBLEM))

    def opened(_kind: str, options: DeviceOptions) -> StubGpus:
        hipcc.append(options.hipcc)
        return Flagged(hip_library, exported, flagged)

    monkeypatch.setattr(module, "open_device", opened)
    monkeypatch.setattr(module, "find_hipcc", lambda _: Compiler(("/opt/my rocm/hipcc", "-g"), "1"))
    document = compare_flags(runs.campaign(), OPTIONS, BenchLimits(timeout_s=2.0, jobs=2), force=False)
    assert hipcc == [f"'/opt/my rocm/hipcc' -g {OPTIONS}"]
    assert (document.ended, document.established, document.flags) == ("complete", 4, OPTIONS)
    for number, (ms, flags_ms) in enumerate(((0.1, 0.09), (0.2, 0.22))):
        pairs = [pair for pair in document.pairs if pair.kernel == runs.device.names[number]]
        assert [pair.problem for pair in pairs] == [PROBLEM.canonical(), OTHER_PROBLEM.canonical()]
        for pair in pairs:
            assert pair.latency_ms == pytest.approx(ms, rel=1e-2)
            assert pair.flags_ms == pytest.approx(flags_ms, rel=1e-2)
            assert pair.ratio == pytest.approx(flags_ms / ms, rel=2e-3)
            assert pair.ratio_interval is not None
            assert pair.ratio_interval[0] < flags_ms / ms * 1.002
            assert 0 < pair.ratio_interval[1] - pair.ratio_interval[0] < 1e-3
    failed = [pair for pair in document.pairs if pair.kernel == runs.device.names[2]]
    assert [(pair.flags_ms, pair.ratio, str(pair.not_established)[:13]) for pair in failed] == [
        (None, None, "out_of_memory")
    ] * 2
    # Of four ratios, 0.9 and 1.1 twice: by hand, the mean and standard deviation of the logarithms, and t = 3.182.
    assert document.ratio == pytest.approx(0.99499, rel=2e-3)
    assert document.ratio_interval == pytest.approx((0.82747, 1.19642), rel=2e-3)
    ordinary, other = (read_journal(folder) for folder in (runs.out, runs.out / "hipcc-flags"))
    for journal, flags, statuses in (
        (ordinary, runs.device.identity().flags, {Status.OK}),
        (other, (*runs.device.identity().flags, "-O1"), {Status.OK, Status.OUT_OF_MEMORY}),
    ):
        assert [record.flags for record in journal.runs] == [flags]
        assert ({row.status for row in journal.rows}, len(journal.rows)) == (statuses, 6)
    assert {row.latency_ms for row in ordinary.rows} == {pair.latency_ms for pair in document.pairs}


def test_options_are_compared_on_a_gpu_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Other devices, and other kinds of runs, are refused in one line."""
    for arguments in (
        ["--device", "host"],
        ["--device", "emulated", "--arch", "gfx942"],
        ["--device", "hip", "--arch", "gfx942", "--compile-only"],
        ["--device", "hip", "--arch", "gfx942", "--resume"],
        ["--device", "hip", "--arch", "gfx942", "--dry-run"],
    ):
        assert run(["bench", *arguments, "--hipcc-flags", "-O2"]) == ExitCode.USAGE
        (line,) = capsys.readouterr().err.strip().splitlines()[:1]
        assert "--hipcc-flags" in line


@pytest.mark.slow
def test_the_comparison_is_shown(
    hip_library: Path,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In text and as JSON; without any ratio the exit code says so."""
    plain = StubGpus(hip_library, exported, [GpuKernel(100.0), GpuKernel(200.0)])
    runs = Runs(tmp_path, plain, monkeypatch)
    monkeypatch.setattr(module, "find_hipcc", lambda _: Compiler(("hipcc",), "1"))

    def shown(flagged: StubGpus, *more: str) -> tuple[int, Any]:
        monkeypatch.setattr(module, "open_device", lambda *_: flagged)
        monkeypatch.setattr(campaign_module, "require_usable", lambda _: None)
        kernels = ["--problems", str(tmp_path / "problems.txt"), "--kernels", str(tmp_path / "kernels")]
        options = ["--device", "hip", "--hipcc-flags", OPTIONS, "--out", str(runs.out), "--timeout", "2s", *more]
        code = run(["bench", *kernels, *options])
        return code, capsys.readouterr().out

    code, text = shown(Flagged(hip_library, exported, [GpuKernel(90.0), GpuKernel(180.0)]))
    assert code == ExitCode.OK
    assert f"with {OPTIONS}: 0.900 (0." in text
    assert text.count("0.900 (0.") == 3
    failing = Flagged(hip_library, exported, [GpuKernel(90.0, "hipLaunchKernel=2")] * 2)
    code, text = shown(failing, "--force", "--json")
    document = json.loads(text)
    assert (code, document["ratio"], document["established"]) == (ExitCode.NO_KERNEL, None, 0)
    assert document["schema"] == "ckh.bench_flags"
