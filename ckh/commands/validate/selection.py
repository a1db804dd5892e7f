"""`ckh validate selection`: compare first choices with golden ones, with the verdict as exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import typer

from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples
from ckh.commands.panels import PROBLEM
from ckh.commands.validate.verdicts import FORCE, JUNIT, SUMMARY, VerdictFiles, conclude, show
from ckh.documents import Document
from ckh.errors import NoKernelError, UsageError
from ckh.files.outputs import check_output, write_output
from ckh.problems import Direction
from ckh.text.durations import parse_duration
from ckh.text.log import emit, note, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from ckh.assess.golden import Change, Golden
    from ckh.assess.verdict import Verdict
    from ckh.bench.supervision.protocol import Reply
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem

_NS_PER_MS = 1e6


_HELP = """Compare the first choices for a list of problems with golden ones. Exit code 1: a choice got worse.

--create writes the golden file: the problems of --problems with the first choice of ckh predict, by --model or the
model that fits. Keep it under version control. The same call without --create reports changed choices.

The slowdown of a change is measured: --data has times of both kernels, --on-device measures both here, interleaved.
The gate fails if the new choice is slower by more than --max-loss, fails to run, or was not measured together with the
old one (--allow-unmeasured accepts that). To accept changes, create the file again with --force; without --problems it
keeps its list.
"""


class SelectionDocument(Document):
    """ckh validate selection --json."""

    schema = "validate_selection"

    golden: str
    """File of golden choices."""
    op: str
    arch: str
    problems: int
    changes: tuple[Change, ...]
    failures: tuple[str, ...]
    """Reasons why the gate fails."""
    passes: bool


def register(group: typer.Typer) -> None:
    """Add the command to `ckh validate`."""
    group.command(
        name="selection",
        short_help="Compare first choices with golden ones.",
        help=_HELP,
        epilog=examples(
            "ckh validate selection golden.json --create --problems resnet50",
            "ckh validate selection golden.json --model models/new --data holdout.parquet",
            "ckh validate selection golden.json --on-device --max-loss 0.05 --junit junit.xml",
            "ckh validate selection golden.json --create --force",
        ),
    )(selection)


def selection(
    golden: Path = typer.Argument(..., metavar="FILE", help="File with the golden choices."),
    create: bool = typer.Option(False, "--create", help="Write FILE."),
    problems: str | None = completed(
        "problems", "--create: a set, a .txt, .csv, .json or AMD's .py file, or a source of ckh shapes."
    ),
    op: str | None = completed("op", f"--create: {OP_HELP}"),
    variant: Direction | None = typer.Option(None, "--variant", help="--create: direction.  [forward]"),
    dtype: str | None = completed("dtype", "--create: element type."),
    arch: str | None = completed("arch", "--create: architecture.  [this machine's GPU, else gfx950]", panel=PROBLEM),
    model: Path | None = completed("model", "Model directory.  [the first that fits]"),
    data: list[Path] = typer.Option([], "--data", help="Dataset with times of changed choices; may be repeated."),
    on_device: bool = typer.Option(False, "--on-device", help="Measure changed choices on this machine."),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="--on-device: time limit per kernel."),
    max_loss: float = typer.Option(0.02, "--max-loss", min=0, help="Allowed slowdown of a choice, relative."),
    allow_unmeasured: bool = typer.Option(False, "--allow-unmeasured", help="Accept unmeasured changes."),
    junit: Path | None = JUNIT,
    summary: Path | None = SUMMARY,
    force: bool = FORCE,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Write golden choices, or compare with them, print and give the verdict."""
    from ckh.assess.golden import read_golden

    if create:
        _refuse({"--data": data, "--on-device": on_device, "--junit": junit, "--summary": summary}, "excludes")
        text = create_golden(golden, problems, WantedChoices(model, arch, dtype, op, variant), force=force)
        emit(text if as_json else "")
        return
    given = {"--problems": problems, "--op": op, "--variant": variant, "--dtype": dtype, "--arch": arch}
    _refuse(given, "requires")
    if data and on_device:
        raise UsageError(
            "--data and --on-device exclude each other",
            "omit one of them",
            code="conflicting-options",
        )
    files = VerdictFiles(junit, summary)
    files.check(force=force, inputs=[golden, *data, *([model] if model else [])])
    timeout_s = parse_duration(timeout)
    kept = read_golden(golden)
    changes = changed_choices(kept, model)
    if changes and data:
        changes = with_data(changes, data, kept.arch)
    elif changes and on_device:
        changes = with_measurements(changes, kept, timeout_s)
    verdict = _verdict(kept, changes, str(golden), max_loss, allows_unmeasured=allow_unmeasured)
    document = SelectionDocument(
        golden=str(golden),
        op=kept.op,
        arch=kept.arch,
        problems=len(kept.kernels),
        changes=tuple(changes),
        failures=verdict.failures,
        passes=not verdict.failures,
    )
    show(verdict, document, files, as_json=as_json)
    conclude(verdict)


