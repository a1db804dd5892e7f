"""Compiling: every source once, failures as statuses, and no partial file in the cache."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import unit as host_codegen
from ckh.bench.compilation import compile as compile_module
from ckh.bench.compilation.compile import KernelBuilder, available_bytes, default_jobs
from ckh.bench.compilation.toolchain import Compiler, find_compiler, run_compiler
from ckh.bench.devices import device_choice
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.errors import DataError, DeviceError, ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Status
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ops.grouped_conv.kernel import ConvKernel

KERNELS = conv_pool(Direction.FORWARD, load_arch("host"))[:5]


def answer(number: int) -> str:
    functions = "".join(f"void {name}() {{}} " for name in ENTRY_POINTS)
    return f'extern "C" {{ int answer() {{ return {number}; }} {functions} }}\n'


class FakeDevice(HostDevice):
    """A device whose kernels are small test programs, compiled by its own command if it has one."""

    def __init__(
        self,
        emit: Callable[[ConvKernel], str] = lambda kernel: answer(KERNELS.index(kernel)),
        salt: bytes = b"",
        command: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._emit, self._salt, self._command = emit, salt, command
        self.commands: list[list[str]] = []

    def emit(self, kernel: Any) -> str:
        return self._emit(kernel)

    def cache_salt(self) -> bytes:
        return self._salt

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        self.commands.append(self._command or super().compile_command(kernel, source, library))
        return self.commands[-1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(cache: Path) -> list[str]:
    """All files of the cache, including hidden ones."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def ask(library: str) -> int:
    return int(ctypes.CDLL(library).answer())


def is_running(pid: int) -> bool:
    """True if a process exists and is not a zombie waiting for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ignore(_count: int, _text: str) -> None:
    pass


def test_libraries_match_their_sources(cache: Path) -> None:
    """Every kernel gets the library of its own source, under its hash, and nothing else remains."""
    builder = KernelBuilder(FakeDevice())
    built = builder.build(KERNELS, 2, ignore)
    assert list(built) == list(KERNELS)
    assert [result.status for result in built.values()] == [Status.OK] * 5
    assert [ask(result.library) for result in built.values()] == [0, 1, 2, 3, 4]
    assert files(cache) == sorted(f"{builder.source_hash(kernel)}.so" for kernel in KERNELS)
    assert all(result.source_hash == builder.source_hash(kernel) for kernel, result in built.items())


def test_kernels_of_the_same_source_are_compiled_once(cache: Path) -> None:
    """All of them get the same library, and progress counts libraries."""
    device = FakeDevice(lambda kernel: answer(KERNELS.index(kernel) // 3))
    builder, advanced = KernelBuilder(device), []
    assert len(builder.missing(KERNELS)) == 2
    built = builder.build(KERNELS, 2, lambda count, _text: advanced.append(count))
    assert [ask(built[kernel].library) for kernel in KERNELS] == [0, 0, 0, 1, 1]
    assert (len(device.commands), len(files(cache)), sum(advanced)) == (2, 2, 2)


@pytest.mark.slow
def test_another_source_or_salt_gives_another_file(cache: Path) -> None:
    """Everything that a library depends on is part of its name."""
    kernels = KERNELS[:1]
    devices = [FakeDevice(), FakeDevice(salt=b"-O2"), FakeDevice(lambda _: answer(9)), FakeDevice(lambda _: answer(0))]
    results = [KernelBuilder(device).build(kernels, 1, ignore)[kernels[0]] for device in devices]
    assert [ask(result.library) for result in results] == [0, 0, 9, 0]
    assert [len(device.commands) for device in devices] == [1, 1, 1, 0]
    assert len(files(cache)) == 3
    assert results[3] == results[0]


def test_key_of_a_host_kernel_changes_with_flags_compiler_and_headers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A changed flag, compiler version or header changes the key; the location of headers does not."""
    kernel = KERNELS[0]

    def key() -> str:
        return KernelBuilder(HostDevice()).source_hash(kernel)

    plain = key()
    assert key() == plain
    with monkeypatch.context() as patch:
        patch.setattr(host_codegen, "_FLAGS", (*host_codegen._FLAGS, "-fno-plt"))
        assert key() != plain
    device = HostDevice()
    device._compiler = replace(device._compiler, version=device._compiler.version + "1")
    assert KernelBuilder(device).source_hash(kernel) != plain
    headers = Path(shutil.copytree(host_codegen.template_dir(), tmp_path / "headers"))
    monkeypatch.setattr(device_choice, "template_dir", lambda: headers)
    assert key() == plain
    with (headers / "simd.hpp").open("a", encoding="utf-8") as header:
        header.write("// one more line\n")
    assert key() != plain


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int x = ;\n", "1:9: error: expected primary-expression before"),
        ("#warning look out\n#include <nowhere.hpp>\n", "2:10: fatal error: nowhere.hpp: No such file or directory"),
    ],
)
def test_source_that_does_not_compile(source: str, message: str, cache: Path) -> None:
    """The first line with an error is the message, without the temporary file's name, and no file is left."""
    built = KernelBuilder(FakeDevice(lambda _: source)).build(KERNELS[:1], 1, ignore)[KERNELS[0]]
    assert (built.status, built.library) == (Status.COMPILE_ERROR, "")
    assert built.message.strip().startswith(message)
    assert files(cache) == []


