"""The three ways of `ckh search`: asking a model, measuring on a device, and replaying a recording."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.commands import _search_output as output
from ckh.commands._duration import format_duration, parse_duration
from ckh.errors import ModelError, NoKernelError
from ckh.log import note
from ckh.outputs import check_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec
    from ckh.bench.device import Device
    from ckh.commands._problem_options import Typed
    from ckh.learn.artifact import Model
    from ckh.learn.choice import Chooser
    from ckh.learn.ranked import Ranked
    from ckh.ops.base import Kernel, Problem
    from ckh.search.kernels import KernelSpace
    from ckh.search.measured import Guide, SearchSettings

_DEVICE_STRATEGY = "surrogate"
SPACE_LIMIT = 50_000  # kernels that may be measured
_CHECKPOINTS = (50, 100, 220, 500)
_HOST = "host"
_NOTHING = Path()  # where candidates that come with a model are not


@dataclass(frozen=True, slots=True)
class Effort:
    """How to search, and how many kernels to tell; a strategy of None is the default."""

    strategy: str | None
    budget: int
    seed: int
    top: int


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """The options that only a GPU has."""

    hipcc: str | None
    ck_include: str | None
    gpu: int | None
    cold: bool


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How long is measured and how each kernel, with how many compilers, as typed; None: the default."""

    time: str | None
    samples: int | None
    timeout: str | None
    compile_timeout: str | None
    jobs: int | None


def replay_recording(path: Path, effort: Effort, seeds: int, jobs: int, *, as_json: bool) -> None:
    """Search a recording once for each seed, from the first one given, and print how near the optimum that came.

    Raises:
        DataError: the recording is unusable.
    """
    from ckh.search.replay import read_recording, replay

    recording = read_recording(path)
    strategy = effort.strategy or _DEVICE_STRATEGY
    budget = min(effort.budget, len(recording.space))
    found = replay(recording, budget, range(effort.seed, effort.seed + seeds), strategy, jobs=jobs)
    checkpoints = [*(count for count in _CHECKPOINTS if count < budget), budget]
    output.print_replay(path, recording, strategy, found, checkpoints, as_json=as_json)


def ask_model(typed: Typed, top: int, *, as_json: bool) -> None:
    """Score all kernels with a model, and print those that it expects to be the fastest.

    Raises:
        ModelError: there is no model for the problem, or it is damaged.
        NoKernelError: no kernel can be built and applies.
    """
    from ckh.archs import load_arch
    from ckh.search.on_model import search_model

    chooser = typed.chooser(typed.arch)
    problem = _problem(typed, chooser)
    try:
        model = chooser.model(problem)
    except ModelError as error:
        raise ModelError(error.message, f"{error.hint}; or search by measuring, with --measure") from error
    output.print_asked(problem, model, search_model(problem, model, load_arch(model.spec.arch), top), as_json=as_json)


