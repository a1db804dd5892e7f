"""Compilers: find the system's, run one, and check within a second or two that a device's toolchain works.

A compiler may hang, write endless output, be killed, or succeed without writing a file. A failed compilation is
recorded permanently as a property of the kernel, whereas a broken toolchain says nothing about any kernel.

`python -m ckh.bench.compilation.toolchain LIBRARY` loads a library as a worker does, or reports why that fails.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.isolated.hip_runtime import RUNTIME, preload
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.bench.supervision.guard import end_guarded, guarded
from ckh.errors import DeviceError
from ckh.files.child import module_command
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
_REMEDIES: dict[str, str] = json.loads(Path(__file__).with_name("remedies.json").read_bytes())
_HIP_VERSION = "HIP version"
_COMPILERS = ("g++", "c++", "clang++")
_POLL_S = 0.2
_LEAST_SHARE = 0.01  # of a core; a compiler has more even at the lowest priority on a busy machine
_TIMES = slice(11, 15)  # fields of /proc/PID/stat after the program's name: its own times and those of its children
_READ_BYTES = 1 << 16
_MOST_BYTES = 16 << 20  # of compiler output; the remarks on a CK Tile kernel have some kilobytes
_MESSAGE_LENGTH = 300
_SHELL_SIGNAL = 128  # a shell's exit code for a program ended by a signal is this plus the signal number
_REMOVED = (126, 127)  # exit codes of the guard, and of shells, for programs that cannot be run
_SIGNALLED = tuple(_SHELL_SIGNAL + number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
# Messages of a compiler crash, and of errors in the source. Neither is searched in a stack dump, whose command line has
# options such as -Wno-error.
_CRASH = re.compile(r"LLVM ERROR:|error in backend|internal compiler error|Assertion .* failed")
_ERROR = re.compile(r"\b(?:error|Error|undefined reference|cannot find)\b")
_STACK_DUMP = re.compile(r"Stack dump|Program arguments:|#\d+ 0x|\d+\.\s|PLEASE (?:submit|ATTACH)")
# Messages of compiler drivers when a subprocess was killed or removed, or resources ran out: gcc's and clang's wording,
# then the system's error strings, which they repeat.
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_INTERRUPTION = re.compile(
    r"(?:Killed|Terminated|Hangup|Interrupt) signal terminated program"
    r"|unable to execute command: (?:Killed|Terminated|Hangup|Interrupt|Bus error|posix_spawn failed|Executable)"
    r"|cannot execute '|cannot find 'ld'"
    rf"|{_NO_ROOM.pattern}"
    r"|Cannot allocate memory|Resource temporarily unavailable|Too many open files|Stale file handle"
    r"|out of memory allocating|LLVM ERROR: out of memory|std::bad_alloc|memory exhausted"
)


def require_toolchain(device: Device, folder: Path, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Compile, link and load a minimal kernel in a folder. An interrupted compiler proves nothing here either."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as work:
        source, library = Path(work, "least.cpp"), Path(work, "least.so")
        source.write_text(device.least_source, encoding="utf-8")
        command = device.least_command(source, library)
        if shutil.which(command[0]) is None:
            raise _broken(f"{command[0]} was removed", "")
        run = run_compiler(command, source, _TIMEOUT_S, should_stop)
        if run is None or run.status is Status.COMPILE_INTERRUPTED:
            return
        if run.status is not Status.OK:
            raise _broken(f"{command[0]} does not compile and link the simplest kernel", run.message)
        if not library.is_file():
            raise _broken(f"{command[0]} succeeds without writing a library", "")
        load_command = module_command("ckh.bench.compilation.toolchain", str(library))
        loaded = run_compiler(load_command, library, _TIMEOUT_S, should_stop, device.worker_environment())
        if loaded is not None and loaded.status is Status.COMPILE_ERROR:
            raise _broken(f"what {command[0]} made of the simplest kernel cannot be loaded", loaded.message)


def _broken(what: str, why: str) -> DeviceError:
    remedy = next((text for pattern, text in _REMEDIES.items() if re.search(pattern, why)), "")
    repair = "repair its installation, or name another compiler (HIPCC, CXX)"
    return DeviceError(
        f"the toolchain is broken: {what}{f': {why}' if why else ''}", remedy or repair, code="broken-toolchain"
    )


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler, the beginning of its command line, and the first line of its version output."""

    command: tuple[str, ...]
    version: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options in its command, e.g. of `HIPCC="hipcc -O2"`."""
        return tuple(dropwhile(lambda word: not word.startswith("-"), self.command[1:]))

    @property
    def program(self) -> tuple[str, ...]:
        """The command without them."""
        return self.command[: len(self.command) - len(self.arguments)]


def find_compiler() -> Compiler:
    """Find the C++ compiler: $CXX if set (with arguments, if any), else the first of g++, c++, clang++."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(_COMPILERS)
    for name in wanted:
        if (found := compiler_named(name)) is not None:
            return found
    hint = "install g++ or clang++, or set CXX"
    raise DeviceError(f"no C++ compiler: {', '.join(wanted)} cannot be run", hint, code="no-compiler")


def compiler_named(text: str, path: str | None = None) -> Compiler | None:
    """The compiler of a command line; None if it cannot be run."""
    try:
        program, *arguments = shlex.split(text) or [""]
    except ValueError:  # an unterminated quotation
        return None
    command = (shutil.which(program, path=path) or "", *arguments)
    version = version_of(command) if command[0] else ""
    return Compiler(command, version) if version else None


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