def test_a_hanging_compiler_is_killed_with_its_children(cache: Path, tmp_path: Path) -> None:
    """After the timeout neither the compiler nor its children are running, and no file is left."""
    pids = tmp_path / "pids"
    device = FakeDevice(command=["sh", "-c", f"sleep 9999 & echo $$ $! > {pids}; wait"])
    built = KernelBuilder(device, timeout_s=0.5).build(KERNELS[:1], 1, ignore)[KERNELS[0]]
    assert (built.status, built.library) == (Status.COMPILE_TIMEOUT, "")
    expect_values(built.message, "0.5 s")
    started = [int(pid) for pid in pids.read_text(encoding="utf-8").split()]
    while any(map(is_running, started)):  # a killed process needs a moment to end; the test has a time limit
        time.sleep(0.01)
    assert files(cache) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("while :; do :; done", "longer than 0.3 s of CPU time"),
        ("setsid sh -c 'while :; do :; done' & wait", "longer than 0.3 s of CPU time"),
        ("sleep 9999", "hangs: it computed for less than 0.003 of 0.3 s"),
    ],
)
def test_limit_of_cpu_time(script: str, message: str) -> None:
    """A compiler ends by its CPU time, which is that of all processes that it starts, or when it computes nothing."""
    built = KernelBuilder(FakeDevice(command=["sh", "-c", script]), timeout_s=0.3).build(KERNELS[:1], 1, ignore)
    assert built[KERNELS[0]].status == Status.COMPILE_TIMEOUT
    assert message in built[KERNELS[0]].message


def test_a_slowed_compiler_is_waited_for() -> None:
    """A compiler that computes little at a time, as on a busy machine, takes longer than its limit and succeeds."""
    slices = "import time\nfor n in range(12):\n time.sleep(0.1)\n while time.process_time() < 0.02 * n: pass\n"
    run = run_compiler([sys.executable, "-S", "-c", slices], Path("kernel.cpp"), 1.0, lambda: False)
    assert run is not None
    assert (run.status, run.message) == (Status.OK, "")


def test_two_builders_at_the_same_kernel_agree(cache: Path) -> None:
    """Both compile it if neither finds it, and both get the one library that remains."""
    both = threading.Barrier(2, timeout=60)

    class Meeting(FakeDevice):
        def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
            both.wait()
            return super().compile_command(kernel, source, library)

    devices, results = [Meeting(), Meeting()], []
    threads = [
        threading.Thread(
            target=lambda d: results.append(KernelBuilder(d).build(KERNELS[:1], 1, ignore)), args=(device,)
        )
        for device in devices
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(device.commands) for device in devices] == [1, 1]
    assert results[0] == results[1]
    built = results[0][KERNELS[0]]
    assert (built.status, ask(built.library)) == (Status.OK, 0)
    assert files(cache) == [Path(built.library).name]


