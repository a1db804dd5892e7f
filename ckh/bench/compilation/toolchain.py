"""Check within a second or two, with a minimal kernel, that a device's compiler, linker and loader work.

A failed compilation is recorded permanently as a property of the kernel, whereas a broken toolchain says nothing about
any kernel.

Also finds the system's C++ compiler.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.compiling import run_compiler
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.errors import DeviceError
from ckh.files.child import module_command
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.bench.devices.device import Device

_TIMEOUT_S = 120.0
_NAME = "toolchain"
_FUNCTIONS = f"""\
extern "C" {{
const char* ckh_name() {{
    static const char label[] =
        "ckh-kernel:{_NAME}";
    return label + sizeof label - sizeof "{_NAME}";
}}
{"".join(f"void {name}() {{ }}" + chr(10) for name in ENTRY_POINTS)}}}
"""
LEAST_HOST = f"#include <cstdint>\n{_FUNCTIONS}"
LEAST_HIP = f"""\
#include <hip/hip_runtime.h>
#include <cstdint>
__global__ void ckh_least(int* out) {{ *out = 1; }}
extern "C" int ckh_launch(int* out) {{
    ckh_least<<<1, 1>>>(out);
    return hipGetLastError();
}}
{_FUNCTIONS}"""

# Message of the compiler, linker or loader -> remedy.
_REMEDIES = (
    (
        r"hip_runtime\.h|hip_version\.h|cannot find HIP runtime",
        "install HIP's headers (packages hip-dev, hip-runtime-amd), or set ROCM_PATH to a whole ROCm",
    ),
    (
        r"cannot find ROCm device library|device-libs|\.bc\b",
        "install the package rocm-device-libs of the same ROCm, or set ROCM_PATH to a whole ROCm",
    ),
    (
        r"(?:cannot find|unable to find library) -lamdhip64",
        "install the package hip-runtime-amd, or set ROCM_PATH to a whole ROCm",
    ),
    (
        r"libamdhip64.*cannot open shared object|libhsa-runtime.*cannot open shared object",
        "set ROCM_PATH to the ROCm of the compiler, or add its lib folder to LD_LIBRARY_PATH",
    ),
    (
        r"another HIP runtime",
        "set ROCM_PATH to the ROCm of the compiler, or have the environment of one ROCm alone",
    ),
    (
        r"[Uu]nsupported (?:HIP )?gpu arch|invalid target ID|unknown target CPU",
        "this compiler does not know the architecture: install a newer ROCm, or name its hipcc with HIPCC",
    ),
    (
        r"(?:cstdint|stddef\.h|limits)' file not found|cannot find -lstdc\+\+",
        "install the C++ library's development files (package g++ or libstdc++-dev)",
    ),
    (r"cannot find -l|unable to find library", "install the library that is named, or repair the compiler"),
    (r"longer than", "the machine is very busy, or the compiler hangs: run the command by hand"),
)


def require_toolchain(device: Device, folder: Path, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Compile, link and load a minimal kernel in a folder. An interrupted compiler proves nothing here either."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as work:
        source, library = Path(work, "least.cpp"), Path(work, "least.so")
        source.write_text(device.least_source, encoding="utf-8")
        command = device.least_command(source, library)
        run = run_compiler(command, source, _TIMEOUT_S, should_stop)
        if run is None or run.status is Status.COMPILE_INTERRUPTED:
            return
        if run.status is not Status.OK:
            raise _broken(f"{command[0]} does not compile and link the simplest kernel", run.message)
        if not library.is_file():
            raise _broken(f"{command[0]} succeeds without writing a library", "")
        load = module_command("ckh.bench.compilation.load", str(library))
        loaded = run_compiler(load, library, _TIMEOUT_S, should_stop, device.worker_environment())
        if loaded is not None and loaded.status is Status.COMPILE_ERROR:
            raise _broken(f"what {command[0]} made of the simplest kernel cannot be loaded", loaded.message)


def _broken(what: str, why: str) -> DeviceError:
    remedy = next((text for pattern, text in _REMEDIES if re.search(pattern, why)), "")
    repair = "repair its installation, or name another compiler (HIPCC, CXX)"
    return DeviceError(
        f"the toolchain is broken: {what}{f': {why}' if why else ''}", remedy or repair, code="broken-toolchain"
    )


_HIP_VERSION = "HIP version"
_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler, the beginning of its command line, and the first line of its version output."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """Find the C++ compiler: $CXX if set (with arguments, if any), else the first of g++, c++, clang++."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(_COMPILERS)
    for name in wanted:
        program, *arguments = shlex.split(name) or [""]
        path = shutil.which(program)
        command = (path or "", *arguments)
        version = version_of(command) if path else ""
        if version:
            return Compiler(command, version)
    hint = "install g++ or clang++, or set CXX"
    raise DeviceError(f"no C++ compiler: {', '.join(wanted)} cannot be run", hint, code="no-compiler")


@cache
def version_of(command: tuple[str, ...]) -> str:
    """First lines of a compiler's version output, empty if it does not run; hipcc prints HIP's and clang's."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode != 0:
        return ""
    lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()[:2]]
    return "; ".join(lines if lines and lines[0].startswith(_HIP_VERSION) else lines[:1])
