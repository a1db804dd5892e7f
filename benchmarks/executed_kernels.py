"""Executes kernels on the emulated GPU: one of each class, recorded in ckh/bench/supervision, or those of a rule set.

    python benchmarks/executed_kernels.py                    # all classes of gfx942 that the headers build
    python benchmarks/executed_kernels.py --only 'bwd_*'     # some; the record keeps the others
    python benchmarks/executed_kernels.py --op gemm_batched  # those of an operation
    python benchmarks/executed_kernels.py --recorded         # the kernels of the record again
    python benchmarks/executed_kernels.py --again 300        # a draw from the record: those executed as an older binary
    python benchmarks/executed_kernels.py --pools --new      # classes of all kernels that `ckh bench` tries by default
    python benchmarks/executed_kernels.py --table            # the record as Markdown, for docs/results.md
    python benchmarks/executed_kernels.py --count            # numbers of classes, by result
    python benchmarks/executed_kernels.py --rule-set tests --every 10 --out tests.jsonl   # convolutions, by tile too

Kernels in the file of --out are not executed again; its table is printed at the end. It needs a HIP compiler (HIPCC)
and CK Tile's headers (CK_TILE_INCLUDE). Compiled kernels are taken from ckh's cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatch
from itertools import chain, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, Device, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import EMULATED_ARCHS
from ckh.bench.isolated.measure import ERROR_PREFIX
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.harness import (
    ACCEPTED,
    RECORD,
    Build,
    Executed,
    execute,
    executed_classes,
    loop_ends,
    source_hash,
)
from ckh.bench.supervision.limits import BenchLimits
from ckh.files.paths import write_atomic
from ckh.ops import operation, operation_names, operation_of_kernel
from ckh.ops.gemm_batched.operation import FAMILY as BATCHED
from ckh.ops.gemm_grouped.operation import FAMILY as GROUPED
from ckh.ops.gemm_preshuffle.kernel_rules import POOLS as PRESHUFFLE_POOLS
from ckh.ops.gemm_streamk.operation import FAMILY as STREAMK
from ckh.ops.gemm_universal.kernels.pool import BENCH_POOLS
from ckh.ops.gemm_universal.measuring.measured import cost as gemm_cost
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS
from ckh.ops.grouped_conv.measuring.measured import SetCandidates
from ckh.ops.grouped_conv.measuring.trials import cost as conv_cost
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from ckh.schema import RIGHT, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.bench.compilation.compile import Built
    from ckh.bench.supervision.protocol import Reply

_TIMEOUT_S = 1800.0
TOGETHER = 3  # kernels of an operation and architecture that are drawn and compiled together
_DTYPES = ("fp16", "bf16", "fp32")
_GEMM_DTYPES = (*_DTYPES, "fp8", "bf8", "int8")
GEMM_POOLS: tuple[Any, ...] = (BENCH_POOLS, *(family.bench_pools for family in (BATCHED, GROUPED, STREAMK)))
Wanted = list[tuple[str, Any]]  # classes, each with one of its kernels


def first_built(device: Device, kernels: list[Any]) -> Any:
    """The first kernel that the headers support; None if there is none."""
    for kernel in kernels:
        with suppress(UnsupportedKernelError):
            device.emit(kernel)
            return kernel
    return None


def classes(device: Device, pattern: str) -> Wanted:
    """Classes that match and that the headers support."""
    wanted: Wanted = []
    for name in operation_names():
        op = operation(name)
        trials = None if op.measured is None else measured_of(op).trials
        if trials is None:
            continue
        for kernel_class, kernels in trials().representatives(device.arch).items():
            if fnmatch(kernel_class, pattern) and (kernel := first_built(device, kernels)) is not None:
                wanted.append((kernel_class, kernel))
    return wanted


def pools(device: Device, pattern: str) -> Wanted:
    """Classes of the kernels that `ckh bench` tries by default, that match and that the headers support."""
    arch, convolutions = device.arch, SetCandidates()
    groups: list[list[Any]] = [
        *((sorted(convolutions.of(*group, arch)[0], key=conv_cost)) for group in product(Direction, (2, 3), _DTYPES)),
        *(
            sorted(some.of(arch, *group), key=gemm_cost)
            for some in GEMM_POOLS
            for group in product(_GEMM_DTYPES, GEMM_LAYOUTS)
        ),
        *(
            sorted(PRESHUFFLE_POOLS.of(arch, dtype, "rcr", permuted), key=gemm_cost)
            for dtype, permuted in product(_GEMM_DTYPES, (False, True))
        ),
    ]
    result: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in chain.from_iterable(groups):
        if fnmatch(name := _class_of(kernel), pattern) and kernel.dtype in arch.dtypes:
            result[operation_of_kernel(kernel).name, name].append(kernel)
    built = ((name, first_built(device, kernels)) for (_, name), kernels in result.items())
    return [(name, kernel) for name, kernel in built if kernel is not None]


def recorded(device: Device, pattern: str) -> Wanted:
    """Kernels of the record whose class matches."""
    some = (
        item for item in executed_classes() if item.arch == device.arch.name and fnmatch(item.kernel_class, pattern)
    )
    return [(item.kernel_class, operation(item.op).kernels.parse(item.kernel)) for item in some]


def drawn(count: int) -> list[Executed]:
    """A draw from the record: some classes of each operation and architecture, then some of each again.

    The order is that of a hash, so that it does not depend on the classes that the record has besides.
    """
    groups: dict[str, list[Executed]] = defaultdict(list)
    for entry in sorted(executed_classes(), key=lambda entry: _lot(f"{entry.op} {entry.arch} {entry.kernel_class}")):
        groups[f"{entry.op} {entry.arch}"].append(entry)
    shuffled = [groups[name] for name in sorted(groups, key=_lot)]
    rounds = range(0, max(map(len, shuffled)), TOGETHER)
    return [entry for start in rounds for some in shuffled for entry in some[start : start + TOGETHER]][:count]


def _lot(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def again(entries: list[Executed], limits: BenchLimits) -> None:
    """Execute the kernels of entries that are older binaries or were not right, and record each."""
    for arch_op, some in groupby(entries, key=lambda entry: (entry.arch, entry.op)):
        device = open_device(EMULATED_KIND, DeviceOptions(arch_op[0]))
        older = [entry for entry in some if entry.status != Status.VERIFIED or entry.is_older(device)]
        wanted = [(entry.kernel_class, operation(entry.op).kernels.parse(entry.kernel)) for entry in older]
        execute_all(Driver(device, limits, lambda: False), wanted, None, has_compiler=True)


def execute_all(driver: Driver, wanted: Wanted, out: Path | None, *, has_compiler: bool) -> None:
    """Build and execute kernels, and record each in the record or a file of its own."""
    for kernel_class, kernel, built in build(driver, wanted, has_compiler=has_compiler):
        result = run(driver, kernel_class, kernel, built)
        if out:
            record_in(out, result)
        else:
            record(result)
        print(f"{kernel_class}: {result.status} {result.reason} on {result.problems} problems", flush=True)


def count() -> str:
    """Classes by architecture and operation with the number of right ones, then failures, and errors."""
    lines = [
        "| architecture, operation | classes chosen | right | classes of default pools | right |",
        "|---|---|---|---|---|",
    ]
    right = {(item.arch, item.op, item.kernel_class) for item in executed_classes() if item.status == Status.VERIFIED}
    for arch in EMULATED_ARCHS:
        device = open_device(EMULATED_KIND, DeviceOptions(arch))
        both = [
            [(operation_of_kernel(kernel).name, name) for name, kernel in of(device, "*")] for of in (classes, pools)
        ]
        for op in sorted({op for op, _ in both[0]}):
            some = [{name for other, name in wanted if other == op} for wanted in both]
            cells = (f"{len(names)} | {sum((arch, op, name) in right for name in names)}" for names in some)
            lines.append(f"| {arch}, {op} | {' | '.join(cells)} |")
    wrong = [item for item in executed_classes() if item.status != Status.VERIFIED]
    lines += [f"{item.op}, {item.arch}, {item.kernel_class}: {item.status}: {item.reason}" for item in wrong]
    older = {arch: open_device(EMULATED_KIND, DeviceOptions(arch)) for arch in EMULATED_ARCHS}
    today = [item for item in executed_classes() if not item.is_older(older[item.arch])]
    lines.append(
        f"{len(today)} of {len(executed_classes())} classes were executed as today's binary, others as an older"
    )
    return "\n".join([*lines, *largest_errors()])


def largest_errors() -> list[str]:
    """Largest error of each dtype, with the number of problems with right results."""
    result: dict[str, list[Executed]] = defaultdict(list)
    for item in executed_classes():
        kernel: Any = operation(item.op).kernels.parse(item.kernel)
        result[kernel.dtype].append(item)
    lines = []
    for dtype, some in sorted(result.items()):
        error, problems = max(item.largest_error for item in some), sum(item.problems for item in some)
        lines.append(f"{dtype}: largest error {error:.1e} on {problems} problems")
    return lines


def of_rule_set(device: Device, name: str, every: int) -> Wanted:
    """Every n-th of a rule set's kernels that the headers support: all directions, 2D and 3D, all dtypes."""
    groups = product(Direction, (2, 3), _DTYPES)
    kernels = [k for variant, ndim, dtype in groups for k in rule_set(name, variant, ndim, dtype, device.arch)]
    built = [kernel for kernel in kernels if first_built(device, [kernel]) is not None]
    return [(_class_of(kernel), kernel) for kernel in built[::every]]


