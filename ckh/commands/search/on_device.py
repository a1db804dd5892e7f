"""Search for a problem by a model, or by measuring on a device."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
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

    from ckh.bench.devices.device import Device
    from ckh.bench.nodes.remote import DeviceRequest
    from ckh.commands._problem_options import Typed
    from ckh.commands.search.options import Effort, Measuring
    from ckh.ops.base import Kernel

SPACE_LIMIT = 50_000  # maximum number of kernels in a measured search
_HOST = "host"
_RUNS = Path("runs")
_NOTHING = Path()  # disables models that come with candidates


def ask_model(typed: Typed, top: int, *, must_be_measured: bool, as_json: bool) -> None:
    """Score the space with a model or its substitute, and print the first kernels."""
    from ckh.archs import load_arch
    from ckh.search.kernels.space import searched
    from ckh.search.on_model import search_model
    from ckh.search.on_model_text import search_json, search_text

    chooser = typed.chooser(typed.arch)
    searched(chooser.op)
    problem = typed.problem(chooser, "search")
    try:
        model = chooser.model(problem, stands_in=not must_be_measured)
    except ModelError as error:
        hint = f"{error.hint}; or search by measuring: ckh search measure {problem.canonical()}"
        raise ModelError(error.message, hint, code=error.code) from error
    if model.not_measured is not None:
        doubts, first = (
            model.not_measured.of_problem(problem, model.spec.arch),
            f"ckh search measure {problem.canonical()} --arch {model.spec.arch}",
        )
        model.not_measured = replace(doubts, next_commands=(first, *doubts.next_commands))
    model_search = search_model(problem, model, load_arch(model.spec.arch), top)
    text = search_json(problem, model, model_search) if as_json else search_text(problem, model, model_search)
    emit(text)


@dataclass(frozen=True, slots=True)
class MeasuredSearch:
    """Options of a search by measuring: the problem's text, architecture and model, if given, and how to measure."""

    problem: str
    arch: str | None
    model: Path | None
    effort: Effort
    measuring: Measuring
    cluster: str | None


def measure(wanted: MeasuredSearch, *, must_be_measured: bool, force: bool, as_json: bool) -> bool:
    """Search by measuring on a device and print the fastest kernels; returns False if interrupted."""
    from ckh.bench.devices.device_choice import open_device
    from ckh.bench.planning.planner import KnownBefore
    from ckh.bench.supervision.limits import StopReason
    from ckh.cluster.connection import connected
    from ckh.data.journal import JOURNAL, JOURNAL_NAME, JournalWriter, is_started
    from ckh.learn.models.artifact import find_model, wanted_for
    from ckh.ops import operation_of_problem
    from ckh.search.kernels import kernel_space
    from ckh.search.kernels.space import searched
    from ckh.search.measuring import Guide, SearchSettings, Where, search_measured
    from ckh.shapes.problems import problem_of_text
    from ckh.text.progress import progress

    effort, measuring, limits = wanted.effort, wanted.measuring, wanted.measuring.limits
    chosen = (effort.strategy, effort.seed, effort.evaluations, effort.top, measuring.samples, measuring.cold, limits)
    request = _request(wanted.arch, measuring)
    device = open_device(request.kind, request.options)
    arch = device.arch
    problem = problem_of_text(wanted.problem, wanted.arch or arch.name)
    searched(op := operation_of_problem(problem))
    folder = Path(measuring.out or _RUNS / f"search-{arch.name}-{datetime.now(timezone.utc):%Y-%m-%d-%H%M%S}")
    check_output(folder / JOURNAL_NAME, JOURNAL, force=force or not is_started(folder / JOURNAL_NAME))
    candidates = op.kernels.candidates(problem, arch, _NOTHING).kernels
    if must_be_measured and wanted.model is None:
        find_model(wanted_for(problem, arch.name))
    space = kernel_space(problem, arch, candidates, SPACE_LIMIT, _buildable(device))
    known = KnownBefore(arch.name, wanted.model, arch.hardware.num_cus)
    model = known.model(problem, candidates or space.kernels[:1])
    if model is None:
        note(f"no model of {wanted_for(problem, arch.name)}: the first proposals are a design without one")
    elif model.not_measured is not None:
        note(f"no measurements of this GPU: initial proposals by {model.not_measured.source}")
    guide = None if model is None else Guide.of(model, problem, space)
    until = "" if limits.budget_s is None else f", at most {format_duration(limits.budget_s)}"
    note(f"{min(effort.evaluations, len(space))} of {len(space)} kernels{until}, into {folder}")
    with ExitStack() as stack:
        nodes = None if wanted.cluster is None else stack.enter_context(connected(wanted.cluster))
        advance = stack.enter_context(progress("searching", min(effort.evaluations, len(space))))
        where = Where(request, nodes)
        open_journal = partial(JournalWriter, folder, replace=force, is_new=not force)
        outcome = search_measured(device, where, problem, space, guide, SearchSettings(*chosen), open_journal, advance)
    output.print_measured(output.Summary(problem, model, space, effort), outcome, folder, as_json=as_json)
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
