"""The `ckh` executable: prepared quick answers if possible, else the full command line."""

from __future__ import annotations

import gc
import os
import resource
import sys
from typing import TYPE_CHECKING

from ckh.boundary import JSON_OPTION, guarded, open_streams
from ckh.files.child import drop_relative_search_paths
from ckh.text.log import emit, note_once, recorded_results

if TYPE_CHECKING:
    from ckh.quick.request import Request

QUICK_VARIABLE = "CKH_QUICK"


def main() -> None:
    """Run a command line."""
    gc.disable()  # a quick answer ends before garbage collection pays off
    code = guarded(_main, as_json=JSON_OPTION in sys.argv[1:])
    if not gc.isenabled():
        sys.stderr.flush()
        os._exit(code)  # likewise, skip the teardown of the interpreter
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    return guarded(lambda: _run(args), as_json=JSON_OPTION in args)


def _main() -> int:
    open_streams()
    drop_relative_search_paths()
    return _run(sys.argv[1:])


def _run(args: list[str]) -> int:
    request = _request(args)
    if request is not None and _answer(args[0], request):
        return 0
    gc.enable()
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # it reserves memory per thread, retries for long, and exits
    from ckh import cli

    if request is None or args[0] != "predict":
        return cli.dispatch(args)
    with recorded_results() as printed:
        code = cli.dispatch(args)
    if code == 0:
        from ckh.quick.answer import keep

        sys.stdout.flush()
        keep(request, "".join(printed))
    return code


def _request(args: list[str]) -> Request | None:
    if args[:1] not in (["predict"], ["search"]) or os.environ.get(QUICK_VARIABLE) == "0":
        return None
    from ckh.quick.request import parse

    return parse(args)


def _answer(command: str, request: Request) -> bool:
    from ckh.quick.answer import searched_text, text_of

    if not (request.kind["arch"] or request.kind["model"]):
        from ckh.archs import assumed_gpu

        note_once(assumed_gpu())
    if command == "search":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies no matrices here: do not start threads
        text = searched_text(request)
    else:
        text = text_of(request)
    if text is None:
        return False
    emit(text)
    return True
