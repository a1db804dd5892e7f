"""The emulator's C sources, and how they are compiled."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from ckh.errors import DeviceError

FOLDER = Path(__file__).with_name("csrc")
# What programs that use HIP request from the loader, by the release of ROCm that they were built with.
RUNTIME_NAMES = ("libamdhip64.so", *(f"libamdhip64.so.{version}" for version in (5, 6, 7)))
EXPORTS = "exports.map"
_COMPILERS = ("gcc", "cc", "clang")
FLAGS = (
    *("-std=gnu11", "-shared", "-fPIC", "-O3", "-march=native", "-fno-strict-aliasing"),
    # Numbers must be what the GPU computes: no fused multiply-add where there is none, and roundings that change.
    *("-ffp-contract=off", "-fno-math-errno", "-frounding-math"),
    f"-Wl,-soname,{RUNTIME_NAMES[0]}",
)


def source_files() -> list[Path]:
    """The files that are compiled, and those they include."""
    return sorted(FOLDER.iterdir())


def find_c_compiler() -> tuple[str, ...]:
    """The command of the C compiler: $CC, else the first of gcc, cc and clang.

    Raises:
        DeviceError: there is none.
    """
    wanted = [os.environ["CC"]] if os.environ.get("CC") else list(_COMPILERS)
    for text in wanted:
        program, *arguments = shlex.split(text) or [""]
        if found := shutil.which(program):
            return found, *arguments
    raise DeviceError(
        f"no C compiler: {', '.join(wanted)} cannot be run",
        "install gcc 12 or newer, or set CC",
        code="no-compiler",
    )


def compile_command(compiler: tuple[str, ...], library: Path, more: tuple[str, ...] = ()) -> list[str]:
    """The command that builds the library, a stand-in for libamdhip64; `more` are flags that follow the others."""
    sources = [str(path) for path in source_files() if path.suffix == ".c"]
    exports = f"-Wl,--version-script={FOLDER / EXPORTS}"
    return [*compiler, *FLAGS, *more, exports, *sources, "-o", str(library), "-lpthread", "-lm"]
