"""End-to-end check of one device: compile, verify and time three kernels in two runs, and compare the runs.

Uses the same code path as `ckh bench`. The result is a few values and the journals of both runs.

For GPUs, a sample of all kernel classes is then compiled with the CK Tile headers of this machine, and executed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, ClassVar

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.hip_toolchain import find_ck_tile, find_hipcc
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.compilation.toolchain import find_compiler, require_toolchain
from ckh.bench.computation import MatrixSettings, measured_of
from ckh.bench.devices.device import EMULATED_KIND, HIP_KIND, HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device, require_usable
from ckh.bench.isolated.sensors import read_card, read_sensors
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.campaign import Campaign
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.harness import ACCEPTED, Build, execute, loop_ends
from ckh.bench.supervision.limits import DEFAULT_TIMEOUT_S, BenchLimits, Stop, StopReason
from ckh.data.journal import JOURNAL_NAME, read_journal
from ckh.data.settings import Given
from ckh.errors import CkhError, DeviceError, ExitCode, NoKernelError
from ckh.hardware.gpus import detect_gpu_arch
from ckh.ops import DEFAULT_OPERATION, operation, operation_names
from ckh.problems import Direction
from ckh.schema import RIGHT, TRIED_AGAIN, Status
from ckh.strenum import StrEnum
from ckh.text.log import note
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ckh.bench.compilation.compile import Built
    from ckh.bench.devices.device import Device
    from ckh.data.journal import ResultRow


RUNS = ("run-1", "run-2")
CLASSES = "classes"
CLASSES_S = 120.0  # for trying kernel classes
_COMPILING = 0.75  # share of it after which no compiler is waited for
_KERNELS = 3
_MATRIX, _FIRST = "pipelines", ("compv3", "compv4", "mem")  # tried first
_GPU_DTYPE = "fp16"  # available on every architecture
_SEED = 0
_STEADY = 0.05  # maximum difference between two runs on a stable machine
_EMULATED_TIMEOUT_S = 300.0
# An additional problem, large enough for a kernel to be timed precisely.
LARGE: dict[str, dict[str, int]] = {
    HIP_KIND: {"n": 32, "c": 256, "k": 256, "g": 1, "hi": 28, "wi": 28},
    HOST_KIND: {"n": 1, "c": 64, "k": 64, "g": 1, "hi": 28, "wi": 28},
}
_STEADIER = "stop other programs on the device, fix its clock, let it cool, and check again"
_ARCH_TO_TRY = "gfx942"  # without a GPU
_GO_ON = (ExitCode.OK, ExitCode.GATE_FAILED)


class CheckFailedError(CkhError):
    """A check completed with a wrong result."""

    exit_code: ClassVar[ExitCode] = ExitCode.GATE_FAILED


@dataclass(frozen=True, slots=True)
class CheckedPair:
    """A (problem, kernel) pair and its results in each run."""

    json_properties: ClassVar = ("ratio",)

    problem: str
    kernel: str
    statuses: tuple[str, ...]
    messages: tuple[str, ...]
    times_ms: tuple[float | None, ...]

    @property
    def ratio(self) -> float | None:
        """Second time divided by the first; None if either is missing."""
        first, second = (*self.times_ms, None, None)[:2]
        return None if first is None or second is None else second / first


class ClassResult(StrEnum):
    """Outcome of a kernel of a class; "not emitted" and "not tried" mean that it was never compiled."""

    NOT_EMITTED = "not emitted"
    NOT_TRIED = "not tried"
    NOT_COMPILED = "not compiled"
    COMPILED = "compiled"  # not executed: there is no device, or it was short of memory or time
    RIGHT = "right"
    WRONG = "wrong"


_OF_BUILD = {
    Status.OK: ClassResult.COMPILED,
    Status.UNSUPPORTED: ClassResult.NOT_EMITTED,
    Status.COMPILE_INTERRUPTED: ClassResult.NOT_TRIED,
}


@dataclass(slots=True)
class CheckedClass:
    """A class of kernels, one of them, and what became of it with the compiler and headers of this machine."""

    op: str
    kernel_class: str
    kernel: str
    result: ClassResult
    message: str
    """Why the headers support no kernel of the class, the compiler's error, or that of the first wrong problem."""


