"""Packages of ckh that one prediction enters, and how often it returns to one, counted with `sys.setprofile`.

    python benchmarks/packages_entered.py [OPTION ...]

The options are those of `ckh predict`, by default `--n 16 --c 256 --arch gfx950`. A package is a folder of ckh/. It is
entered by a call of one of its functions; imports do not count. A return is a pair of packages, of which the one calls
the other although it was entered later. In an empty cache, then for another size of this kind, and then repeated.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ckh
from ckh.entry import run

if TYPE_CHECKING:
    from types import FrameType

_ROOT = str(Path(ckh.__file__).parent) + os.sep
_DEFAULT = ["--n", "16", "--c", "256", "--arch", "gfx950"]


class Entered:
    """Packages in the order in which they are entered, and the returns."""

    def __init__(self) -> None:
        self.packages: dict[str, int] = {}
        self.returns: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, as of `sys.setprofile`."""
        package = _package(frame) if event == "call" else None
        if package is None:
            return
        place = self.packages.setdefault(package, len(self.packages))
        caller, by = frame.f_back, None
        while caller is not None and (by := _package(caller)) is None:
            caller = caller.f_back
        if by is not None and place < self.packages.get(by, -1):
            self.returns.add((by, package))


def _package(frame: FrameType) -> str | None:
    """The package of a function; None for others, and for bodies of modules and classes."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or not code.co_filename.startswith(_ROOT):
        return None
    return code.co_filename.removeprefix(_ROOT).rpartition(os.sep)[0] or "ckh"


def entered(options: list[str]) -> Entered:
    """Run one prediction."""
    result = Entered()
    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(result)
        try:
            code = run(["predict", *options])
        finally:
            sys.setprofile(None)
    if code:
        sys.exit(code)
    return result


def main() -> None:
    """Print the counts of the three ways."""
    options = sys.argv[1:] or _DEFAULT
    other = list(options)
    place = next(index for index, text in enumerate(options) if text.isdigit())
    other[place] = str(int(options[place]) + 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CKH_CACHE_DIR"] = folder
        for name, given in (("first", options), ("another size", other), ("repeated", other)):
            result = entered(given)
            print(f"{name:13} {len(result.packages):3} packages, {len(result.returns):3} returns")
            print("  " + ", ".join(result.packages))


if __name__ == "__main__":
    main()