def _refuse(given: Mapping[str, object], how: str) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {how} --create", "see ckh validate selection --help", code="conflicting-options")


def _verdict(golden: Golden, changes: list[Change], title: str, max_loss: float, *, allows_unmeasured: bool) -> Verdict:
    from ckh.assess.golden import checks
    from ckh.assess.verdict import Verdict, VerdictTable

    slowdowns = [change.slowdown for change in changes if change.slowdown is not None]
    lines = [f"{len(golden.kernels)} problems, {len(changes)} changed, {len(slowdowns)} of them measured both ways"]
    if slowdowns:
        lines.append(f"the changed choices take {sum(slowdowns) / len(slowdowns):+.1%} on average")
    rows = [
        [change.problem, _ms(change.was_ms), _ms(change.now_ms), _by(change), change.was, change.now or "none"]
        for change in changes
    ]
    table = VerdictTable("", ("changed", "was ms", "is ms", "longer", "was", "is"), rows, names=2)
    return Verdict(
        command="ckh validate selection",
        title=title,
        checks=checks(golden, changes, max_loss, allows_unmeasured=allows_unmeasured),
        lines=tuple(lines),
        tables=(table,) if rows else (),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _by(change: Change) -> str:
    if change.failed:
        return "failed"
    return "-" if change.slowdown is None else f"{change.slowdown:+.1%}"


@dataclass(frozen=True, slots=True)
class WantedChoices:
    """Options for creating golden choices; None: the default."""

    model: Path | None
    arch: str | None
    dtype: str | None
    op: str | None
    variant: Direction | None


def create_golden(path: Path, source: str | None, wanted: WantedChoices, *, force: bool) -> str:
    """Write the golden choices of a list of problems; returns the text of the file."""
    from ckh.assess.golden import GOLDEN, Golden, read_golden
    from ckh.learn.answers.answering import Chooser
    from ckh.shapes.problems import stated_operation

    check_output(path, GOLDEN, force=force, inputs=[wanted.model] if wanted.model else [])
    if source is not None:
        op = wanted.op or (None if wanted.model is not None else stated_operation(source))
        chooser = Chooser(wanted.model, wanted.arch, wanted.dtype, op)
        variant = None if wanted.variant is None else str(wanted.variant)
        problems: Sequence[Problem] = chooser.load_problems(source, variant, wanted.dtype)
    elif path.exists():
        old = read_golden(path)
        chooser = Chooser(wanted.model, wanted.arch or old.arch, None, old.op)
        problems = _problems(old)
    else:
        raise UsageError(
            "--create needs the list of problems", "name a set or a file with --problems", code="missing-option"
        )
    kernels = _chosen(chooser, problems)
    if not kernels:
        raise NoKernelError(f"no kernel applies to any of {len(problems)} problems")
    if len(kernels) < len(problems):
        warn(f"left out {len(problems) - len(kernels)} problems that no kernel applies to", "no-kernel")
    text = Golden(chooser.op.name, chooser.arch, kernels).text()
    write_output(path, text.encode())
    note(f"wrote {path}: the choices for {len(kernels)} problems on {chooser.arch}")
    return text


def _problems(golden: Golden) -> list[Problem]:
    from ckh.ops import operation

    return [operation(golden.op).problems.parse(text) for text in golden.kernels]


def _chosen(chooser: Chooser, problems: Iterable[Problem]) -> dict[str, str]:
    """Canonical problem -> first choice, for problems with applicable kernels."""
    from ckh.learn.answers.api import rank_many

    models: dict[int, Model] = {}
    groups: dict[int, list[Problem]] = {}
    for problem in problems:
        model = chooser.model(problem)
        models[id(model)] = model
        groups.setdefault(id(model), []).append(problem)
    result: dict[Problem, str] = {}
    for key, some in groups.items():
        for problem, ranked in zip(some, rank_many(some, 1, models[key], tflops=False), strict=True):
            if ranked:
                result[problem] = chooser.op.kernels.name(ranked[0].kernel)
    return {problem.canonical(): result[problem] for problem in problems if problem in result}


def changed_choices(golden: Golden, model: Path | None) -> list[Change]:
    """Problems whose choice changed, by a model or the models that fit."""
    from ckh.assess.golden import changes
    from ckh.learn.answers.answering import Chooser

    return changes(golden, _chosen(Chooser(model, golden.arch, None, golden.op), _problems(golden)))


def with_data(changes: Sequence[Change], paths: Sequence[Path], arch: str) -> list[Change]:
    """Changes with the times of both kernels in datasets."""
    from ckh.assess.times import needed_columns
    from ckh.data.dataset import read_dataset

    dataset = read_dataset(*paths, columns=needed_columns)
    dataset = dataset.select((dataset.frame["arch"] == arch).to_numpy(dtype=bool))
    frame, number = dataset.frame, {problem.canonical(): i for i, problem in enumerate(dataset.problems())}
    measured = []
    for change in changes:
        rows = frame[dataset.problem_ids == number.get(change.problem, -1)]
        by_name = rows.set_index(rows["kernel"].astype(str))
        measured.append(_with_times(change, *(_row(by_name, name) for name in (change.was, change.now))))
    return measured


def _row(rows: pd.DataFrame, kernel: str) -> tuple[float | None, str]:
    """Time of a kernel, None if unmeasured or failed, and the status of a failure, else empty."""
    if kernel not in rows.index:
        return None, ""
    row = rows.loc[kernel]
    return (float(row["latency_ms"]), "") if row["is_valid"] else (None, str(row["status"]))


def _with_times(change: Change, was: tuple[float | None, str], now: tuple[float | None, str]) -> Change:
    return replace(change, was_ms=was[0], now_ms=now[0], failed=now[1])


def with_measurements(changes: Sequence[Change], golden: Golden, timeout_s: float) -> list[Change]:
    """Changes with times of both kernels, measured on this machine, interleaved."""
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.supervision.driver import compare_kernels
    from ckh.ops import operation

    op = operation(golden.op)
    tasks = {
        change.problem: [op.kernels.parse(name) for name in (change.was, change.now)]
        for change in changes
        if change.now
    }
    times: dict[str, list[tuple[float | None, str]]] = {}

    def take(problem: str, replies: list[Reply]) -> None:
        times[problem] = [_median_ms(reply) for reply in replies]

    compare_kernels(device_of(golden.arch), tasks, timeout_s, "measuring changes", take)
    return [_with_times(item, *times[item.problem]) if item.problem in times else item for item in changes]


def _median_ms(reply: Reply) -> tuple[float | None, str]:
    if reply.samples_ns:
        return median(reply.samples_ns) / _NS_PER_MS, ""
    return None, f"{reply.status} {reply.message}".rstrip()
