"""The errors that ckh raises, and the exit codes of commands.

Library code only raises; only `ckh.boundary` prints errors and converts them to exit codes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of commands."""

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    NO_DEVICE = 3
    BAD_DATA = 4
    NO_KERNEL = 5
    INTERNAL = 70  # sysexits.h: EX_SOFTWARE
    INPUT_OUTPUT = 74  # sysexits.h: EX_IOERR
    INTERRUPTED = 130  # 128 + SIGINT
    READER_LEFT = 141  # 128 + SIGPIPE


EXIT_CODE_MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "success",
    ExitCode.GATE_FAILED: (
        "a gate failed (validate, evaluate --fail-under, bench --compile-only, export --check, doctor --check)"
    ),
    ExitCode.USAGE: "wrong usage",
    ExitCode.NO_DEVICE: "no usable device or compiler",
    ExitCode.BAD_DATA: "bad data or model",
    ExitCode.NO_KERNEL: "no kernel applies, or none that was tried works",
    ExitCode.INTERNAL: "an error inside ckh (CKH_DEBUG=1 shows where)",
    ExitCode.INPUT_OUTPUT: "stdout is closed or full, a file could not be read or written, or memory is short",
    ExitCode.INTERRUPTED: "interrupted, everything measured is saved",
    ExitCode.READER_LEFT: "the reader of the output left (ckh ... | head)",
}


def codes() -> dict[str, dict[str, str]]:
    """Codes of "errors" and of "warnings", with their meanings; they do not change when a message is reworded."""
    import json
    from pathlib import Path

    tables: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("codes.json").read_bytes())
    return tables


class CkhError(Exception):
    """Base of all errors that a user can cause or fix.

    Args:
        message: what is wrong and where, in one line.
        hint: what to do about it, in one line; empty if the message says it.
        code: one of `codes()`; by default that of the class.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.BAD_DATA
    default_code: ClassVar[str] = "bad-data"

    def __init__(self, message: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code


class UsageError(CkhError):
    """An option or argument is wrong."""

    exit_code = ExitCode.USAGE
    default_code = "usage"


class WrongTypeError(UsageError, TypeError):
    """An argument of the Python API is of a type that the function does not take.

    Args:
        name: name of the argument.
        wanted: what it must be.
        value: what it is.
    """

    default_code = "wrong-type"

    def __init__(self, name: str, wanted: str, value: object) -> None:
        super().__init__(f"{name} must be {wanted}, not {value!r:.80}")


class DeviceError(CkhError):
    """No usable device or compiler."""

    exit_code = ExitCode.NO_DEVICE
    default_code = "no-device"


class DataError(CkhError):
    """A data file, journal, problem file or architecture spec is unusable."""

    exit_code = ExitCode.BAD_DATA


class CacheError(DataError):
    """The cache cannot be created or written: a problem of a disk or of permissions, not of data."""

    exit_code = ExitCode.INPUT_OUTPUT
    default_code = "cache"


class OutputError(CkhError):
    """An input or output error: stdout is closed or full, or a disk is full."""

    exit_code = ExitCode.INPUT_OUTPUT
    default_code = "input-output"


class ModelError(CkhError):
    """A model directory is missing, incomplete or damaged."""

    exit_code = ExitCode.BAD_DATA
    default_code = "bad-model"


class NoKernelError(CkhError):
    """No kernel of the pool applies to the problem."""

    exit_code = ExitCode.NO_KERNEL
    default_code = "no-kernel"
