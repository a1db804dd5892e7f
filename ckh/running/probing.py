"""Time the first choices of answers on this machine (`ckh predict --probe`); measured kernels then come first."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.learn.answers.answer import PROBED, SET_SHOWN
from ckh.learn.answers.probes import Probe, Timed, recall, remember, this_device
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.devices.device import Device
    from ckh.bench.supervision.protocol import Reply
    from ckh.learn.answers.ranking import Ranking

_NS_PER_MS = 1e6


def measured_before(ranking: Ranking) -> Ranking:
    """Return the answer with the kernels that were probed on this machine before, if any, in front."""
    probe = recall(ranking.problem.canonical(), ranking.model.spec.arch)
    return ranking if probe is None else ranking.by_times(probe)


def is_known(ranking: Ranking, count: int) -> bool:
    """True if the first choices, or for 0 as many as `stated`, were all probed earlier."""
    probe = measured_before(ranking).probe
    names = set() if probe is None else {kernel.kernel for kernel in probe.kernels}
    first = ranking.best(count or stated(ranking))
    return all(ranking.model.spec.op.kernels.name(ranked.kernel) in names for ranked in first)


def stated(ranking: Ranking) -> int:
    """Number of first choices of which one is nearly the best, as the answer states; 5 if it states none."""
    return ranking.answer(1, "").sets.get(SET_SHOWN, PROBED)


def measured_first(ranking: Ranking, count: int, timeout_s: float, device: Device) -> Ranking:
    """Return the answer with its first choices ordered by their times on a device; missing times are measured now."""
    if not is_known(ranking, count):
        probe_all([ranking], count, timeout_s, device)
    return measured_before(ranking)


def probe_all(rankings: Sequence[Ranking], count: int, timeout_s: float, device: Device | None = None) -> None:
    """Time the first choices of each answer, or for 0 as many as `stated`, against each other, and remember the times.

    Kernels run the padded problem where there is one; its times are remembered as those of the requested one.
    Each problem's times are on the disk before the next problem starts.
    """
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.planning.planner import first_choices
    from ckh.bench.supervision.driver import compare_kernels

    spec = rankings[0].model.spec
    if spec.op.measured is None:
        raise UsageError(f"ckh builds no kernels of {spec.op_type}", "omit --probe", code="unsupported")
    device = device or device_of(spec.arch)
    compiler = device.identity().compiler
    tasks = {
        ranking.run.canonical(): [choice.kernel for choice in first_choices(ranking, count or stated(ranking))]
        for ranking in rankings
    }
    requested: dict[str, list[str]] = {problem: [] for problem in tasks}
    for ranking in rankings:
        requested[ranking.run.canonical()].append(ranking.problem.canonical())

    def take(problem: str, replies: Sequence[Reply]) -> None:
        names = [spec.op.kernels.name(kernel) for kernel in tasks[problem]]
        kernels = tuple(_timed(name, reply) for name, reply in zip(names, replies, strict=True))
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        for name in requested[problem]:
            remember(Probe(name, spec.arch, this_device(spec.arch) or "", when, __version__, compiler, kernels))

    compare_kernels(device, tasks, timeout_s, "probing", take)


def _timed(name: str, reply: Reply) -> Timed:
    from ckh.bench.isolated.timing import summarize
    from ckh.schema import Status

    if reply.status is not Status.OK:
        return Timed(name, str(reply.status), reply.message, None, None)
    timing = summarize(reply.samples_ns)
    return Timed(name, str(reply.status), "", timing.median_ns / _NS_PER_MS, timing.spread)
