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
    ExitCode.INPUT_OUTPUT: "stdout is closed or full, or a file could not be read or written",
    ExitCode.INTERRUPTED: "interrupted, everything measured is saved",
    ExitCode.READER_LEFT: "the reader of the output left (ckh ... | head)",
}


ERROR_CODES: dict[str, str] = {
    "usage": "an option or argument is wrong",
    "missing-option": "a required option, or one that another option needs, is missing",
    "conflicting-options": "options exclude each other",
    "inapplicable-option": "an option does not apply to the operation, device, target or mode",
    "several-models": "one model is expected, or two to compare",
    "wrong-type": "an argument of the Python API is of another type than it must be",
    "bad-number": "a value is not a number",
    "out-of-range": "a number is outside its range",
    "bad-mapping": "`--map` is not OURS=THEIRS",
    "bad-address": "the address of a cluster is malformed",
    "unknown-op": "no such operation",
    "unknown-arch": "no such architecture",
    "unknown-dtype": "no such element type, or the device does not compute it",
    "unknown-set": "no such problem set or problem file",
    "unpublished-set": "AMD has not published the problem set",
    "unknown-name": "no such format, target, device, layout, pipeline or other name",
    "unknown-field": "no such field, column, size or parameter",
    "unsupported": "the operation, device or format does not have this function",
    "not-installed": "an optional package is missing or too old",
    "already-installed": "ckh's order of kernels is active already",
    "bad-plugin": "the package of an operation is faulty",
    "output-exists": "the output exists and is not replaced",
    "foreign-output": "the output exists and holds what ckh did not write: `--force` does not replace it",
    "written-meanwhile": "another process wrote the output while it was computed",
    "unsafe-output": "the output would overwrite an input, the current folder or another user's file",
    "in-use": "another process writes the same file",
    "no-run": "no run to resume or to report on",
    "not-resumable": "the run cannot be resumed",
    "step-failed": "a step of `ckh tune` failed",
    "run-mismatch": "the options or the device differ from those of the run",
    "bad-problem": "a problem that cannot be parsed",
    "impossible-problem": "the sizes of a problem contradict each other",
    "indivisible": "a size is not divisible by the number of groups or splits",
    "bad-module": "a PyTorch module cannot be imported, built or run on the meta device",
    "bad-kernel": "a kernel or its name is invalid",
    "incomplete-kernel": "a kernel lacks parameters",
    "unknown-kernel": "the kernel is not in the pool, or not in the installed library",
    "bad-filter": "a filter of kernels that cannot be parsed",
    "filter-type": "a filter compares values of different types",
    "no-match": "no kernel matches",
    "no-device": "no usable device",
    "no-gpu": "no AMD GPU is found",
    "no-such-gpu": "no GPU with this number",
    "no-hip-runtime": "the HIP runtime cannot be loaded or used",
    "hip-error": "a call of the HIP runtime failed",
    "gpu-memory": "not enough GPU memory",
    "no-compiler": "no usable compiler",
    "no-headers": "no headers of CK Tile",
    "no-consumer": "a program that uses choices could not be compared",
    "program-failed": "a program built from an export fails",
    "no-emulator": "the emulated GPU cannot be built",
    "not-compiled": "a kernel that cannot be compiled",
    "broken-toolchain": "the compiler builds nothing that loads",
    "worker-start": "a worker process does not start",
    "no-cluster": "no scheduler at the address",
    "cluster-silent": "the address accepts connections and does not answer",
    "cluster-lost": "the connection to the cluster was lost",
    "no-nodes": "the cluster has no usable worker",
    "nodes-differ": "the workers of the cluster have different devices or toolchains",
    "node-without-ckh": "a worker of the cluster cannot import ckh",
    "node-lost": "a worker of the cluster was lost",
    "workers-died": "the workers that ran a call died",
    "certificate": "the cluster's TLS certificate is missing or invalid",
    "bad-data": "a data file, journal, problem file or architecture spec is unusable",
    "no-file": "no such file or folder",
    "several-files": "a folder has several files where one is expected",
    "unreadable": "a file cannot be read",
    "not-text": "a file is not text in UTF-8",
    "not-csv": "a file is not CSV",
    "not-python": "a file is not Python that can be parsed",
    "bad-json": "a file is not JSON",
    "bad-field": "a field of a document is missing, unknown or has a wrong value",
    "bad-name": "text that is not a valid name",
    "too-large": "a file or model is larger than any valid one",
    "unknown-format": "a file in no format that ckh reads",
    "not-a-dataset": "a Parquet file that is not a dataset of ckh",
    "already-converted": "the input is a dataset of ckh already",
    "not-an-export": "a folder that is not an export of ckh",
    "not-convertible": "an export that has nothing to convert",
    "not-golden": "a file without golden choices",
    "other-version": "written by another version",
    "damaged": "a file is damaged or incomplete",
    "empty": "a file without rows, kernels or results",
    "no-problems": "a file without problems of the operation",
    "no-good-row": "every row of a file is bad",
    "bad-row": "a row that cannot be parsed",
    "bad-header": "a header line with unknown or repeated columns",
    "missing-field": "a row or entry lacks a field",
    "missing-column": "a column is missing",
    "duplicate-column": "a column occurs twice",
    "duplicate-name": "a name or field is given twice",
    "duplicate-rows": "rows or kernels occur twice",
    "bad-column": "a column has missing or invalid values",
    "column-type": "a column has another type",
    "bad-time": "a time that is too short to be a measurement",
    "impossible-time": "times above the peak rates of their GPU: wrong units, or another GPU",
    "mixed-data": "data of several operations, architectures or element types",
    "mixed-devices": "data of several devices",
    "mixed-flags": "data of one GPU's kernels that were compiled with different flags",
    "mismatch": "data for another architecture, element type or direction than requested",
    "unknown-hardware": "the data do not say which hardware they were measured on",
    "not-measured": "no usable measured time",
    "predicted-rows": "predictions where measurements are expected",
    "no-training-data": "no data to train on",
    "few-problems": "too few problems",
    "trained-on-all": "the model was trained on all problems of the data",
    "unsteady": "times that vary too much",
    "winners-only": "data or a model of winners alone",
    "no-aiter": "AITER's source or tables are not in the folder",
    "aiter-failed": "AITER's code cannot be run",
    "aiter-version": "the versions of AITER disagree",
    "bad-model": "a model is incomplete or damaged, or not one",
    "not-a-model": "a folder without a model",
    "damaged-model": "a model file is damaged",
    "unsupported-model": "a LightGBM model of a kind that ckh does not evaluate",
    "missing-target": "the model lacks a target",
    "model-inputs": "the inputs of a model differ from its features",
    "model-mismatch": "the model is for other problems or another architecture",
    "not-continuable": "the model cannot be continued with this training",
    "no-model": "no model for the problem",
    "no-estimate": "a model ranks by the analytic estimate, which the operation or the architecture lacks",
    "unknown-feature": "the model needs a feature that ckh does not compute",
    "bad-formula": "a feature or rule that cannot be compiled",
    "no-c-backend": "the C backend cannot be used",
    "unknown-problem": "the model does not know the problem (`--require known`)",
    "no-kernel": "no kernel applies to the problem",
    "no-working-kernel": "no kernel gave a correct result",
    "cache": "the cache cannot be created or written",
    "unsafe-cache": "others can write to the cache",
    "installation": "a folder of the installation is missing",
    "input-output": "something could not be read or written",
    "unwritable": "an output cannot be written",
    "stdout": "stdout is closed or full",
    "memory": "not enough memory",
    "internal": "an error inside ckh",
}
"""Codes of errors with their meanings. A code does not change when its message is reworded."""