def _class_of(kernel: Any) -> str:
    trials = measured_of(operation_of_kernel(kernel)).trials
    assert trials is not None
    return trials().kernel_class(kernel)


def build(driver: Driver, wanted: Wanted, *, has_compiler: bool) -> Iterator[tuple[str, Any, Built]]:
    """Classes, kernels and their libraries: first those compiled before, then those compiled now, a unit per job."""
    known = KernelBuilder(driver.device)
    compiled = [item for item in wanted if not known.missing([item[1]])]
    left = [item for item in wanted if has_compiler and item not in compiled]
    step = driver.jobs * driver.device.unit_kernels
    for some in (compiled, *(left[start : start + step] for start in range(0, len(left), step))):
        built = driver.build([kernel for _, kernel in some])
        for kernel_class, kernel in some:
            yield kernel_class, kernel, built[kernel]


def run(driver: Driver, kernel_class: str, kernel: Any, built: Built) -> Executed:
    """Execute a built kernel."""
    device = driver.device
    replies: dict[Any, Reply] = {}
    if built.status is Status.OK:
        with driver.worker() as worker:
            replies = dict(execute(worker, built.library, loop_ends(device, kernel)))
    wrong = next(((item, reply) for item, reply in replies.items() if reply.status not in ACCEPTED), None)
    ran = [reply for reply in replies.values() if reply.status in RIGHT]
    status = str(Status.VERIFIED) if ran else str(built.status)
    reason = "" if ran else built.message or "it refuses every problem"
    if wrong is not None:
        status, reason = str(wrong[1].status), f"{wrong[1].message} ({wrong[0].canonical()})"
    elif not ran and built.status is Status.OK:
        status = str(Status.UNSUPPORTED)
    errors = [float(reply.message.removeprefix(ERROR_PREFIX).split()[0]) for reply in ran]
    names = operation_of_kernel(kernel).name, device.arch.name, kernel_class, full_name(kernel)
    numbers = len(ran), max(errors, default=0.0)
    return Executed(*names, status, *numbers, Build.of(device), reason, source_hash(device, kernel))


