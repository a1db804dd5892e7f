"""`ckh bench`: measures kernels on problems and journals every result."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.commands._duration import format_duration, parse_duration
from ckh.errors import ExitCode
from ckh.log import note
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.bench.campaign import Campaign, Outcome, Outlook


class Variant(StrEnum):
    """What `--variant` takes: a direction, or all of them."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"
    ALL = "all"


class DeviceKind(StrEnum):
    """What `--device` takes."""

    HOST = "host"
    HIP = "hip"


_HELP = """Emit, compile and measure kernels on many problems, and journal every result.

Each kernel runs in a worker process of its own device; its result is compared with a float64 reference, its time is
the median of several samples, and the leaders of each problem are measured again in turns. A kernel that crashes,
hangs, does not compile or gives wrong numbers becomes a row that says so. Ctrl-C loses nothing: --resume goes on.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="bench",
        help=_HELP,
        epilog=examples(
            "ckh bench --variant forward",
            "ckh bench --variant bwd_data --problems resnet50 --kernels '*_compv3_*' --out runs/resnet",
            "ckh bench --variant all --problems host-train --kernels sample:60 --budget 20m",
            "ckh bench --problems my_layers.csv --dry-run",
            "ckh bench --out runs/resnet --resume",
        ),
    )(bench)


def bench(
    variant: Variant | None = typer.Option(None, "--variant", help="Direction; forward unless a resumed run says."),
    device: DeviceKind | None = typer.Option(None, "--device", help="host or hip; host where no GPU is found."),
    problems: str | None = typer.Option(
        None, "--problems", metavar="SET|FILE", help="Problem set, or .txt, .csv or .json file.  [host-train]"
    ),
    kernels: str | None = typer.Option(
        None, "--kernels", metavar="WHICH", help="all, sample:N a problem, a pattern, or a file of names.  [all]"
    ),
    ndim: int | None = typer.Option(None, "--ndim", min=2, max=3, help="Only problems of 2 or 3 dimensions."),
    dtype: str | None = typer.Option(None, "--dtype", help="Element type; the device's own by default."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder.  [runs/<variant>-<arch>-<date>]"),
    resume: bool = typer.Option(False, "--resume", help="Go on with the run in the folder, with its settings."),
    budget: str | None = typer.Option(None, "--budget", metavar="TIME", help="Stop after this long, e.g. 20m."),
    seed: int | None = typer.Option(None, "--seed", help="What orders and samples follow from.  [0]"),
    samples: int | None = typer.Option(None, "--samples", min=1, max=100, help="Samples of a time.  [5]"),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Longest for one kernel on one problem."),
    jobs: int | None = typer.Option(None, "--jobs", "-j", min=1, help="Compilers at a time; one a core by default."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be measured, and measure nothing."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Measure, and print what came of it."""
    from ckh.bench.campaign import Campaign, Given, Limits
    from ckh.bench.stop import StopReason

    limits = Limits(None if budget is None else parse_duration(budget), parse_duration(timeout), jobs)
    given = Given(None if variant is None else str(variant), problems, kernels, dtype, ndim, seed, samples)
    campaign = Campaign(str(device or _default_device()), given, out, resume=resume)
    outlook = campaign.outlook(limits)
    if dry_run:
        _print_outlook(campaign, outlook, as_json=as_json)
        return
    note(
        f"{outlook.pairs} pairs of {outlook.kernels} kernels and {outlook.problems} problems "
        f"({outlook.to_compile} kernels to compile), about {format_duration(outlook.estimate_s)}, into {campaign.out}"
    )
    outcome = campaign.run(limits)
    _print_outcome(campaign, outcome, as_json=as_json)
    if outcome.reason is StopReason.INTERRUPTED:
        raise typer.Exit(int(ExitCode.INTERRUPTED))


def _default_device() -> DeviceKind:
    from ckh.archs import detect_gpu_arch

    return DeviceKind.HIP if detect_gpu_arch() else DeviceKind.HOST


def _print_outlook(campaign: Campaign, outlook: Outlook, *, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(campaign.out), "settings": asdict(campaign.settings), **asdict(outlook)})
        return
    counts = [
        ("kernels", outlook.kernels),
        ("kernels to compile", outlook.to_compile),
        ("problems", outlook.problems),
        ("pairs to measure", outlook.pairs),
        ("pairs measured already", outlook.pairs_done),
        *((f"pairs refused: {reason}", count) for reason, count in outlook.refused.items()),
    ]
    print_table(str(campaign.out), ("", "count"), [[name, str(count)] for name, count in counts])
    typer.echo(f"\nestimated time: {format_duration(outlook.estimate_s)}")


def _print_outcome(campaign: Campaign, outcome: Outcome, *, as_json: bool) -> None:
    totals = outcome.totals
    after = _next_command(campaign, outcome)
    if as_json:
        document: dict[str, Any] = {
            "out": str(campaign.out),
            "ended": str(outcome.reason),
            "statuses": dict(totals.statuses),
            "remeasured": totals.remeasured,
            "pairs_left": outcome.pairs_left,
            "wall_s": totals.wall_s,
            "phase_s": totals.phase_s,
            "orchestration": outcome.orchestration,
            "worker_restarts": totals.restarts,
            "next": after,
        }
        print_json(document)
        return
    counts = [
        *((f"status {status}", count) for status, count in totals.statuses.most_common()),
        ("leaders measured again", totals.remeasured),
        ("worker restarts", totals.restarts),
        ("pairs left", outcome.pairs_left),
    ]
    print_table(f"{campaign.out}: {outcome.reason}", ("", "count"), [[name, str(count)] for name, count in counts])
    phases = sorted(totals.phase_s.items(), key=lambda item: -item[1])
    typer.echo("")
    print_table("", ("phase", "time"), [[name, format_duration(seconds)] for name, seconds in phases])
    typer.echo(f"\nin all {format_duration(totals.wall_s)}, {outcome.orchestration:.1%} of measuring is orchestration")
    typer.echo(f"next: {after}")


def _next_command(campaign: Campaign, outcome: Outcome) -> str:
    if outcome.pairs_left:
        return f"ckh bench --resume --out {campaign.out} --device {campaign.device.identity().kind}"
    return f"ckh convert {campaign.out} --out {campaign.out.name}.parquet"
