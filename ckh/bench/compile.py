"""Compiling kernels: the system's compiler, a cache by content, many at a time.

A library is in the cache under the hash of all that it depends on, and gets there by a rename: several processes may
build the same kernel at once, and none ever sees a part of a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.binary import binary_text, read_binary
from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.data.schema import Status
from ckh.errors import DataError
from ckh.paths import cache_dir, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.binary import Binary
    from ckh.bench.device import Device
    from ckh.ops.base import Kernel

DEFAULT_COMPILE_TIMEOUT_S = 300.0

_POLL_S = 0.2
_ERROR_LINE = re.compile(r"(?:error|Error|undefined reference|cannot find)")
_MESSAGE_LENGTH = 300


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


class KernelBuilder:
    """Builds the kernels of a device, each source once.

    Raises:
        DataError: the cache folder cannot be used.
    """

    def __init__(self, device: Device, timeout_s: float = DEFAULT_COMPILE_TIMEOUT_S) -> None:
        self._device = device
        self._timeout_s = timeout_s
        self._salt = hashlib.sha256(device.cache_salt()).digest()
        self._folder = cache_dir() / "kernels"

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
        return sum(not self._library(key).exists() for key in keys)

    def build(
        self,
        kernels: Sequence[Kernel],
        jobs: int,
        advance: Callable[[int, str], None],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[Kernel, Built]:
        """Build what the cache does not have, `jobs` at a time; when `should_stop`, the rest is left out."""
        from joblib import Parallel, delayed

        built: dict[Kernel, Built] = {}
        hashes: dict[Kernel, str] = {}
        sources: dict[str, str] = {}
        for kernel in kernels:
            try:
                source = self._device.emit(kernel)
            except UnsupportedKernelError as error:
                built[kernel] = Built(Status.UNSUPPORTED, "", "", str(error))
                advance(1, "")
                continue
            hashes[kernel] = self._hash(source)
            sources[hashes[kernel]] = source
        lock = threading.Lock()

        def one(key: str, source: str) -> Built | None:
            if should_stop():
                return None
            result = self._build(key, source, should_stop)
            with lock:
                advance(1, "")
            return result

        tasks = (delayed(one)(key, source) for key, source in sources.items())
        results = Parallel(n_jobs=jobs, backend="threading")(tasks)
        made = {key: result for key, result in zip(sources, results, strict=True) if result is not None}
        return built | {kernel: made[key] for kernel, key in hashes.items() if key in made}

    def _hash(self, source: str) -> str:
        return hashlib.sha256(self._salt + source.encode()).hexdigest()[:32]

    def _library(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.so"

    def _build(self, key: str, source: str, should_stop: Callable[[], bool]) -> Built | None:
        library = self._library(key)
        beside = library.with_suffix(".json")
        if library.exists():
            return Built(Status.OK, str(library), key, binary=read_binary(beside))
        part = library.with_name(f".{key}.{secrets.token_hex(8)}")
        source_file, part_library = part.with_name(part.name + ".cpp"), part.with_name(part.name + ".so")
        try:
            library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            source_file.write_text(source, encoding="utf-8")
            command = self._device.compile_command(source_file, part_library)
            run = _compile(command, self._timeout_s, should_stop)
            if run is None:
                return None
            if run.status is not Status.OK:
                return Built(run.status, "", key, run.message)
            binary = self._device.inspect(run.message, part_library)
            if binary is not None:
                write_atomic(beside, binary_text(binary).encode())
            part_library.replace(library)
            return Built(Status.OK, str(library), key, binary=binary)
        except OSError as error:
            raise DataError(f"cannot build kernels in {library.parent}: {error.strerror}") from error
        finally:
            for path in (source_file, part_library):
                with suppress(OSError):  # an unusable folder was said above; a compiler may have made neither
                    path.unlink()


@dataclass(frozen=True, slots=True)
class _CompilerRun:
    """How a compiler ended; the message is the first useful line of an error, or all that it said on success."""

    status: Status
    message: str


def _compile(command: list[str], timeout_s: float, should_stop: Callable[[], bool]) -> _CompilerRun | None:
    """Run a compiler, in a session of its own so that all its processes can be ended; None when stopped."""
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    while True:
        try:
            _, said = process.communicate(timeout=_POLL_S)
            break
        except subprocess.TimeoutExpired:
            if not should_stop() and time.monotonic() < deadline:
                continue
        os.killpg(process.pid, 9)
        process.communicate()
        if should_stop():
            return None
        return _CompilerRun(Status.COMPILE_TIMEOUT, f"the compiler took longer than {timeout_s:g} s")
    messages = said.decode(errors="replace")
    if process.returncode == 0:
        return _CompilerRun(Status.OK, messages)
    return _CompilerRun(Status.COMPILE_ERROR, _first_error(messages, process.returncode))


def _first_error(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = next((line for line in lines if _ERROR_LINE.search(line)), lines[0] if lines else "")
    # What stands in front is a temporary file's name.
    useful = re.sub(r"^\S*/\.[0-9a-f]+\.[0-9a-f]+\.cpp:", "", useful)
    return (useful or f"the compiler ended with code {code}")[:_MESSAGE_LENGTH]
