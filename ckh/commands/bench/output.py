"""Output of `ckh bench`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.devices.device import EMULATED_KIND, HOST_KIND
from ckh.bench.isolated.timing import MANY_UNSTABLE
from ckh.bench.supervision.campaign import Outlook
from ckh.bench.supervision.driver import BuildReport
from ckh.bench.supervision.limits import StopReason
from ckh.bench.supervision.reference_watch import DRIFT
from ckh.bench.supervision.runner import shared_line
from ckh.commands._common import print_json, print_table, reasons_by_kind, say
from ckh.documents import Document, fields_of
from ckh.schema import MEASURED, Status
from ckh.text.durations import format_duration
from ckh.text.log import warn
from ckh.text.prose import shell_word
from ckh.text.tabletext import sparkline

_SPARKS = 24  # bars per line
_FAILURES_SHOWN = 3  # statuses
_TASKS_SHOWN = 20  # problems of a plan
_WHAT_TO_DO = (
    "stop other programs, fix the clock (cpupower frequency-set --governor performance, "
    "rocm-smi --setperfdeterminism), cool the device, or use more samples (--samples 9) in a new run"
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.bench.supervision.campaign import Campaign, Outcome
    from ckh.bench.supervision.runner import Totals
    from ckh.data.journal_records import ReferenceRecord
    from ckh.ops.base import Kernel
    from ckh.tune.flags import FlagsDocument


class RegistryDocument(Document):
    """ckh bench --write-registry --json."""

    schema = "bench_registry"

    registry: str
    """The file that was written."""
    arch: str
    kernels: int


@dataclass(frozen=True, slots=True)
class PlannedProblem:
    """A problem of a plan, with its kernels."""

    problem: str
    kernels: tuple[str, ...]


class OutlookDocument(Outlook, Document):
    """ckh bench --dry-run --json: the plan of a run."""

    schema = "bench_outlook"

    out: str
    """Folder of the run."""
    settings: Mapping[str, Any]
    """The run's options."""
    plan: tuple[PlannedProblem, ...] | None
    """With --plan the problems and their kernels, in the order of measuring."""


@dataclass(frozen=True, slots=True)
class BuiltKernel(BuildReport):
    """Result of compiling and loading a kernel."""

    name: str
    """Complete name of the kernel."""