WARNING_CODES: dict[str, str] = {
    "skipped-problems": "problems of a file are skipped: no kernels for their kind",
    "left-out": "rows are left out",
    "conversion": "what a reader or writer had to assume, average or omit",
    "unverified": "a dataset has no checksum of its rows",
    "unranked": "some kernels cannot be ranked and keep the program's order",
    "not-measured": "the ranking is not based on measurements of this GPU",
    "unusable-model": "a model folder cannot be used and is ignored",
    "trained-on": "a model is evaluated on problems that it was trained on",
    "unknown-training-data": "a model's training problems are not recorded",
    "single-kernel": "problems with one measured kernel are left out",
    "gate": "a gate failed",
    "headers": "the CK Tile headers are of a version that was not verified",
    "unverified-arch": "no kernel was compiled for the architecture, or numbers of it are not public",
    "budget": "the time budget ended before the first measurement",
    "not-compared": "a continued model was not compared with its start",
    "worse-than-start": "a continued model chooses worse than its start",
    "worse-than-current": "a new model chooses worse than the one used until now",
    "shadows-model": "a new model takes precedence over a better one",
    "not-installed": "a new model is not better than the one in use, or cannot be compared, and is kept beside",
}
"""Codes of warnings, besides those of errors, with their meanings."""


class CkhError(Exception):
    """Base of all errors that a user can cause or fix.

    Args:
        message: what is wrong and where, in one line.
        hint: what to do about it, in one line; empty if the message says it.
        code: one of `ERROR_CODES`; by default that of the class.
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
