"""The `ckh` executable: quick answers where they were prepared, else the full command line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ckh.boundary import guarded, open_streams

if TYPE_CHECKING:
    from ckh.quick.asked import Asked

QUICK_VARIABLE = "CKH_QUICK"
_PREDICT = "predict"


def main() -> None:
    """Run a command line."""
    sys.exit(guarded(_main))


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    return guarded(lambda: _run(args))


def _main() -> int:
    open_streams()
    return _run(sys.argv[1:])


def _run(args: list[str]) -> int:
    asked = _asked(args)
    if asked is not None and _answer(asked):
        return 0
    from ckh import cli

    code = cli.dispatch(args)
    if asked is not None and code == 0:
        from ckh.quick.prepare import prepare

        sys.stdout.flush()
        prepare(asked)
    return code


def _asked(args: list[str]) -> Asked | None:
    if args[:1] != [_PREDICT] or os.environ.get(QUICK_VARIABLE) == "0":
        return None
    from ckh.quick.asked import parse

    return parse(args[1:])


def _answer(asked: Asked) -> bool:
    from ckh.quick.answer import text_of

    text = text_of(asked)
    if text is None:
        return False
    sys.stdout.write(text)
    return True
