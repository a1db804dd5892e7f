"""The error boundary: any failure of a command becomes at most two lines on stderr and an exit code.

Exit code 1 means a failed gate, and is never returned from here. Has almost no imports, since quick answers run in it.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, ExitCode, OutputError
from ckh.text.log import begin_result, emit, has_result, print_error

if TYPE_CHECKING:
    from collections.abc import Callable

DEBUG_VARIABLE = "CKH_DEBUG"
JSON_OPTION = "--json"
_IN_ASCII = "ckh.ascii"
_NO_MEMORY = ("failed to map segment from shared object", "cannot allocate memory", "Cannot allocate memory")
_SHOWN_AS = {
    "…": "~",
    "–": "-",
    "→": ">",
    **{bar: str(height) for height, bar in enumerate("▁▂▃▄▅▆▇█", 1)},
}  # same width, so that tables stay aligned


class StreamError(OSError):
    """Error writing to stdout or stderr, distinguished from errors of files."""


class _Stream(io.TextIOWrapper):
    """A standard stream that raises `StreamError`."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise StreamError(error.errno, error.strerror, self.name) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise StreamError(error.errno, error.strerror, self.name) from error


def open_streams() -> None:
    """Prepare the standard streams of the process: their errors are distinguished from those of files.

    Characters that a stream cannot encode are printed in ASCII, and undecodable bytes of names unchanged. A closed
    stream becomes the null device, so that no file or pipe of ckh gets its descriptor.
    """
    is_closed = sys.stdout is None
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(open(os.devnull, "rb"))  # noqa: SIM115, PTH123 - open until the process ends
    codecs.register_error(_IN_ASCII, _in_ascii)
    # open() returns the lowest free descriptor, which is that of the closed stream.
    sys.stdout, sys.stderr = _stream(sys.stdout), _stream(sys.stderr)
    if is_closed:
        raise OutputError("stdout is closed", "redirect it to a file, or to /dev/null", code="stdout")


def _stream(stream: Any) -> _Stream:
    if stream is None:
        return _Stream(open(os.devnull, "wb"), "utf-8")  # noqa: PTH123 - the same
    buffer, by_line = stream.buffer, stream.line_buffering
    if isinstance(buffer, io.RawIOBase):  # PYTHONUNBUFFERED: a raw file would drop what it cannot write at once
        buffer, by_line = io.BufferedWriter(buffer), True
    return _Stream(buffer, stream.encoding, _IN_ASCII, line_buffering=by_line)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Codec error handler: returns a replacement for an unencodable character, and the position to continue from."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, end = error.object[error.start], error.start + 1
    if "\udc80" <= character <= "\udcff":  # an undecodable byte of a file name
        return bytes([ord(character) - 0xDC00]), end
    return _SHOWN_AS.get(character) or character.encode("ascii", "backslashreplace").decode(), end


def guarded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command and return its exit code, after flushing its output.

    With `as_json`, a command that printed no result prints an error on stdout too (`ckh/jsonschemas/error.json`).
    """
    begin_result()
    try:
        code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except CkhError as error:
        return _report(error, error.exit_code, as_json=as_json)
    except StreamError as error:
        return _drop_output(error)
    except Exception as error:  # noqa: BLE001 - this is the boundary
        return _report(*_unforeseen(error), as_json=as_json)
    return code


def _report(error: CkhError, code: ExitCode, *, as_json: bool = False) -> int:
    try:
        if as_json and not has_result():
            from ckh.documents import ErrorDocument, json_text

            emit(json_text(ErrorDocument(error.code, error.message, error.hint, int(code))))
        sys.stdout.flush()
        print_error(error)
        sys.stderr.flush()
    except StreamError as lost:
        _drop_output(lost)
    return int(code)


def _drop_output(error: StreamError) -> int:
    """Stop printing to a stream, and report the reason unless its reader has closed it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1 if error.filename == sys.stdout.name else 2)
    os.close(null)
    if error.errno == errno.EPIPE:
        with suppress(StreamError):
            sys.stdout.flush()
        return int(ExitCode.READER_LEFT)
    lost = OutputError(f"cannot write to {error.filename.strip('<>')}: {error.strerror}", code="stdout")
    return _report(lost, lost.exit_code)


def _unforeseen(error: Exception) -> tuple[CkhError, ExitCode]:
    """Convert an unexpected exception to an error with its exit code."""
    if isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC):
        return OutputError(
            f"{error.filename or 'a file'}: {error.strerror}", code="input-output"
        ), ExitCode.INPUT_OUTPUT
    if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    cause = _unmapped(error) if isinstance(error, (ImportError, OSError)) else ""
    if cause or isinstance(error, MemoryError):
        text = f"not enough memory to load a library: {cause}" if cause else "not enough memory"
        hint = "raise the limit (ulimit -v), end other programs, use less data, or fewer --jobs"
        return OutputError(text, hint, code="memory"), ExitCode.INPUT_OUTPUT
    text = " ".join(f"{type(error).__name__}: {error}".split())
    hint = f"{DEBUG_VARIABLE}=1 shows where; please report it with the command and its input"
    return CkhError(f"an error inside ckh, {text} ({_origin(error)})", hint, code="internal"), ExitCode.INTERNAL


def _unmapped(error: BaseException | None) -> str:
    """The loader's message about missing memory, from an error or its root cause; else empty."""
    said = ""
    while error is not None:
        text = " ".join(str(error).split())
        said = text if text.endswith(_NO_MEMORY) else said
        error = error.__cause__ or error.__context__
    return said


def _origin(error: Exception) -> str:
    """Location of the innermost frame of ckh in an error's traceback."""
    own, place, trace = os.path.dirname(__file__), "?", error.__traceback__  # noqa: PTH120 - pathlib is slow to import
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path.startswith(own) and path != __file__:
            place = f"{path[len(own) + 1 :]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
