"""The emulator's C sources, and their compilation."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from ckh.errors import DeviceError

FOLDER = Path(__file__).with_name("csrc")
# Library names that HIP programs request from the loader, by the ROCm release they were built with.
RUNTIME_NAMES = ("libamdhip64.so", *(f"libamdhip64.so.{version}" for version in (5, 6, 7)))
EXPORTS = "exports.map"
_COMPILERS = ("gcc", "cc", "clang")
FLAGS = (
    *("-std=gnu11", "-shared", "-fPIC", "-O3", "-march=native", "-fno-strict-aliasing"),
    # Results must equal the GPU's: no contraction to fused multiply-add, and dynamic rounding modes.
    *("-ffp-contract=off", "-fno-math-errno", "-frounding-math"),
    f"-Wl,-soname,{RUNTIME_NAMES[0]}",
)


def source_files() -> list[Path]:
    """Compiled source files, and the files that they include."""
    return sorted(FOLDER.iterdir())


def find_c_compiler() -> tuple[str, ...]:
    """Command of the C compiler: $CC, else the first of gcc, cc and clang."""
    wanted = [os.environ["CC"]] if os.environ.get("CC") else list(_COMPILERS)
    for text in wanted:
        program, *arguments = shlex.split(text) or [""]
        if path := shutil.which(program):
            return path, *arguments
    raise DeviceError(
        f"no C compiler: {', '.join(wanted)} cannot be run",
        "install gcc 12 or newer, or set CC",
        code="no-compiler",
    )


def compile_command(compiler: tuple[str, ...], library: Path, more: tuple[str, ...] = ()) -> list[str]:
    """Command that builds the library, which replaces libamdhip64; `more` has additional flags."""
    sources = [str(path) for path in source_files() if path.suffix == ".c"]
    exports = f"-Wl,--version-script={FOLDER / EXPORTS}"
    return [*compiler, *FLAGS, *more, exports, *sources, "-o", str(library), "-lpthread", "-lm"]
