"""Kernels picked by the consumers of ckh's choices, compared with ckh's (`ckh validate parity`).

Exported C and AMD's dispatcher are compiled and run, tables are looked up by rule, and Inductor's hook is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.assess.verdict import Check, Verdict, VerdictTable
from ckh.bench.compilation.toolchain import find_compiler
from ckh.documents import Document
from ckh.emulator.build import find_c_compiler
from ckh.errors import CkhError, DataError, DeviceError, NoKernelError, UsageError
from ckh.export.answered import answered
from ckh.export.consumers import Choices, consumers_of, named
from ckh.export.folder import list_of
from ckh.export.groups import exported
from ckh.export.to_c import TEMPLATES, model_files
from ckh.export.to_python import MODEL_FOLDER
from ckh.files.outputs import write_folder
from ckh.integrations.inductor import PROGRAM, install, setting_of, unpadded
from ckh.learn.answers.listed import kernel_list
from ckh.learn.answers.ranking import ranking_of
from ckh.text.log import warn
from ckh.text.progress import progress
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.export.consumers import ChoiceTable, Instances, ModelHeader
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem

    Export = tuple[Path, dict[str, Any]]  # an existing export, and its list of files

C, DISPATCHER, AITER, INDUCTOR = CONSUMERS = ("c", "ck-dispatcher", "aiter", PROGRAM)
_MOST_SHOWN = 50
_TIMEOUT_S = 600
_C_FLAGS = ("-std=c11", "-O1", "-ffp-contract=off")
_EXAMPLE = "example.c"


@dataclass(frozen=True, slots=True)
class Pick:
    """Picks of ckh and a consumer for a problem."""

    problem: str
    """Canonical text."""
    ckh: str
    """Kernel that ckh ranks first, by the consumer's name."""
    consumer: str
    """Kernel that the consumer picks, or the reason why it picks none."""


@dataclass(frozen=True, slots=True)
class ConsumerParity:
    """Picks of one consumer."""

    consumer: str
    compared: int
    """Problems with compared picks."""
    differences: tuple[Pick, ...]
    """Problems for which the consumer picks another kernel."""
    not_compared: Mapping[str, int]
    """Number of other problems by reason."""


class ParityDocument(Document):
    """ckh validate parity --json."""

    schema = "validate_parity"

    op: str
    arch: str
    problems: int
    """Problems with an applicable kernel."""
    consumers: tuple[ConsumerParity, ...]
    """Consumers of the operation, in order."""
    failures: tuple[str, ...]
    """Reasons why the gate fails."""
    passes: bool
    """Whether any picks were compared and all of them agree."""


def exports_of(folders: Sequence[Path]) -> dict[str, Export]:
    """Target -> the export named for it, and its list of files."""
    exports: dict[str, Export] = {}
    for folder in folders:
        document = list_of(folder)
        target = str(document.get("to"))
        if target not in CONSUMERS:
            raise DataError(f"{folder} is an export to {target}", one_of(target, CONSUMERS), code="not-an-export")
        if target in exports:
            raise UsageError(
                f"{folder} and {exports[target][0]} are both for {target}", "name one", code="duplicate-name"
            )
        exports[target] = folder, document
    return exports


def answers_of(chooser: Chooser, source: str, dtype: str | None) -> list[Ranking]:
    """Answers for the problems of a set or file that have an applicable kernel."""
    problems = chooser.load_problems(source, None, dtype)
    answers = [ranking for ranking in answered(chooser, problems) if len(ranking.order)]
    if not answers:
        raise NoKernelError(f"no kernel applies to any of {len(problems)} problems")
    if len(answers) < len(problems):
        warn(f"left out {len(problems) - len(answers)} problems that no kernel applies to", "no-kernel")
    return answers


