"""The `ckh` executable: answers in the cache if possible, else the full command line."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ckh.quick.printed import keep_printed, key_of, read_printed

if TYPE_CHECKING:
    from ckh.quick.request import Request


def main() -> None:
    """Run a command line."""
    gc.disable()  # a quick answer ends before garbage collection pays off
    key = key_of(sys.argv[1:])
    if key is not None and (printed := read_printed(key)) is not None and not printed[2]:
        try:
            _print_again(*printed)
            os._exit(0)  # skip the teardown of the interpreter
        except (OSError, ValueError):
            key = None  # printed again below, where errors of streams are handled
    import signal

    from ckh.boundary import JSON_OPTION, guarded

    code = guarded(lambda: _main(key), as_json=JSON_OPTION in sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the exit code is decided
    if not gc.isenabled():
        sys.stderr.flush()
        os._exit(code)
    exec("")  # noqa: S102 - or python -m ends by SIGINT after an interrupt inside another exec(), of dataclasses say
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    from ckh.boundary import JSON_OPTION, guarded

    return guarded(lambda: _run(args, key_of(args)), as_json=JSON_OPTION in args)


def _main(key: bytes | None) -> int:
    import signal

    from ckh.boundary import open_streams
    from ckh.files.child import drop_relative_search_paths

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, so that no temporary files are left
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # which ckh tune blocks in its steps until now
    open_streams()
    drop_relative_search_paths()
    return _run(sys.argv[1:], key)


def _run(args: list[str], key: bytes | None) -> int:
    from ckh.errors import NoKernelError
    from ckh.quick.answer import answered
    from ckh.quick.request import parse
    from ckh.text.log import emit, recorded_results

    if key is not None and (known := read_printed(key)) is not None:
        _print_again(*known)
        return 0
    request = None if key is None else parse(args)
    try:
        with recorded_results() as printed:
            text = None if request is None else answered(args[0], request)
            if text is None:
                code = _full(args)
            else:
                emit(text)
                code = 0
    except NoKernelError as error:
        if not error.hint:
            _keep(key, request, [], error.message)
        raise
    if code == 0:
        _keep(key, request, printed)
    return code


def _keep(key: bytes | None, request: Request | None, printed: list[str], refusal: str = "") -> None:
    from ckh.text.log import has_warned, notes, use_colour, written

    if key is not None and request is not None and not has_warned():
        sys.stdout.flush()
        text = written("".join(printed), in_colour=use_colour(sys.stdout))
        keep_printed(key, request, "".join(f"{line}\n" for line in sorted(notes())), text, refusal)


def _print_again(notes: str, text: str, refusal: str) -> None:
    if sys.stderr:  # none if it is closed
        sys.stderr.write(notes)
        sys.stderr.flush()
    if refusal:
        from ckh.errors import NoKernelError

        raise NoKernelError(refusal)
    sys.stdout.write(text)
    sys.stdout.flush()


def _full(args: list[str]) -> int:
    """Run the full command."""
    import ctypes
    import resource

    from ckh import cli

    gc.enable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads change the last digits of sums, and reserve memory
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("ARROW_IO_THREADS", "1")  # of eight, each with a stack
        with suppress(OSError):
            ctypes.CDLL("libgcc_s.so.1")  # without which threads abort the process when they end
        if hasattr(libc := ctypes.CDLL(None), "mallopt"):  # GNU's, which reserves 64 MB per thread
            libc.mallopt(-8, 1)  # M_ARENA_MAX of malloc.h
    return cli.dispatch(args)
