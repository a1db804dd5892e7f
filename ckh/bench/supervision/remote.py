"""Work of a cluster node for a bench run: compiling kernels, and measuring problems on its devices.

The functions run in a Dask worker, called by the client's `remote_device` and `cluster_driver`. Arguments and results
are plain values. A device is used by one call at a time, for all clients: a lock file in the cache folder protects it
for the whole machine. Worker processes stay warm between calls, and end after some idle time.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from ckh.bench.compilation.compile import KernelBuilder, default_jobs
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.devices.device import HOST_KIND
from ckh.bench.devices.device_choice import open_device, shared_gpus
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.cluster.on_dask import is_withdrawn
from ckh.errors import CkhError, DeviceError
from ckh.files.locks import FileLock
from ckh.files.paths import cache_dir
from ckh.hardware.machine import machine_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device, DeviceIdentity, DeviceOptions
    from ckh.bench.supervision.protocol import Job, Reply, WorkerConfig
    from ckh.ops.base import Kernel

_IDLE_S = 60.0  # idle time after which a device's process ends
_LOCKS = "devices"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Request of a device: its kind and options."""

    kind: str
    options: DeviceOptions


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of a node; with a `fault` it cannot be used, and the others are empty."""

    machine: str  # nodes of one machine share its devices
    identity: DeviceIdentity | None = None
    toolchain: str = ""  # hash of everything that a compiled kernel depends on besides its source
    configs: tuple[WorkerConfig, ...] = ()
    compilers: int = 0  # in parallel
    fault: str = ""
    shared: str = ""  # warning of other processes on its GPUs


@dataclass(frozen=True, slots=True)
class Ran:
    """Replies to a call's jobs, in order; seconds by phase, and number of worker restarts."""

    replies: tuple[Reply, ...]
    phase_s: dict[str, float]
    restarts: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing was done: these kernels are missing in the node's cache."""

    keys: tuple[str, ...]


def describe(request: DeviceRequest, *, measures: bool) -> NodeFacts:
    """Describe this node; for measuring, also test its devices."""
    machine = machine_name()
    try:
        device = _device(request)
        shared = shared_gpus(device) if measures else ""
        salt = hashlib.sha256(device.cache_salt()).hexdigest()
        configs = _configs(request)
        return NodeFacts(machine, device.identity(), salt, configs, default_jobs(device.job_bytes), shared=shared)
    except CkhError as error:
        return NodeFacts(machine, fault=error.message)


def build_here(
    request: DeviceRequest, kernels: Sequence[Kernel], timeout_s: float
) -> tuple[dict[str, Built], dict[str, bytes]]:
    """Compile the kernels of a unit; returns the results by source hash, and the library files."""
    try:
        built = KernelBuilder(_device(request), timeout_s).build(kernels, 1, lambda _steps, _text: None)
    except DeviceError as error:
        raise DeviceError(f"on {machine_name()}: {error.message}", error.hint, code=error.code) from error
    made = {build.source_hash: build for build in built.values()}
    return made, KernelCache().files(key for key, build in made.items() if build.library)


def cached(keys: Sequence[str]) -> list[str]:
    """Keys of libraries in this node's cache, intact or not."""
    kernels = KernelCache()
    return [key for key in keys if kernels.has(key)]


def whole_files(keys: Sequence[str]) -> dict[str, bytes]:
    """Files of intact libraries of this node's cache."""
    kernels = KernelCache()
    return kernels.files(key for key in keys if kernels.find(key) is not None)


def store(files: dict[str, bytes]) -> None:
    """Store files of compiled kernels in this node's cache."""
    KernelCache().adopt(files)


def run_jobs(
    request: DeviceRequest, number: int, timeout_s: float, setup: Job | None, jobs: Sequence[Job]
) -> Ran | Missing:
    """Run jobs on the problem of `setup` with a device of this node, used exclusively."""
    kernels = KernelCache()
    keys = tuple(dict.fromkeys(job.library for job in jobs if job.library))
    if missing := tuple(key for key in keys if not kernels.has(key)):
        return Missing(missing)
    here = [replace(job, library=str(kernels.path(job.library))) if job.library else job for job in jobs]
    with _WARM_LOCK:
        warm = _WARM.setdefault((request, number, timeout_s), _Warm(request, number, timeout_s))
    with warm.in_use() as supervisor:
        phases, restarts = dict(supervisor.phase_s), supervisor.restarts
        replies = [reply for _, reply in supervisor.run(setup, here)]
        spent = {phase: seconds - phases.get(phase, 0.0) for phase, seconds in supervisor.phase_s.items()}
        return Ran(tuple(replies), spent, supervisor.restarts - max(restarts, 0))


def end_devices() -> None:
    """End the warm processes."""
    for warm in list(_WARM.values()):
        warm.end()


@cache
def _device(request: DeviceRequest) -> Device:
    return open_device(request.kind, request.options)


@cache
def _configs(request: DeviceRequest) -> tuple[WorkerConfig, ...]:
    """A configuration for each device; on a CPU, for each core, sharing the memory."""
    configs = _device(request).worker_configs()
    if request.kind != HOST_KIND:
        return configs
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    share = configs[0].memory_limit_bytes // len(cores)
    return tuple(replace(configs[0], cpu=core, memory_limit_bytes=share) for core in cores)


class _Warm:
    """Supervisor of a device, kept between calls."""

    def __init__(self, request: DeviceRequest, number: int, timeout_s: float) -> None:
        config = _configs(request)[number]
        self._lock = threading.Lock()
        self._name = f"{config.kind}-{config.cpu if config.kind == HOST_KIND else config.gpu}"
        options = SupervisorOptions(timeout_s, config)
        self._make: Callable[[], Supervisor] = lambda: Supervisor(_device(request), options, is_withdrawn)
        self._supervisor: Supervisor | None = None
        self._timer: threading.Timer | None = None

    @contextmanager
    def in_use(self) -> Iterator[Supervisor]:
        """The supervisor, with exclusive use of its device; an error ends its process."""
        with self._lock, _device_lock(self._name):
            if self._timer is not None:
                self._timer.cancel()
            if self._supervisor is None:
                self._supervisor = self._make()
            try:
                yield self._supervisor
            except BaseException:
                self._drop()
                raise
            if is_withdrawn():
                self._drop()  # a stopped supervisor cannot be reused
                return
            self._timer = threading.Timer(_IDLE_S, self.end)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """End the process; if in use, when it is released, as callers must not wait."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _drop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.__exit__(None, None, None)
            self._supervisor = None


_WARM: dict[tuple[DeviceRequest, int, float], _Warm] = {}
_WARM_LOCK = threading.Lock()


@contextmanager
def _device_lock(name: str) -> Iterator[None]:
    """Wait until no other process of this machine uses a device."""
    path = cache_dir(_LOCKS) / f"{name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    lock = FileLock(path.with_name(f"{path.name}.{machine_name()}"))  # another machine could never release it
    try:
        lock.wait(descriptor)
        yield
    finally:
        lock.release()
        with suppress(OSError):
            os.close(descriptor)
