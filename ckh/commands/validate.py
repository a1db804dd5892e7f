"""`ckh validate`: gates, with the verdict as exit code."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.limits import BenchLimits
from ckh.cluster.connection import CLUSTER_HELP
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples, import_lightgbm, print_json, print_table, say
from ckh.commands._declared_options import option_of
from ckh.commands.evaluate import AMONG, MIN_PROBLEMS, MODEL, figure_values
from ckh.commands.help import PROBLEM
from ckh.errors import DeviceError, ExitCode, UsageError
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.learn.judging.judged_data import Among, judged_model
from ckh.ops import DEFAULT_OPERATION
from ckh.text.durations import parse_duration
from ckh.text.log import emit, note, warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.api.validating import KernelFinding, KernelsDocument
    from ckh.assess.verdict import Verdict
    from ckh.documents import Document

_ORACLE = """Compare predict's choices with the measured best of a hold-out. Exit code 1: efficiency is too low.

The evaluated answer is that of `ckh predict`, on the problems where its choice was measured; refused problems,
unmeasured choices and best kernels that are not candidates are counted. If only a sample of the kernels was measured,
--among measured ranks the measured ones only.

If the data have repeated measurements, kernels within the noise of the best count as equal to it.

With --on-device the model's first choices, the oracle's best and 59 random candidates are compiled and measured
again on this machine, interleaved, so that the verdict depends neither on earlier times nor only on kernels with good
predictions. The report states what the sample may have missed: 59 random kernels contain one of the fastest 5 %
with a probability of 95 %.

