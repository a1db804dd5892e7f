"""Every place where times enter ckh, by measuring or reading, holds them against the peak rates of their GPU."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from ckh.bench.compilation.compile import Built
from ckh.bench.devices.device import HIP_KIND, DeviceIdentity
from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.driver import Driver, measure_interleaved
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.ops import operation
from ckh.schema import Status
from ckh.search.measuring import Measurer
from tests.runs import host_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_4x1x1_16x16x16"
PROBLEM = "gemm_fp16_rcr_m8192_n8192_k8192_splitk1"
LEAST_NS = 2 * 8192**3 / (2048 * 304 * 2100e6) * 1e9  # 0.84 ms at the 1,307 TFLOPS of an MI300X
BUILT = Built(Status.OK, "/k.so", "hash")
# Where replies of a device get times, which `Driver.possible` judges. Those of the reference kernel are compared with
# one another only.
MEASURING = {
    "bench/supervision/driver.py",  # predict --probe, validate parity and selection, ckh.compile(exhaustive=True)
    "bench/supervision/sweep.py",  # bench and tune
    "search/measuring.py",
}
REFERENCE = "bench/supervision/reference_watch.py"


class FixedRunner:
    """A device on which every kernel takes the same time."""

    node = ""

    def __init__(self, ns: float) -> None:
        self.ns = ns

    def run(self, _setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Answer at once."""
        for job in jobs:
            yield job, Reply(job.id, Status.OK, "", (self.ns,) * (job.samples if job.op is Op.MEASURE else 1), 1)


class FixedDriver(Driver):
    """A driver of such a device, an MI300X, that builds everything."""

    def __init__(self, ns: float, limits: BenchLimits) -> None:
        self.limits, self.jobs, self.runner = limits, 1, FixedRunner(ns)

    @property
    def identity(self) -> DeviceIdentity:
        """Identity of an MI300X."""
        return DeviceIdentity(HIP_KIND, "gfx942", "MI300X", 2100, {"num_cus": 304}, "", ())

    def build(self, kernels: Sequence[Any], title: str = "", jobs: int | None = None) -> dict[Any, Built]:
        """Build nothing."""
        return dict.fromkeys(kernels, BUILT)

    @contextmanager
    def worker(self, *_args: Any, **_options: Any) -> Iterator[Any]:
        """The device."""
        yield self.runner


class Nothing:
    """Accepts any call, as a journal, strategy or progress bar."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: []


def interleaved(driver: Driver) -> list[Status]:
    """Statuses of `predict --probe` and `validate`."""
    kernels = [operation("gemm_universal").kernels.parse(NAME)]
    ((problem, replies),) = measure_interleaved(driver, {PROBLEM: kernels}, DEFAULT_SAMPLES)
    assert problem == PROBLEM
    return [reply.status for reply in replies]


def searched(driver: FixedDriver) -> list[Status]:
    """Statuses of `search measure`, first and remeasured."""
    space: Any = Nothing()
    space.kernels = [operation("gemm_universal").kernels.parse(NAME)]
    nothing: Any = Nothing()
    runner: Any = driver.runner
    run = host_run({"num_cus": 304}, arch="gfx942")
    measurer = Measurer(driver, runner, PROBLEM, space, nothing, run, nothing, lambda *_: None)
    ms = measurer.measure(0)
    again = measurer.compare([measurer.rows[0]], 3, 0, lambda: False)
    assert [row.latency_ms for row in again] == ([] if ms is None else [ms])
    return [measurer.rows[0].status, *(row.status for row in again)]


@pytest.mark.parametrize("measured", [interleaved, searched])
def test_every_command_that_measures_judges_its_times(measured: Any) -> None:
    """A fifth above the peak is allowed for clocks above the nominal one, more is no time, unless insisted."""
    for share, no_check, status in (
        (1.19, False, Status.OK),
        (1.21, False, Status.IMPOSSIBLE_TIME),
        (85.0, True, Status.OK),
    ):
        statuses = measured(FixedDriver(LEAST_NS / share, BenchLimits(no_peak_check=no_check)))
        assert set(statuses) == {status}, share


def test_no_place_that_reads_or_measures_times_is_left_out() -> None:
    """Modules that take times from a device call `possible`; those that call readers are in one function."""
    root = Path(ckh.__file__).parent
    sources = {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*.py")}
    takes_times = re.compile(r"(?<!def )\b(measure|time_in_rounds)\((?:self\._)?\w*(runner|worker)\b")
    assert {name for name, text in sources.items() if takes_times.search(text)} == {*MEASURING, REFERENCE}
    assert {name for name, text in sources.items() if re.search(r"river\.possible\(", text)} == MEASURING
    reads = {
        (name, called)
        for name, text in sources.items()
        for called in re.findall(r"(?<!def )\b(_possible\(read_\w+)", text)
    }
    assert reads == {
        ("data/conversion.py", "_possible(read_input"),
        ("data/conversion.py", "_possible(read_mapped"),
    }
    readers = re.compile(r"(?<!def )(?<!_possible\()\bread_(?:input|mapped)\(")
    assert {name for name, text in sources.items() if readers.search(text)} <= {"data/readers/__init__.py"}
