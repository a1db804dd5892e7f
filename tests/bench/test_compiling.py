"""Reported reasons of failing compilers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.toolchain import lacks_room, run_compiler
from ckh.schema import Status

if TYPE_CHECKING:
    from pathlib import Path

# The end of clang 21's output, shortened; the options are hipcc's.
DUMP = """\
PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.
Stack dump:
0.\tProgram arguments: /opt/rocm/llvm/bin/clang-20 -cc1 -Werror=return-type -Wno-error -ferror-limit 19 -x hip a.cpp
1.\t<eof> parser at end of file, error recovery
 #0 0x000055d0 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) /opt/rocm/llvm/bin/clang-20 error
"""
ABORTED = "clang++: error: unable to execute command: Aborted (core dumped)"
SEGFAULT = "clang++: error: unable to execute command: Segmentation fault (core dumped)"
SELECT = "LLVM ERROR: Cannot select: 0x5: v2bf16 = BUFFER_ATOMIC_FADD"
FRONTEND = "clang++: error: clang frontend command failed due to signal (use -v to see invocation)"
WARNING = "a.cpp:1:2: warning: unused [-Werror=unused]"
ERROR, INTERRUPTED = Status.COMPILE_ERROR, Status.COMPILE_INTERRUPTED


@pytest.mark.parametrize(
    ("said", "ending", "status", "message"),
    [
        (f"{SELECT}\n{DUMP}{ABORTED}\n{FRONTEND}", "exit 1", ERROR, SELECT),
        (f"{WARNING}\n{DUMP}{SEGFAULT}\n{FRONTEND}", "exit 1", ERROR, SEGFAULT),
        (f"{DUMP}{SELECT}", "exit 134", ERROR, SELECT),
        (
            "ld.lld: error: undefined symbol: f\nclang++: error: linker",
            "exit 1",
            ERROR,
            "ld.lld: error: undefined symbol: f",
        ),
        ("a: error: no\ncc1plus: internal compiler error: x", "exit 4", ERROR, "cc1plus: internal compiler error: x"),
        (f"{WARNING}\nLLVM ERROR: out of memory\n{DUMP}{ABORTED}", "exit 1", INTERRUPTED, "LLVM ERROR: out of memory"),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "exit 134",
            INTERRUPTED,
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ),
        (f"{DUMP}clang++: error: unable to execute command: Killed", "exit 1", INTERRUPTED, "Killed"),
        (WARNING, "kill -9 $$", INTERRUPTED, "the compiler was killed by SIGKILL"),
        (f"{SELECT}\n{DUMP}", "kill -SEGV $$", INTERRUPTED, f"the compiler was killed by SIGSEGV: {SELECT}"),
        (WARNING, "exit 137", INTERRUPTED, "the compiler was killed by SIGKILL"),
        ("", "exit 3", ERROR, "the compiler ended with code 3"),
        ("\n  Segmentation fault", "exit 1", ERROR, "Segmentation fault"),
        ("In file included from a.cpp:1\nld: cannot find -lm", "exit 1", ERROR, "ld: cannot find -lm"),
        ("error: " + 1000 * "0", "exit 1", ERROR, "error: " + 293 * "0"),
    ],
)
def test_the_reason_is_reported(said: str, ending: str, status: Status, message: str, tmp_path: Path) -> None:
    """A crash, a signal or a lack of memory takes precedence over other output; a command line is not a reason."""
    script = f"printf %s {shlex.quote(said)} >&2; {ending}"
    run = run_compiler(["sh", "-c", script], tmp_path / "a.cpp", 10.0, lambda: False)
    assert run is not None
    assert run.status is status
    assert run.message.endswith(message)
    assert "Program arguments" not in run.message


def test_a_full_disk_is_the_reason_in_a_long_folder(tmp_path: Path) -> None:
    """The assembler names two temporary files in the compiler's folder before it says that the disk is full."""
    folder = tmp_path / ("a" * 200)
    said = f"{folder}/ccA.s: Fatal error: {folder}/ccB.o: No space left on device"
    run = run_compiler(["sh", "-c", f"echo {said} >&2; exit 1"], folder / "a.cpp", 10.0, lambda: False)
    assert run is not None
    assert str(folder) not in run.message
    assert lacks_room(run.status, run.message)
