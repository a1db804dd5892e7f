"""`ckh.run` and `ckh.kernel`: the kernel that `ckh predict` chooses, run on arrays in a worker.

A device has one warm worker: kernels are compiled into the cache, and never run in this process.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import default_device_kind, open_device
from ckh.bench.isolated.typed import element_type
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import RESULT, Job, Op, operand_file
from ckh.errors import DeviceError, NoKernelError, OutputError, UsageError, WrongTypeError
from ckh.learn.answers.api import ranking
from ckh.learn.answers.ranked import RankedList
from ckh.ops import as_problem, operation_of_problem
from ckh.running.arrays import enlarged, given_back, taken
from ckh.running.probing import measured_before, measured_first
from ckh.schema import Status
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypedDict

    from typing_extensions import Unpack

    from ckh.bench.compilation.compile import Built
    from ckh.bench.computation import Operand
    from ckh.bench.devices.device import Device
    from ckh.bench.isolated.typed import Array
    from ckh.bench.supervision.runner import JobRunner
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Kernel, Problem

    class KernelOptions(TypedDict, total=False):
        """The options of `kernel`."""

        device: str | None
        arch: str | None
        model: Model | Path | str | None
        kernels: Iterable[str | Kernel] | None
        rule_set: str | None
        exhaustive: bool
        timeout_s: float


MAX_TRIES = 8  # candidates that are tried for a problem
DEFAULT_TIMEOUT_S = 30.0
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made there
_ROOM = 1.1  # of the arrays' size, for a folder that takes them


class RunnableKernel:
    """The kernel chosen for a problem, which is called with arrays; made by `ckh.kernel`.

    It is compiled when it is first called. Where it cannot be compiled, crashes, hangs, refuses the problem or, with
    `verify`, is wrong, the next candidate takes its place.

    Attributes:
        problem: the problem.
        runs: the problem that the kernel computes: with sizes rounded up where no kernel applies to the other one.
    """

    def __init__(self, answer: Ranking, worker: WarmWorker, again: Callable[[], RunnableKernel]) -> None:
        self._answer, self._worker, self._again = answer, worker, again
        self.problem: Problem = answer.problem
        self.runs: Problem = answer.run
        self._op = operation_of_problem(answer.problem)
        self._computation = measured_of(self._op).computation
        self._candidates: Sequence[Kernel] = [answer.pool[number] for number in answer.order[:MAX_TRIES].tolist()]
        *self._operands, self._result = self._computation.array_forms(answer.problem)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the arguments of `kernel`, with which it is chosen again."""
        return self._again, ()

    @property
    def arch(self) -> str:
        """The architecture that it is compiled for."""
        return self._worker.device.arch.name

    @property
    def kernel(self) -> Kernel:
        """The kernel that the next call tries first.

        Raises:
            NoKernelError: none of those that were tried works.
        """
        return next(iter(self._left()))

    @property
    def name(self) -> str:
        """Its complete name."""
        return self._op.kernels.name(self.kernel)

    @property
    def ranked(self) -> RankedList[Any]:
        """The candidates, best first."""
        return RankedList(self._answer.ranked)

    def __repr__(self) -> str:
        try:
            name = self.name
        except NoKernelError:
            name = "no candidate works"
        inputs = ", ".join(f"{form.name} {form.shape}" for form in self._operands)
        call = f"{inputs} -> {self._result.name} {self._result.shape}"
        return f"<ckh.RunnableKernel {self.problem.dtype} {call} on {self.arch}: {name}>"

    def __call__(self, *arrays: Any, verify: bool = False) -> Any:
        """Compute the result of operands.

        Args:
            arrays: the operands: x, w of a forward convolution, dy, w of backward data, x, dy of backward weights, a, b
                of a matrix product.
            verify: whether the result is compared with a float64 reference, which takes longer than the kernel.

        Returns:
            The result, an array or tensor as the first operand is.

        Raises:
            UsageError: an array has another shape or element type.
            NoKernelError: none of the first candidates works.
            DeviceError: there is no compiler, or no worker can be started.
        """
        if len(arrays) != len(self._operands):
            names = " and ".join(form.name for form in self._operands)
            raise UsageError(f"{len(arrays)} arrays were given, expected {names}", code="usage")
        dtypes = [operand.dtype for operand in self._computation.operands(self.problem)]
        given = [
            taken(array, form, dtypes[form.place], fnuz_floats=self._worker.fnuz_floats)
            for array, form in zip(arrays, self._operands, strict=True)
        ]
        by_place = {form.place: array.values for form, array in zip(self._operands, given, strict=True)}
        inputs, output = self._computation.operands_of(self.runs)
        stored = [enlarged(by_place[place], operand.shape) for place, operand in enumerate(inputs)]
        storage = element_type(output.dtype).storage
        with folder_of(stored, storage.itemsize * prod(output.shape)) as folder:
            self._compute(
                Job(Op.PROBLEM, -1, problem=self.runs.canonical(), folder=str(folder), is_checked=verify),
                lambda: all(map(self._is_finite, inputs, stored)),
            )
            result: Array = np.fromfile(folder / RESULT, storage).reshape(tuple(output.shape))
        return given_back(result, self._result, given[0], has_its_dtype=output.dtype == self.problem.dtype)

    def _is_finite(self, operand: Operand, stored: Array) -> bool:
        element = element_type(operand.dtype, fnuz_floats=self._worker.fnuz_floats)
        return bool(np.isfinite(element.widened(stored)).all())

    def _compute(self, setup: Job, are_finite: Callable[[], bool]) -> None:
        """Have the first candidate that works compute the problem of a setup; warns once of those before.

        A wrong result of operands with NaN or infinities does not count in later calls: they may be in padding, which a
        kernel may multiply or skip.
        """
        failed, before = self._worker.failed, ""
        here: dict[tuple[str, Kernel], str] = {}
        for kernel in self._left(here):
            if not (why := self._why_not(kernel, setup)):
                if before:
                    name = self._op.kernels.name(kernel)
                    warn(f"{setup.problem} is computed by a later candidate, {name}: {before}", "no-working-kernel")
                return
            is_of_data = why.startswith(Status.WRONG_RESULT) and not are_finite()
            (here if is_of_data else failed)[setup.problem, kernel] = why
            before = before or f"{self._op.kernels.name(kernel)} failed: {why}"

    def _why_not(self, kernel: Kernel, setup: Job) -> str:
        """Compile and run a kernel; returns why that failed, empty if it worked."""
        built = self._worker.compiled(kernel)
        if built.status is not Status.OK:
            return f"{built.status}: {built.message}"
        return self._worker.why_not(Job(Op.RUN, 0, library=built.library), setup)

    def _left(self, here: Mapping[tuple[str, Kernel], str] = MappingProxyType({})) -> Iterable[Kernel]:
        """The candidates that have not failed, in order; `here` are failures of the present call alone.

        Raises:
            NoKernelError: all candidates have failed; raised after the last one.
        """
        text = self.runs.canonical()
        for kernel in self._candidates:
            if (text, kernel) not in {**self._worker.failed, **here}:
                yield kernel
        failed, first = {**self._worker.failed, **here}, self._candidates[0]
        raise NoKernelError(
            f"no kernel computes {text}, {len(self._candidates)} were tried; {self._op.kernels.name(first)}: "
            f"{failed[text, first]}",
            "test the compiler and the device with ckh doctor --check",
            code="no-working-kernel",
        )


