"""CK Tile's current interface as stubs, with which emitted sources are type-checked; they compute nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

STUB = Path(__file__).parent / "current_stub" / "include"
HIPCC = shlex.split(os.environ.get("HIPCC", ""))
needs_hipcc = pytest.mark.skipif(not HIPCC, reason="HIPCC names no HIP compiler to check the C++ with")
_TARGET = ("-std=c++20", "--offload-arch=gfx942")


def syntax_errors(source: str, folder: Path, include: Sequence[Path]) -> str:
    """Compiler errors of a source; empty if it is accepted for the host and for the GPU."""
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument", "-fsyntax-only"]
    done = _compile(source, folder, include, flags)
    return f"exit code {done.returncode}: {done.stderr}" if done.returncode else ""


def built(source: str, folder: Path, include: Sequence[Path]) -> str:
    """Path of the library of a source, host part only."""
    library = str(folder / "kernel.so")
    _compile(source, folder, include, ["-shared", "-fPIC", "-O0", "-o", library]).check_returncode()
    return library


def _compile(
    source: str, folder: Path, include: Sequence[Path], flags: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    file = folder / "kernel.hip"
    file.write_text(source, encoding="utf-8")
    command = [*HIPCC, *_TARGET, *flags, *(f"-I{path}" for path in include), "-x", "hip", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
