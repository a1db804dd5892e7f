"""Command lines of Python children, and the program that they start with; nothing of the current folder runs in them.

`python -m` and `python -c` import from the current folder first: a `dataclasses.py` beside a downloaded model would
run. Children start with the path of this file instead. They import from the installation and from the absolute folders
of PYTHONPATH, take ckh from the folder of this file, and ignore Python's other environment variables.
"""

from __future__ import annotations

import os
import sys

# Variables in which an empty entry means the current folder: of the shell, the loader and compilers.
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "COMPILER_PATH")
_INCLUDE_PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


def module_command(module: str, *args: str) -> list[str]:
    """Command that runs a module, as `python -m` does."""
    return [*_start(), "-m", module, *args]


def code_command(code: str, *args: str) -> list[str]:
    """Command that runs code, as `python -c` does."""
    return [*_start(), "-c", code, *args]


def bare_command(file: str, *args: str) -> list[str]:
    """Command that runs a file that imports the standard library alone; it starts faster."""
    return [sys.executable, "-I", "-S", file, *args]


def isolated_script() -> str:
    """Shell script that starts Python without the current folder, for libraries that start children themselves."""
    import shlex

    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I "$@"\n'


def _start() -> list[str]:
    return [sys.executable, "-E", *(["-s"] if sys.flags.no_user_site else []), __file__]


def drop_relative_search_paths() -> None:
    """Remove relative entries from this process's search paths of programs, libraries and headers."""
    for name in (*_SEARCH_PATHS, *_INCLUDE_PATHS):
        paths = os.environ.pop(name, "")
        if kept := _absolute(paths):
            os.environ[name] = os.pathsep.join(kept)


def _absolute(paths: str) -> list[str]:
    return [path for path in paths.split(os.pathsep) if path.startswith("/")]


def _main(option: str, program: str, *args: str) -> None:
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    sys.path[:0] = _absolute(os.environ.get("PYTHONPATH", ""))
    sys.argv[:] = [option, *args]
    if option == "-c":
        exec(program, {"__name__": "__main__"})  # noqa: S102 - of the command line
        return
    import importlib.util
    import runpy

    folder = __file__.removesuffix("/files/child.py")
    spec = importlib.util.spec_from_file_location("ckh", f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["ckh"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["ckh"])
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