def parity_verdict(compared: ConsumerComparison, consumers: Sequence[str]) -> tuple[Verdict, ParityDocument]:
    """Compare the named consumers, or all of the operation."""
    chooser, problems = compared.chooser, len(compared.answers)
    parities = compared.all_of(consumers)
    checks, lines, rows, tables = [], [], [], []
    for parity in parities:
        count = len(parity.differences)
        rows.append([parity.consumer, *map(str, (parity.compared, parity.compared - count, count))])
        for reason, left_out in parity.not_compared.items():
            lines.append(f"{parity.consumer}: not compared on {left_out} of {problems} problems: {reason}")
        if parity.compared:
            why = f"{parity.consumer} picks another kernel for {count} of {parity.compared} problems" if count else ""
            checks.append(Check(parity.consumer, why))
        if count:
            shown = [[pick.problem, pick.ckh, pick.consumer] for pick in parity.differences[:_MOST_SHOWN]]
            title = f"{parity.consumer}: {len(shown)} of {count} differences"
            tables.append(VerdictTable(title, ("problem", "ckh", parity.consumer), shown, names=2))
    tables.insert(0, VerdictTable("", ("consumer", "compared", "equal", "different"), rows))
    title = f"{chooser.op.name} on {chooser.arch}: {problems} problems"
    verdict = Verdict("ckh validate parity", title, tuple(checks), tuple(lines), tuple(tables))
    passes = bool(checks) and not verdict.failures
    return verdict, ParityDocument(chooser.op.name, chooser.arch, problems, tuple(parities), verdict.failures, passes)


