"""Executes a kernel of each class on the emulated GPU, and records what came of it in ckh/bench/executed.json.

    python benchmarks/executed_kernels.py                    # all classes of gfx942 that the headers build
    python benchmarks/executed_kernels.py --only 'bwd_*'     # some; the record keeps the others
    python benchmarks/executed_kernels.py --table            # the record as Markdown, for docs/results.md

It needs a HIP compiler (HIPCC) and CK Tile's headers (CK_TILE_INCLUDE). Compiled kernels come from ckh's cache.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unsupported import UnsupportedKernelError
from ckh.bench.compile import KernelBuilder
from ckh.bench.computation import measured_of
from ckh.bench.device import EMULATED_KIND, Device, DeviceOptions
from ckh.bench.device_choice import open_device
from ckh.bench.executed import RECORD, Executed, executed_classes, record_text
from ckh.bench.harness import ACCEPTED, RAN, execute, loop_ends
from ckh.bench.measure import ERROR_PREFIX
from ckh.bench.plan import full_name
from ckh.bench.supervisor import Supervisor, SupervisorOptions
from ckh.ops import operation, operation_names
from ckh.paths import write_atomic
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.bench.protocol import Reply

_TIMEOUT_S = 1800.0


def first_built(device: Device, kernels: list[Any]) -> Any:
    """The first kernel that the headers have; None if they have none."""
    for kernel in kernels:
        with suppress(UnsupportedKernelError):
            device.emit(kernel)
            return kernel
    return None


def classes(device: Device, pattern: str) -> Iterator[tuple[str, str, Any]]:
    """Operation, class and kernel of each class that matches and that the headers build."""
    for name in operation_names():
        op = operation(name)
        trials = None if op.measured is None else measured_of(op).trials
        if trials is None:
            continue
        for kernel_class, kernels in trials().representatives(device.arch).items():
            if fnmatch(kernel_class, pattern) and (kernel := first_built(device, kernels)) is not None:
                yield name, kernel_class, kernel


def run(device: Device, op: str, kernel_class: str, kernel: Any) -> Executed:
    """Compile and execute a kernel."""
    built = KernelBuilder(device, _TIMEOUT_S).build([kernel], 1, lambda _count, _text: None)[kernel]
    replies: dict[Any, Reply] = {}
    if built.status is Status.OK:
        with Supervisor(device, SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0]), lambda: False) as supervisor:
            replies = dict(execute(supervisor, built, loop_ends(device, kernel)))
    wrong = next(((one, reply) for one, reply in replies.items() if reply.status not in ACCEPTED), None)
    ran = [reply for reply in replies.values() if reply.status in RAN]
    status = str(Status.VERIFIED) if ran else str(built.status)
    reason = "" if ran else built.message or "it refuses every problem"
    if wrong is not None:
        status, reason = str(wrong[1].status), f"{wrong[1].message} ({wrong[0].canonical()})"
    elif not ran and built.status is Status.OK:
        status = str(Status.UNSUPPORTED)
    errors = [float(reply.message.removeprefix(ERROR_PREFIX).split()[0]) for reply in ran]
    interface = str(device.identity().compiler.split("; CK Tile ")[-1].split()[0])
    names = op, device.arch.name, kernel_class, full_name(kernel), interface
    return Executed(*names, status, reason, len(ran), max(errors, default=0.0))


def record(found: Executed) -> None:
    """Put a class into the record, in the place of what it says of it."""
    key = found.op, found.arch, found.kernel_class
    others = [one for one in executed_classes() if (one.op, one.arch, one.kernel_class) != key]
    write_atomic(RECORD, record_text([*others, found]).encode())
    executed_classes.cache_clear()


def table() -> str:
    """The record as Markdown."""
    lines = ["| operation, architecture | class | status | problems | largest error |", "|---|---|---|---|---|"]
    for one in executed_classes():
        error = f"{one.largest_error:.1e}" if one.problems else ""
        lines.append(f"| {one.op}, {one.arch} | {one.kernel_class} | {one.status} | {one.problems} | {error} |")
    return "\n".join(lines)


def main() -> None:
    """Execute the classes that are asked for, and record each at once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--only", default="*", help="classes that match this pattern")
    parser.add_argument("--new", action="store_true", help="only classes that are not in the record")
    parser.add_argument("--table", action="store_true", help="print the record, and execute nothing")
    parser.add_argument("--list", action="store_true", help="print the classes and kernels, and execute nothing")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    device = open_device(EMULATED_KIND, DeviceOptions(options.arch))
    for op, kernel_class, kernel in classes(device, options.only):
        if options.list:
            print(f"{op}: {kernel_class}: {full_name(kernel)}")
            continue
        known = any(
            (one.op, one.arch, one.kernel_class) == (op, options.arch, kernel_class) for one in executed_classes()
        )
        if not (options.new and known):
            found = run(device, op, kernel_class, kernel)
            record(found)
            print(f"{kernel_class}: {found.status} {found.reason} on {found.problems} problems", flush=True)


if __name__ == "__main__":
    main()
