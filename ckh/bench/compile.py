"""Compiling kernels: the system's compiler, a cache by content, many at a time.

A compiler that was killed, or found no memory or room, says nothing about its kernel: it is run again at the end, with
no other beside it, and if that is no better, the next time that the kernel is wanted.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.bench.compiling import run_compiler
from ckh.bench.kernel_cache import CachedLibrary, KernelCache, fault
from ckh.bench.plan import full_name
from ckh.errors import DataError
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.binary import Binary
    from ckh.bench.device import Device
    from ckh.ops.base import Kernel

DEFAULT_COMPILE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a kernel's source: a library, or a status and why."""

    status: Status
    library: str
    source_hash: str
    message: str = ""
    binary: Binary | None = None

    @property
    def code_hash(self) -> str:
        """What libraries that do the same share."""
        return self.binary.code_hash if self.binary is not None else self.source_hash


def default_jobs(job_bytes: int) -> int:
    """Compilers at a time that need so much memory each: one a core, as far as the free memory goes."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, available_bytes() // job_bytes))


def available_bytes() -> int:
    """Memory that can be had without swapping."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


@dataclass(frozen=True, slots=True)
class _Order:
    """Sources by their hashes, each with a kernel that has it, the folder to compile in, and whether to stop."""

    sources: dict[str, tuple[Kernel, str]]
    workshop: Path
    should_stop: Callable[[], bool]


class KernelBuilder:
    """Builds the kernels of a device, each source once.

    Raises:
        DataError: the cache folder cannot be used.
    """

    def __init__(self, device: Device, timeout_s: float = DEFAULT_COMPILE_TIMEOUT_S) -> None:
        self._device = device
        self._timeout_s = timeout_s
        self._salt = hashlib.sha256(device.cache_salt()).digest()
        self._cache = KernelCache()

    def source_hash(self, kernel: Kernel) -> str:
        """The name of the kernel's library in the cache.

        Raises:
            UnsupportedKernelError: the device cannot build it.
        """
        return self._hash(self._device.emit(kernel))

    def missing(self, kernels: Sequence[Kernel]) -> int:
        """How many libraries are not in the cache yet; those that cannot be built do not count."""
        keys = set()
        for kernel in kernels:
            with suppress(UnsupportedKernelError):
                keys.add(self.source_hash(kernel))
        return sum(not self._cache.path(key).exists() for key in keys)

    def build(
        self,
        kernels: Sequence[Kernel],
        jobs: int,
        advance: Callable[[int, str], None],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[Kernel, Built]:
        """Build what the cache does not have, `jobs` at a time; when `should_stop`, the rest is left out."""
        built: dict[Kernel, Built] = {}
        hashes: dict[Kernel, str] = {}
        sources: dict[str, tuple[Kernel, str]] = {}
        for kernel in kernels:
            try:
                source = self._device.emit(kernel)
            except UnsupportedKernelError as error:
                built[kernel] = Built(Status.UNSUPPORTED, "", "", str(error))
                advance(1, "")
                continue
            hashes[kernel] = self._hash(source)
            sources[hashes[kernel]] = kernel, source
        try:
            with self._cache.workshop() as workshop:
                made = self._build_all(_Order(sources, workshop, should_stop), jobs, advance)
        except OSError as error:
            raise DataError(f"cannot build kernels in {self._cache.folder}: {error.strerror}") from error
        return built | {kernel: made[key] for kernel, key in hashes.items() if key in made}

    def _build_all(self, order: _Order, jobs: int, advance: Callable[[int, str], None]) -> dict[str, Built]:
        from joblib import Parallel, delayed

        lock = threading.Lock()

        def one(key: str) -> Built | None:
            with lock:
                advance(0, full_name(order.sources[key][0]))
            result = self._build(key, order)
            if result is not None and result.status is not Status.COMPILE_INTERRUPTED:
                with lock:
                    advance(1, "")
            return result

        results = Parallel(n_jobs=jobs, backend="threading")(delayed(one)(key) for key in order.sources)
        made = dict(zip(order.sources, results, strict=True))
        for key in [key for key, result in made.items() if result and result.status is Status.COMPILE_INTERRUPTED]:
            made[key] = self._build(key, order) or made[key]
            advance(1, "")
        return {key: result for key, result in made.items() if result is not None}

    def _hash(self, source: str) -> str:
        return hashlib.sha256(self._salt + source.encode()).hexdigest()[:32]

    def _build(self, key: str, order: _Order) -> Built | None:
        """Build a source, unless its library is there; None when stopped."""
        if order.should_stop():
            return None
        if found := self._cache.find(key):
            return _ok(key, found)
        with tempfile.TemporaryDirectory(dir=order.workshop, ignore_cleanup_errors=True) as folder:
            source = Path(folder) / f"{key}.cpp"
            library = source.with_suffix(".so")
            kernel, text = order.sources[key]
            source.write_text(text, encoding="utf-8")
            command = self._device.compile_command(kernel, source, library)
            run = run_compiler(command, source, self._timeout_s, order.should_stop)
            if run is None:
                return None
            if run.status is not Status.OK:
                return Built(run.status, "", key, run.message)
            if why := fault(library):
                return Built(Status.COMPILE_ERROR, "", key, f"the compiler wrote no library of a kernel: {why}")
            return _ok(key, self._cache.put(key, library, self._device.inspect(kernel, run.message, library)))


def _ok(key: str, library: CachedLibrary) -> Built:
    return Built(Status.OK, str(library.path), key, binary=library.binary)