def kernel(
    problem: Problem | str,
    *,
    device: str | None = None,
    arch: str | None = None,
    model: Model | Path | str | None = None,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
    exhaustive: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> RunnableKernel:
    """The kernel that `ckh predict` chooses for a problem, as a function of arrays.

    Args:
        problem: what is to be computed, or its canonical text.
        device: "host", "hip" or "emulated"; by default hip where there is a GPU, else host.
        arch: the architecture of a GPU; by default the device's.
        model: as of `rank`.
        kernels: as of `rank`.
        rule_set: as of `rank`.
        exhaustive: whether all candidates are measured on the device first, and the fastest is chosen; the times are
            kept, as those of `ckh predict --probe`.
        timeout_s: longest time of a kernel, in seconds.

    Raises:
        CkhError: as `rank`; or ckh builds no kernels of the operation; or the device cannot be used.
    """
    problem = as_problem(problem)
    if not isinstance(timeout_s, Real):
        raise WrongTypeError("timeout_s", "a number of seconds", timeout_s)
    measured_of(operation_of_problem(problem))
    kernels = list(kernels) if isinstance(kernels, Iterator) else kernels
    worker = warm_worker(device, arch, timeout_s)
    answer = ranking(problem, model, worker.device.arch.name, kernels, rule_set)
    if (own := answer.model.spec.arch) != worker.device.arch.name:
        raise DeviceError(f"the model is for {own}, the device is {worker.device.arch.name}", code="model-mismatch")
    if exhaustive:
        if device == EMULATED_KIND:
            raise UsageError("the emulated device has no times", "omit exhaustive", code="inapplicable-option")
        answer = measured_first(answer, len(answer.order), timeout_s, worker.device)
    again = partial(
        kernel, problem, device=device, arch=arch, model=model, kernels=kernels, rule_set=rule_set, timeout_s=timeout_s
    )
    return RunnableKernel(measured_before(answer), worker, again)


def run(problem: Problem | str, *arrays: Any, verify: bool = False, **options: Unpack[KernelOptions]) -> Any:
    """Compute a problem's result by the kernel that `ckh predict` chooses.

    Args:
        problem: what is to be computed, or its canonical text.
        arrays: the operands, as of `RunnableKernel`.
        verify: whether the result is compared with a float64 reference.
        options: those of `kernel`.

    Raises:
        CkhError: as `kernel`, and as calling it.
    """
    return kernel(problem, **options)(*arrays, verify=verify)


@dataclass
class WarmWorker:
    """A device's worker, which starts with its first job and is restarted when it dies."""

    device: Device
    limits: BenchLimits
    failed: dict[tuple[str, Kernel], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._driver = Driver(self.device, self.limits, lambda: False)
        self._built: dict[Kernel, Built] = {}
        self._stack = ExitStack()
        self._runner: JobRunner | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def fnuz_floats(self) -> bool:
        """True if 8-bit floating-point numbers have CDNA3's FNUZ encoding."""
        return self._driver.configs[0].fnuz_floats

    def compiled(self, kernel: Kernel) -> Built:
        """A kernel's library, or why there is none."""
        with self._lock:
            known = self._built.get(kernel)
            if known is None or (known.library and not Path(known.library).exists()):
                known = self._built[kernel] = self._driver.build([kernel], "compiling kernels")[kernel]
            return known

    def why_not(self, job: Job, setup: Job) -> str:
        """Run a kernel on the operands in the setup's folder; returns why it failed, empty if its result is there."""
        with self._lock:
            if self._runner is None:
                self._runner = self._stack.enter_context(self._driver.worker())
            ((_, reply),) = self._runner.run(setup, [job])
        return "" if reply.status is Status.OK else f"{reply.status}: {reply.message}"

    def close(self) -> None:
        """End the worker; the next job starts another one. A forked copy of this process does not end it."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._stack.close()
            self._runner = None


def warm_worker(kind: str | None, arch: str | None, timeout_s: float) -> WarmWorker:
    """The worker of a device, which later calls share."""
    options = DeviceOptions(None if arch == HOST_KIND else arch)
    kind = kind or (HOST_KIND if arch == HOST_KIND else default_device_kind(options))
    return _kept(kind, options, timeout_s, os.getpid())


@cache
def _kept(kind: str, options: DeviceOptions, timeout_s: float, process: int) -> WarmWorker:  # noqa: ARG001 - after a fork
    worker = WarmWorker(open_device(kind, options), BenchLimits(timeout_s=timeout_s))
    _open.append(worker)
    return worker


_open: list[WarmWorker] = []


@atexit.register
def close_all() -> None:
    """End all workers; later calls begin with new ones, and forget which kernels failed."""
    _kept.cache_clear()
    while _open:
        _open.pop().close()


@contextmanager
def folder_of(operands: Sequence[Array], result_bytes: int) -> Iterator[Path]:
    """A folder with operands for a worker, in shared memory where there is room."""
    needed = _ROOM * (sum(operand.nbytes for operand in operands) + result_bytes)
    has_room = os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free > needed
    with tempfile.TemporaryDirectory(prefix="ckh-run-", dir=_SHARED_MEMORY if has_room else None) as name:
        folder = Path(name)
        try:
            for place, values in enumerate(operands):
                values.tofile(folder / operand_file(place))
        except OSError as error:
            raise OutputError(
                f"cannot write {folder}: {error.strerror}", "make room, or set TMPDIR", code="unwritable"
            ) from error
        yield folder
