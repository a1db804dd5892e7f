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
_SETTINGS = (  # of Python, its libraries and the programs that are called
    *("matplotlibrc", "pyvenv.cfg", "setup.cfg", "dask.yaml", "distributed.yaml", "ccache.conf", "clang.cfg"),
    *("clang++.cfg", "specs", ".condarc", ".env", "python.ini"),
)
_PROGRAMS = ("gcc", "g++", "c++", "cc", "clang", "clang++", "as", "ld", "hipcc", "git", "rocminfo", "python3")


def plant(folder: Path) -> None:
    """Plant the modules, a package ckh, programs and .pth files, which leave a mark when they run, and settings."""
    mark = folder / _MARK
    text = f"open({str(mark)!r}, 'a').write(__name__ + '\\n')\nraise ImportError('planted')\n"
    (folder / "ckh").mkdir()
    for name in _SETTINGS:
        (folder / name).write_bytes(b"\xff")  # which cannot be read
    (folder / "planted.pth").write_text("import planted\n", encoding="utf-8")
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"  # of PYTHONUSERBASE
    site.mkdir(parents=True)
    (site / "planted.pth").write_text(f"import sys; sys.path.insert(0, {str(folder)!r}); import planted\n")
    for name in (*sys.stdlib_module_names, *_INSTALLED, "ckh/__init__", "ckh/__main__", "planted"):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for name in _PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> '{mark}'\nexit 1\n", encoding="utf-8")
        (folder / name).chmod(0o755)


def ran(folder: Path) -> list[str]:
    """The planted modules and programs that ran."""
    mark = folder / _MARK
    return mark.read_text(encoding="utf-8").splitlines() if mark.exists() else []