@dataclass(frozen=True, slots=True)
class ConsumerComparison:
    """Comparison of all consumers of an operation."""

    chooser: Chooser  # selects the model
    model: Path | None  # folder of the named model
    answers: list[Ranking]  # ckh's answers
    exports: Mapping[str, Export]  # existing exports by target
    dispatcher: Path | None  # include folder of AMD's dispatcher

    def all_of(self, consumers: Sequence[str]) -> list[ConsumerParity]:
        """Compare the named consumers, or all of the operation."""
        op = self.chooser.op
        parts = consumers_of(op)
        comparisons: dict[str, Callable[[], tuple[list[Pick], Mapping[str, int]]] | None] = {
            C: (lambda: self._c(None)) if op.exported is not None else None,
            DISPATCHER: next((lambda part=header: self._c(part) for header in parts.headers), None),
            AITER: next((lambda part=table: (self._table(part), {}) for table in parts.tables), None),
            INDUCTOR: self._inductor if parts.instances else None,
        }
        parities = []
        wanted = [name for name in CONSUMERS if (name in consumers if consumers else comparisons[name] is not None)]
        with progress("comparing picks", len(wanted)) as advance:
            for name in wanted:
                advance(0, name)
                picks: list[Pick] = []
                reasons: Mapping[str, int] = {f"{name} does not use {op.name}": len(self.answers)}
                if (compare := comparisons[name]) is not None:
                    try:
                        picks, reasons = compare()
                    except CkhError as error:
                        reasons = {error.message: len(self.answers)}
                differences = tuple(pick for pick in picks if pick.ckh != pick.consumer)
                parities.append(ConsumerParity(name, len(picks), differences, reasons))
                advance(1, name)
        return parities

    def _c(self, header: ModelHeader | None) -> tuple[list[Pick], Mapping[str, int]]:
        """Picks of exported C, or with a header those of AMD's dispatcher; estimates cannot be exported."""
        if header is not None:
            if self.dispatcher is None:
                raise UsageError("no headers of AMD's dispatcher: name them with --dispatcher", code="no-headers")
            if not (self.dispatcher / "ck_tile" / "dispatcher").is_dir():
                raise UsageError(f"{self.dispatcher} has no folder ck_tile/dispatcher", code="no-headers")
        groups: dict[str, list[Ranking]] = defaultdict(list)
        for answer in self.answers:
            if answer.model.not_measured is None:
                groups[answer.model.path.resolve().name].append(answer)
        reasons: Counter[str] = Counter()
        if not_exported := len(self.answers) - sum(map(len, groups.values())):
            reasons["ckh answers by an estimate or another GPU's model, which is not exported"] = not_exported
        picks: list[Pick] = []
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work, "export")
            target = C if header is None else DISPATCHER
            document = self._exported_models(folder, target, [answers[0].model for answers in groups.values()])
            known = {model["name"] for model in document["models"]}
            for name in [name for name in groups if name not in known]:
                reasons[f"the export has no model {name}"] = len(groups.pop(name))
            objects = _compiled_sources(folder) if groups else []
            for name, answers in groups.items():
                if header is None:
                    own = [name] if document["embedded"] else []
                    picks += _c_picks(folder, objects, answers, [f"models/{name}.ckhm", *own])
                else:
                    assert self.dispatcher is not None
                    picks += _dispatcher_picks(folder, objects, name, answers, header, self.dispatcher)
        return picks, reasons

    def _exported_models(self, folder: Path, target: str, models: Sequence[Model]) -> dict[str, Any]:
        """Export models into a folder, or copy an existing export; returns its list of files."""
        if target in self.exports:
            source, document = self.exports[target]
            shutil.copytree(source, folder)
            return document
        if not models:
            return {"models": []}
        files, report = model_files(target, models)
        write_folder(folder, files.items())
        return report

    def _table(self, table: ChoiceTable) -> list[Pick]:
        """The kernels that a program finds in an export's tables by its lookup rules.

        Expected are measured kernels; of predictions the first, or the first that every version of the program has.
        """
        if table.picked is None:
            raise UsageError("its lookup is not known", code="unsupported")
        problems, arch = [answer.problem for answer in self.answers], self.answers[0].model.spec.arch
        firsts = {answer.problem.canonical(): answer.best(1)[0].name for answer in self.answers}
        written = table.write(Choices(self.answers, None, None))
        expected = firsts | {row.problem: row.kernel for row in written.rows}
        if AITER in self.exports:
            folder, document = self.exports[AITER]
            for row in document.get("choices", ()):
                if not row["predicted"] or row["kernel"] == firsts.get(row["problem"]):
                    expected[row["problem"]] = str(row["kernel"])
            picks = table.picked(folder, arch, problems)
        else:
            with tempfile.TemporaryDirectory() as work:
                folder = Path(work, "export")
                write_folder(folder, written.files.items())
                picks = table.picked(folder, arch, problems)
        of_answers = (expected[problem.canonical()] for problem in problems)
        return _picks(self.answers, of_answers, [pick or "no row" for pick in picks])

    def _inductor(self) -> tuple[list[Pick], Mapping[str, int]]:
        """First instance that Inductor would time for each problem, and number of problems without one, by reason.

        An existing export gives it the model in its folder. Instances that differ only in padding are the same kernel;
        so are instances with equal scores.
        """
        own = self.exports[INDUCTOR][0] / MODEL_FOLDER if INDUCTOR in self.exports else None
        model = self.model if own is None or not own.is_dir() else own
        part: Instances = named("instances", PROGRAM)[self.chooser.op.name]
        install(top=1, arch=self.chooser.arch, model=model)()
        picks: list[Pick] = []
        reasons: Counter[str] = Counter()
        for problem in (answer.problem for answer in self.answers):
            try:
                template = part.template(problem)
                ours = self._instances(part, template, problem)
            except (CkhError, ImportError) as error:
                reasons[error.message if isinstance(error, CkhError) else f"{type(error).__name__}: {error}"] += 1
                continue
            undo = install(top=1, arch=self.chooser.arch, model=model)
            try:
                first = next(iter(template.gen_ops()), None)
            finally:
                undo()
            kernel = None if first is None else part.kernel(template, first)
            theirs = "no instance" if kernel is None else self.chooser.op.kernels.name(unpadded(kernel))
            picks.append(Pick(problem.canonical(), theirs if theirs in ours else ours[0], theirs))
        return picks, reasons

    def _instances(self, part: Instances, template: Any, problem: Problem) -> list[str]:
        """Names of the kernels that ckh ranks first among a template's instances."""
        op, config = self.chooser.op, import_module("torch._inductor.config")
        with config.patch({f"rocm.{setting_of(template)}": None}):
            instances = template.gen_ops()
        kernels = [kernel for instance in instances if (kernel := part.kernel(template, instance)) is not None]
        if not kernels:
            raise UsageError("Inductor has no instance for it", code="unsupported")
        listed = kernel_list(list(dict.fromkeys(kernels)), op, f"{PROGRAM}'s instances")
        first = ranking_of(problem, self.chooser.model(problem, stands_in=True).limited_to(listed)).best(1)[0]
        return [op.kernels.name(unpadded(kernel)) for kernel in (first.kernel, *first.alike)]


