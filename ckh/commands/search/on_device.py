"""Search for a problem by a model, or by measuring on a device."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.commands.search import output
from ckh.errors import ModelError, NoKernelError, UsageError
from ckh.files.outputs import check_output
from ckh.text.durations import format_duration
from ckh.text.log import emit, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.archs import ArchSpec
    from ckh.bench.devices.device import Device
    from ckh.bench.nodes.remote import DeviceRequest
    from ckh.commands._problem_options import Typed
    from ckh.commands.search.options import Effort, Measuring
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.choice import Chooser
    from ckh.ops.base import Kernel, Problem
    from ckh.search.kernels import KernelSpace
    from ckh.search.measuring import Guide

SPACE_LIMIT = 50_000  # maximum number of kernels in a measured search
_HOST = "host"
_RUNS = Path("runs")
_NOTHING = Path()  # disables models that come with candidates


def ask_model(typed: Typed, top: int, *, must_be_measured: bool, as_json: bool) -> None:
    """Score the space with a model or its substitute, and print the first kernels.

    Raises:
        ModelError: there is no model for the problem, or it is damaged.
        NoKernelError: no kernel can be built and applies.
    """
    from ckh.archs import load_arch
    from ckh.search.on_model import search_model
    from ckh.search.on_model_text import search_json, search_text

    chooser = typed.chooser(typed.arch)
    problem = _problem(typed, chooser, "search")
    try:
        model = chooser.model(problem, stands_in=not must_be_measured)
    except ModelError as error:
        hint = f"{error.hint}; or search by measuring: ckh search measure"
        raise ModelError(error.message, hint, code=error.code) from error
    if model.not_measured is not None:
        doubts, first = (
            model.not_measured.of_problem(problem, model.spec.arch),
            f"ckh search measure {typed.as_typed()}",
        )
        model.not_measured = replace(doubts, next_commands=(first, *doubts.next_commands))
    model_search = search_model(problem, model, load_arch(model.spec.arch), top)
    text = search_json(problem, model, model_search) if as_json else search_text(problem, model, model_search)
    emit(text)


def measure(
    typed: Typed,
    effort: Effort,
    measuring: Measuring,
    cluster: str | None,
    *,
    must_be_measured: bool,
    force: bool,
    as_json: bool,
) -> bool:
    """Search by measuring on a device and print the fastest kernels; returns False if interrupted.

    Raises:
        UsageError: the folder holds a run already, or an option does not go with the device.
        DeviceError: the device cannot be used.
        OutputError: the journal cannot be written.
        NoKernelError: no kernel can be built and applies, or none worked.
    """
    from ckh.bench.devices.device_choice import open_device
    from ckh.bench.supervision.limits import StopReason
    from ckh.cluster.connection import connected
    from ckh.data.journal import JOURNAL, JOURNAL_NAME, JournalWriter, is_started
    from ckh.search.measuring import SearchSettings, Where, search_measured
    from ckh.text.progress import progress

    limits = measuring.limits
    settings = SearchSettings(
        *(effort.strategy, effort.seed, effort.evaluations, effort.top, measuring.samples, measuring.cold, limits)
    )
    request = _request(typed.arch, measuring)
    device = open_device(request.kind, request.options)
    chooser = typed.chooser(typed.arch or device.arch.name)
    problem = _problem(typed, chooser, "search measure")
    folder = Path(measuring.out or _RUNS / f"search-{device.arch.name}-{datetime.now(timezone.utc):%Y-%m-%d-%H%M%S}")
    path = folder / JOURNAL_NAME
    check_output(path, JOURNAL, force=force or not is_started(path))
    model = _model_or_none(chooser, problem, is_needed=typed.model is not None or must_be_measured)
    pool = _ranked_pool(problem, device.arch, model)
    space = _space(problem, device.arch, pool, _buildable(device))
    guide = None if model is None else _guide(problem, model, space, pool)
    until = "" if limits.budget_s is None else f", at most {format_duration(limits.budget_s)}"
    note(f"{min(settings.evaluations, len(space))} of {len(space)} kernels{until}, into {folder}")
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(connected(cluster))
        advance = stack.enter_context(progress("searching", min(settings.evaluations, len(space))))
        where = Where(request, nodes)
        open_journal = partial(JournalWriter, folder, replace=force, is_new=not force)
        outcome = search_measured(device, where, problem, space, guide, settings, open_journal, advance)
    summary = output.Summary(problem, model, space, effort)
    output.print_measured(summary, outcome, folder, as_json=as_json)
    if outcome.reason is StopReason.INTERRUPTED:
        return False
    if not outcome.best:
        if not outcome.rows:
            raise NoKernelError(
                "no kernel was measured within the budget", "give it more with --budget", code="not-measured"
            )
        last = outcome.rows[-1]
        raise NoKernelError(
            f"none of {len(outcome.rows)} kernels worked; last failure: {last.status} {last.message}",
            code="no-working-kernel",
        )
    return True


def _problem(typed: Typed, chooser: Chooser, command: str) -> Problem:
    from ckh.search.kernels.space import searched

    searched(chooser.op)
    return typed.problem(chooser, command)


def _request(arch: str | None, measuring: Measuring) -> DeviceRequest:
    """Request of the device to measure on."""
    from ckh.bench.devices.device import DeviceOptions
    from ckh.bench.devices.device_choice import default_device_kind
    from ckh.bench.nodes.remote import DeviceRequest

    if measuring.gpus is not None and len(measuring.gpus) > 1:
        raise UsageError("--gpus: a search measures on one GPU", "name one", code="out-of-range")
    target = None if arch == _HOST else arch
    rotating = int(measuring.cold is not None)
    options = DeviceOptions(
        *(target, measuring.hipcc, measuring.ck_include, measuring.gpus, measuring.hipcc_flags),
        cold=bool(measuring.cold),
        rotating=rotating,
    )
    return DeviceRequest(measuring.device or (_HOST if arch == _HOST else default_device_kind(options)), options)


def _model_or_none(chooser: Chooser, problem: Problem, *, is_needed: bool) -> Model | None:
    """Model for a problem or its substitute; None only if neither --model nor --require is given."""
    if is_needed:
        return chooser.model(problem)
    try:
        model = chooser.model(problem, stands_in=True)
    except ModelError as error:
        note(f"{error.message.partition(';')[0]}: searching without one")
        return None
    if model.not_measured is not None:
        note(f"no measurements of this GPU: initial proposals by {model.not_measured.source}")
    return model


def _ranked_pool(problem: Problem, arch: ArchSpec, model: Model | None) -> list[Ranked]:
    """Candidates for a problem in the order of the model, or unordered without one."""
    from ckh.learn.answers.ranked import Ranked
    from ckh.ops import operation_of

    kernels = operation_of(problem.canonical()).kernels.candidates(problem, arch, _NOTHING).kernels
    if model is None or not kernels:
        return [Ranked(kernel, 0.0, None, None) for kernel in kernels]
    return model.rank(problem, kernels)


def _space(
    problem: Problem, arch: ArchSpec, pool: list[Ranked], can_build: Callable[[Kernel], bool] = lambda _: True
) -> KernelSpace:
    from ckh.search.kernels import kernel_space

    return kernel_space(problem, arch, [kernel.kernel for kernel in pool], SPACE_LIMIT, can_build)


def _buildable(device: Device) -> Callable[[Kernel], bool]:
    """Predicate for the kernels that a device can build: all on the host; on a GPU, those of CK Tile's headers."""
    if not device.arch.is_gpu:
        return lambda _: True
    from ckh.bench.codegen.unit_source import UnsupportedKernelError

    def can_build(kernel: Kernel) -> bool:
        try:
            device.emit(kernel)
        except UnsupportedKernelError:
            return False
        return True

    return can_build


def _guide(problem: Problem, model: Model, space: KernelSpace, pool: list[Ranked]) -> Guide:
    from ckh.search.measuring import Guide
    from ckh.search.run import log_speeds

    number = {kernel: i for i, kernel in enumerate(space.kernels[: space.pool_size])}
    first = next((number[kernel.kernel] for kernel in pool if kernel.kernel in number), None)
    return Guide(log_speeds(model, problem, space.kernels), first)
