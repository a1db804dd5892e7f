"""Kernels that an installed AITER, or its source, builds, by its own lists in Python."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ckh.errors import DataError, UsageError
from ckh.files.child import code_command
from ckh.ops.aiter_gemm.kernels.pool import resolved
from ckh.ops.aiter_gemm.problem import CK

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 60
_MOST_KERNELS = 100_000
# Suffixes of files with lists of kernels, by age.
_ENDINGS = ("_common.py", "_instance.py")
# Prints the numbers and names of the kernels of a file's longest list; its imports find files in the same folder.
_PRINT = """
import importlib.util, json, os, sys
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("kernels_of_aiter", path)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
lists = [
    [[number, kernel.name] for number, kernel in one.items() if isinstance(number, int) and number >= 0]
    for one in vars(module).values()
    if isinstance(one, dict) and one and all(isinstance(getattr(kernel, "name", None), str) for kernel in one.values())
]
print(json.dumps(max(lists, key=len, default=[])))
"""


class InstalledKernel(NamedTuple):
    """A kernel in one version of AITER: its name and its number (`kernelId`)."""

    name: str
    number: int


@cache
def installed_kernels(root: Path, family: str, library: str) -> dict[str, InstalledKernel]:
    """Return the kernels of a family by the names that ckh uses; older versions had other names."""
    path = _list_of(root, family, library)
    command = code_command(_PRINT, str(path))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        rows = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise DataError(f"cannot read AITER's kernels in {path}: {error}", code="no-aiter") from error
    if rows is None:
        why = done.stderr.strip().splitlines()
        raise DataError(f"cannot read AITER's kernels in {path}: {why[-1] if why else 'it failed'}", code="no-aiter")
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST_KERNELS:
        raise DataError(f"{path} has no list of kernels", code="no-aiter")
    result: dict[str, InstalledKernel] = {}
    for number, name in rows:
        result.setdefault(resolved(str(name)), InstalledKernel(str(name), int(number)))
    return result


def _list_of(root: Path, family: str, library: str) -> Path:
    name = f"gemm_{family}" if library == CK else f"gemm_{family}_{library}"
    path = source_file(root, *(f"csrc/*/{name}{ending}" for ending in _ENDINGS))
    if path is None:
        what = f"no csrc/*/{name}_*.py in or beside it"
        raise DataError(f"{root} has no kernels of {library} for {family}: there is {what}", code="no-aiter")
    return path


def source_file(root: Path, *patterns: str) -> Path | None:
    """Return the first file of AITER's source that matches a pattern, in or beside its package; None without one."""
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}", "name AITER's source, or its installed package", code="no-aiter")
    bases = (root, root / "aiter_meta", root.parent / "aiter_meta", root.parent)
    paths = (path for base in bases for pattern in patterns for path in sorted(base.glob(pattern)))
    return next(paths, None)