def _compiled_sources(folder: Path) -> list[str]:
    """Compile the C sources of an export and return the names of the object files."""
    sources = [path for path in sorted(folder.glob("*.c")) if path.name != _EXAMPLE]
    _compile([*find_c_compiler(), *_C_FLAGS, "-c", *(path.name for path in sources)], folder)
    return [f"{path.stem}.o" for path in sources]


def _c_picks(folder: Path, objects: Sequence[str], answers: Sequence[Ranking], words: Sequence[str]) -> list[Pick]:
    """Run exported C with these words and return its first kernels."""
    kind = exported(answers[0].model.spec.op_type).kind
    text = (TEMPLATES / "parity.c.in").read_text(encoding="utf-8")
    text = text.replace("@KIND@", kind.name).replace("@UPPER@", kind.name.upper())
    (folder / "parity.c").write_text(text, encoding="utf-8")
    _compile([*find_c_compiler(), *_C_FLAGS, "parity.c", *objects, "-lm", "-o", "parity"], folder)
    firsts = (answer.best(1)[0].name for answer in answers)
    return _picks(answers, firsts, _printed([str(folder / "parity"), *words], folder, answers))


def _dispatcher_picks(
    folder: Path, objects: Sequence[str], name: str, answers: Sequence[Ranking], part: ModelHeader, include: Path
) -> list[Pick]:
    """Return the kernels that AMD's dispatcher selects with an exported header, among ckh's candidates."""
    pools = {id(answer.pool): answer.pool for answer in answers}.values()
    kernels = list(dict.fromkeys(kernel for pool in pools for kernel in pool))
    (folder / "parity.cpp").write_text(part.program(name, answers[0].model, kernels), encoding="utf-8")
    flags = ["-std=c++17", "-O0", f"-I{include.resolve()}", "-I."]
    _compile([*find_compiler().command, *flags, "parity.cpp", *objects, "-lm", "-o", "parity_cpp"], folder)
    firsts = (part.called(answer.best(1)[0].kernel) for answer in answers)
    return _picks(answers, firsts, _printed([str(folder / "parity_cpp")], folder, answers))


def _picks(answers: Sequence[Ranking], firsts: Iterable[str], picked: Iterable[str]) -> list[Pick]:
    return [Pick(answer.problem.canonical(), *names) for answer, *names in zip(answers, firsts, picked, strict=True)]


def _printed(command: list[str], folder: Path, answers: Sequence[Ranking]) -> list[str]:
    """Run a program and return the line it prints for each problem."""
    kind = exported(answers[0].model.spec.op_type).kind
    text = "".join(" ".join(map(str, kind.numbers(answer.run))) + "\n" for answer in answers)
    done = _run(command, folder, text)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(answers):
        raise DeviceError(
            f"the exported program ended with {_said(done.stderr) or f'code {done.returncode}'}", code="program-failed"
        )
    return lines


def _compile(command: list[str], folder: Path) -> None:
    done = _run(command, folder, "")
    if done.returncode:
        raise DeviceError(f"{command[0]}: {_said(done.stderr)}", code="not-compiled")


def _run(command: list[str], folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"cannot run {command[0]}: {error}", code="program-failed") from error


def _said(text: str) -> str:
    """Return the first error in a program's messages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), next(iter(lines), ""))