def record(executed: Executed) -> None:
    """Add a class to the record, or replace its entry."""
    key = executed.op, executed.arch, executed.kernel_class
    others = [item for item in executed_classes() if (item.op, item.arch, item.kernel_class) != key]
    write_atomic(RECORD, record_text([*others, executed]).encode())
    executed_classes.cache_clear()


def record_text(classes: list[Executed]) -> str:
    """Format the record as JSON, one build or class a line; classes refer to their build by its name."""
    builds = (f"{json.dumps(build.name)}: {_known(build)}" for build in sorted({entry.build for entry in classes}))
    lines = (_known(entry, build=entry.build.name) for entry in sorted(classes))
    return '{"builds": {\n' + ",\n".join(builds) + '\n},\n"classes": [\n' + ",\n".join(lines) + "\n]}\n"


def _known(entry: Build | Executed, **changed: str) -> str:
    """Format an entry as JSON, without empty texts."""
    fields = asdict(entry) | changed
    return json.dumps({name: value for name, value in fields.items() if value != ""})


def record_in(path: Path, executed: Executed) -> None:
    """Add a line to a file of executed kernels."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(executed)) + "\n")


def read(path: Path) -> list[Executed]:
    """Read such a file, without a truncated last line."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [Executed(**{**fields, "build": Build(**fields["build"])}) for fields in map(json.loads, lines)]


