"""Checks of the toolchain before any kernel is compiled; no kernel fails because of a broken one."""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.compilation.toolchain import find_compiler, require_toolchain, run_compiler
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.bench.supervision.driver import Driver, build_and_load
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.remote import DeviceRequest, build_here
from ckh.cli import run
from ckh.data.journal import read_journal
from ckh.errors import DeviceError, ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Status
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.bench.hip_stub.build import build_free_runtime
from tests.real import compiles, skip_without_compiler
from tests.refusals import expect_error, expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = conv_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp16")[0]
SAID = {
    "fatal error: 'hip/hip_runtime.h' file not found": "hip-dev",
    "clang++: error: cannot find ROCm device library; provide its path": "rocm-device-libs",
    "ld.lld: error: unable to find library -lamdhip64": "hip-runtime-amd",
    "clang++: error: invalid target ID 'gfx950'": "newer ROCm",
    "a.cpp:2:10: fatal error: 'cstdint' file not found": "libstdc++-dev",
    "error: something else": "HIPCC",
}


def device_with(folder: Path, script: str) -> HipDevice:
    """A device whose compiler is a sh script, which uses `$library`."""
    hipcc = folder / "rocm/bin/hipcc"
    hipcc.parent.mkdir(parents=True, exist_ok=True)
    version = "[ \"$1\" = --version ] && echo 'HIP version: 7.0' && exit 0"
    words = 'for word; do [ "$before" = -o ] && library=$word; before=$word; done'
    hipcc.write_text(f"#!/bin/sh\n{version}\n{words}\n{script}\n", encoding="utf-8")
    hipcc.chmod(0o755)
    include = write_headers(folder / "include")
    return HipDevice(DeviceOptions("gfx942", shlex.quote(str(hipcc)), str(include)))


