"""`ckh validate kernels`: compile, run and check a matrix of kernels, with the verdict as exit code."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import typer

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.limits import BenchLimits
from ckh.cluster.connection import CLUSTER_HELP, connected
from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples, print_json, print_table, say
from ckh.commands._declared_options import option_of
from ckh.documents import Document
from ckh.errors import ExitCode, UsageError
from ckh.ops import DEFAULT_OPERATION
from ckh.text.durations import parse_duration
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.bench.supervision.harness import Finding
    from ckh.schema import Status

_HELP = """Compile, load, run and check every combination of a matrix of kernels, each in a separate process.

The table has the status of each: ok, refused by a rule (invalid), not possible with this device or these headers
(unsupported), or wrong: compile_error, crash, timeout, wrong_result. Exit code 1: at least one is wrong. Names of
kernels are reported by the compiled libraries.

On an emulated GPU each kernel runs on a dozen small problems that cover every exit of its loops, and is `verified`. The
table has the number of problems that a kernel ran on, and for kernels that did not run, whether their class ever did.

With --cluster nodes compile, and each device tries the next kernel, in a process that ends with a failing kernel.
"""


@dataclass(frozen=True, slots=True)
class KernelFinding:
    """A kernel of a matrix."""

    json_inline: ClassVar = "of"

    of: Mapping[str, str | int]
    """Properties of the case, e.g. its direction and pipeline."""
    case: str
    status: Status
    reason: str
    built: str
    """Name reported by the compiled library."""
    executed: int
    """Problems that it ran on."""
    class_executed: bool
    """Whether a kernel of its class was ever executed with a right result."""
    problem: str
    """Canonical text of the problem."""


class KernelsDocument(Document):
    """ckh validate kernels --json: status of each kernel."""

    schema = "validate_kernels"

    matrix: str
    arch: str
    ok: bool
    statuses: Mapping[str, int]
    findings: tuple[KernelFinding, ...]
    caution: str


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
    jobs: int | None = option_of(BenchLimits, "jobs"),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=CLUSTER_HELP),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Try the kernels, print and give the verdict."""
    from ckh.bench.computation import MatrixSettings, measured_of
    from ckh.bench.devices.device_choice import caution_of, default_device_kind, open_device
    from ckh.bench.supervision.cluster_driver import driver_for
    from ckh.bench.supervision.harness import try_cases
    from ckh.bench.supervision.limits import Stop
    from ckh.bench.supervision.remote import DeviceRequest
    from ckh.ops import operation

    options = DeviceOptions(arch)
    kind = device or default_device_kind(options)
    result = open_device(kind, options)
    if caution := caution_of(result):
        warn(caution, "headers")
    cases_of = measured_of(operation(op)).matrix
    if cases_of is None:
        raise UsageError(f"{op} has no matrices of kernels", code="unsupported")
    cases = cases_of(matrix, MatrixSettings(result.arch, dtype or result.arch.default_dtype, variant, ndim))
    limits = BenchLimits(timeout_s=parse_duration(timeout), jobs=jobs)
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(connected(cluster))
        stop = stack.enter_context(Stop())
        made = driver_for(nodes, DeviceRequest(kind, options), result, limits, stop, measures=not compile_only)
        driver = stack.enter_context(made)
        driver.configs = (replace(driver.configs[0], load_only=compile_only),)
        findings = list(try_cases(driver, cases, run=not compile_only))
        if stop():
            raise typer.Exit(int(ExitCode.INTERRUPTED))
    document = _document(findings, str(matrix), result.arch.name, caution)
    if as_json:
        print_json(document)
    else:
        _print(findings, str(matrix), result.arch.name)
    if not document.ok:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _document(findings: list[Finding], matrix: str, arch: str, caution: str) -> KernelsDocument:
    return KernelsDocument(
        matrix=matrix,
        arch=arch,
        ok=all(finding.is_accepted for finding in findings),
        statuses=Counter(str(finding.status) for finding in findings),
        findings=tuple(
            KernelFinding(
                of=finding.case.of,
                case=finding.case.label,
                status=finding.status,
                reason=finding.reason,
                built=finding.built,
                executed=finding.executed,
                class_executed=_was_executed(finding, arch),
                problem=finding.case.problem.canonical(),
            )
            for finding in findings
        ),
        caution=caution,
    )


def _was_executed(finding: Finding, arch: str) -> bool:
    """True if this kernel, or another of its class, was executed with a right result."""
    from ckh.bench.supervision.harness import was_executed

    return finding.executed > 0 or was_executed(finding.case.kernel, arch)


def _execution(finding: Finding, arch: str) -> str:
    if finding.executed:
        return f"on {finding.executed} problem{'s' * (finding.executed > 1)}"
    if not finding.built:
        return ""
    return "its class was" if _was_executed(finding, arch) else "its class never was"


def _print(findings: list[Finding], matrix: str, arch: str) -> None:
    from ckh.schema import Status

    rows = [
        [finding.case.label, *map(str, finding.case.of.values()), str(finding.status), _execution(finding, arch)]
        for finding in findings
    ]
    columns = ("case", *(findings[0].case.of if findings else ()), "status", "executed")
    print_table(f"{matrix} for {arch}", columns, rows)
    whys = Counter(
        (str(finding.status), finding.reason)
        for finding in findings
        if finding.reason and finding.status != Status.VERIFIED
    )
    if whys:
        say()
        print_table("", ("reason", "cases"), [[f"{status}: {why}", str(n)] for (status, why), n in whys.most_common()])
    on = sum(finding.executed for finding in findings)
    if on:
        say(f"\n{sum(finding.executed > 0 for finding in findings)} kernels were executed, on {on} problems in all")
    built = sorted({finding.built for finding in findings if finding.built})
    say()
    print_table(f"{len(built)} kernels were built", ("kernel",), [[name] for name in built])