def test_stopped_before_the_start_nothing_is_built(cache: Path) -> None:
    """Nothing is returned, and no compiler runs."""
    device = FakeDevice()
    assert KernelBuilder(device).build(KERNELS, 2, ignore, lambda: True) == {}
    assert (device.commands, files(cache)) == ([], [])


def test_stopped_in_the_middle_the_rest_is_omitted(cache: Path) -> None:
    """Kernels built until then are returned, and remain."""
    advanced: list[int] = []
    builder = KernelBuilder(FakeDevice())
    built = builder.build(KERNELS, 1, lambda count, _text: advanced.append(count), lambda: sum(advanced) == 2)
    assert list(built) == list(KERNELS[:2])
    assert len(files(cache)) == 2


def test_stopping_kills_a_running_compiler(cache: Path, tmp_path: Path) -> None:
    """The compiler ends, its kernel is not in the result, and no file is left."""
    pid = tmp_path / "pid"
    device = FakeDevice(command=["sh", "-c", f"echo $$ > {pid}; sleep 9999"])
    assert KernelBuilder(device).build(KERNELS[:1], 1, ignore, pid.exists) == {}
    assert not is_running(int(pid.read_text(encoding="utf-8")))
    assert files(cache) == []


def test_an_unusable_cache_folder_is_not_bad_data(cache: Path) -> None:
    """A file in place of the folder is reported with its path."""
    cache.mkdir()
    (cache / "kernels").write_text("not a folder", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        KernelBuilder(FakeDevice()).build(KERNELS[:1], 1, ignore)
    assert caught.value.code == "cache"
    expect_values(caught.value.message, cache / "kernels", "File exists")
    assert caught.value.exit_code == ExitCode.INPUT_OUTPUT


def make_compiler(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_compiler_is_taken_from_cxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$CXX is used by path or by name, with its arguments and the first line of its version."""
    path = make_compiler(tmp_path, "my-c++", "echo 'my-c++ 4.2'; echo more")
    monkeypatch.setenv("CXX", str(path))
    assert find_compiler() == Compiler((str(path),), "my-c++ 4.2")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CXX", "my-c++ -m64 '-DNAME=a b'")
    assert find_compiler().command == (str(path), "-m64", "-DNAME=a b")


def test_without_cxx_the_first_working_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A g++ that does not run is skipped."""
    monkeypatch.delenv("CXX", raising=False)
    make_compiler(tmp_path, "g++", "exit 1")
    path = make_compiler(tmp_path, "clang++", "echo 'clang 1.0'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler() == Compiler((str(path),), "clang 1.0")


def test_no_compiler_is_a_device_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A $CXX that is missing, or that fails, is not replaced by another compiler."""
    for name in ("no-such-compiler", str(make_compiler(tmp_path, "broken", "echo oops; exit 1"))):
        monkeypatch.setenv("CXX", name)
        with pytest.raises(DeviceError) as caught:
            find_compiler()
        assert caught.value.code == "no-compiler"
        expect_values(caught.value.message, name)


@pytest.mark.parametrize(
    ("cores", "gigabytes", "jobs"), [(8, 64.0, 8), (8, 3.5, 3), (2, 64.0, 2), (4, 0.2, 1), (1, 1.0, 1)]
)
def test_the_number_of_jobs_is_limited_by_cores_and_memory(
    cores: int, gigabytes: float, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one compiler per core, each with a gigabyte, and at least one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(compile_module, "available_bytes", lambda: int(gigabytes * 2**30))
    assert default_jobs(2**30) == jobs


def test_available_memory_is_less_than_total() -> None:
    """It is a positive number of bytes below the machine's memory."""
    assert 0 < available_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
