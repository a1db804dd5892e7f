"""Operations: what ckh finds kernels for. Each is a folder with a record of itself (`base.Operation`).

An operation's module is imported when it is first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ckh.errors import UsageError

if TYPE_CHECKING:
    from ckh.ops.base import Operation, Problem

GROUPED_CONV, GEMM_UNIVERSAL, MIOPEN_CONV = "grouped_conv", "gemm_universal", "miopen_conv"

# Name -> (the module that holds its record as OPERATION, what its problems' canonical texts begin with, and the class
# of its kernels).
_OPERATIONS = {
    GROUPED_CONV: ("ckh.ops.grouped_conv", "conv_", "ConvKernel"),
    GEMM_UNIVERSAL: ("ckh.ops.gemm_universal.operation", "gemm_", "GemmKernel"),
    MIOPEN_CONV: ("ckh.ops.miopen_conv.operation", "miopen_", "Solver"),
}
_of_class: dict[type, Operation] = {}  # of problems that were asked about


def operation_names() -> tuple[str, ...]:
    """Names of all operations."""
    return tuple(_OPERATIONS)


@cache
def operation(name: str) -> Operation:
    """The operation of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in _OPERATIONS:
        raise UsageError(f"unknown operation {name!r}", "one of " + ", ".join(_OPERATIONS))
    found: Operation = import_module(_OPERATIONS[name][0]).OPERATION
    assert found.name == name
    return found


def operation_of(problem: str) -> Operation:
    """The operation of a problem, by its canonical text.

    Raises:
        UsageError: it is no problem of any operation.
    """
    for name, (_, prefix, _) in _OPERATIONS.items():
        if problem.startswith(prefix):
            return operation(name)
    raise UsageError(f"{problem!r} is no problem of any operation", "these are " + ", ".join(_OPERATIONS))


def operation_of_problem(problem: Problem) -> Operation:
    """The operation of a problem.

    Raises:
        UsageError: it is no problem of any operation.
    """
    kind = type(problem)
    if kind not in _of_class:
        _of_class[kind] = operation_of(problem.canonical())
    return _of_class[kind]


def operation_of_kernel(kernel: object) -> Operation:
    """The operation of a kernel.

    Raises:
        KeyError: it is no kernel.
    """
    by_class = {kernel_class: name for name, (_, _, kernel_class) in _OPERATIONS.items()}
    return operation(by_class[type(kernel).__name__])
