"""Compiling kernels: the system's compiler, a cache by content, many at a time.

A library is in the cache under the hash of all that it depends on, and gets there by a rename: several processes may
build the same kernel at once, and none ever sees a part of a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.data.schema import Status
from ckh.errors import DataError, DeviceError
from ckh.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.device import Device
    from ckh.kernels.config import ConvKernel

DEFAULT_COMPILE_TIMEOUT_S = 300.0

_COMPILERS = ("g++", "c++", "clang++")
_JOB_BYTES = 1 << 30  # what one compiler may need
_POLL_S = 0.2
_ERROR_LINE = re.compile(r"(?:error|Error|undefined reference|cannot find)")
_MESSAGE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler, what its command line begins with, and the first line that it says about its version."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a kernel's source: a library, or a status and why."""

    status: Status
    library: str
    source_hash: str
    message: str = ""


def find_compiler() -> Compiler:
    """The C++ compiler: $CXX if that is set (with arguments, if it has any), else the first of g++, c++, clang++.

    Raises:
        DeviceError: there is none that runs.
    """
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(_COMPILERS)
    for name in wanted:
        program, *arguments = shlex.split(name) or [""]
        found = shutil.which(program)
        command = (found or "", *arguments)
        version = _version(command) if found else ""
        if version:
            return Compiler(command, version)
    raise DeviceError(f"no C++ compiler: {', '.join(wanted)} cannot be run", "install g++ or clang++, or set CXX")


@cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def default_jobs() -> int:
    """Compilers at a time: one a core, as far as the free memory goes."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, available_bytes() // _JOB_BYTES))


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

    def source_hash(self, kernel: ConvKernel) -> str:
        """The name of the kernel's library in the cache."""
        return self._hash(self._device.emit(kernel))

    def missing(self, kernels: Sequence[ConvKernel]) -> int:
        """How many libraries are not in the cache yet."""
        return sum(not self._library(key).exists() for key in {self.source_hash(kernel) for kernel in kernels})

    def build(
        self,
        kernels: Sequence[ConvKernel],
        jobs: int,
        advance: Callable[[int, str], None],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[ConvKernel, Built]:
        """Build what the cache does not have, `jobs` at a time; when `should_stop`, the rest is left out."""
        from joblib import Parallel, delayed

        hashes: dict[ConvKernel, str] = {}
        sources: dict[str, str] = {}
        for kernel in kernels:
            source = self._device.emit(kernel)
            hashes[kernel] = self._hash(source)
            sources[hashes[kernel]] = source
        lock = threading.Lock()

        def one(key: str, source: str) -> Built | None:
            if should_stop():
                return None
            built = self._build(key, source, should_stop)
            with lock:
                advance(1, "")
            return built

        tasks = (delayed(one)(key, source) for key, source in sources.items())
        results = Parallel(n_jobs=jobs, backend="threading")(tasks)
        built = {key: result for key, result in zip(sources, results, strict=True) if result is not None}
        return {kernel: built[key] for kernel, key in hashes.items() if key in built}

    def _hash(self, source: str) -> str:
        return hashlib.sha256(self._salt + source.encode()).hexdigest()[:32]

    def _library(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.so"

    def _build(self, key: str, source: str, should_stop: Callable[[], bool]) -> Built | None:
        library = self._library(key)
        if library.exists():
            return Built(Status.OK, str(library), key)
        part = library.with_name(f".{key}.{secrets.token_hex(8)}")
        source_file, part_library = part.with_name(part.name + ".cpp"), part.with_name(part.name + ".so")
        try:
            library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            source_file.write_text(source, encoding="utf-8")
            command = self._device.compile_command(source_file, part_library)
            built = _compile(command, key, self._timeout_s, should_stop)
            if built is not None and built.status is Status.OK:
                part_library.replace(library)
                return Built(Status.OK, str(library), key)
        except OSError as error:
            raise DataError(f"cannot build kernels in {library.parent}: {error.strerror}") from error
        else:
            return built
        finally:
            for path in (source_file, part_library):
                with suppress(OSError):  # an unusable folder was said above; a compiler may have made neither
                    path.unlink()


def _compile(command: list[str], key: str, timeout_s: float, should_stop: Callable[[], bool]) -> Built | None:
    """Run a compiler, in a session of its own so that all its processes can be ended; None when stopped."""
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    while True:
        try:
            _, errors = process.communicate(timeout=_POLL_S)
            break
        except subprocess.TimeoutExpired:
            if not should_stop() and time.monotonic() < deadline:
                continue
        os.killpg(process.pid, 9)
        process.communicate()
        if should_stop():
            return None
        return Built(Status.COMPILE_TIMEOUT, "", key, f"the compiler took longer than {timeout_s:g} s")
    if process.returncode == 0:
        return Built(Status.OK, "", key)
    return Built(Status.COMPILE_ERROR, "", key, _first_error(errors.decode(errors="replace"), process.returncode))


def _first_error(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = next((line for line in lines if _ERROR_LINE.search(line)), lines[0] if lines else "")
    # What stands in front is a temporary file's name.
    useful = re.sub(r"^\S*/\.[0-9a-f]+\.[0-9a-f]+\.cpp:", "", useful)
    return (useful or f"the compiler ended with code {code}")[:_MESSAGE_LENGTH]
