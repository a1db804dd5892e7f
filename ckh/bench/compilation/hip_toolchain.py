"""Discovery of hipcc and CK Tile's headers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import detect_interface, has_headers
from ckh.bench.compilation.toolchain import Compiler, compiler_named
from ckh.bench.isolated.hip_runtime import RUNTIME
from ckh.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.bench.codegen.ck_tile import Headers

_DEFAULT_ROCM = "/opt/rocm"
_CLANG = re.compile(r"\bclang version (\d+)")
_MOVES_BARRIERS = 19  # observed in the code of clang 19.1's kernels, and in their results where they were executed
_HIPCC, _ROCM, _INCLUDE = "HIPCC", "ROCM_PATH", "CK_TILE_INCLUDE"

HIP_FLAGS = (
    *("-std=c++20", "-O3", "-shared", "-fPIC"),
    # AMD's own flags for these kernels; the other ones are probed (`all_flags`).
    *("-Wno-undefined-func-template", "-Wno-float-equal"),
    # Otherwise GPU code holds a hash of the source file's path.
    "-fuse-cuid=none",
    # Omit symbols and the build id, which depend on names.
    *("-s", "-Wl,--build-id=none"),
    "-Rpass-analysis=kernel-resource-usage",
)
# The options that CK's own build passes where the compiler accepts them (its CMakeLists.txt), except
# -amdgpu-early-inline-all=true, which takes 3.6 to more than 18 times the compile time with clang 21.
_LLVM = "-mllvm"
_CK_OPTIONS = (
    (_LLVM, "-enable-noalias-to-md-conversion=0"),
    ("-fno-offload-uniform-block",),
    (_LLVM, "--lsr-drop-solution=1"),
    (_LLVM, "-enable-post-misched=0"),
    (_LLVM, "-amdgpu-function-calls=false"),
)
OPTIONS = (*HIP_FLAGS, *(word for option in _CK_OPTIONS for word in option))  # of a compiler that accepts all of them
_PROBE = ("-x", "hip", "--offload-arch=gfx90a", "-nogpulib", "-nogpuinc", "-fsyntax-only")
_PROBE_TIMEOUT_S = 60.0


def find_hipcc(wanted: str | None, environ: Mapping[str, str] = os.environ) -> Compiler:
    """Find the HIP compiler: the requested one, else $HIPCC, else in $ROCM_PATH, PATH or /opt/rocm."""
    for requested in (wanted, environ.get(_HIPCC)):
        if requested:
            return _checked(requested, environ)
    candidates = [str(Path(environ[_ROCM], "bin", "hipcc"))] if environ.get(_ROCM) else []
    for program in (*candidates, "hipcc", f"{_DEFAULT_ROCM}/bin/hipcc"):
        if shutil.which(program, path=environ.get("PATH")):
            return _checked(shlex.quote(program), environ)
    raise DeviceError(
        f"no HIP compiler: hipcc not found in {_ROCM}, PATH or {_DEFAULT_ROCM}",
        f"install ROCm, or name hipcc with --hipcc or {_HIPCC}",
        code="no-compiler",
    )


def _checked(text: str, environ: Mapping[str, str]) -> Compiler:
    if (found := compiler_named(text, environ.get("PATH"))) is None:
        raise DeviceError(
            f"the HIP compiler {text} cannot be run", f"name hipcc with --hipcc or {_HIPCC}", code="no-compiler"
        )
    return found


def runtime_beside(hipcc: Compiler) -> Path | None:
    """HIP runtime in the lib folder of the compiler's ROCm; None if there is none."""
    runtime = Path(hipcc.command[0]).resolve().parent.parent / "lib" / RUNTIME
    return runtime if runtime.is_file() else None


def all_flags(hipcc: Compiler) -> tuple[str, ...]:
    """Options of code generation: those of CK's own build that a compiler accepts, and then its own arguments."""
    every = tuple(word for option in _CK_OPTIONS for word in option)
    if not _accepts(hipcc, every):
        every = tuple(word for option in _CK_OPTIONS if _accepts(hipcc, option) for word in option)
    return every + hipcc.arguments


@cache
def _accepts(hipcc: Compiler, options: tuple[str, ...]) -> bool:
    """True if the compiler compiles an empty source with these options."""
    with tempfile.NamedTemporaryFile(suffix=".hip") as source:
        command = [*hipcc.command, *options, *_PROBE, source.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"the HIP compiler {command[0]} does not answer: {error}", code="no-compiler") from error
    if done.returncode < 0:
        raise DeviceError(f"the HIP compiler {command[0]} was killed", code="no-compiler")
    return done.returncode == 0


def compiler_warning(hipcc: Compiler) -> str:
    """Known code generation bug of a compiler; empty if none is known."""
    matched = _CLANG.search(hipcc.version)
    if matched is None or int(matched[1]) != _MOVES_BARRIERS:
        return ""
    return (
        "clang 19 moves barriers of LDS in GPU code: bwd_weight kernels with compv3 and compv4, and persistent GEMM "
        "kernels, race and give wrong results; use ROCm 7's hipcc, or another of clang 20 or newer"
    )


def find_ck_tile(wanted: str | None, hipcc: Compiler | None, environ: Mapping[str, str] = os.environ) -> Headers:
    """Find CK Tile's headers: the requested include folder, else $CK_TILE_INCLUDE, else those of ROCm."""
    for requested in (wanted, environ.get(_INCLUDE)):
        if requested:
            return detect_interface(Path(requested))
    folders = list(_rocm_includes(hipcc, environ))
    for folder in folders:
        if has_headers(folder):
            return detect_interface(folder)
    raise DeviceError(
        "no CK Tile headers in " + " or ".join(map(str, folders)),
        f"install composable_kernel's headers, or name their folder with --ck-include or {_INCLUDE}",
        code="no-headers",
    )


def known_ck_tile(wanted: str | None = None, environ: Mapping[str, str] = os.environ) -> Headers | None:
    """The headers that `find_ck_tile` would return, without running a compiler; None if there are none."""
    include = _known_include(wanted, *(environ.get(name) for name in (_INCLUDE, _HIPCC, _ROCM, "PATH")))
    return None if include is None else _detected(include)


@lru_cache(maxsize=16)
def _known_include(
    wanted: str | None, include: str | None, hipcc: str | None, rocm: str | None, path: str | None
) -> Path | None:
    if requested := wanted or include:
        return Path(requested) if has_headers(Path(requested)) else None
    with suppress(ValueError):  # an unterminated quotation
        program, *_ = shlex.split(hipcc or "") or ["hipcc"]
        hipcc_path = shutil.which(program, path=path)
        folders = _rocm_includes(Compiler((hipcc_path,), "") if hipcc_path else None, {_ROCM: rocm or ""})
        return next(filter(has_headers, folders), None)
    return None


_detected = lru_cache(maxsize=4)(detect_interface)


def _rocm_includes(hipcc: Compiler | None, environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get(_ROCM):
        yield Path(environ[_ROCM], "include")
    if hipcc is not None:
        yield Path(hipcc.command[0]).resolve().parent.parent / "include"
    yield Path(_DEFAULT_ROCM, "include")
