"""The `ckh` executable: quick answers where they were prepared, else the full command line."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from ckh.boundary import guarded, open_streams
from ckh.log import emit

if TYPE_CHECKING:
    from ckh.quick.request import Request

QUICK_VARIABLE = "CKH_QUICK"


def main() -> None:
    """Run a command line."""
    gc.disable()  # a quick answer is over before any memory is worth collecting
    sys.exit(guarded(_main))


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    return guarded(lambda: _run(args))


def _main() -> int:
    open_streams()
    return _run(sys.argv[1:])


def _run(args: list[str]) -> int:
    request = _request(args)
    if request is not None and _answer(args[0], request):
        gc.freeze()  # nor at the end of the process
        return 0
    gc.enable()
    from ckh import cli

    code = cli.dispatch(args)
    if request is not None and args[0] == "predict" and code == 0:
        from ckh.quick.prepare import prepare

        sys.stdout.flush()
        prepare(request)
    return code


def _request(args: list[str]) -> Request | None:
    if args[:1] not in (["predict"], ["search"]) or os.environ.get(QUICK_VARIABLE) == "0":
        return None
    from ckh.quick.request import parse

    return parse(args)


def _answer(command: str, request: Request) -> bool:
    if command == "search":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies no matrices here: no threads to start
        from ckh.quick.searching import text_of
    else:
        from ckh.quick.answer import text_of
    text = text_of(request)
    if text is None:
        return False
    emit(text)
    return True
