"""`ckh bench --calibrate` on the GPU of stub.c, whose rates and times are known."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.checks import calibrating
from ckh.bench.codegen.ck_tile import template_dir
from ckh.bench.devices.device import DeviceIdentity
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.protocol import HIP, WorkerConfig
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.analytic import calibrated
from ckh.learn.analytic.calibrated import calibration_of, calibration_path, rates_of
from ckh.learn.analytic.transfer import EstimateModel
from ckh.learn.models.artifact import wanted_for
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.bench.hip_stub.build import build_exported
from tests.bench.hip_stub.gpu import StubGpus
from tests.refusals import expect_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.archs import ArchSpec

CUS, MHZ = 8, 2100
DEVICE = f"gfx942, {CUS} CUs, {MHZ} MHz"
# The GPU's rates, as of `rates_of`; that of fp8 is more than it can have.
TRUE = {
    "launch_us": 4.0,
    "latency_clocks": 1680.0,
    "bandwidth_gb_s": 4200.0,
    "l2_bytes_per_clock": 50.0,
    "lds_bytes_per_clock": 100.0,
    "fp32": 200.0,
    "fp16": 1500.0,
    "bf16": 1600.0,
    "fp8": 8000.0,
    "int8": 4000.0,
}
SIZES = ((16, 16, 8), (16, 32, 8), (32, 32, 8), (64, 32, 10), (32, 64, 12), (64, 64, 12))  # C, K, height and width
PROBLEMS = [ConvProblem(Direction.FORWARD, 1, c, k, 1, hi=hi, wi=hi, y=1, x=1, dtype="fp32") for c, k, hi in SIZES]
KIND = str(wanted_for(PROBLEMS[0], "gfx942"))
FACTOR = 1.4
OF_PROBLEMS = (-0.1, 0.05, 0.0, 0.1, -0.05, 0.02)  # logs of further factors
ROOM = ("_LATENCY_BYTES", "_BANDWIDTH_BYTES", "_L2_BYTES")
STEPS = ("_LATENCY_STEPS", "_L2_STEPS", "_LDS_STEPS", "_MATRIX_STEPS")


class StubGfx942(StubGpus):
    """A gfx942 with these rates, on which a kernel takes its estimated time times the factors above."""

    def __init__(self, runtime: Path, exported: Path, rates: dict[str, float]) -> None:
        super().__init__(runtime, exported, [])
        self._rates, self._runtime_path = rates, runtime
        self._estimate = EstimateModel(wanted_for(PROBLEMS[0], "gfx942"), uses_calibration=False)

    @property
    def arch(self) -> ArchSpec:
        return load_arch("gfx942")

    def identity(self) -> DeviceIdentity:
        hardware = {**self.arch.hardware.to_dict(), "num_cus": CUS, "max_clock_mhz": MHZ}
        return DeviceIdentity(HIP, "gfx942", DEVICE, MHZ, hardware, "stub", ())

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        return (WorkerConfig(0, None, HIP, fnuz_floats=True),)

    def us(self, problem: ConvProblem, kernel: Any) -> float:
        """The true time."""
        place = PROBLEMS.index(problem)
        return float(-self._estimate.predict(problem, [kernel])[0]) * FACTOR * exp(OF_PROBLEMS[place])

    def emit(self, kernel: Any) -> str:
        name = full_name(kernel)
        times = "".join(
            f"if (s[1] == {problem.c} && s[2] == {problem.k}) return {self.us(problem, kernel) * 1e3!r};"
            for problem in PROBLEMS
        )
        return (
            f'const char stub_label[] = "ckh-kernel:{name}";\nconst char stub_fault[] = "";\n'
            f"double stub_ns(const long* s) {{ {times} return 1e9; }}\n"
        )

    def least_command(self, source: Path, library: Path) -> list[str]:
        """The stub's micro-kernels in place of the GPU's."""
        if source.name != "micro.cpp":
            return super().least_command(source, library)
        here, per_clock = Path(__file__).parent, CUS * MHZ / 1e3
        macros = {
            "LAUNCH_NS": self._rates["launch_us"] * 1e3,
            "LATENCY_NS": self._rates["latency_clocks"] / MHZ * 1e3,
            "MEMORY_GB_S": self._rates["bandwidth_gb_s"],
            "L2_GB_S": self._rates["l2_bytes_per_clock"] * per_clock,
            "LDS_GB_S": self._rates["lds_bytes_per_clock"] * per_clock,
            **{f"{name.upper()}_TFLOPS": self._rates[name] * per_clock / 1e3 for name in list(TRUE)[5:]},
        }
        flags = [f"-D{name}={value!r}" for name, value in macros.items()]
        headers = [f"-I{here / 'include'}", f"-I{template_dir()}"]
        sources = [str(here / "micro.cpp"), str(self._runtime_path)]
        return ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", *flags, *headers, *sources, "-o", str(library)]


@pytest.fixture
def gpu(hip_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubGfx942:
    """The GPU of this machine, and micro-kernels of small problems."""
    for name in ROOM:
        monkeypatch.setattr(calibrating, name, 1 << 18)
    for name in STEPS:
        monkeypatch.setattr(calibrating, name, 40)
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CK_TILE_INCLUDE", raising=False)
    device = StubGfx942(hip_library, build_exported(tmp_path), TRUE)

    def this_device(arch: str) -> str | None:
        return DEVICE if arch == "gfx942" else None

    monkeypatch.setattr(calibrated, "this_device", this_device)
    monkeypatch.setattr("ckh.learn.answers.probes.this_device", this_device)
    monkeypatch.setattr("ckh.bench.devices.device_choice.open_device", lambda *_: device)
    (tmp_path / "problems.txt").write_text("".join(f"{problem.canonical()}\n" for problem in PROBLEMS))
    return device


@pytest.fixture
def calibrate(gpu: StubGfx942, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The command on that GPU; returns its document."""
    assert gpu

    def call(*more: str, code: int = ExitCode.OK) -> dict[str, Any]:
        problems = ("--problems", str(tmp_path / "problems.txt"), "--dtype", "fp32")
        assert run(["bench", "--calibrate", "--device", "hip", *problems, "--json", *more]) == code
        out = capsys.readouterr().out
        document: dict[str, Any] = json.loads(out) if out else {}
        return document

    return call