def measure(
    typed: Typed,
    effort: Effort,
    kind: str | None,
    gpu_options: GpuOptions,
    limits: SearchLimits,
    out: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> bool:
    """Search by measuring on a device, and print the fastest kernels; False if it was interrupted.

    Raises:
        UsageError: the folder holds a run already, or an option does not go with the device.
        DeviceError: the device cannot be used.
        OutputError: the journal cannot be written.
        NoKernelError: no kernel can be built and applies, or none worked.
    """
    from ckh.bench.stop import StopReason
    from ckh.data.journal import JOURNAL, JOURNAL_NAME, is_started
    from ckh.progress import progress
    from ckh.search.measured import search_measured

    settings = _settings(effort, limits, cold=gpu_options.cold)
    device = _open(kind, typed.arch, gpu_options)
    chooser = typed.chooser(device.arch.name)
    problem = _problem(typed, chooser)
    folder = out or Path("runs") / f"search-{device.arch.name}-{datetime.now(timezone.utc):%Y-%m-%d-%H%M%S}"
    path = folder / JOURNAL_NAME
    check_output(path, JOURNAL, force=force or not is_started(path))
    model = _model_or_none(chooser, problem, is_named=typed.model is not None)
    pool = _ranked_pool(problem, device.arch, model)
    space = _space(problem, device.arch, pool, _buildable(device))
    guide = None if model is None else _guide(problem, model, space, pool)
    until = "" if settings.limits.budget_s is None else f", for {format_duration(settings.limits.budget_s)} at most"
    note(f"{min(settings.budget, len(space))} of {len(space)} kernels{until}, into {folder}")
    with progress("searching", min(settings.budget, len(space))) as advance:
        outcome = search_measured(device, problem, space, guide, settings, folder, advance)
    summary = output.Summary(problem, model, space, settings.strategy, effort.budget, effort.seed, effort.top)
    output.print_measured(summary, outcome, folder, as_json=as_json)
    if outcome.reason is StopReason.INTERRUPTED:
        return False
    if not outcome.best:
        if not outcome.rows:
            raise NoKernelError("no kernel was measured in the time", "give it more with --time")
        last = outcome.rows[-1]
        raise NoKernelError(f"none of {len(outcome.rows)} kernels worked; the last one: {last.status} {last.message}")
    return True


def _problem(typed: Typed, chooser: Chooser) -> Problem:
    from ckh.search.kernels.space import searched

    searched(chooser.op)
    return typed.problem(chooser, "search")


def _settings(effort: Effort, limits: SearchLimits, *, cold: bool) -> SearchSettings:
    from ckh.bench.limits import DEFAULT_COMPILE_TIMEOUT_S, DEFAULT_TIMEOUT_S, BenchLimits
    from ckh.bench.timing import DEFAULT_SAMPLES
    from ckh.search.measured import SearchSettings

    limit = BenchLimits(
        budget_s=None if limits.time is None else parse_duration(limits.time),
        timeout_s=DEFAULT_TIMEOUT_S if limits.timeout is None else parse_duration(limits.timeout),
        jobs=limits.jobs,
        compile_timeout_s=(
            DEFAULT_COMPILE_TIMEOUT_S if limits.compile_timeout is None else parse_duration(limits.compile_timeout)
        ),
    )
    return SearchSettings(
        strategy=effort.strategy or _DEVICE_STRATEGY,
        seed=effort.seed,
        budget=effort.budget,
        top=effort.top,
        samples=limits.samples or DEFAULT_SAMPLES,
        cold=cold,
        limits=limit,
    )


def _open(kind: str | None, arch: str | None, options: GpuOptions) -> Device:
    from ckh.bench.device import DeviceOptions
    from ckh.bench.device_choice import default_device_kind, open_device

    gpus = None if options.gpu is None else (options.gpu,)
    chosen = DeviceOptions(None if arch == _HOST else arch, options.hipcc, options.ck_include, gpus, options.cold)
    if kind is None:
        kind = _HOST if arch == _HOST else default_device_kind(chosen)
    return open_device(kind, chosen)


def _model_or_none(chooser: Chooser, problem: Problem, *, is_named: bool) -> Model | None:
    """The model for a problem; none is needed, but one that is named must be right."""
    if is_named:
        return chooser.model(problem)
    try:
        return chooser.model(problem)
    except ModelError as error:
        note(f"{error.message.partition(';')[0]}: searching without one")
        return None


def _ranked_pool(problem: Problem, arch: ArchSpec, model: Model | None) -> list[Ranked]:
    """The candidates for a problem, as the model ranks them, or as they come."""
    from ckh.learn.ranked import Ranked
    from ckh.ops import operation_of

    kernels = operation_of(problem.canonical()).candidates(problem, arch, _NOTHING).kernels
    if model is None or not kernels:
        return [Ranked(kernel, 0.0, None, None) for kernel in kernels]
    return model.rank(problem, kernels)


def _space(
    problem: Problem, arch: ArchSpec, pool: list[Ranked], can_build: Callable[[Kernel], bool] = lambda _: True
) -> KernelSpace:
    from ckh.search.kernels import kernel_space

    return kernel_space(problem, arch, [one.kernel for one in pool], SPACE_LIMIT, can_build)


def _buildable(device: Device) -> Callable[[Kernel], bool]:
    """True if a device can build a legal kernel: CK Tile's headers do not have everything, the host has."""
    if not device.arch.is_gpu:
        return lambda _: True
    from ckh.bench.codegen.unsupported import UnsupportedKernelError

    def can_build(kernel: Kernel) -> bool:
        try:
            device.emit(kernel)
        except UnsupportedKernelError:
            return False
        return True

    return can_build


def _guide(problem: Problem, model: Model, space: KernelSpace, pool: list[Ranked]) -> Guide:
    from ckh.search.measured import Guide
    from ckh.search.objective import log_speeds

    number = {kernel: i for i, kernel in enumerate(space.kernels[: space.pool_size])}
    first = next((number[one.kernel] for one in pool if one.kernel in number), None)
    return Guide(log_speeds(model, problem, space.kernels), first)