def table() -> str:
    """The record as Markdown."""
    lines = ["| operation, architecture | class | status | problems | largest error |", "|---|---|---|---|---|"]
    for item in executed_classes():
        error = f"{item.largest_error:.1e}" if item.problems else ""
        lines.append(f"| {item.op}, {item.arch} | {item.kernel_class} | {item.status} | {item.problems} | {error} |")
    return "\n".join(lines)


def table_of(result: list[Executed]) -> str:
    """Kernels by class as Markdown, with the largest error of all, and the failures."""
    groups: dict[str, list[Executed]] = defaultdict(list)
    for item in result:
        groups[item.kernel_class].append(item)
    lines = ["| class | kernels | right | runs | largest error |", "|---|---|---|---|---|"]
    for kernel_class, some in sorted(groups.items()):
        right, runs = sum(item.status == Status.VERIFIED for item in some), sum(item.problems for item in some)
        error = max(item.largest_error for item in some)
        lines.append(f"| {kernel_class} | {len(some)} | {right} | {runs} | {error:.1e} |")
    wrong = [f"{item.kernel}: {item.status}: {item.reason}" for item in result if item.status != Status.VERIFIED]
    return "\n".join([*lines, *wrong])


def main() -> None:
    """Execute the requested kernels, and record each at once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--only", default="*", help="classes that match this pattern")
    parser.add_argument("--op", help="classes of this operation")
    parser.add_argument("--new", action="store_true", help="only classes that are not in the record")
    parser.add_argument("--table", action="store_true", help="print the record, and execute nothing")
    parser.add_argument(
        "--count", action="store_true", help="count classes and those in the record, and execute nothing"
    )
    parser.add_argument("--pools", action="store_true", help="the classes of all that bench tries by default")
    parser.add_argument("--recorded", action="store_true", help="the kernels of the record again")
    parser.add_argument(
        "--again", type=int, metavar="N", help="a draw of N classes of the record: older binaries again"
    )
    parser.add_argument("--list", action="store_true", help="print the classes and kernels, and execute nothing")
    parser.add_argument("--compiled", action="store_true", help="only what was compiled before")
    parser.add_argument("--jobs", type=int, help="compilers at a time")
    parser.add_argument("--rule-set", help="the convolutions of a rule set in place of classes")
    parser.add_argument("--every", type=int, default=1, help="each N-th of them")
    parser.add_argument("--out", type=Path, help="where what became of them is recorded")
    options = parser.parse_args()
    if options.table or options.count:
        print(table() if options.table else count())
        return
    if bool(options.rule_set) is not bool(options.out):
        parser.error("--rule-set needs --out, and only it has it")
    limits = BenchLimits(timeout_s=_TIMEOUT_S, compile_timeout_s=_TIMEOUT_S, jobs=options.jobs)
    if options.again:
        again(drawn(options.again), limits)
        return
    device = open_device(EMULATED_KIND, DeviceOptions(options.arch))
    which = pools if options.pools else recorded if options.recorded else classes
    wanted = of_rule_set(device, options.rule_set, options.every) if options.rule_set else which(device, options.only)
    wanted = [item for item in wanted if options.op in (None, operation_of_kernel(item[1]).name)]
    if options.list:
        for kernel_class, kernel in wanted:
            print(f"{operation_of_kernel(kernel).name}: {kernel_class}: {full_name(kernel)}")
        return
    if options.rule_set:
        done = {(item.arch, item.kernel) for item in read(options.out)}
        left = [item for item in wanted if (options.arch, full_name(item[1])) not in done]
    else:
        known = {(item.op, item.arch, item.kernel_class) for item in executed_classes()} if options.new else set()
        left = [item for item in wanted if (operation_of_kernel(item[1]).name, options.arch, item[0]) not in known]
    driver = Driver(device, limits, lambda: False)
    execute_all(driver, left, options.out, has_compiler=not options.compiled)
    if options.out:
        print(table_of(read(options.out)))


if __name__ == "__main__":
    main()
