"""`ckh bench`: measures kernels on problems and journals every result."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.limits import BenchLimits
from ckh.cluster.connection import CLUSTER_HELP, connected
from ckh.commands._common import JSON_HELP, examples
from ckh.commands._declared_options import has_options_of
from ckh.data.settings import Given, Settings
from ckh.errors import ExitCode, NoKernelError, UsageError
from ckh.files.outputs import check_output
from ckh.strenum import StrEnum
from ckh.text.durations import format_duration
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from ckh.bench.supervision.campaign import Campaign


class DeviceKind(StrEnum):
    """The values of `--device`."""

    HOST = "host"
    HIP = "hip"
    EMULATED = "emulated"


_HELP = """Emit, compile and measure kernels on many problems, and write every result to a journal.

Each kernel runs in a separate worker process. Its result is checked against a float64 reference, its time is the median
of several samples, and the fastest kernels of each problem are measured again, interleaved. A kernel that crashes,
hangs, does not compile or gives wrong numbers is recorded with that status. Ctrl-C loses nothing: --resume continues,
from any folder, with the remaining pairs and the settings in the journal; conflicting options are refused.

On an AMD GPU (--device hip) kernels are CK Tile's, compiled by hipcc; --arch and --compile-only need no GPU. An
emulated GPU (--device emulated) checks the results of the same kernels on small problems, without times.

The plan and its duration are printed, and the run starts; --dry-run prints them only.

With --cluster the workers of a Dask scheduler compile and measure, each problem on one device (docs/cluster.md).
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="bench",
        help=_HELP,
        epilog=examples(
            "ckh bench",
            "ckh bench --variant forward",
            "ckh bench --variant bwd_data --problems resnet50 --kernels '*_compv3_*' --out runs/resnet",
            "ckh bench --variant all --problems host-train --kernels sample:60 --budget 20m",
            "ckh bench --op gemm_universal --kernels sample:60",
            "ckh bench --problems my_layers.csv --plan 20 --dry-run",
            "ckh bench --problems my_layers.csv --plan auto --budget 15m",
            "ckh bench --out runs/resnet --resume",
            "ckh bench --device hip --arch gfx942 --rule-set tiny --compile-only",
            "ckh bench --cluster tcp://head:8786 --device hip --out runs/mi300",
            "ckh bench --device hip --kernels sample:20 --hipcc-flags '-mllvm -enable-post-misched=1'",
            "ckh bench --device hip --filter 'pipeline == \"compv4\" and tile_m >= 64' --max-scratch 0",
        ),
    )(bench)


@has_options_of(settings=Settings, device_options=DeviceOptions, limits=BenchLimits)
def bench(
    settings: dict[str, Any],
    device_options: dict[str, Any],
    limits: dict[str, Any],
    device: DeviceKind | None = typer.Option(
        None, "--device", help="host, hip or emulated.  [hip where a GPU is found]"
    ),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder.  [runs/<variant>-<arch>-<date>]"),
    resume: bool = typer.Option(False, "--resume", help="Resume the run in the folder with its settings."),
    force: bool = typer.Option(False, "--force", help="Replace a run in --out, or a registry."),
    write_registry: Path | None = typer.Option(
        None, "--write-registry", help="Write the selected kernels to a JSON registry only."
    ),
    compile_only: bool = typer.Option(False, "--compile-only", help="Compile and load the kernels only."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the plan and its estimated time only."),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=CLUSTER_HELP),
    hipcc_flags: str | None = typer.Option(
        None, "--hipcc-flags", metavar="FLAGS", help="hip: compare with kernels compiled with these options too."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Measure and print the results."""
    from ckh.bench.devices.device_choice import caution_of, default_device_kind
    from ckh.bench.planning.registry import REGISTRY
    from ckh.bench.supervision.campaign import SOURCES, Campaign
    from ckh.bench.supervision.limits import StopReason
    from ckh.commands.bench import output
    from ckh.shapes.problems import stated_operation
    from ckh.tune.flags import compare_flags

    if settings.get("op") is None and not resume:
        settings["op"] = stated_operation(settings.get("problems"))
    given, most = Given(**settings), BenchLimits(**limits)
    options = DeviceOptions(**device_options, cold=bool(given["cold"]))
    if hipcc_flags is not None:
        kind = str(device or default_device_kind(options))
        if kind != DeviceKind.HIP or resume or compile_only or dry_run or write_registry or cluster:
            raise UsageError(
                f"--hipcc-flags compares times of --device hip, this is {kind}; it excludes --resume, --compile-only, "
                "--dry-run, --write-registry and --cluster",
                "omit one of them",
                code="conflicting-options",
            )
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(connected(cluster))
        campaign = Campaign(
            str(device) if device else None,
            given,
            out,
            resume=resume,
            force=force,
            options=options,
            limits=most,
            cluster=nodes,
            measures=not (write_registry or dry_run or compile_only),
        )
        if write_registry is not None:
            inputs = [Path(given[name]) for name in SOURCES if given[name] is not None]
            check_output(write_registry, REGISTRY, force=force, inputs=inputs)
            output.print_registry(campaign, write_registry, as_json=as_json)
        elif dry_run:
            output.print_outlook(campaign, campaign.outlook(most), as_json=as_json)
        else:
            if caution := caution_of(campaign.device):
                warn(caution, "headers")
            if hipcc_flags is None:
                (_build if compile_only else _measure)(campaign, most, as_json=as_json)
                return
            document = compare_flags(campaign, hipcc_flags, most, force=force)
            output.print_flags(document, as_json=as_json)
            if document.ended == StopReason.INTERRUPTED:
                raise typer.Exit(int(ExitCode.INTERRUPTED))
            if not document.established:
                raise NoKernelError("no ratio of times is established", code="not-measured")


def _build(campaign: Campaign, limits: BenchLimits, *, as_json: bool) -> None:
    """Compile the remaining kernels, print the results, and exit with their code."""
    from ckh.bench.supervision.limits import StopReason
    from ckh.commands.bench import output

    reports, reason = campaign.build(limits)
    is_good = output.print_build(campaign, reports, as_json=as_json)
    if reason is StopReason.INTERRUPTED:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    raise typer.Exit(int(ExitCode.OK if is_good else ExitCode.GATE_FAILED))


def _measure(campaign: Campaign, limits: BenchLimits, *, as_json: bool) -> None:
    """Measure the remaining pairs, print the results, and exit with their code."""
    from ckh.bench.supervision.limits import StopReason
    from ckh.commands.bench import output

    if not campaign.device.arch.is_gpu:
        note("measuring this CPU (host): its times are invalid for GPUs")
    outlook = campaign.outlook(limits)
    note(
        f"{outlook.pairs} pairs of {outlook.kernels} kernels and {outlook.problems} problems "
        f"({outlook.to_compile} kernels to compile), about {format_duration(outlook.estimate_s)}, into {campaign.out}"
    )
    outcome = campaign.run(limits)
    output.print_outcome(campaign, outcome, as_json=as_json)
    if outcome.reason is StopReason.INTERRUPTED:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    if outcome.is_failed:
        text = f"no kernel gave a correct result{output.failure_text(outcome.totals)}"
        raise NoKernelError(text, f"see the journal in {campaign.out}", code="no-working-kernel")
