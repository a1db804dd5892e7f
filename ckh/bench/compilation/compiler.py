"""Finding the system's C++ compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from ckh.errors import DeviceError

_HIP_VERSION = "HIP version"
_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler, what its command line begins with, and the first line that it says about its version."""

    command: tuple[str, ...]
    version: str


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
        version = version_of(command) if found else ""
        if version:
            return Compiler(command, version)
    hint = "install g++ or clang++, or set CXX"
    raise DeviceError(f"no C++ compiler: {', '.join(wanted)} cannot be run", hint, code="no-compiler")


@cache
def version_of(command: tuple[str, ...]) -> str:
    """The first lines of a compiler on its version, empty if it does not run; hipcc gives HIP's and clang's."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode != 0:
        return ""
    lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()[:2]]
    return "; ".join(lines if lines and lines[0].startswith(_HIP_VERSION) else lines[:1])
