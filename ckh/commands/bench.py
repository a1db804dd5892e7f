"""`ckh bench`: measures kernels on problems and journals every result."""

from __future__ import annotations

from pathlib import Path

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, examples
from ckh.commands._duration import format_duration, parse_duration
from ckh.errors import ExitCode, UsageError
from ckh.log import note, warn
from ckh.ops import DEFAULT_OPERATION
from ckh.outputs import check_output
from ckh.strenum import StrEnum
from ckh.untrusted import integer


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
    EMULATED = "emulated"


_HELP = """Emit, compile and measure kernels on many problems, and journal every result.

Each kernel runs in a worker process of its own device; its result is compared with a float64 reference, its time is
the median of several samples, and the leaders of each problem are measured again in turns. A kernel that crashes,
hangs, does not compile or gives wrong numbers becomes a row that says so. Ctrl-C loses nothing: --resume goes on, from
any folder, with the pairs and the settings that the journal holds; options that say otherwise are refused.

On an AMD GPU (--device hip) kernels are CK Tile's, compiled by hipcc; --arch and --compile-only need no GPU. An
emulated GPU (--device emulated) tells whether the same kernels are right, on small problems, without times.
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
            "ckh bench --op gemm_universal --kernels sample:60",
            "ckh bench --op gemm_universal --kernels best:60+20 --model models/gemm_universal_fp32_host",
            "ckh bench --problems my_layers.csv --dry-run",
            "ckh bench --out runs/resnet --resume",
            "ckh bench --device hip --arch gfx942 --rule-set tiny --compile-only",
            "ckh bench --device hip --filter 'pipeline == \"compv4\" and tile_m >= 64' --max-scratch 0",
        ),
    )(bench)


def bench(
    op: str | None = typer.Option(
        None, "--op", autocompletion=_completion.operations, help=f"{OP_HELP}  [{DEFAULT_OPERATION}]"
    ),
    variant: Variant | None = typer.Option(None, "--variant", help="Direction; forward unless a resumed run says."),
    device: DeviceKind | None = typer.Option(
        None, "--device", help="host, hip or emulated.  [hip where a GPU is found]"
    ),
    problems: str | None = typer.Option(
        None,
        "--problems",
        autocompletion=_completion.problem_sets,
        metavar="SET|FILE",
        help="Problem set, or .txt, .csv or .json file.  [host-train or train]",
    ),
    kernels: str | None = typer.Option(
        None,
        "--kernels",
        metavar="WHICH",
        help="all, sample:N a problem, best:N by a model, best:N+M with M others, a pattern, a file of names.  [all]",
    ),
    model: Path | None = typer.Option(
        None,
        "--model",
        autocompletion=_completion.models,
        help="What says which kernels are best.  [the one that predict asks]",
    ),
    rule_set: str | None = typer.Option(
        None, "--rule-set", help="default, tiny, tests, full-tests, profiler or full.  [default]"
    ),
    registry: Path | None = typer.Option(None, "--registry", help="Choose from the kernels of this JSON registry."),
    write_registry: Path | None = typer.Option(
        None, "--write-registry", help="Write the chosen kernels to a JSON registry, and measure nothing."
    ),
    only: str | None = typer.Option(
        None, "--filter", metavar="EXPR", help="Only these kernels, e.g. 'pipeline == \"mem\" and tile_m >= 64'."
    ),
    split_k: str | None = typer.Option(
        None, "--split-k", metavar="N[,N…]", help="Parts of K to try bwd_weight kernels with.  [1]"
    ),
    ndim: int | None = typer.Option(None, "--ndim", min=2, max=3, help="Only problems of 2 or 3 dimensions."),
    dtype: str | None = typer.Option(
        None, "--dtype", autocompletion=_completion.dtypes, help="Element type; the device's own by default."
    ),
    pad_channels: bool | None = typer.Option(
        None, "--pad-channels/--no-pad-channels", help="Round C/G and K/G up to a multiple of 8.", show_default=False
    ),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder.  [runs/<variant>-<arch>-<date>]"),
    resume: bool = typer.Option(False, "--resume", help="Go on with the run in the folder, with its settings."),
    force: bool = typer.Option(False, "--force", help="Replace a run in --out, or a registry."),
    budget: str | None = typer.Option(None, "--budget", metavar="TIME", help="Stop after this long, e.g. 20m."),
    seed: int | None = typer.Option(None, "--seed", help="What orders and samples follow from.  [0]"),
    samples: int | None = typer.Option(None, "--samples", min=1, max=100, help="Samples of a time.  [5]"),
    leaders: int | None = typer.Option(
        None, "--leaders", metavar="N", min=2, help="Measure a problem's N fastest again.  [those within 8 %, up to 12]"
    ),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Longest for one kernel on one problem."),
    jobs: int | None = typer.Option(
        None, "--jobs", "-j", min=1, max=1024, help="Compilers at a time; by cores and memory."
    ),
    compile_timeout: str = typer.Option("5m", "--compile-timeout", metavar="TIME", help="Longest for one compiler."),
    compile_only: bool = typer.Option(False, "--compile-only", help="Compile and load the kernels, measure nothing."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be measured, and measure nothing."),
    arch: str | None = typer.Option(
        None,
        "--arch",
        autocompletion=_completion.architectures,
        help="hip: compile for this architecture.  [the GPU's]",
    ),
    hipcc: str | None = typer.Option(None, "--hipcc", help="hip: the compiler.  [HIPCC, ROCM_PATH, PATH]"),
    ck_include: str | None = typer.Option(
        None, "--ck-include", help="hip: folder with CK Tile's headers.  [CK_TILE_INCLUDE, ROCm's]"
    ),
    gpus: str | None = typer.Option(None, "--gpus", metavar="N[,N…]", help="hip: GPUs to use, a worker each.  [all]"),
    cold: bool | None = typer.Option(
        None, "--cold/--warm", help="hip: empty the caches before every timed run.  [warm]", show_default=False
    ),
    max_scratch: int | None = typer.Option(
        None, "--max-scratch", min=0, metavar="BYTES", help="hip: skip kernels with more scratch memory a lane."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Measure, and print what came of it."""
    from ckh.bench.campaign import Campaign, Limits
    from ckh.bench.device import DeviceOptions
    from ckh.bench.registry import REGISTRY
    from ckh.bench.settings import Given
    from ckh.bench.stop import StopReason
    from ckh.commands import _bench_output as output

    limits = Limits(
        None if budget is None else parse_duration(budget),
        parse_duration(timeout),
        jobs,
        parse_duration(compile_timeout),
        leaders,
    )
    given = Given(
        variant=None if variant is None else str(variant),
        problems=problems,
        kernels=kernels,
        dtype=dtype,
        ndim=ndim,
        seed=seed,
        samples=samples,
        rule_set=rule_set,
        registry=None if registry is None else str(registry),
        filter=only,
        split_k=None if split_k is None else _numbers("--split-k", split_k, least=1),
        pad_channels=pad_channels,
        max_scratch=max_scratch,
        cold=cold,
        op=op,
        model=None if model is None else str(model),
    )
    options = DeviceOptions(
        arch, hipcc, ck_include, None if gpus is None else _numbers("--gpus", gpus, least=0), cold=bool(cold)
    )
    campaign = Campaign(str(device) if device else None, given, out, resume=resume, force=force, options=options)
    if write_registry is not None:
        inputs = [Path(one) for one in (problems, kernels, registry, model) if one is not None]
        check_output(write_registry, REGISTRY, force=force, inputs=inputs)
        output.print_registry(campaign, write_registry, as_json=as_json)
        return
    outlook = campaign.outlook(limits)
    if dry_run:
        output.print_outlook(campaign, outlook, as_json=as_json)
        return
    if compile_only:
        is_good = output.print_build(campaign, campaign.build(limits), as_json=as_json)
        raise typer.Exit(int(ExitCode.OK if is_good else ExitCode.GATE_FAILED))
    note(
        f"{outlook.pairs} pairs of {outlook.kernels} kernels and {outlook.problems} problems "
        f"({outlook.to_compile} kernels to compile), about {format_duration(outlook.estimate_s)}, into {campaign.out}"
    )
    outcome = campaign.run(limits)
    output.print_outcome(campaign, outcome, as_json=as_json)
    if outcome.reason is StopReason.INTERRUPTED:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    if not outcome.is_any_right and (outcome.totals.statuses or not outcome.pairs_left):
        warn("no pair has a right result: every kernel failed")
        raise typer.Exit(int(ExitCode.NO_KERNEL))


def _numbers(option: str, text: str, *, least: int) -> tuple[int, ...]:
    try:
        numbers = [integer(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text!r} is no list of numbers", "write it like 1,2,4") from None
    if min(numbers) < least:
        raise UsageError(f"{option} {text!r} has a number below {least}", "write it like 1,2,4")
    return tuple(dict.fromkeys(numbers))
