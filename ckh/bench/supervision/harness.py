"""Execution of matrix cases: each kernel is compiled, loaded, identified, run and verified in its own process.

The record of executed kernel classes ships with ckh and is written by benchmarks/executed_kernels.py. A kernel whose
class is not in the record compiles, but its results have never been verified. Entries name the options and the source
that were compiled, so that those of another binary than today's are told apart.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.ck_tile import template_dir
from ckh.bench.codegen.unit import COMMENT
from ckh.bench.compilation.hip_toolchain import OPTIONS
from ckh.bench.compilation.toolchain import lacks_room
from ckh.bench.computation import measured_of
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.driver import in_order
from ckh.bench.supervision.protocol import Job, Op
from ckh.bench.supervision.runner import on_problem
from ckh.errors import CacheError
from ckh.ops import operation, operation_of_kernel
from ckh.schema import RIGHT, Status
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ckh.bench.compilation.compile import Built
    from ckh.bench.computation import Case
    from ckh.bench.devices.device import Device
    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.protocol import Reply
    from ckh.bench.supervision.runner import JobRunner
    from ckh.ops.base import Kernel

# Acceptable statuses: the kernel works, or is refused with a reason.
ACCEPTED = (*RIGHT, Status.INVALID, Status.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a case."""

    case: Case[Any, Any]
    status: Status
    reason: str
    built: str  # kernel name reported by the library; empty without one
    executed: int = 0  # problems on which it ran with a right result

    @property
    def is_accepted(self) -> bool:
        """True if the kernel works, or is refused with a reason."""
        return self.status in ACCEPTED


def try_cases(driver: Driver, cases: Sequence[Case[Any, Any]], *, run: bool) -> Iterator[Finding]:
    """Yield findings in the order of the cases; ends early when stopped. Without `run`, kernels are only loaded."""
    reasons = [
        measured_of(operation_of_kernel(case.kernel)).reasons(case.kernel, driver.device.arch, case.problem)
        for case in cases
    ]
    built = driver.build(
        [case.kernel for case, why in zip(cases, reasons, strict=True) if not why], "compiling kernels"
    )
    for kernel, build in built.items():
        if lacks_room(build.status, build.message):  # says nothing about the kernel
            raise CacheError(
                f"cannot compile {full_name(kernel)}: {build.message}", "free disk space, or set CKH_CACHE_DIR"
            )
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
    """Findings of the built cases, by index; cases are distributed over the free devices."""
    findings: dict[int, Finding] = {}

    def try_one(worker: JobRunner, number: int) -> None:
        case = cases[number]
        findings[number] = _try_with(worker, driver, case, built[case.kernel], run=True)
        advance(1, case.label)

    numbers = [number for number, case in enumerate(cases) if case.kernel in built]
    driver.serve(in_order([number for number in numbers if built[cases[number].kernel].status is Status.OK]), try_one)
    return findings


def _try(driver: Driver, case: Case[Any, Any], built: Built, *, run: bool) -> Finding:
    if built.status is not Status.OK:
        return Finding(case, built.status, built.message, "")
    with driver.worker(driver.configs[0], should_stop=lambda: False) as worker:
        return _try_with(worker, driver, case, built, run=run)


def _try_with(worker: JobRunner, driver: Driver, case: Case[Any, Any], built: Built, *, run: bool) -> Finding:
    """Load a kernel in a worker and, with `run`, run it."""
    ((_, loaded),) = worker.run(None, [Job(Op.LOAD, 0, library=built.library)])
    if loaded.status is not Status.OK:
        return Finding(case, loaded.status, loaded.message, "")
    name, wanted = loaded.message or full_name(case.kernel), full_name(case.kernel)
    if name != wanted:
        return Finding(case, Status.WRONG_RESULT, f"the library contains another kernel than {wanted}", name)
    if not run:
        return Finding(case, Status.OK, "compiled and loaded, not run", name)
    # An emulated GPU has no times: there the problems that reach every loop end are run as well.
    more = loop_ends(driver.device, case.kernel) if driver.configs[0].is_emulated else []
    problems = [case.problem, *(problem for problem in more if problem != case.problem)]
    replies = dict(execute(worker, built.library, problems))
    wrong = next((problem for problem, reply in replies.items() if reply.status not in ACCEPTED), None)
    executed = sum(reply.status in RIGHT for reply in replies.values())
    if wrong is None:
        reply = replies[case.problem]
        return Finding(case, reply.status, reply.message, name, executed)
    where = "" if wrong == case.problem else f" ({wrong.canonical()})"
    return Finding(case, replies[wrong].status, replies[wrong].message + where, name, executed)


