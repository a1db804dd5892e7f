"""Golden choices: the chosen kernel for each problem of a list, and what has changed since."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from ckh.assess.verdict import Check, Verdict, VerdictTable
from ckh.documents import Document, json_text
from ckh.errors import DataError, NoKernelError, UsageError
from ckh.files.jsonfields import JsonFields
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.learn.answers.answering import Chooser
from ckh.ops import operation
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from ckh.bench.supervision.protocol import Reply
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem

_SCHEMA = "selection"
_NAMES = ("schema", "schema_version", "ckh_version")
_NS_PER_MS = 1e6
_MEASURED_S = 30.0  # time limit per kernel and problem
_GOLDEN = FileKind("file of golden choices", lambda path: b'"schema": "ckh.selection"' in head_of(path))


class Golden(Document):
    """The file of golden choices that ckh validate selection --create writes."""

    schema = _SCHEMA

    op: str
    """Operation of all problems."""
    arch: str
    """Architecture of the choices."""
    kernels: Mapping[str, str]
    """Canonical text of a problem -> full name of the first choice."""

    def problems(self) -> list[Problem]:
        """Return the problems in order."""
        return [operation(self.op).problems.parse(text) for text in self.kernels]


@dataclass(frozen=True, slots=True)
class Change:
    """A problem whose choice changed; times are None where the kernel failed or was not measured."""

    json_properties: ClassVar = ("slowdown",)

    problem: str
    """Canonical text."""
    was: str
    """The golden kernel."""
    now: str
    """The current choice; empty if no kernel applies."""
    was_ms: float | None = None
    """Measured time of the golden kernel."""
    now_ms: float | None = None
    """Measured time of the current choice."""
    failed: str = ""
    """Why the current choice has no time although it was measured; empty otherwise."""

    @property
    def slowdown(self) -> float | None:
        """Relative increase of the time with the new choice; None if unknown."""
        if self.was_ms is None or self.now_ms is None:
            return None
        return self.now_ms / self.was_ms - 1.0

    def with_times(self, was: tuple[float | None, str], now: tuple[float | None, str]) -> Change:
        """Return the change with both times, and why the current choice has none."""
        return replace(self, was_ms=was[0], now_ms=now[0], failed=now[1])

    def failure(self, most: float) -> str:
        """Return the reason why a gate must reject the change; empty if it may pass."""
        if not self.now:
            return f"{self.problem}: no kernel applies any more"
        if self.failed:
            return f"{self.problem}: the current choice failed: {self.failed}"
        if self.slowdown is None:
            return f"{self.problem}: the choice changed, and not both were measured"
        slower = f"{self.slowdown:.1%} slower ({self.was_ms:.4g} ms -> {self.now_ms:.4g} ms)"
        return f"{self.problem}: the current choice is {slower}" if self.slowdown > most else ""

    def cells(self) -> list[str]:
        """Return the cells of a table."""
        longer = "failed" if self.failed else "-" if self.slowdown is None else f"{self.slowdown:+.1%}"
        times = ("-" if ms is None else f"{ms:.4g}" for ms in (self.was_ms, self.now_ms))
        return [self.problem, *times, longer, self.was, self.now or "none"]


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


def read_golden(path: Path) -> Golden:
    """Read a file of golden choices."""
    fields = JsonFields.read(path)
    schema, *_ = (fields.scalar(name, str) for name in _NAMES)
    if schema != f"ckh.{_SCHEMA}":
        raise DataError(
            f"{path}: its schema is {schema!r}, not golden choices", "make one with --create", code="not-golden"
        )
    op, arch, choices = fields.scalar("op", str), fields.scalar("arch", str), fields.part("kernels")
    fields.finish()
    kernels = {problem: choices.scalar(problem, str) for problem in choices.names()}
    if not kernels:
        raise DataError(f"{path} has no choices", "make one with --create", code="not-golden")
    return Golden(op, arch, kernels)


def create_golden(
    path: Path,
    source: str | None,
    model: Path | None,
    arch: str | None,
    dtype: str | None,
    op: str | None,
    *,
    force: bool,
) -> str:
    """Write the golden choices of a list of problems, by default those of the file; returns the text of the file."""
    from ckh.shapes.problems import stated_operation

    check_output(path, _GOLDEN, force=force, inputs=[model] if model else [])
    if source is not None:
        chooser = Chooser(model, arch, dtype, op or (None if model is not None else stated_operation(source)))
        problems: Sequence[Problem] = chooser.load_problems(source, None, dtype)
    elif path.exists():
        old = read_golden(path)
        chooser, problems = Chooser(model, arch or old.arch, None, old.op), old.problems()
    else:
        raise UsageError(
            "--create needs the list of problems", "name a set or a file with --problems", code="missing-option"
        )
    kernels = _chosen(chooser, problems)
    if not kernels:
        raise NoKernelError(f"no kernel applies to any of {len(problems)} problems")
    if len(kernels) < len(problems):
        warn(f"left out {len(problems) - len(kernels)} problems that no kernel applies to", "no-kernel")
    text = json_text(Golden(chooser.op.name, chooser.arch, kernels))
    write_output(path, text.encode())
    note(f"wrote {path}: the choices for {len(kernels)} problems on {chooser.arch}")
    return text


def selection_verdict(
    path: Path,
    model: Path | None,
    data: Sequence[Path],
    max_loss: float,
    *,
    on_device: bool,
) -> tuple[Verdict, SelectionDocument]:
    """Compare the first choices with golden ones, and rate changes by data or by new measurements."""
    golden = read_golden(path)
    now = _chosen(Chooser(model, golden.arch, None, golden.op), golden.problems())
    changes = [
        Change(problem, was, now.get(problem, ""))
        for problem, was in golden.kernels.items()
        if now.get(problem, "") != was
    ]
    if changes and data:
        changes = _with_data(changes, data, golden.arch)
    elif changes and on_device:
        changes = _measured(changes, golden)
    changed = {change.problem: change for change in changes}
    checks = [Check(problem) for problem in golden.kernels]
    for place, problem in enumerate(golden.kernels):
        if change := changed.get(problem):
            failure = change.failure(max_loss)
            checks[place] = Check(problem, failure, f"was {change.was}\nis  {change.now or 'none'}")
    slowdowns = [change.slowdown for change in changes if change.slowdown is not None]
    lines = [f"{len(golden.kernels)} problems, {len(changes)} changed, {len(slowdowns)} of them measured both ways"]
    if slowdowns:
        lines.append(f"the changed choices take {sum(slowdowns) / len(slowdowns):+.1%} on average")
    columns = ("changed", "was ms", "is ms", "longer", "was", "is")
    table = VerdictTable("", columns, [change.cells() for change in changes], names=2)
    verdict = Verdict("ckh validate selection", str(path), tuple(checks), tuple(lines), (table,) if changes else ())
    document = SelectionDocument(
        golden=str(path),
        op=golden.op,
        arch=golden.arch,
        problems=len(golden.kernels),
        changes=tuple(changes),
        failures=verdict.failures,
        passes=not verdict.failures,
    )
    return verdict, document


def _chosen(chooser: Chooser, problems: Iterable[Problem]) -> dict[str, str]:
    """Canonical problem -> first choice, for problems with applicable kernels."""
    from ckh.learn.answers.api import rank_many

    groups: dict[Model, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(chooser.model(problem), []).append(problem)
    chosen: dict[Problem, str] = {}
    for model, of_model in groups.items():
        for problem, ranked in zip(of_model, rank_many(of_model, 1, model, tflops=False), strict=True):
            if ranked:
                chosen[problem] = chooser.op.kernels.name(ranked[0].kernel)
    return {problem.canonical(): chosen[problem] for problem in problems if problem in chosen}


def _with_data(changes: Sequence[Change], paths: Sequence[Path], arch: str) -> list[Change]:
    """Changes with the times of both kernels in datasets."""
    from ckh.assess.times import needed_columns
    from ckh.data.dataset import read_dataset

    dataset = read_dataset(*paths, columns=needed_columns)
    dataset = dataset.select((dataset.frame["arch"] == arch).to_numpy(dtype=bool))
    number = {problem.canonical(): i for i, problem in enumerate(dataset.problems())}
    measured = []
    for change in changes:
        rows = dataset.frame[dataset.problem_ids == number.get(change.problem, -1)]
        by_name = rows.set_index(rows["kernel"].astype(str))
        measured.append(change.with_times(*(_time(by_name, name) for name in (change.was, change.now))))
    return measured


def _time(rows: pd.DataFrame, kernel: str) -> tuple[float | None, str]:
    """Time of a kernel, None if unmeasured or failed, and the status of a failure, else empty."""
    if kernel not in rows.index:
        return None, ""
    row = rows.loc[kernel]
    return (float(row["latency_ms"]), "") if row["is_valid"] else (None, str(row["status"]))


def _measured(changes: Sequence[Change], golden: Golden) -> list[Change]:
    """Changes with times of both kernels, measured on this machine, interleaved."""
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.supervision.driver import compare_kernels

    parse = operation(golden.op).kernels.parse
    tasks = {change.problem: [parse(change.was), parse(change.now)] for change in changes if change.now}
    times: dict[str, list[tuple[float | None, str]]] = {}

    def take(problem: str, replies: list[Reply]) -> None:
        times[problem] = [
            (median(reply.samples_ns) / _NS_PER_MS, "")
            if reply.samples_ns
            else (None, f"{reply.status} {reply.message}".rstrip())
            for reply in replies
        ]

    compare_kernels(device_of(golden.arch), tasks, _MEASURED_S, "measuring changes", take)
    return [change.with_times(*times[change.problem]) if change.problem in times else change for change in changes]