@pytest.mark.slow
def test_rates_and_times_of_a_known_gpu_are_recovered(
    gpu: StubGfx942, calibrate: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 1 %; the impossible rate is refused; afterwards predicted times are those of the GPU, with an interval."""
    result = calibrate()
    assert {item["name"]: item["measured"] for item in result["rates"]} == pytest.approx(TRUE, rel=0.01)
    assert {item["name"] for item in result["rates"] if item["reason"]} == {"fp8"}
    assert {item["name"]: item["in_archspec"] for item in result["rates"]} | {"bf8": 4096} == rates_of(
        load_arch("gfx942")
    )
    (kind,) = result["kinds"]
    assert (kind["kind"], kind["problems"], result["failures"]) == (KIND, len(PROBLEMS), [])
    assert kind["factor"] == pytest.approx(FACTOR * exp(np.median(OF_PROBLEMS)), rel=0.01)
    spread = np.std(OF_PROBLEMS, ddof=1) * np.sqrt(1 + 1 / len(PROBLEMS))
    assert log(kind["high"]) == pytest.approx(2.015 * spread, rel=0.02)  # Student's t, 5 degrees of freedom
    assert not kind["uses_rates"]  # by archspecs the order is exact

    problem = replace(PROBLEMS[3], c=96)
    sizes = ("--n", "1", "--c", "96", "--k", "32", "--hi", "10", "--y", "1", "--pad", "0")
    predict = ["predict", *sizes, "--dtype", "fp32", "--arch", "gfx942"]
    assert run([*predict, "--json"]) == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["problem"] == problem.canonical()
    kernel = answer["kernels"][0]
    estimated = float(-gpu._estimate.predict(problem, [_kernel(kernel["kernel"])])[0])
    assert kernel["latency_ms"] == pytest.approx(estimated * kind["factor"] / 1e3)
    assert kernel["tflops"] == pytest.approx(problem.flops / kernel["latency_ms"] / 1e9)
    assert answer["predicted_interval"] == pytest.approx([kind["low"], kind["high"]])
    assert DEVICE in answer["not_measured"]["source"]
    for _ in range(2):  # in full, and as prepared
        assert run(predict) == ExitCode.OK
        text = capsys.readouterr().out
        assert f"{kernel['latency_ms']:.4g}" in text
        assert "calibrated on gfx942" in " ".join(text.split())
    calibration_path("gfx942", DEVICE).unlink()
    assert run([*predict, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["kernels"][0]["latency_ms"] is None


def _kernel(name: str) -> Any:
    from ckh.ops import operation

    return operation("grouped_conv").kernels.parse(name)


@pytest.mark.slow
def test_an_interrupted_calibration_goes_on(
    calibrate: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C keeps rates and problems; the next call measures the others, and a third one nothing."""
    from ckh.bench.isolated import rounds

    measure = rounds.measure_interleaved
    asked: list[list[str]] = []

    def interrupted(driver: Any, tasks: dict[str, Sequence[Any]], count: int) -> Any:
        asked.append(list(tasks))
        for number, item in enumerate(measure(driver, tasks, count)):
            if number == 2 and len(asked) == 1:
                raise KeyboardInterrupt
            yield item

    monkeypatch.setattr(rounds, "measure_interleaved", interrupted)
    calibrate(code=ExitCode.INTERRUPTED)
    known = calibration_of("gfx942")
    assert known is not None
    assert known.rates == pytest.approx(TRUE, rel=0.01)
    assert ({pair.problem for pair in known.pairs[KIND]}, known.factors) == (set(asked[0][:2]), {})
    result = calibrate()
    assert asked[1] == asked[0][2:]
    assert {item["status"] for item in result["rates"]} == {"known"}
    assert result["kinds"][0]["problems"] == len(PROBLEMS)
    assert calibrate()["kinds"] == result["kinds"]
    assert len(asked) == 2
    assert calibrate("--force")["kinds"][0]["factor"] == pytest.approx(result["kinds"][0]["factor"], rel=0.01)
    assert asked[2] == asked[0]
    capsys.readouterr()


def test_what_cannot_be_calibrated_is_refused(gpu: StubGfx942, capsys: pytest.CaptureFixture[str]) -> None:
    """The host, and options of other runs; a damaged file is named."""
    assert gpu
    assert run(["bench", "--calibrate", "--device", "host"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "host")
    assert run(["bench", "--calibrate", "--device", "hip", "--kernels", "all"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "conflicting-options", "--kernels")
    path = calibration_path("gfx942", DEVICE)
    path.parent.mkdir(parents=True)
    codes = {"{": "bad-json", "{}": "damaged-calibration", "[]": "damaged-calibration"}
    for text, code in codes.items():
        path.write_text(text)
        assert run(["predict", "--arch", "gfx942", "--dtype", "fp32"]) == ExitCode.BAD_DATA
        expect_error(capsys.readouterr().err, code, str(path))