def test_the_host_compiler_builds_loadable_libraries(tmp_path: Path) -> None:
    """A working toolchain raises no error, and leaves no file."""
    require_toolchain(HostDevice(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_command_line_with_an_open_quotation_names_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error as of a program that does not exist."""
    monkeypatch.setenv("CXX", "g++ '-O2")
    with expect_refusal(DeviceError, "no-compiler", "g++ '-O2"):
        find_compiler()


@pytest.mark.slow
@compiles()
def test_a_real_hip_compiler_builds_loadable_libraries(tmp_path: Path) -> None:
    """With HIP's own headers, linker and runtime."""
    skip_without_compiler()
    require_toolchain(HipDevice(DeviceOptions("gfx942")), tmp_path)


@pytest.mark.parametrize("said", SAID)
def test_each_fault_has_its_remedy(said: str, tmp_path: Path) -> None:
    """Exit code 3; the error repeats the compiler's message, the hint names the package or the setting."""
    device = device_with(tmp_path, f"echo {shlex.quote(said)} >&2; exit 1")
    with pytest.raises(DeviceError) as caught:
        require_toolchain(device, tmp_path)
    assert caught.value.exit_code == ExitCode.NO_DEVICE
    assert said in caught.value.message
    assert SAID[said] in caught.value.hint


def test_an_unloadable_library_is_a_fault(tmp_path: Path) -> None:
    """A library that needs a missing runtime; the hint names the search path."""
    runtime = build_free_runtime(tmp_path, 9)
    device = device_with(tmp_path, f"echo 'int f;' | gcc -shared -Wl,--no-as-needed {runtime} -x c - -o $library")
    with pytest.raises(DeviceError) as caught:
        require_toolchain(device, tmp_path)
    expect_values(caught.value.message, "libamdhip64.so.9: ")
    assert "ROCM_PATH" in caught.value.hint


def test_a_runtime_of_another_rocm_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If workers open one runtime and kernels link another, memory of one is invalid in the other."""
    (tmp_path / "other").mkdir()
    opened = build_free_runtime(tmp_path / "other", 6).rename(tmp_path / "other/libamdhip64.so.6")
    needed = build_free_runtime(tmp_path, 9).rename(tmp_path / "libamdhip64.so.9")
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(opened))
    link = f"gcc -shared -Wl,--no-as-needed,-rpath,{tmp_path} {needed} -x c - -o $library"
    device = device_with(tmp_path, f"echo 'int f;' | {link}")
    with pytest.raises(DeviceError) as caught:
        require_toolchain(device, tmp_path)
    assert str(opened) in caught.value.message
    assert str(needed) in caught.value.message
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(needed))
    require_toolchain(device, tmp_path)


def test_an_interrupted_compiler_is_no_fault(tmp_path: Path) -> None:
    """A full disk or a lack of memory is not a fault of the toolchain."""
    require_toolchain(device_with(tmp_path, "echo 'No space left on device' >&2; exit 1"), tmp_path)


@pytest.mark.slow
def test_kernels_find_the_runtime_of_their_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the lib folder beside its bin folder, outside the loader's path; `--compile-only` loads kernels."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CKH_HIP_LIBRARY", raising=False)
    monkeypatch.delenv("ROCM_PATH", raising=False)
    FakeHipcc().write(tmp_path / "rocm/bin/fake")
    script = (tmp_path / "rocm/bin/fake").read_text(encoding="utf-8")
    runtime = build_free_runtime(tmp_path, 9)
    linked = script.replace("gcc -shared", f"gcc -shared -Wl,--no-as-needed {runtime}")
    hipcc = tmp_path / "rocm/bin/hipcc"
    hipcc.write_text(linked, encoding="utf-8")
    hipcc.chmod(0o755)
    hipcc.with_name("hipcc.remarks").write_text("", encoding="utf-8")
    device = HipDevice(DeviceOptions("gfx942", str(hipcc), str(write_headers(tmp_path / "include"))))
    with pytest.raises(DeviceError, match=r"libamdhip64\.so\.9"):
        build_and_load(Driver(device, BenchLimits(), lambda: False), [KERNEL])
    (tmp_path / "rocm/lib").mkdir()
    runtime.rename(tmp_path / "rocm/lib/libamdhip64.so")
    hipcc.write_text(linked.replace(str(runtime), str(tmp_path / "rocm/lib/libamdhip64.so")), encoding="utf-8")
    report = build_and_load(Driver(device, BenchLimits(), lambda: False), [KERNEL])[KERNEL]
    assert (report.status, report.message) == (Status.OK, "")


def test_a_node_with_a_broken_toolchain_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is shown by the client, which would not know the machine."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    device = device_with(tmp_path, "echo 'error: broken' >&2; exit 1")
    hipcc, *_ = device.least_command(tmp_path, tmp_path)
    request = DeviceRequest("hip", DeviceOptions("gfx942", shlex.quote(hipcc), str(tmp_path / "include")))
    with pytest.raises(DeviceError) as caught:
        build_here(request, [KERNEL], 60.0)
    assert caught.value.code == "broken-toolchain"
    expect_values(caught.value.message, os.uname().nodename)


def test_a_toolchain_broken_during_a_run_fails_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no kernel compiles, and the simplest one does not either any more, no kernel gets a result."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    once = tmp_path / "once"
    good = "echo 'int f;' | gcc -shared -x c - -o $library"
    device = device_with(tmp_path, f"mkdir {once} 2> /dev/null && {good} && exit 0; echo 'error: broken' >&2; exit 1")
    with expect_refusal(DeviceError, "broken-toolchain"):
        KernelBuilder(device).build([KERNEL], 1, lambda _count, _text: None)


_COMPILER = f"""#!/bin/sh
[ "$1" = --version ] && echo version 1 && exit 0
for word; do [ "$before" = -o ] && library=$word; before=$word; done
calls=$(ls "$0".calls | wc -l)
touch "$0".calls/$calls
[ $calls = {{failing}} ] && exec "$0".gone
echo '{"".join(f"void {name}(void){{{{}}}}" for name in ("ckh_name", *ENTRY_POINTS))}' | gcc -shared -x c -o $library -
[ $calls = {{last}} ] && rm "$0"
exit 0
"""


@pytest.mark.parametrize(("failing", "last"), [(2, 9), (9, 1)], ids=["for a moment", "for good"])
def test_a_compiler_that_is_removed_fails_no_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, last: int
) -> None:
    """One of two kernels has a library; the other is compiled when it is back, or the toolchain is broken."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
    (tmp_path / "cxx.calls").mkdir()
    (tmp_path / "cxx").write_text(_COMPILER.format(failing=failing, last=last), encoding="utf-8")
    (tmp_path / "cxx").chmod(0o755)
    builder, kernels = KernelBuilder(HostDevice()), conv_pool(Direction.FORWARD, load_arch("host"), dtype="fp32")
    with expect_refusal(DeviceError, "broken-toolchain") if last == 1 else nullcontext():
        built = builder.build(kernels[:400:200], 1, lambda _count, _text: None)
        assert [item.status for item in built.values()] == [Status.OK, Status.OK]
    assert len(builder.missing(kernels[:400:200])) == (last == 1)


@pytest.mark.parametrize(
    "said",
    [
        "g++: fatal error: cannot execute 'cc1plus': posix_spawnp: No such file or directory",
        "collect2: fatal error: cannot find 'ld'",
        'clang++: error: unable to execute command: Executable "ld.lld" doesn\'t exist!',
    ],
)
def test_a_part_of_a_compiler_that_is_removed_says_nothing_about_a_kernel(tmp_path: Path, said: str) -> None:
    """Compiler, assembler and linker are programs of their own; a kernel's error with such a word is one."""
    scripts = {said: Status.COMPILE_INTERRUPTED, f"a.cpp:1:2: error: use of 'ld', {said[:4]}": Status.COMPILE_ERROR}
    for text, status in scripts.items():
        command = ["/bin/sh", "-c", f"echo {shlex.quote(text)} >&2; exit 1"]
        done = run_compiler(command, tmp_path / "a.cpp", 60.0, lambda: False)
        assert done is not None
        assert done.status is status


@pytest.mark.slow
def test_a_run_continues_after_the_toolchain_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 and no row while it is broken; --resume then measures every pair, also with another version."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    compiler = tmp_path / "cxx"
    whole = (
        f"#!/bin/sh\n[ -e {tmp_path}/broken ] && [ $# -gt 1 ] && echo 'error: broken' >&2 && exit 1\nexec g++ \"$@\"\n"
    )
    compiler.write_text(whole, encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    (tmp_path / "broken").touch()
    problem = "conv_forward_fp32_nhwgc_2d_n1_c8_k8_g1_i8x8_f3x3_s1x1_p1x1_d1x1"
    (tmp_path / "problems.txt").write_text(problem, encoding="utf-8")
    args = ["bench", "--problems", "problems.txt", "--kernels", "sample:1", "--out", "run"]
    assert run(args) == ExitCode.NO_DEVICE
    expect_error(capsys.readouterr().err, "broken-toolchain")
    assert read_journal(tmp_path / "run").rows == ()
    repaired = '#!/bin/sh\n[ "$1" = --version ] && echo \'g++ (repaired) 99.1\' && exit 0\nexec g++ "$@"\n'
    compiler.write_text(repaired, encoding="utf-8")
    assert run([*args[:1], "--resume", "--out", "run", "--device", "host"]) == ExitCode.OK
    assert [row.status in (Status.OK, Status.UNSTABLE) for row in read_journal(tmp_path / "run").rows] == [True]