@dataclass(slots=True)
class Checkup:
    """A check of a device. `run` fills it in; steps that were not reached stay empty."""

    kind: str
    options: DeviceOptions
    folder: Path
    device: str = ""
    arch: str = ""
    steps: list[ToolCheck] = field(default_factory=list)
    sensors: list[dict[str, float | None]] = field(default_factory=list)
    build: Build | None = None
    classes: list[CheckedClass] = field(default_factory=list)
    _settings: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit code of the first failed step; 0 if none failed."""
        return next((step.exit_code for step in self.steps if not step.ok), int(ExitCode.OK))

    def run(self) -> None:
        """Run the steps until one fails that the next depends on; classes are compiled without a GPU too."""
        steps: dict[str, Callable[[], str]] = {
            "device": lambda: opened(self.kind, self.options),
            "toolchain": lambda: built_simplest(self.kind, self.options),
            "kernels": self._choose,
            **{run: lambda run=run: self._measure(run) for run in RUNS},  # type: ignore[misc]
            "comparison": self._compare,
            CLASSES: self._try_classes,
        }
        if self.kind == HOST_KIND:
            del steps[CLASSES]
        for name, step in steps.items():
            if name == CLASSES or all(earlier.exit_code in _GO_ON for earlier in self.steps):
                note(f"checking: {name}")
                self.steps.append(checked(name, step))

    @property
    def _timeout_s(self) -> float:
        return _EMULATED_TIMEOUT_S if self.kind == EMULATED_KIND else DEFAULT_TIMEOUT_S

    def pairs(self) -> list[CheckedPair]:
        """Results of the pairs, in the order of the first run."""
        by_pair: dict[tuple[str, str], list[ResultRow]] = {}
        for run in RUNS:
            for row in self._rows(run):
                by_pair.setdefault((row.problem, row.kernel), []).append(row)
        return [
            CheckedPair(
                *pair,
                tuple(str(row.status) for row in rows),
                tuple(row.message for row in rows),
                tuple(row.latency_ms for row in rows),
            )
            for pair, rows in by_pair.items()
        ]

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of classes by operation and result."""
        by_operation = {checked_class.op: dict.fromkeys(map(str, ClassResult), 0) for checked_class in self.classes}
        for checked_class in self.classes:
            by_operation[checked_class.op][checked_class.result] += 1
        return by_operation

    def _rows(self, run: str) -> Iterator[ResultRow]:
        if (self.folder / run / JOURNAL_NAME).exists():
            yield from read_journal(self.folder / run).final_rows()

    def _choose(self) -> str:
        """Choose problems, and kernels that this device can build, and write both to files."""
        device = open_device(self.kind, self.options)
        first, *others = device.worker_configs()
        if self.kind == HIP_KIND and others:  # both runs use the first of several GPUs
            self.options = replace(self.options, gpus=(first.gpu,))
            device = open_device(self.kind, self.options)
        self.device, self.arch = device.identity().name, device.arch.name
        dtype = device.arch.default_dtype if self.kind == HOST_KIND else _GPU_DTYPE
        cases = sorted(_cases(device, dtype), key=lambda case: case.label not in _FIRST)[:_KERNELS]
        if not cases:
            raise NoKernelError(
                "these headers build none of the kernels of the check",
                "ckh doctor lists what they support",
                code="no-kernel",
            )
        problems = [cases[0].problem]
        if self.kind in LARGE:
            problems.append(replace(problems[0], **LARGE[self.kind]))
        names = [full_name(case.kernel) for case in cases]
        for file, lines in (("problems.txt", [problem.canonical() for problem in problems]), ("kernels.txt", names)):
            (self.folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._settings = {"op": DEFAULT_OPERATION, "dtype": dtype}
        return f"{len(cases)} kernels on {len(problems)} problem{'s' * (len(problems) > 1)} for {self.device}"

    def _measure(self, run: str) -> str:
        """Compile, verify and time the kernels as `ckh bench` does, and read the sensors before and after."""
        files = {name: str(self.folder / f"{name}.txt") for name in ("problems", "kernels")}
        limits = BenchLimits(timeout_s=self._timeout_s)
        given = Given(**self._settings, **files)
        campaign = Campaign(self.kind, given, self.folder / run, resume=False, options=self.options, limits=limits)
        self.sensors.append(self._read_sensors())
        outcome = campaign.run(limits)
        self.sensors.append(self._read_sensors())
        if outcome.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        rows = list(self._rows(run))
        wrong = [row for row in rows if row.status not in RIGHT]
        if wrong:
            first = f"{wrong[0].kernel}: {wrong[0].status}, {wrong[0].message}"
            error = CheckFailedError if len(wrong) < len(rows) else NoKernelError
            raise error(f"{len(wrong)} of {len(rows)} pairs failed, the first with {first}")
        return f"{len(rows)} pairs are right"

    def _read_sensors(self) -> dict[str, float | None]:
        """Sensor values by name: those of the GPU under test, else of the processor."""
        config, *_ = open_device(self.kind, self.options).worker_configs()
        return {**read_card(config.pci, config.kfd_id, is_user=False)} if config.pci else asdict(read_sensors())

    def _compare(self) -> str:
        """Compare the times of both runs."""
        ratios = [ratio for pair in self.pairs() if (ratio := pair.ratio) is not None]
        if not ratios:
            return "no times to compare"
        span, mean = f"{min(ratios):.3f} to {max(ratios):.3f}", f"{geometric_mean(ratios):.3f}"
        text = f"the second run took {span} times the first, {mean} on average"
        if max(abs(ratio - 1) for ratio in ratios) > _STEADY:
            raise CheckFailedError(f"unstable times: {text}", _STEADIER, code="unsteady")
        return text

    def _try_classes(self) -> str:
        """Compile kernels of all classes in random order for a limited time, and execute them where a device works."""
        has_device, compiling, all_over = self.steps[0].ok, Stop(_COMPILING * CLASSES_S), Stop(CLASSES_S)
        device = open_device(self.kind, self.options)
        driver = Driver(device, BenchLimits(timeout_s=self._timeout_s), compiling)
        self.arch, self.build = device.arch.name, Build.of(device)
        kernels = list(_classes(device))
        self.classes = [checked_class for checked_class, _ in kernels]
        left = [pair for pair in kernels if pair[0].result is not ClassResult.NOT_EMITTED]
        with compiling, progress("trying kernel classes", len(left)) as advance:
            while left and not compiling():
                now, left = left[: driver.jobs], left[driver.jobs :]  # a kernel for each compiler
                built = driver.build([kernel for _, kernel in now])
                for of_class, kernel in now:
                    if kernel in built:
                        of_class.message = built[kernel].message
                        of_class.result = _OF_BUILD.get(built[kernel].status, ClassResult.NOT_COMPILED)
                    if of_class.result is ClassResult.COMPILED and has_device and not all_over():
                        of_class.result, of_class.message = _executed(driver, kernel, built[kernel])
                    advance(1, of_class.kernel_class)
        if compiling.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        number = Counter(of_class.result for of_class in self.classes)
        text = f"{len(kernels)} kernel classes: " + ", ".join(f"{number[result]} {result}" for result in ClassResult)
        if number[ClassResult.WRONG] or number[ClassResult.NOT_COMPILED]:
            raise CheckFailedError(text, "please report it, with the archive", code="wrong-classes")
        return text


def _classes(device: Device) -> Iterator[tuple[CheckedClass, Any]]:
    """All classes of kernels in random order, from each operation in turn, with the first that the headers support."""
    found: dict[str, list[tuple[CheckedClass, Any]]] = {}
    for name in operation_names():
        op = operation(name)
        measured = None if op.measured is None else measured_of(op)
        if measured is None or measured.trials is None or measured.hip is None:
            continue
        for kernel_class, kernels in measured.trials().representatives(device.arch).items():
            kernel, result, message = kernels[0], ClassResult.NOT_TRIED, ""
            try:
                device.emit(kernel)
            except UnsupportedKernelError as error:
                verdicts = device.refusals(kernels)
                if verdicts is not None and len(verdicts.passed):
                    kernel = kernels[verdicts.passed[0]]
                else:
                    result, message = ClassResult.NOT_EMITTED, str(error)
            checked_class = CheckedClass(name, kernel_class, full_name(kernel), result, message)
            found.setdefault(name, []).append((checked_class, kernel))
    for of_operation in found.values():
        random.Random(_SEED).shuffle(of_operation)
    return (pair for turn in zip_longest(*found.values()) for pair in turn if pair is not None)


def _executed(driver: Driver, kernel: Any, built: Built) -> tuple[ClassResult, str]:
    """Result of a built kernel on small problems that reach all of its loop ends."""
    with driver.worker(should_stop=lambda: False) as worker:
        replies = [reply for _, reply in execute(worker, built.library, loop_ends(driver.device, kernel))]
    if replies and (last := replies[-1]).status not in ACCEPTED:
        result = ClassResult.COMPILED if last.status in TRIED_AGAIN else ClassResult.WRONG
        return result, f"{last.status}: {last.message}"
    ran = any(reply.status in RIGHT for reply in replies)
    return (ClassResult.RIGHT, "") if ran else (ClassResult.COMPILED, "it refuses every problem")


def _cases(device: Device, dtype: str) -> Iterator[Any]:
    """Matrix cases of forward convolutions that this device can build."""
    measured = measured_of(operation(DEFAULT_OPERATION))
    assert measured.matrix is not None
    for case in measured.matrix(_MATRIX, MatrixSettings(device.arch, dtype, Direction.FORWARD.value, 2)):
        if not measured.reasons(case.kernel, device.arch, case.problem):
            with suppress(UnsupportedKernelError):
                device.emit(case.kernel)
                yield case


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """Result of a check."""

    json_properties: ClassVar = ("ok",)

    name: str
    """Name of the checked part."""
    found: str
    """Result: version or path, or the fault."""
    remedy: str
    """Remedy for the fault; empty if none is known."""
    exit_code: int
    """0 if the part works, else that of the error."""
    seconds: float
    """Duration of the check in seconds."""

    @property
    def ok(self) -> bool:
        """True if the part works."""
        return self.exit_code == ExitCode.OK


def check_tools(options: DeviceOptions) -> list[ToolCheck]:
    """Open the GPUs in workers; compile, link and load the simplest kernel for a GPU and for the CPU."""
    wanted = replace(options, arch=options.arch or detect_gpu_arch() or _ARCH_TO_TRY)
    return [
        checked("GPU", lambda: opened(HIP_KIND, wanted)),
        checked("HIP compiler", lambda: built_simplest(HIP_KIND, wanted)),
        checked("CK Tile headers", lambda: _headers(wanted)),
        checked("C++ compiler", lambda: built_simplest(HOST_KIND, DeviceOptions())),
    ]


def checked(name: str, find: Callable[[], str]) -> ToolCheck:
    """Result of calling `find`, or of the error that it raises."""
    start = time.monotonic()
    try:
        found, remedy, code = find(), "", ExitCode.OK
    except CkhError as error:
        found, remedy, code = error.message, error.hint, error.exit_code
    except OSError as error:
        found, remedy, code = f"cannot write: {error}", "free disk space, or set CKH_CACHE_DIR", ExitCode.INPUT_OUTPUT
    return ToolCheck(name, found, remedy, int(code), round(time.monotonic() - start, 3))


def opened(kind: str, options: DeviceOptions) -> str:
    """Open each GPU of a device in a worker, and write and read its memory."""
    device = open_device(kind, options)
    require_usable(device)
    count = len(device.worker_configs())
    return f"{device.arch.name}, {count} worker{'s' * (count > 1)}"


def built_simplest(kind: str, options: DeviceOptions) -> str:
    """Compile, link and load the simplest kernel."""
    compiler = find_compiler() if kind == HOST_KIND else find_hipcc(options.hipcc)
    with KernelCache().workshop() as folder:
        require_toolchain(open_device(kind, options), folder)
    target = "" if options.arch is None else f" for {options.arch}"
    return f"{' '.join(compiler.command)} builds what can be loaded{target}"


def _headers(options: DeviceOptions) -> str:
    hipcc = None
    with suppress(DeviceError):  # headers may be usable without one
        hipcc = find_hipcc(options.hipcc)
    headers = find_ck_tile(options.ck_include, hipcc)
    return f"{headers.include} (interface {headers.interface})"
