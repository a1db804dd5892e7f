"""Warm workers that run kernels on arrays, one a device: kernels are compiled into the cache, and never run here."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import default_device_kind, open_device
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import RESULT, Job, Op, operand_file
from ckh.errors import OutputError
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device
    from ckh.bench.isolated.typed import Array
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made there
_ROOM = 1.1  # of the arrays' size, for a folder that takes them


@dataclass
class WarmWorker:
    """A device's worker, which starts with its first job and is restarted when it dies."""

    device: Device
    limits: BenchLimits
    failed: dict[tuple[str, Kernel], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._driver = Driver(self.device, self.limits, lambda: False)
        self._built: dict[Kernel, Built] = {}
        self._stack = ExitStack()
        self._runner: JobRunner | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def fnuz_floats(self) -> bool:
        """True if 8-bit floating-point numbers have CDNA3's FNUZ encoding."""
        return self._driver.configs[0].fnuz_floats

    def compiled(self, kernel: Kernel) -> Built:
        """A kernel's library, or why there is none."""
        with self._lock:
            known = self._built.get(kernel)
            if known is None or (known.library and not Path(known.library).exists()):
                known = self._built[kernel] = self._driver.build([kernel], "compiling kernels")[kernel]
            return known

    def why_not(self, job: Job, setup: Job) -> str:
        """Run a kernel on the operands of the setup's folder; why there is no result there, empty if there is."""
        with self._lock:
            if self._runner is None:
                self._runner = self._stack.enter_context(self._driver.worker())
            ((_, reply),) = self._runner.run(setup, [job])
        return "" if reply.status is Status.OK else f"{reply.status}: {reply.message}"

    def close(self) -> None:
        """End the worker; the next job starts another one. A copy of this process that was forked leaves it alone."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._stack.close()
            self._runner = None


def warm_worker(kind: str | None, arch: str | None, timeout_s: float) -> WarmWorker:
    """The worker of a device, which later calls share."""
    options = DeviceOptions(None if arch == HOST_KIND else arch)
    kind = kind or (HOST_KIND if arch == HOST_KIND else default_device_kind(options))
    return _kept(kind, options, timeout_s, os.getpid())


@cache
def _kept(kind: str, options: DeviceOptions, timeout_s: float, process: int) -> WarmWorker:  # noqa: ARG001 - after a fork
    worker = WarmWorker(open_device(kind, options), BenchLimits(timeout_s=timeout_s))
    _open.append(worker)
    return worker


_open: list[WarmWorker] = []


@atexit.register
def close_all() -> None:
    """End all workers; later calls begin with new ones, and forget which kernels failed."""
    _kept.cache_clear()
    while _open:
        _open.pop().close()


@contextmanager
def folder_of(operands: Sequence[Array], result_bytes: int) -> Iterator[Path]:
    """A folder with operands for a worker, in shared memory where there is room."""
    needed = _ROOM * (sum(operand.nbytes for operand in operands) + result_bytes)
    has_room = os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free > needed
    with tempfile.TemporaryDirectory(prefix="ckh-run-", dir=_SHARED_MEMORY if has_room else None) as name:
        folder = Path(name)
        try:
            for place, values in enumerate(operands):
                values.tofile(folder / operand_file(place))
        except OSError as error:
            raise OutputError(
                f"cannot write {folder}: {error.strerror}", "make room, or set TMPDIR", code="unwritable"
            ) from error
        yield folder


def on_operands(problem: str, folder: Path, *, is_checked: bool) -> Job:
    """The job that sets up a problem with the operands of a folder, with a reference if it is to be checked."""
    return Job(Op.PROBLEM, -1, problem=problem, folder=str(folder), is_checked=is_checked)


def result_in(folder: Path, shape: Sequence[int], storage: np.dtype[np.generic]) -> Array:
    """The result that a worker wrote."""
    array: Array = np.fromfile(folder / RESULT, storage).reshape(tuple(shape))
    return array
