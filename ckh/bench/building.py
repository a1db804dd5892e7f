"""Compiling kernels and loading them in a process of their own: what can be known where there is no GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.compile import KernelBuilder
from ckh.bench.process import DeadlineError, WorkerDiedError, WorkerProcess
from ckh.bench.protocol import Job, Op
from ckh.progress import progress
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.compile import Built
    from ckh.bench.device import Device
    from ckh.ops.base import Kernel
    from ckh.resources import Resources

_LOAD_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What became of a kernel: its status, why it is not ok, the library, and what the compiler told of it."""

    status: Status
    message: str
    library: str
    resources: Resources | None


def build_and_load(
    device: Device,
    kernels: Sequence[Kernel],
    *,
    jobs: int,
    timeout_s: float,
    should_stop: Callable[[], bool],
) -> dict[Kernel, BuildReport]:
    """Compile kernels, `jobs` at a time, and load each library in a worker; those left when stopped are left out.

    Raises:
        DeviceError: the worker cannot be started.
        DataError: the cache cannot be used.
    """
    with progress("compiling kernels", len(kernels)) as advance:
        built = KernelBuilder(device, timeout_s).build(kernels, jobs, advance, should_stop)
    loaded = _load_all(device, [one.library for one in built.values() if one.status is Status.OK], should_stop)
    return {
        kernel: _report(one, loaded.get(one.library))
        for kernel, one in built.items()
        if one.status is not Status.OK or one.library in loaded
    }


def _report(built: Built, failure: tuple[Status, str] | None) -> BuildReport:
    status, message = (built.status, built.message) if failure is None else failure
    return BuildReport(status, message, built.library, None if built.binary is None else built.binary.resources)


def _load_all(
    device: Device, libraries: Sequence[str], should_stop: Callable[[], bool]
) -> dict[str, tuple[Status, str]]:
    """Status and message of each library; one that kills the worker does not take the others with it."""
    config = replace(device.worker_configs()[0], load_only=True)
    found: dict[str, tuple[Status, str]] = {}
    worker: WorkerProcess | None = None
    try:
        with progress("loading kernels", len(libraries)) as advance:
            for library in dict.fromkeys(libraries):
                if should_stop():
                    break
                worker = worker or WorkerProcess(device, config)
                found[library] = _load(worker, library)
                if found[library][0] in (Status.CRASH, Status.TIMEOUT):
                    worker.kill()
                    worker = None
                advance(1, "")
    finally:
        if worker is not None:
            worker.kill()
    return found


def _load(worker: WorkerProcess, library: str) -> tuple[Status, str]:
    try:
        worker.send(Job(Op.LOAD, 0, library=library))
        reply = worker.receive(time.monotonic() + _LOAD_TIMEOUT_S)
    except WorkerDiedError as error:
        return Status.CRASH, f"when it was loaded: {error}"
    except DeadlineError:
        return Status.TIMEOUT, f"it did not load within {_LOAD_TIMEOUT_S:g} s"
    return reply.status, "" if reply.status is Status.OK else reply.message
