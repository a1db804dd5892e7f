"""`ckh validate kernels`: compile, run and check a matrix of kernels, with the verdict as exit code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.limits import BenchLimits
from ckh.cluster.connection import CLUSTER_HELP
from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples, print_json, print_table, say
from ckh.commands._declared_options import option_of
from ckh.errors import ExitCode
from ckh.ops import DEFAULT_OPERATION
from ckh.text.durations import parse_duration

if TYPE_CHECKING:
    from ckh.api.validating import KernelFinding, KernelsDocument

_HELP = """Compile, load, run and check every combination of a matrix of kernels, each in a separate process.

The table has the status of each: ok, refused by a rule (invalid), not possible with this device or these headers
(unsupported), or wrong: compile_error, crash, timeout, wrong_result. Exit code 1: at least one is wrong. Names of
kernels are reported by the compiled libraries.

On an emulated GPU each kernel runs on a dozen small problems that cover every exit of its loops, and is `verified`. The
table has the number of problems that a kernel ran on, and for kernels that did not run, whether their class ever did:
as an older binary, if with other compiler options or source than today's.

With --cluster nodes compile, and each device tries the next kernel, in a process that ends with a failing kernel.
"""


def register(group: typer.Typer) -> None:
    """Add the command to `ckh validate`."""
    group.command(
        name="kernels",
        short_help="Compile, run and check every combination of a matrix.",
        help=_HELP,
        epilog=examples(
            "ckh validate kernels --matrix pipelines",
            "ckh validate kernels --op gemm_universal --matrix schedulers",
            "ckh validate kernels --matrix options --variant bwd_weight --ndim 3 --json",
            "ckh validate kernels --matrix schedulers --device hip --arch gfx942 --compile-only",
            "ckh validate kernels --matrix pipelines --device emulated --arch gfx942 --dtype fp16 --timeout 5m",
        ),
    )(kernels)


def kernels(
    matrix: str = typer.Option(
        "pipelines", "--matrix", help="Matrix: pipelines, schedulers or, for convolutions, options."
    ),
    op: str = completed("op", OP_HELP, default=DEFAULT_OPERATION),
    variant: str | None = typer.Option(None, "--variant", help="forward, bwd_data, bwd_weight or all.  [all]"),
    ndim: int | None = typer.Option(None, "--ndim", min=2, max=3, help="2D or 3D only."),
    dtype: str | None = completed("dtype", "Element type; the device's own by default."),
    device: str | None = typer.Option(None, "--device", help="host, hip or emulated.  [hip where a GPU is found]"),
    arch: str | None = option_of(DeviceOptions, "arch"),
    compile_only: bool = typer.Option(False, "--compile-only", help="Compile and load only; needs no GPU."),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="Time limit per kernel."),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=CLUSTER_HELP),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Try the kernels, print and give the verdict."""
    from ckh.api.validating import MatrixRequest, tried_kernels

    request = MatrixRequest(matrix, op, variant, ndim, dtype)
    limits = BenchLimits(timeout_s=parse_duration(timeout))
    document = tried_kernels(request, device, DeviceOptions(arch), limits, cluster, run=not compile_only)
    if document is None:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    if as_json:
        print_json(document)
    else:
        _print(document)
    if not document.ok:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _execution(finding: KernelFinding) -> str:
    if finding.executed:
        return f"on {finding.executed} problem{'s' * (finding.executed > 1)}"
    if not finding.built:
        return ""
    was = "its class, as an older binary" if finding.older_binary else "its class was"
    return was if finding.class_executed else "its class never was"


def _print(document: KernelsDocument) -> None:
    from ckh.schema import Status

    findings = document.findings
    rows = [
        [finding.case, *map(str, finding.of.values()), str(finding.status), _execution(finding)] for finding in findings
    ]
    columns = ("case", *(findings[0].of if findings else ()), "status", "executed")
    print_table(f"{document.matrix} for {document.arch}", columns, rows)
    reasons = Counter(
        (str(finding.status), finding.reason)
        for finding in findings
        if finding.reason and finding.status != Status.VERIFIED
    )
    if reasons:
        say()
        lines = [[f"{status}: {reason}", str(cases)] for (status, reason), cases in reasons.most_common()]
        print_table("", ("reason", "cases"), lines)
    if runs := sum(finding.executed for finding in findings):
        say(f"\n{sum(finding.executed > 0 for finding in findings)} kernels were executed, on {runs} problems in all")
    built = sorted({finding.built for finding in findings if finding.built})
    say()
    print_table(f"{len(built)} kernels were built", ("kernel",), [[name] for name in built])
