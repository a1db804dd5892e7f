"""The errors that ckh raises and the exit codes they end a command with.

Library code only raises. `ckh.boundary` alone prints an error and turns it into an exit code.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The meanings of a command's exit status."""

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
    ExitCode.INPUT_OUTPUT: "stdout is closed or full, or a file could not be read or written",
    ExitCode.INTERRUPTED: "interrupted, everything measured is saved",
    ExitCode.READER_LEFT: "the reader of the output left (ckh ... | head)",
}


ERROR_CODES: dict[str, str] = {
    "usage": "an option or argument is wrong",
    "unknown-op": "no such operation",
    "unknown-arch": "no such architecture",
    "unknown-dtype": "no such element type",
    "unknown-set": "no such problem set or problem file",
    "output-exists": "the output exists and is not replaced",
    "no-device": "no usable device",
    "no-gpu": "no AMD GPU is found",
    "no-compiler": "no usable compiler",
    "no-headers": "no headers of CK Tile",
    "bad-data": "a data file, journal, problem file or architecture spec is unusable",
    "no-file": "no such file",
    "bad-model": "a model is incomplete or damaged, or not one",
    "no-model": "no model for the problem",
    "unknown-problem": "the model does not know the problem (`--require known`)",
    "no-kernel": "no kernel applies to the problem",
    "cache": "the cache cannot be created or written",
    "input-output": "something could not be read or written",
    "node-lost": "a node of the cluster was lost",
    "memory": "not enough memory",
    "internal": "an error inside ckh",
}
"""Codes of errors with their meanings. They stay when a message is worded anew."""


class CkhError(Exception):
    """Base of all errors that a user can cause or mend.

    Args:
        message: what is wrong and where, in one line.
        hint: what to do about it, in one line; empty when the message says it.
        code: one of `ERROR_CODES`; empty: that of the class.
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


class DeviceError(CkhError):
    """No usable device or compiler."""

    exit_code = ExitCode.NO_DEVICE
    default_code = "no-device"


class DataError(CkhError):
    """A data file, journal, problem file or architecture spec is unusable."""

    exit_code = ExitCode.BAD_DATA


class CacheError(DataError):
    """The cache cannot be created or written: no fault of data, but of a disk or of rights."""

    exit_code = ExitCode.INPUT_OUTPUT
    default_code = "cache"


class OutputError(CkhError):
    """Something could not be read or written: stdout is closed or full, or a disk is."""

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