@dataclass(frozen=True, slots=True)
class CompilerRun:
    """Result of a compiler; the message is the first useful line of an error, or the whole output on success.

    `cpu_s` is the CPU time of its processes; 0 if it did not finish.
    """

    status: Status
    message: str
    cpu_s: float


def run_compiler(
    command: list[str],
    source: Path,
    timeout_s: float,
    should_stop: Callable[[], bool],
    environ: Mapping[str, str] = os.environ,
) -> CompilerRun | None:
    """Run a compiler in the folder of its source, which also holds its temporary files; None when stopped.

    Its processes end with it, and with this process. `timeout_s` is CPU time of all of them: how long a compiler takes
    depends on other work on the machine. One that hangs computes nothing for that long.
    """
    cpu_s = 0.0
    with subprocess.Popen(
        guarded(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environ, "TMPDIR": str(source.parent)},
        start_new_session=True,
    ) as process:
        try:
            said, late = _listen(process, timeout_s, should_stop)
            if said is not None:
                _, waited, usage = os.wait4(process.pid, 0)  # its own and its finished children's CPU time
                process.returncode, cpu_s = os.waitstatus_to_exitcode(waited), usage.ru_utime + usage.ru_stime
        finally:
            end_guarded(process)
    if said is None and should_stop():
        return None
    if said is None:
        return CompilerRun(Status.COMPILE_TIMEOUT, late, cpu_s)
    messages = said.decode(errors="replace")
    code, status = process.returncode, Status.OK
    if code:
        is_interrupted = code < 0 or code in _REMOVED + _SIGNALLED or _INTERRUPTION.search(messages)
        status = Status.COMPILE_INTERRUPTED if is_interrupted else Status.COMPILE_ERROR
    return CompilerRun(status, _message(code, messages, source), cpu_s)


def lacks_room(status: Status, message: str) -> bool:
    """True if a compiler failed because the disk is full, by its status and message."""
    return status is Status.COMPILE_INTERRUPTED and _NO_ROOM.search(message) is not None


def _listen(
    process: subprocess.Popen[bytes], timeout_s: float, should_stop: Callable[[], bool]
) -> tuple[bytes | None, str]:
    """Read a compiler's output until it ends, the first megabytes; on timeout, None and the reason."""
    assert process.stderr is not None
    descriptor = process.stderr.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    said = bytearray()
    progress_s, least_s, now = 0.0, _LEAST_SHARE * timeout_s, time.monotonic()
    progress_at, look_at = now, now + _POLL_S
    while not should_stop():
        now = time.monotonic()
        if now >= look_at:
            look_at, used_s = now + _POLL_S, _cpu_s(process.pid)
            if used_s > timeout_s:
                return None, f"the compiler took longer than {timeout_s:g} s of CPU time"
            if used_s >= progress_s + least_s:
                progress_s, progress_at = used_s, now
            elif now >= progress_at + timeout_s:
                return None, f"the compiler hangs: it computed for less than {least_s:.2g} of {timeout_s:g} s"
        if not poll.poll(int(1000 * _POLL_S)):
            continue
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            return bytes(said), ""
        said += data[: _MOST_BYTES - len(said)]
    return None, ""


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and its descendants, including those that they have waited for."""
    ticks, pids = 0, [pid]
    while pids:
        process = Path("/proc", str(pids.pop()))
        with suppress(OSError, ValueError):  # it has ended
            ticks += sum(map(int, (process / "stat").read_bytes().rpartition(b")")[2].split()[_TIMES]))
            for thread in (process / "task").iterdir():
                pids += map(int, (thread / "children").read_text(encoding="ascii").split())
    return ticks / os.sysconf("SC_CLK_TCK")


def _message(code: int, messages: str, source: Path) -> str:
    """Reason of a failure in one line; the whole output on success."""
    if code == 0:
        return messages
    said = (line.strip().removeprefix(f"{source}:") for line in messages.splitlines() if line.strip())
    folder = f"{source.parent}{os.sep}"  # temporary, and so long that it can hide the reason behind it
    lines = [line.replace(folder, "") for line in said if not _STACK_DUMP.match(line)]
    patterns = (_NO_ROOM, _INTERRUPTION, _CRASH, _ERROR)
    reason = next((line for pattern in patterns for line in lines if pattern.search(line)), "")
    signalled = -code if code < 0 else code - _SHELL_SIGNAL if code in _SIGNALLED else 0
    if signalled:
        ended = f"the compiler was killed by {signal.Signals(signalled).name}"
        return (f"{ended}: {reason}" if reason else ended)[:_MESSAGE_LENGTH]
    return (reason or next(iter(lines), f"the compiler ended with code {code}"))[:_MESSAGE_LENGTH]


def main() -> None:
    """Load a kernel library; exit code 1 if that fails."""
    preload()
    try:
        ctypes.CDLL(sys.argv[1])
    except OSError as error:
        sys.exit(str(error))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    runtimes = sorted(set(re.findall(rf"/\S*{re.escape(RUNTIME)}\S*", maps)))
    if len(runtimes) > 1:  # memory of one is invalid in another
        sys.exit(f"it loads another HIP runtime than workers use: {' and '.join(runtimes)}")


if __name__ == "__main__":
    main()
