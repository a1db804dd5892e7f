"""Comparison of compiler options on a GPU: kernels compiled without and with further ones, timed in the same rounds."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ckh.bench.compilation.hip_toolchain import find_hipcc
from ckh.bench.devices.device_choice import open_device
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.driver import Driver, interleaved
from ckh.bench.supervision.limits import BenchLimits, Stop, StopReason
from ckh.bench.supervision.runner import new_record, result_row
from ckh.data.journal import JOURNAL, JOURNAL_NAME, JournalWriter
from ckh.documents import Document
from ckh.files.outputs import check_output
from ckh.text.progress import progress
from ckh.tune.gains import doubt_of, log_ratios, ratio_of_visits

if TYPE_CHECKING:
    from ckh.bench.supervision.campaign import Campaign
    from ckh.data.journal import ResultRow

_FOLDER = "hipcc-flags"  # in that of a run, for the rows with the further options


@dataclass(frozen=True, slots=True)
class FlagsPair:
    """A problem and a kernel, compiled without and with further options; null: not measured, or not established."""

    problem: str
    kernel: str
    latency_ms: float | None
    """Time without the options."""
    flags_ms: float | None
    """Time with them."""
    ratio: float | None
    """Time with them divided by that without, in the same interleaved rounds."""
    ratio_interval: tuple[float, float] | None
    """95 % confidence interval of the ratio, from round to round."""
    not_established: str | None
    """Why there is no ratio."""


class FlagsDocument(Document):
    """ckh bench --hipcc-flags --json: times with further compiler options, relative to those without."""

    schema = "bench_flags"

    out: str
    """Folder of the rows without the further options; its folder hipcc-flags has those with them."""
    device: str
    options: tuple[str, ...]
    """Options of both."""
    flags: str
    """The further options."""
    ended: str
    """Complete, interrupted or budget."""
    pairs: tuple[FlagsPair, ...]
    established: int
    """Pairs with a ratio."""
    ratio: float | None
    """Geometric mean of the ratios: below 1, kernels are faster with the further options; null for fewer than two."""
    ratio_interval: tuple[float, float] | None
    """Its 95 % confidence interval, from pair to pair."""


def compare_flags(campaign: Campaign, flags: str, limits: BenchLimits, *, force: bool) -> FlagsDocument:
    """Measure all pairs of a run's plan, each compiled without and with further options of the HIP compiler, in turns.

    Rows of either are in a journal of their own, so that no dataset has both.
    """
    request, pairs = campaign.request, list[FlagsPair]()
    hipcc = f"{shlex.join(find_hipcc(request.options.hipcc).command)} {flags}"
    devices = campaign.device, open_device(request.kind, replace(request.options, hipcc=hipcc))
    folders = campaign.out, campaign.out / _FOLDER
    check_output(folders[1] / JOURNAL_NAME, JOURNAL, force=force)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop(limits.budget_s))
        drivers = [Driver(device, limits, stop) for device in devices]
        built = [driver.build(campaign.plan.kernels, "compiling kernels") for driver in drivers]
        journals = [JournalWriter(folder, replace=force, is_new=not force) for folder in folders]
        runs = [new_record(device.identity(), campaign.settings) for device in devices]
        for journal, run in zip(journals, runs, strict=True):
            stack.callback(journal.close)
            journal.start_run(run)
        advance = stack.enter_context(progress("measuring", campaign.plan.pairs))
        worker = stack.enter_context(drivers[0].worker())
        tasks = campaign.plan.tasks
        for problem, kernel in ((task.problem.canonical(), kernel) for task in tasks for kernel in task.kernels):
            units = [of[kernel] for of in built if kernel in of]
            replies = interleaved(worker, problem, units, runs[0].samples) if len(units) == len(built) else None
            if replies is None:
                break
            rows = []
            for run, journal, unit, reply in zip(runs, journals, units, replies, strict=True):
                possible = drivers[0].possible(reply, problem)
                rows.append(result_row(run.run_id, problem, full_name(kernel), possible, unit))
                journal.add(rows[-1])
            pairs.append(_pair(*rows))
            advance(1, problem)
        ended = stop.reason if len(pairs) < campaign.plan.pairs else StopReason.COMPLETE
    known = [pair.ratio for pair in pairs if pair.ratio is not None]
    total = ratio_of_visits([np.log(known)]) if len(known) > 1 else None
    found = (None, None) if total is None else (total.value, total.interval)
    device = devices[0].identity()
    return FlagsDocument(
        str(campaign.out), device.name, device.flags, flags, str(ended), tuple(pairs), len(known), *found
    )


def _pair(plain: ResultRow, flagged: ResultRow) -> FlagsPair:
    failed = next((f"{row.status}: {row.message}" for row in (plain, flagged) if row.latency_ms is None), "")
    why_not = failed or doubt_of(plain) or doubt_of(flagged)
    times = plain.problem, plain.kernel, plain.latency_ms, flagged.latency_ms
    if why_not:
        return FlagsPair(*times, None, None, str(why_not))
    ratio = ratio_of_visits([log_ratios(flagged.samples_ns, plain.samples_ns)])
    return FlagsPair(*times, ratio.value, ratio.interval, None)