There is no verdict, and exit code 4, with fewer than --min-problems measured choices: training problems of the model do
not count (unknown for models of AMD's tools, as the report states), nor problems with a single measured kernel.
"""
_COMPARE = """Compare a new model with an old one on the same problems. Exit code 1: it must not replace the old one.

Each model's answer is evaluated, as `ckh predict --model` would give it, on the problems where both choices were
measured; the others are counted. If only a sample of the kernels was measured, --among measured ranks the measured ones
only.

The new model may replace the old one if mean and median efficiency drop by at most 0.5 points, P10 by at most 2, no
problem loses more than 10 %, and no problem is refused that the old model answers.
Training problems of either model, and problems with a single measured kernel, do not count.

Each difference has a 95 % confidence interval, from a paired bootstrap over problems: an interval that contains 0 may
be chance. The gate applies to the difference itself.
"""
_SELECTION = """Compare the first choices for a list of problems with golden ones. Exit code 1: a choice got worse.

--create writes the golden file: the problems of --problems with the first choice of ckh predict, by --model or the
model that fits. Keep it under version control. The same call without --create reports changed choices.

The slowdown of a change is measured: --data has times of both kernels, --on-device measures both here, interleaved.
The gate fails if the new choice is slower by more than --max-loss, fails to run, or was not measured together with the
old one. To accept changes, create the file again with --force; without --problems it keeps its list.
"""
_PARITY = """Compare what consumers pick with what ckh picks. Exit code 1: a consumer picks another kernel.

For each of --problems, ckh's pick is the first kernel of ckh predict. It is compared with that of each consumer:

c: exported C, compiled and run here. ck-dispatcher: the exported heuristic, compiled with the published headers of
AMD's dispatcher (--dispatcher), in which all candidates are registered. aiter: an exported table, looked up as AITER
does, by the exact key and then by padded M. inductor: the first instance of PyTorch's template with ckh's order
installed, against ckh's ranking of Inductor's instances.

Each consumer gets a fresh export; --export names existing ones, which are compared as they are. A consumer that cannot
be tried here (no compiler, no headers, no PyTorch, no model to export) is listed with the reason and counts neither as
equal nor as different; if none can be tried, or one of --consumer cannot, the exit code is 3.
"""
_GAIN = """Compare two commands by a number that both print. Exit code 1: there is no gain.

For example a server's benchmark without and with ckh's tables. Both are run in each of --rounds, in random order, and
without a shell. The number is the first group of the last match of --metric in what a command prints.

The gain is the ratio of the numbers, above 1 if --after is better, with a 95 % confidence interval from round to round.
It must exceed noise and 1 %. A command that fails, or prints no positive number, ends the comparison with exit code 4.
"""
_KERNELS = """Compile, load, run and check every combination of a matrix of kernels, each in a separate process.

The table has the status of each: ok, refused by a rule (invalid), not possible with this device or these headers
(unsupported), or wrong: compile_error, crash, timeout, wrong_result. Exit code 1: at least one is wrong. Names of
kernels are reported by the compiled libraries.

On an emulated GPU each kernel runs on a dozen small problems that cover every exit of its loops, and is `verified`. The
table has the number of problems that a kernel ran on, and for kernels that did not run, whether their class ever did:
as an older binary, if with other compiler options or source than today's.

With --cluster nodes compile, and each device tries the next kernel, in a process that ends with a failing kernel.
"""
_LEAST = {"mean_efficiency": 0.90, "p10_efficiency": 0.75}
_SAMPLE = 59  # random candidates, of which one is among the fastest 5 % with a probability of 95 %
_CONSUMERS = ("c", "ck-dispatcher", "aiter", "inductor")
_VERDICT = typer.Option(
    [], "--verdict", metavar="FILE", help="Write the verdict too, FILE.xml as JUnit, FILE.md as Markdown; repeatable."
)
_PROBLEMS_HELP = "a set, a .txt, .csv, .json or AMD's .py file, or a source of ckh shapes."


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(
        name="validate",
        help="Gates: choices against an oracle or golden ones, models, consumers, working kernels, a gain in use.",
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet",
            "ckh validate selection golden.json",
            "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16",
            "ckh validate kernels --matrix pipelines",
        ),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    of_oracle = examples(
        "ckh validate oracle --model models/mine --data holdout.parquet",
        "ckh validate oracle --model models/mine --data holdout.parquet --fail-under mean_efficiency=0.95",
        "ckh validate oracle --model models/mine --data holdout.parquet --on-device --limit 30",
    )
    of_compare = examples(
        "ckh validate compare models/old models/new --data holdout.parquet",
        "ckh validate compare models/old models/new --data holdout.parquet --max-loss p10=0.01 --json",
        "ckh validate compare models/old models/new --data holdout.parquet --verdict junit.xml --verdict summary.md",
    )
    of_selection = examples(
        "ckh validate selection golden.json --create --problems resnet50",
        "ckh validate selection golden.json --model models/new --data holdout.parquet",
        "ckh validate selection golden.json --on-device --max-loss 0.05 --verdict junit.xml",
        "ckh validate selection golden.json --create --force",
    )
    of_parity = examples(
        "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16",
        "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16 --dispatcher ck/dispatcher/include",
        "ckh validate parity --problems untuned_fmoe.csv --op aiter_moe --arch gfx950 --export tables",
        "ckh validate parity --problems llm --op gemm_universal --arch gfx942 --dtype bf16 --consumer inductor",
        "ckh validate parity --problems layers.csv --model models/mine --json --verdict junit.xml",
    )
    selected, consumed = "Compare first choices with golden ones.", "Compare the picks of consumers with ckh's."
    group.command(name="oracle", help=_ORACLE, epilog=of_oracle)(oracle)
    group.command(name="compare", help=_COMPARE, epilog=of_compare)(compare)
    group.command(name="selection", short_help=selected, help=_SELECTION, epilog=of_selection)(selection)
    group.command(name="parity", short_help=consumed, help=_PARITY, epilog=of_parity)(parity)
    of_gain = examples(
        "ckh validate gain --before './bench.sh old' --after './bench.sh new' --metric '([0-9.]+) tok/s' "
        "--higher-is-better"
    )
    group.command(name="gain", help=_GAIN, epilog=of_gain)(gain)
    of_kernels = examples(
        "ckh validate kernels --matrix pipelines",
        "ckh validate kernels --op gemm_universal --matrix schedulers",
        "ckh validate kernels --matrix options --variant bwd_weight --ndim 3 --json",
        "ckh validate kernels --matrix schedulers --device hip --arch gfx942 --compile-only",
        "ckh validate kernels --matrix pipelines --device emulated --arch gfx942 --dtype fp16 --timeout 5m",
    )
    tried = "Compile, run and check every combination of a matrix."
    group.command(name="kernels", short_help=tried, help=_KERNELS, epilog=of_kernels)(kernels)
    app.add_typer(group)


def oracle(
    model: Path | None = MODEL,
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    fail_under: list[str] = typer.Option(
        [],
        "--fail-under",
        metavar="FIGURE=VALUE",
        help="Minimum efficiency; may be repeated.  [mean_efficiency=0.9, p10_efficiency=0.75]",
    ),
    min_problems: int = MIN_PROBLEMS,
    among: Among = AMONG,
    on_device: bool = typer.Option(False, "--on-device", help="Measure choices and oracle again on this machine."),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Number of random problems to measure again."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Evaluate, print and give the verdict."""
    from ckh.api.validating import GATES, oracle_verdict

    if among is Among.MEASURED:  # whose rows LightGBM scores
        import_lightgbm()
    gates = _LEAST | dict(figure_values("--fail-under", fail_under, list(GATES)))
    loaded = judged_model(model, data)
    if limit is not None and limit < min_problems:
        raise UsageError(
            f"--limit {limit} leaves fewer than the {min_problems} problems required for a verdict",
            "set --min-problems",
            code="few-problems",
        )
    again = (_SAMPLE, limit) if on_device else None
    verdict, document = oracle_verdict(loaded, data, gates, min_problems, among, again)
    _show(verdict, document, (), as_json=as_json)
    _conclude(verdict)


def compare(
    old: Path = typer.Argument(
        ..., metavar="OLD", autocompletion=_completion.models, help="Directory of the current model."
    ),
    new: Path = typer.Argument(
        ..., metavar="NEW", autocompletion=_completion.models, help="Directory of the new model."
    ),
    data: list[Path] = typer.Option(..., "--data", help="Measured hold-out; may be repeated."),
    max_loss: list[str] = typer.Option(
        [],
        "--max-loss",
        metavar="FIGURE=VALUE",
        help="Allowed loss of mean, median or p10 efficiency, or of a single problem, relative; may be repeated.  "
        "[mean=0.005, median=0.005, p10=0.02, problem=0.1]",
    ),
    min_problems: int = MIN_PROBLEMS,
    among: Among = AMONG,
    verdict_files: list[Path] = _VERDICT,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.api.validating import compare_verdict
    from ckh.assess.compare import Thresholds

    if among is Among.MEASURED:  # whose rows LightGBM scores
        import_lightgbm()
    known = [field.name for field in fields(Thresholds)]
    thresholds = Thresholds(**dict(figure_values("--max-loss", max_loss, known)))
    _check_files(verdict_files, [old, new, *data])
    verdict, document = compare_verdict(old, new, data, thresholds, min_problems, among)
    _show(verdict, document, verdict_files, as_json=as_json)
    _conclude(verdict)


def selection(
    golden: Path = typer.Argument(..., metavar="FILE", help="File with the golden choices."),
    create: bool = typer.Option(False, "--create", help="Write FILE."),
    problems: str | None = completed("problems", f"--create: {_PROBLEMS_HELP}"),
    op: str | None = completed("op", f"--create: {OP_HELP}"),
    dtype: str | None = completed("dtype", "--create: element type."),
    arch: str | None = completed("arch", "--create: architecture.  [this machine's GPU, else gfx950]", panel=PROBLEM),
    model: Path | None = completed("model", "Model directory.  [the first that fits]"),
    data: list[Path] = typer.Option([], "--data", help="Dataset with times of changed choices; may be repeated."),
    on_device: bool = typer.Option(False, "--on-device", help="Measure changed choices on this machine."),
    max_loss: float = typer.Option(0.02, "--max-loss", min=0, help="Allowed slowdown of a choice, relative."),
    verdict_files: list[Path] = _VERDICT,
    force: bool = typer.Option(False, "--force", help="--create: replace FILE."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Write golden choices, or compare with them, print and give the verdict."""
    from ckh.api.selection import create_golden, selection_verdict

    of_verdict = {"--data": data, "--on-device": on_device, "--verdict": verdict_files}
    of_file = {"--problems": problems, "--op": op, "--dtype": dtype, "--arch": arch, "--force": force}
    for name, given in (of_verdict if create else of_file).items():
        if given:
            how = "excludes" if create else "requires"
            raise UsageError(f"{name} {how} --create", "see ckh validate selection --help", code="conflicting-options")
    if create:
        text = create_golden(golden, problems, model, arch, dtype, op, force=force)
        emit(text if as_json else "")
        return
    if data and on_device:
        raise UsageError("--data and --on-device exclude each other", "omit one of them", code="conflicting-options")
    _check_files(verdict_files, [golden, *data, *([model] if model else [])])
    verdict, document = selection_verdict(golden, model, data, max_loss, on_device=on_device)
    _show(verdict, document, verdict_files, as_json=as_json)
    _conclude(verdict)


def parity(
    problems: str = completed("problems", _PROBLEMS_HELP.capitalize(), default=...),
    op: str | None = completed("op", OP_HELP),
    dtype: str | None = completed("dtype", "Element type."),
    arch: str | None = completed("arch", "Architecture.  [this machine's GPU, else gfx950]", panel=PROBLEM),
    model: Path | None = completed("model", "Model directory.  [the first that fits]"),
    consumer: list[str] = typer.Option(
        [],
        "--consumer",
        metavar="[" + "|".join(_CONSUMERS) + "]",
        help="Consumer that must be compared; may be repeated.  [all that can be tried]",
    ),
    export: list[Path] = typer.Option(
        [], "--export", metavar="DIR", help="Existing output of ckh export to compare; may be repeated."
    ),
    dispatcher: Path | None = typer.Option(
        None, "--dispatcher", metavar="DIR", help="Include folder with ck_tile/dispatcher, of CK's source."
    ),
    verdict_files: list[Path] = _VERDICT,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.integrations.parity import ConsumerComparison, answers_of, exports_of, parity_verdict
    from ckh.learn.answers.answering import Chooser
    from ckh.shapes.problems import stated_operation

    if unknown := [name for name in consumer if name not in _CONSUMERS]:
        raise UsageError(f"unknown consumer {unknown[0]!r}", one_of(unknown[0], _CONSUMERS), code="unknown-name")
    _check_files(verdict_files, [*export, *([model] if model else [])])
    exports = exports_of(export)
    chooser = Chooser(model, arch, dtype, op or (None if model is not None else stated_operation(problems)))
    compared = ConsumerComparison(chooser, model, answers_of(chooser, problems, dtype), exports, dispatcher)
    verdict, document = parity_verdict(compared, consumer)
    _show(verdict, document, verdict_files, as_json=as_json)
    untried = [tried for tried in document.consumers if not tried.compared]
    if not verdict.failures and untried and (consumer or not verdict.checks):
        reason = next(iter(untried[0].not_compared), "no problem")
        raise DeviceError(f"{untried[0].consumer} was not compared: {reason}", code="no-consumer")
    _conclude(verdict)


def gain(
    before: str = typer.Option(..., "--before", metavar="CMD", help="Command without the change."),
    after: str = typer.Option(..., "--after", metavar="CMD", help="Command with it."),
    metric: str = typer.Option(..., "--metric", metavar="REGEX", help="Its first group is the number to compare."),
    lower_is_better: bool = typer.Option(
        ..., "--lower-is-better/--higher-is-better", help="Whether the smaller number is the better one."
    ),
    rounds: int = typer.Option(5, "--rounds", min=3, help="Number of runs of each command."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.tune.command_gain import compare_commands

    verdict, document = compare_commands((before, after), metric, rounds, lower_is_better=lower_is_better)
    _show(verdict, document, (), as_json=as_json)
    _conclude(verdict)


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
        _print_findings(document)
    if not document.ok:
        raise typer.Exit(int(ExitCode.GATE_FAILED))


def _execution(finding: KernelFinding) -> str:
    if finding.executed:
        return f"on {finding.executed} problem{'s' * (finding.executed > 1)}"
    if not finding.built:
        return ""
    was = "its class, as an older binary" if finding.older_binary else "its class was"
    return was if finding.class_executed else "its class never was"


def _print_findings(document: KernelsDocument) -> None:
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


def _check_files(paths: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuse files that are no verdict, or cannot be written, before the evaluation."""
    from ckh.assess.verdict import STARTS

    for path in paths:
        if (start := STARTS.get(path.suffix)) is None:
            raise UsageError(f"--verdict {path}: its name ends with neither .xml nor .md", code="unknown-format")
        kind = FileKind("verdict of ckh", lambda file, start=start: head_of(file).startswith(start))  # type: ignore[misc]
        check_output(path, kind, force=True, inputs=inputs)


def _show(verdict: Verdict, document: Document, files: Sequence[Path], *, as_json: bool) -> None:
    """Write the files of a verdict, and print its document or its tables."""
    for path in files:
        write_output(path, verdict.junit() if path.suffix == ".xml" else verdict.markdown())
    if as_json:
        print_json(document)
        return
    tables = list(verdict.tables)
    if tables and not tables[0].names:
        first = tables.pop(0)
        print_table(verdict.title, first.columns, first.rows)
    else:
        say(verdict.title)
    if verdict.lines:
        say("\n" + "\n".join(verdict.lines))
    for table in tables:
        say()
        figures = len(table.columns) - table.names
        if figures > 1:
            print_table(table.title, table.columns[:figures], [row[:figures] for row in table.rows])
        elif table.title:
            say(table.title)
        names = table.columns[figures:]
        width = max(map(len, names), default=0)
        for row in table.rows if names else ():
            lines = (f"  {name:{width}} {cell}" for name, cell in zip(names, row[figures:], strict=True))
            say("\n".join([f"\n{row[0]}", *lines]))


def _conclude(verdict: Verdict) -> None:
    """Print failures and verdict; exit with 1 if there is a failure."""
    for failure in verdict.failures:
        warn(failure, "gate")
    note("FAIL" if verdict.failures else "PASS")
    if verdict.failures:
        raise typer.Exit(int(ExitCode.GATE_FAILED))