def execute(worker: JobRunner, library: str, problems: Iterable[Any]) -> Iterator[tuple[Any, Reply]]:
    """Run a kernel library on problems; yields each problem with its reply, up to the first wrong one."""
    job = Job(Op.MEASURE, 0, library=library, samples=1)
    for problem in problems:
        ((_, reply),) = worker.run(on_problem(problem.canonical()), [job])
        yield problem, reply
        if reply.status not in ACCEPTED:
            return


def loop_ends(device: Device, kernel: Any) -> list[Any]:
    """Small problems that reach every loop end of a kernel, without those that it refuses."""
    measured = measured_of(operation_of_kernel(kernel))
    problems = () if measured.trials is None else measured.trials().loop_ends(kernel)
    return [problem for problem in problems if not measured.reasons(kernel, device.arch, problem)]


RECORD = Path(__file__).with_name("executed.json")
_HASH = 12  # hexadecimal digits


@dataclass(frozen=True, slots=True, order=True)
class Build:
    """How kernels of the record were compiled: the headers' interface, the compiler and its options, if known."""

    interface: str
    compiler: str = ""
    options: str = ""

    @classmethod
    def of(cls, device: Device) -> Build:
        """The build of a device's kernels."""
        identity = device.identity()
        compiler, _, headers = identity.compiler.partition("; CK Tile ")
        return cls(headers.split()[0], compiler, " ".join(identity.flags[:-1]))  # the last one is the architecture

    @property
    def name(self) -> str:
        """Hash by which entries of the record refer to it."""
        return hashlib.sha256("\0".join(astuple(self)).encode()).hexdigest()[:_HASH]


@dataclass(frozen=True, slots=True, order=True)
class Executed:
    """Result of executing one kernel of a class, by operation and architecture."""

    op: str
    arch: str
    kernel_class: str
    kernel: str
    status: str
    problems: int
    largest_error: float
    build: Build
    reason: str = ""
    source: str = ""
    """`source_hash` of the kernel; empty: not recorded."""

    def is_older(self, device: Device) -> bool:
        """True if it was executed without today's options, or with another source for these headers."""
        if not self.build.options.startswith(" ".join(OPTIONS)):  # further ones may be macros for these headers
            return True
        kernel = operation(self.op).kernels.parse(self.kernel)
        return self.build.interface == Build.of(device).interface and self.source != source_hash(device, kernel)


def source_hash(device: Device, kernel: Kernel) -> str:
    """Hash of a kernel's source and of ckh's headers for it, without comments and spaces."""
    emission = measured_of(operation_of_kernel(kernel)).hip
    headers = () if emission is None else map(_headers_text, (template_dir(), *emission.templates))
    return hashlib.sha256("\0".join((_plain(device.emit(kernel)), *headers)).encode()).hexdigest()[:_HASH]


@cache
def _headers_text(folder: Path) -> str:
    return "".join(_plain(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.hpp")))


def _plain(text: str) -> str:
    return "".join(COMMENT.sub("", text).split())


@cache
def executed_classes() -> tuple[Executed, ...]:
    """Return the record of executed classes."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    builds = {name: Build(**fields) for name, fields in record["builds"].items()}
    return tuple(Executed(**{**fields, "build": builds[fields["build"]]}) for fields in record["classes"])


def executed_of(kernel: Kernel, arch: str) -> Executed | None:
    """Return the entry of a kernel's class for an architecture; None if none was executed with a right result."""
    op = operation_of_kernel(kernel)
    trials = measured_of(op).trials
    if trials is None:
        return None
    key = (op.name, arch, trials().kernel_class(kernel), str(Status.VERIFIED))
    return next(
        (entry for entry in executed_classes() if (entry.op, entry.arch, entry.kernel_class, entry.status) == key), None
    )