class BuildDocument(Document):
    """ckh bench --compile-only --json: the results of compiling."""

    schema = "bench_build"

    arch: str
    wanted: int
    """Kernels of the plan."""
    statuses: Mapping[str, int]
    """Kernels by status."""
    ok: bool
    """Whether every kernel that the headers support was compiled."""
    kernels: tuple[BuiltKernel, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of the machine."""

    looks: int
    """Number of reference measurements."""
    least: float | None
    """Minimum of the reference times, relative to the first."""
    most: float | None
    """Maximum of the reference times, relative to the first."""
    measured_again: int
    """Pairs measured during drift and remeasured."""
    suspects_left: int
    """Pairs measured during drift and not remeasured."""


class BenchDocument(Document):
    """ckh bench --json: the results of a run."""

    schema = "bench"

    out: str
    """Folder of the run."""
    ended: str
    """Complete, interrupted, budget or gain."""
    statuses: Mapping[str, int]
    """Pairs by status."""
    remeasured: int
    """Number of leaders remeasured."""
    unstable: float
    """Share of times whose samples differ too much."""
    shared: int
    """Number of measurements while other processes had memory on the GPU."""
    reference: Drift
    pairs_left: int
    wall_s: float
    phase_s: Mapping[str, float]
    """Seconds by phase of the workers."""
    workers: Mapping[str, Mapping[str, float]]
    """Seconds of each worker by what it did or waited for; the only one has no name."""
    orchestration: float
    """Share of the time that is not measuring."""
    worker_restarts: int
    next: str
    """The next command to run."""


def print_flags(document: FlagsDocument, *, as_json: bool) -> None:
    """Print times with and without further compiler options."""
    if as_json:
        print_json(document)
        return
    rows = [
        [
            *(pair.problem, pair.kernel),
            *("-" if ms is None else f"{ms:.4g}" for ms in (pair.latency_ms, pair.flags_ms)),
            pair.not_established or _interval(pair.ratio, pair.ratio_interval),
        ]
        for pair in document.pairs
    ]
    columns = ("problem", "kernel", "ms", f"ms with {document.flags}", "ratio (95 % interval)")
    print_table(f"{document.out}: {document.ended}", columns, rows)
    if document.ratio is not None:
        whole = _interval(document.ratio, document.ratio_interval)
        say(f"\nwith {document.flags}: {whole} of the time, by {document.established} of {len(rows)} pairs")


def _interval(ratio: float | None, ends: tuple[float, float] | None) -> str:
    return "" if ratio is None or ends is None else f"{ratio:.3f} ({ends[0]:.3f} to {ends[1]:.3f})"


def print_registry(campaign: Campaign, path: Path, *, as_json: bool) -> None:
    """Write the kernels of a plan to a registry, and report it."""
    from ckh.bench.planning.registry import write_registry

    kernels = sorted(campaign.plan.kernels)
    write_registry(path, kernels, arch=campaign.device.arch.name)
    if as_json:
        print_json(RegistryDocument(str(path), campaign.device.arch.name, len(kernels)))
        return
    say(f"{len(kernels)} kernels of {campaign.device.arch.name} written to {path}")


def print_outlook(campaign: Campaign, outlook: Outlook, *, as_json: bool) -> None:
    """Print a plan and its estimated duration."""
    if as_json:
        from ckh.bench.planning.plan import full_name

        plan = None
        if campaign.settings.plan is not None:
            plan = tuple(
                PlannedProblem(task.problem.canonical(), tuple(map(full_name, task.kernels)))
                for task in campaign.plan.tasks
            )
        settings = fields_of(campaign.settings)
        print_json(OutlookDocument(**fields_of(outlook), out=str(campaign.out), settings=settings, plan=plan))
        return
    counts = [
        ("kernels", outlook.kernels),
        ("kernels to compile", outlook.to_compile),
        ("problems", outlook.problems),
        ("pairs to measure", outlook.pairs),
        ("pairs already measured", outlook.pairs_done),
        *((f"pairs refused: {reason}", count) for reason, count in reasons_by_kind(outlook.refused).items()),
    ]
    columns = ("problems", "arch", "kernels", "refused")
    rows = [[group.kind, group.arch, str(group.kernels), str(group.refused)] for group in outlook.groups]
    if rows:
        print_table(f"{campaign.plan.origin}:", columns, rows)
        say()
    if campaign.settings.plan is not None:
        chosen_by = f", kernels selected by {outlook.chosen_by}" if outlook.chosen_by else ""
        tasks = [[task.problem.canonical(), str(len(task.kernels))] for task in campaign.plan.tasks]
        print_table(f"in this order{chosen_by}:", ("problem", "kernels"), tasks[:_TASKS_SHOWN])
        if len(tasks) > _TASKS_SHOWN:
            say(f"and {len(tasks) - _TASKS_SHOWN} more problems (--json lists them, and the kernels of each)")
        say()
    print_table(str(campaign.out), ("", "count"), [[name, str(count)] for name, count in counts])
    if outlook.missing:
        warn(f"kernels cannot be compiled on this machine: {outlook.missing}", "no-compiler")
    seen = "" if outlook.compile_s is None else f" ({outlook.compile_s:.1f} s per compilation, as measured here)"
    compiling_s = outlook.estimate_s - outlook.measuring_s
    parts = f", {format_duration(compiling_s)} of it compilation" if outlook.to_compile else ""
    say(f"\nestimated time: {format_duration(outlook.estimate_s)}{parts}{seen if outlook.to_compile else ''}")


def print_build(campaign: Campaign, reports: dict[Kernel, BuildReport], *, as_json: bool) -> bool:
    """Print the results of compiling; returns True if nothing failed."""
    from ckh.bench.planning.plan import full_name

    wanted = len(campaign.plan.kernels)
    statuses = Counter(str(report.status) for report in reports.values())
    reasons = Counter(
        (str(report.status), report.message) for report in reports.values() if report.status is not Status.OK
    )
    is_good = set(statuses) <= {str(Status.OK), str(Status.UNSUPPORTED)}
    if as_json:
        kernels = tuple(BuiltKernel(**fields_of(report), name=full_name(kernel)) for kernel, report in reports.items())
        print_json(BuildDocument(campaign.device.arch.name, wanted, statuses, is_good, kernels))
        return is_good
    rows = [[f"status {status}", str(count)] for status, count in statuses.most_common()]
    if len(reports) < wanted:
        rows.append(["not reached", str(wanted - len(reports))])
    rows += [list(row) for row in _resource_rows(reports)]
    print_table(f"{wanted} kernels for {campaign.device.arch.name}, compiled and loaded:", ("", "count"), rows)
    if reasons:
        say()
        by_count = [[f"{status}: {message}", str(count)] for (status, message), count in reasons.most_common()]
        print_table("", ("reason", "kernels"), by_count)
    return is_good


def _resource_rows(reports: dict[Kernel, BuildReport]) -> list[tuple[str, str]]:
    known = [report.resources for report in reports.values() if report.resources is not None]
    if not known:
        return []
    return [
        ("with scratch memory", str(sum(kernel.scratch_bytes > 0 for kernel in known))),
        ("with scratch memory, but no spills", str(sum(kernel.has_unexplained_scratch for kernel in known))),
        ("with functions that call others", str(sum((report.calling or 0) > 0 for report in reports.values()))),
        ("with spilled vector registers", str(sum(kernel.vgpr_spills > 0 for kernel in known))),
        ("most vector registers", str(max(kernel.vgprs + kernel.agprs for kernel in known))),
        ("most LDS bytes", str(max(kernel.lds_bytes for kernel in known))),
        ("least occupancy", str(min(kernel.occupancy for kernel in known))),
    ]


def print_outcome(campaign: Campaign, outcome: Outcome, *, as_json: bool) -> None:
    """Print the results of a run, and the next command."""
    totals = outcome.totals
    after = _next_command(campaign, outcome)
    if as_json:
        ratios = [reference.ratio for reference in totals.references]
        document = BenchDocument(
            out=str(campaign.out),
            ended=str(outcome.reason),
            statuses=totals.statuses,
            remeasured=totals.remeasured,
            unstable=_unstable_share(totals),
            shared=totals.shared,
            reference=Drift(
                looks=len(ratios),
                least=min(ratios, default=None),
                most=max(ratios, default=None),
                measured_again=totals.drifted,
                suspects_left=totals.suspects_left,
            ),
            pairs_left=outcome.pairs_left,
            wall_s=totals.wall_s,
            phase_s=totals.phase_s,
            workers=totals.uses,
            orchestration=outcome.orchestration,
            worker_restarts=totals.restarts,
            next=after,
        )
        print_json(document)
        return
    counts = [
        *((f"status {status}", count) for status, count in totals.statuses.most_common()),
        ("fastest kernels remeasured", totals.remeasured),
        ("worker restarts", totals.restarts),
        ("pairs left", outcome.pairs_left),
    ]
    print_table(f"{campaign.out}: {outcome.reason}", ("", "count"), [[name, str(count)] for name, count in counts])
    share = ""
    if phases := sorted(totals.phase_s.items(), key=lambda phase: -phase[1]):
        say()
        print_table("", ("phase", "time"), [[name, format_duration(seconds)] for name, seconds in phases])
        share = f", {outcome.orchestration:.1%} orchestration overhead of measuring" if totals.statuses else ""
    if campaign.device.arch.is_gpu and totals.uses:
        say()
        names = list(next(iter(totals.uses.values())))
        rows = [
            [node.rpartition("/")[2] or "the GPU", *(f"{uses[name] / totals.wall_s:.0%}" for name in names)]
            for node, uses in totals.uses.items()
        ]
        print_table("", ("GPU", *names), rows)
    say(f"\ntotal {format_duration(totals.wall_s)}{share}")
    if outcome.reason is StopReason.BUDGET and not totals.statuses:
        how = "" if campaign.settings.plan else ": continue with --resume, or use --plan auto"
        warn(f"nothing was measured; {format_duration(totals.compile_s)} of compiling are kept{how}", "budget")
    for line in reference_lines(totals.references):
        say(line)
    for line in machine_lines(totals):
        warn(line, "unsteady")
    say(f"next: {after}")


def reference_lines(looks: Sequence[ReferenceRecord]) -> list[str]:
    """Lines on drift during a run: reference kernel, clock and temperature; none for a single reference measurement."""
    if len(looks) < 2:  # noqa: PLR2004 - one look is no drift
        return []
    ratios = [look.ratio for look in looks]
    parts = np.array_split(ratios, min(_SPARKS, len(ratios)))
    shown = [max(part.tolist(), key=lambda ratio: abs(ratio - 1)) for part in parts]
    # Scale the bars so that a stable machine looks stable: changes below the drift limit do not fill a bar.
    bars = sparkline(shown, min(1 - DRIFT, *ratios), max(1 + DRIFT, *ratios))
    lines = [f"reference {bars} {min(ratios):.2f} to {max(ratios):.2f} of its first time, {len(looks)} looks"]
    clocks = [look.clock_mhz for look in looks if look.clock_mhz is not None]
    heat = [look.temperature_c for look in looks if look.temperature_c is not None]
    seen = [f"clock {min(clocks):.0f} to {max(clocks):.0f} MHz"] if clocks else []
    seen += [f"temperature {min(heat):.0f} to {max(heat):.0f} °C"] if heat else []
    return [*lines, ", ".join(seen)] if seen else lines


def machine_lines(totals: Totals) -> list[str]:
    """Lines on the stability of the machine, with remedies; none if stable."""
    lines = [line] if (line := shared_line(totals.shared)) else []
    share, looks = _unstable_share(totals), [reference.ratio for reference in totals.references]
    if looks and max(abs(look - 1) for look in looks) > DRIFT:
        rest = f", {totals.suspects_left} more were not" if totals.suspects_left else ""
        lines.append(
            f"the machine drifted: the reference kernel took {min(looks):.2f} to {max(looks):.2f} of its first "
            f"time; {totals.drifted} pairs measured in between were remeasured{rest}"
        )
    if share > MANY_UNSTABLE:
        lines.append(f"{share:.0%} of the times are unstable: their samples spread by more than 5 %")
    if lines:
        lines.append(f"for more stable times: {_WHAT_TO_DO}")
    return lines


def failure_text(totals: Totals) -> str:
    """Most frequent failures of a run with a message each."""
    shown = totals.statuses.most_common(_FAILURES_SHOWN)
    parts = [f"{count} {status} ({totals.first_failures.get(status) or 'no reason'})" for status, count in shown]
    return f": {'; '.join(parts)}" if parts else ""


def _unstable_share(totals: Totals) -> float:
    measured = sum(totals.statuses[str(status)] for status in MEASURED)
    return totals.statuses[str(Status.UNSTABLE)] / measured if measured else 0.0


def _next_command(campaign: Campaign, outcome: Outcome) -> str:
    if outcome.pairs_left:
        identity = campaign.device.identity()
        arch = f" --arch {identity.arch}" if identity.kind != HOST_KIND else ""
        return f"ckh bench --resume --out {shell_word(campaign.out)} --device {identity.kind}{arch}"
    if campaign.device.identity().kind == EMULATED_KIND:
        return f"ckh validate kernels --device {EMULATED_KIND} --arch {campaign.device.arch.name}"
    dataset = shell_word(f"{campaign.out.name}.parquet")
    return f"ckh convert {shell_word(campaign.out)} --out {dataset}"
