"""A folder as a stranger may have left it: modules with the names of those that ckh imports, and programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MARK = "RAN"
_INSTALLED = (
    *("numpy", "pandas", "pyarrow", "lightgbm", "sklearn", "scipy", "joblib", "rich", "typer", "click", "onnx"),
    *("matplotlib", "distributed", "dask", "tornado", "cryptography", "torch", "sitecustomize", "usercustomize"),
)
_PROGRAMS = ("gcc", "g++", "c++", "cc", "clang", "clang++", "as", "ld", "hipcc", "git", "rocminfo", "python3")


def plant(folder: Path) -> None:
    """Plant the modules, a package ckh, and programs, each of which leaves a mark when it runs, and settings."""
    mark = folder / _MARK
    text = f"open({str(mark)!r}, 'a').write(__name__ + '\\n')\nraise ImportError('planted')\n"
    (folder / "ckh").mkdir()
    (folder / "matplotlibrc").write_bytes(b"\xff")  # which cannot be read
    for name in (*sys.stdlib_module_names, *_INSTALLED, "ckh/__init__", "ckh/__main__"):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for name in _PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> '{mark}'\nexit 1\n", encoding="utf-8")
        (folder / name).chmod(0o755)


def ran(folder: Path) -> list[str]:
    """The planted modules and programs that ran."""
    mark = folder / _MARK
    return mark.read_text(encoding="utf-8").splitlines() if mark.exists() else []
