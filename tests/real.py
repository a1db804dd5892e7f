"""GPU kernels compiled for real, if there are a HIP compiler and CK Tile's headers.

Tests declare the kernels that they need (`compiles`). All kernels of the selected tests are compiled together, in units
of similar ones, and are kept by content between runs, in the cache folder named by CKH_TEST_KERNELS, or else in ckh's
own. A run takes a quarter of each list of kernels, chosen by the commit, so that commits take turns (`sampled`);
CKH_TEST_ALL_KERNELS=1 takes all. CKH_TEST_COMPILE_MINUTES limits the compile time of a run, and twice that time all
tests with the mark; tests not reached are skipped.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ckh.bench.codegen.ck_tile import Interface, detect_interface
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.supervision.driver import BuildReport, Driver, build_and_load
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.process import WorkerProcess
from ckh.bench.supervision.protocol import Job, Op
from ckh.ops import operation
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.archs import ArchSpec

_NAMES = ("HIPCC", "CK_TILE_INCLUDE")
_MARK = "compiles"
_TIMEOUT_S = 1800.0
_LOAD_TIMEOUT_S = 120.0
_WHY_NOT = "HIPCC and CK_TILE_INCLUDE are not set: no real kernel is compiled"

_MINUTES = "CKH_TEST_COMPILE_MINUTES"
_LIMIT_S = 60 * float(os.environ.get(_MINUTES, "inf"))
_STARTED = time.monotonic()

Wanted = tuple[str, str, str]  # architecture, operation, and the kernel's name
T = TypeVar("T")
_ROOT = Path(__file__).parents[1]
_SHARE = 4  # a run compiles one kernel of so many


class Real(dict[tuple[str, Any], BuildReport]):
    """Reports of compiled kernels, by architecture and kernel; a test that requests a missing one is skipped."""

    def __missing__(self, key: tuple[str, Any]) -> BuildReport:
        """Skip the test."""
        pytest.skip(f"not compiled within the time that {_MINUTES} allows; the next run goes on")


@cache
def _commit() -> bytes:
    """Hash of the commit, or without a repository of the package's sources."""
    command = ["git", "-C", str(_ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        files = sorted((_ROOT / "ckh").rglob("*.[ch]pp")) + sorted((_ROOT / "ckh").rglob("*.py"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def sampled(kernels: Iterable[T], share: int = _SHARE) -> list[T]:
    """One of `share` kernels, at least one, chosen by the commit; all if CKH_TEST_ALL_KERNELS is 1."""
    result = list(kernels)
    if os.environ.get("CKH_TEST_ALL_KERNELS") == "1":
        return result
    by_hash = sorted(result, key=lambda kernel: hashlib.sha256(_commit() + repr(kernel).encode()).digest())
    chosen = by_hash[: -(-len(result) // share)]
    return [kernel for kernel in result if kernel in chosen]


def interface_here() -> Interface:
    """Interface of the headers in the environment, or without headers the one that CI has longest."""
    include = os.environ.get("CK_TILE_INCLUDE")
    return detect_interface(Path(include)).interface if include else Interface.MID_2025


def compiles(*wanted: Wanted) -> pytest.MarkDecorator:
    """Mark of tests that compile for real, and need these kernels of the fixture `real_kernels`."""
    return getattr(pytest.mark, _MARK)(*wanted)  # type: ignore[no-any-return]


def skip_if_late(item: pytest.Item) -> None:
    """Skip a marked test once the time for compiling and testing is used up."""
    if item.get_closest_marker(_MARK) and time.monotonic() > _STARTED + 2 * _LIMIT_S:
        pytest.skip(f"not reached within twice the minutes of {_MINUTES}")


def skip_without_compiler() -> None:
    """Skip the test if nothing can be compiled for real."""
    if not all(os.environ.get(name) for name in _NAMES):
        pytest.skip(_WHY_NOT)


def set_kernel_cache(patch: pytest.MonkeyPatch) -> None:
    """Use the cache that lasts between runs, if there is one, as ckh's."""
    if folder := os.environ.get("CKH_TEST_KERNELS"):
        patch.setenv("CKH_CACHE_DIR", folder)


def wanted_by(items: Iterable[pytest.Item]) -> Mapping[str, list[Wanted]]:
    """Kernels needed by these tests, by architecture."""
    result: dict[Wanted, None] = {}
    for item in items:
        result |= dict.fromkeys(wanted for mark in item.iter_markers(_MARK) for wanted in mark.args)
    return {arch: [item for item in result if item[0] == arch] for arch in sorted({item[0] for item in result})}


def build_real(wanted: Mapping[str, list[Wanted]]) -> Real:
    """Compile kernels and load each in a separate process; kernels beyond the time limit are left out."""
    until = _STARTED + _LIMIT_S
    real = Real()
    for arch, some in wanted.items():
        kernels = [operation(op).kernels.parse(name) for _, op, name in some]
        real |= {(arch, kernel): report for kernel, report in built_with(DeviceOptions(arch), kernels, until).items()}
    return real


def built_with(options: DeviceOptions, kernels: Sequence[Any], until: float = math.inf) -> Mapping[Any, BuildReport]:
    """Compile kernels with a compiler and headers, and load each in a separate process.

    Args:
        options: the compiler, the headers and the architecture.
        kernels: kernels to compile.
        until: end of compiling, on the monotonic clock; remaining kernels are left out.
    """
    device, limits = HipDevice(options), BenchLimits(compile_timeout_s=_TIMEOUT_S)
    compiled = Driver(device, limits, lambda: time.monotonic() > until).build(kernels)
    return build_and_load(Driver(device, limits, lambda: False), list(compiled))


def check_resources(report: BuildReport, arch: ArchSpec) -> None:
    """Assert that a kernel was compiled and loaded, and that the resources it takes are possible."""
    assert (report.status, report.message) == (Status.OK, "")
    taken = report.resources
    assert taken is not None
    assert 0 < taken.vgprs <= 512
    assert 0 < taken.sgprs <= 112
    assert 0 < taken.lds_bytes <= arch.lds_capacity
    assert 1 <= taken.occupancy <= (16 if arch.architecture == "rdna" else 8)
    assert taken.scratch_bytes % 4 == 0


def check_names_and_code(real: Mapping[tuple[str, Any], BuildReport], name: Callable[[Any], str]) -> None:
    """Assert that each library loads and has its kernel's name, and that no two kernels have the same code."""
    device = HipDevice(DeviceOptions("gfx942"))
    worker = WorkerProcess(device, replace(device.worker_configs()[0], load_only=True))
    try:
        for (_, kernel), report in real.items():
            worker.send(Job(Op.LOAD, 1, library=report.library))
            reply = worker.receive(time.monotonic() + _LOAD_TIMEOUT_S)
            assert (reply.status, reply.message) == (Status.OK, name(kernel))
    finally:
        worker.kill()
    devices = [(HipDevice(DeviceOptions(arch)), kernel) for arch, kernel in real]
    binaries = {device.inspect(kernel, device.emit(kernel), "", b"") for device, kernel in devices}
    assert len({binary.code_hash for binary in binaries if binary is not None}) == len(real)
