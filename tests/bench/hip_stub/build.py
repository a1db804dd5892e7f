"""Compiles the HIP runtime without a GPU, and kernels for it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from ckh.bench.codegen.ck_tile import template_dir

_HERE = Path(__file__).parent
_CXX = "g++"


@dataclass(frozen=True, slots=True)
class StubKernel:
    """Parameters of a kernel; see kernel.cpp. `element` is fp32, fp16, bf16 or bf16_cut."""

    element: str = "fp16"
    before: str = ""
    after: str = ""
    skip: str = "false"
    workspace: str = "0"
    short: str = "0"
    graph: str = "0"

    @property
    def flags(self) -> list[str]:
        """Compiler flags."""
        names = ("element", "before", "after", "skip", "workspace", "short", "graph")
        return [f"-D{name.upper()}={getattr(self, name)}" for name in names]


def build_runtime(folder: Path, soname: str = "") -> Path:
    """Build the stub of the HIP runtime; kernels linked to it find it by its soname, if it has one."""
    library = folder / "libstub.so"
    named = [f"-Wl,-soname,{soname}"] if soname else []
    _compile("gcc", "-O1", "-Wall", "-Wextra", "-Werror", str(_HERE / "stub.c"), "-lm", *named, "-o", str(library))
    return library


def build_free_runtime(folder: Path, major: int) -> Path:
    """Build the runtime whose calls cost nothing, as a ROCm of this major version."""
    library = folder / f"libfree{major}.so"
    soname = f"-Wl,-soname,libamdhip64.so.{major}"
    _compile("gcc", "-O1", "-Wall", "-Wextra", "-Werror", str(_HERE / "free.c"), soname, "-o", str(library))
    return library


def build_kernel(kernel: StubKernel, runtime: Path, name: str) -> str:
    """Build a kernel next to the runtime that it is linked to; returns its path."""
    library = runtime.with_name(f"{name}.so")
    _compile(_CXX, "-std=c++17", "-O1", *kernel.flags, str(_HERE / "kernel.cpp"), str(runtime), "-o", str(library))
    return str(library)


def build_exported(folder: Path) -> Path:
    """Compile exported.cpp, with the functions that kernels with the exports of real ones share."""
    part = folder / "exported.o"
    headers = (f"-I{_HERE / 'include'}", f"-I{template_dir()}")
    flags = ("-std=c++17", "-O1", "-fPIC", "-fno-gnu-unique")
    subprocess.run([_CXX, *flags, *headers, "-c", str(_HERE / "exported.cpp"), "-o", str(part)], check=True)
    return part


def build_checks(runtime: Path) -> str:
    """Build the kernels that check results next to the runtime that they are linked to; returns the path."""
    source, library = template_dir().parent / "checks" / "checks.hip", runtime.with_name("checks.so")
    included = f"-I{_HERE / 'include'}"
    _compile(
        _CXX, "-std=c++17", "-O1", included, "-x", "c++", str(source), "-x", "none", str(runtime), "-o", str(library)
    )
    return str(library)


def _compile(compiler: str, *arguments: str) -> None:
    subprocess.run([compiler, "-shared", "-fPIC", *arguments], check=True)
