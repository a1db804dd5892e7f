"""Which classes of kernels were ever executed: a record that ships with ckh, made by benchmarks/executed_kernels.py.

A kernel of a class that is not in it compiles, but nobody has seen what it computes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from ckh.bench.computation import measured_of
from ckh.ops import operation_of_kernel
from ckh.schema import Status

RECORD = Path(__file__).with_name("executed.json")


@dataclass(frozen=True, slots=True, order=True)
class Executed:
    """A class of kernels of an operation on an architecture, and what came of executing one of it.

    Attributes:
        op: the operation.
        arch: the architecture.
        kernel_class: the class, in words.
        kernel: the name of the kernel that was executed.
        interface: of CK Tile's headers.
        status: verified, or what went wrong on the first problem on which something did.
        reason: what went wrong, and on which problem.
        problems: how many it was right on.
        largest_error: of an element of a right result, relative to the largest output.
    """

    op: str
    arch: str
    kernel_class: str
    kernel: str
    interface: str
    status: str
    reason: str
    problems: int
    largest_error: float


@cache
def executed_classes() -> tuple[Executed, ...]:
    """Read the record."""
    return tuple(Executed(**one) for one in json.loads(RECORD.read_text(encoding="utf-8")))


def record_text(found: list[Executed]) -> str:
    """The record as JSON, one class a line."""
    lines = (json.dumps(asdict(one)) for one in sorted(found))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def was_executed(kernel: object, arch: str) -> bool:
    """True if a kernel of the class of this one was executed for an architecture, and was right."""
    op = operation_of_kernel(kernel)
    trials = measured_of(op).trials
    if trials is None:
        return False
    key = (op.name, arch, trials().kernel_class(kernel), str(Status.VERIFIED))
    return any((one.op, one.arch, one.kernel_class, one.status) == key for one in executed_classes())
