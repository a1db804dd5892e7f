"""Trying cases of a matrix: each kernel is compiled, loaded, named, run and checked, in its own process.

Which classes of kernels were ever executed: a record that ships with ckh, made by benchmarks/executed_kernels.py.

A kernel of a class that is not in it compiles, but nobody has seen what it computes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.compilation.compiling import lacks_room
from ckh.bench.computation import measured_of
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.protocol import Job, Op
from ckh.bench.supervision.runner import on_problem
from ckh.bench.supervision.serving import in_order
from ckh.errors import CacheError
from ckh.ops import operation_of_kernel
from ckh.schema import RIGHT, Status
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.compilation.compile import Built
    from ckh.bench.computation import Case
    from ckh.bench.devices.device import Device
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.protocol import Reply
    from ckh.bench.supervision.runner import JobRunner

# What a kernel may come to without anything being wrong: it works, or it is refused with a reason.
ACCEPTED = (*RIGHT, Status.INVALID, Status.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a case.

    Attributes:
        status: OK only if the kernel ran and its result was right, or with `run` off, if it was compiled and loaded.
        reason: why it is not OK.
        built: the name that the library itself gives; empty if none was built.
        executed: on how many problems it ran and was right.
    """

    case: Case[Any, Any]
    status: Status
    reason: str
    built: str
    executed: int = 0

    @property
    def is_accepted(self) -> bool:
        """True if it works, or is refused with a reason."""
        return self.status in ACCEPTED


def try_cases(driver: Driver, cases: Sequence[Case[Any, Any]], *, run: bool) -> Iterator[Finding]:
    """Findings in the order of the cases; ends early when stopped. Without `run`, kernels are only loaded.

    Raises:
        DeviceError: there is no compiler, or no usable device to run on.
        CacheError: there is no room to compile in.
    """
    reasons = [_reasons(case, driver.device.arch) for case in cases]
    built = driver.build(
        [case.kernel for case, why in zip(cases, reasons, strict=True) if not why], "compiling kernels"
    )
    for kernel, one in built.items():
        if lacks_room(one.status, one.message):  # which says nothing of the kernel
            raise CacheError(f"cannot compile {full_name(kernel)}: {one.message}", "make room, or set CKH_CACHE_DIR")
    with progress("trying kernels", len(cases)) as advance:
        tried = _tried_at_once(driver, cases, built, advance) if driver.is_spread and run else {}
        for number, (case, why) in enumerate(zip(cases, reasons, strict=True)):
            if driver.should_stop():
                return
            if why:
                yield Finding(case, Status.INVALID, "; ".join(why), "")
            elif case.kernel not in built:
                return
            else:
                yield tried.get(number) or _try(driver, case, built[case.kernel], run=run)
            if number not in tried:
                advance(1, case.label)


def _tried_at_once(
    driver: Driver, cases: Sequence[Case[Any, Any]], built: Mapping[Any, Built], advance: Callable[[int, str], None]
) -> dict[int, Finding]:
    """Findings of the cases that were built, by number, each tried by the next device of several that is free."""
    found: dict[int, Finding] = {}

    def try_one(worker: JobRunner, number: int) -> None:
        case = cases[number]
        found[number] = _try_with(worker, driver, case, built[case.kernel], run=True)
        advance(1, case.label)

    numbers = [number for number, case in enumerate(cases) if case.kernel in built]
    driver.serve(in_order([number for number in numbers if built[cases[number].kernel].status is Status.OK]), try_one)
    return found


def _reasons(case: Case[Any, Any], arch: ArchSpec) -> list[str]:
    return measured_of(operation_of_kernel(case.kernel)).reasons(case.kernel, arch, case.problem)


def _try(driver: Driver, case: Case[Any, Any], built: Built, *, run: bool) -> Finding:
    if built.status is not Status.OK:
        return Finding(case, built.status, built.message, "")
    with driver.worker(driver.configs[0], should_stop=lambda: False) as worker:
        return _try_with(worker, driver, case, built, run=run)


def _try_with(worker: JobRunner, driver: Driver, case: Case[Any, Any], built: Built, *, run: bool) -> Finding:
    """Load a kernel with a worker and, with `run`, run it."""
    ((_, loaded),) = worker.run(None, [Job(Op.LOAD, 0, library=built.library)])
    if loaded.status is not Status.OK:
        return Finding(case, loaded.status, loaded.message, "")
    name, wanted = loaded.message or full_name(case.kernel), full_name(case.kernel)
    if name != wanted:
        return Finding(case, Status.WRONG_RESULT, f"the library holds another kernel than {wanted}", name)
    if not run:
        return Finding(case, Status.OK, "compiled and loaded, not run", name)
    replies = dict(execute(worker, built.library, _problems(driver, case)))
    wrong = next((one for one, reply in replies.items() if reply.status not in ACCEPTED), None)
    executed = sum(reply.status in RIGHT for reply in replies.values())
    if wrong is None:
        reply = replies[case.problem]
        return Finding(case, reply.status, reply.message, name, executed)
    where = "" if wrong == case.problem else f" ({wrong.canonical()})"
    return Finding(case, replies[wrong].status, replies[wrong].message + where, name, executed)


def execute(worker: JobRunner, library: str, problems: Iterable[Any]) -> Iterator[tuple[Any, Reply]]:
    """Run the kernel of a library on problems; each with its reply, up to the first that is wrong."""
    job = Job(Op.MEASURE, 0, library=library, samples=1)
    for problem in problems:
        ((_, reply),) = worker.run(on_problem(problem.canonical()), [job])
        yield problem, reply
        if reply.status not in ACCEPTED:
            return


def loop_ends(device: Device, kernel: Any) -> list[Any]:
    """The small problems that reach every end of a kernel's loops, but for those that it refuses."""
    measured = measured_of(operation_of_kernel(kernel))
    found = () if measured.trials is None else measured.trials().loop_ends(kernel)
    return [one for one in found if not measured.reasons(kernel, device.arch, one)]


def _problems(driver: Driver, case: Case[Any, Any]) -> list[Any]:
    """The case's own; on an emulated GPU, where time is no matter, also those that reach every end of its loops."""
    more = loop_ends(driver.device, case.kernel) if driver.configs[0].is_emulated else []
    return [case.problem, *(one for one in more if one != case.problem)]


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
