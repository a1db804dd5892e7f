"""`ckh validate parity`: check that programs using ckh's choices pick the same kernels; exit code is the verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples
from ckh.commands.panels import PROBLEM
from ckh.commands.validate.verdicts import FORCE, JUNIT, SUMMARY, VerdictFiles, conclude, show
from ckh.documents import Document
from ckh.errors import CkhError, DataError, DeviceError, NoKernelError, UsageError
from ckh.files.outputs import write_folder
from ckh.problems import Direction
from ckh.text.log import warn
from ckh.text.progress import progress
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ckh.assess.verdict import Verdict
    from ckh.export.consumers import ChoiceTable, ModelHeader
    from ckh.export.parity import Pick
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model

_HELP = """Compare what consumers pick with what ckh picks. Exit code 1: a consumer picks another kernel.

For each of --problems, ckh's pick is the first kernel of ckh predict. It is compared with that of each consumer:

c: exported C, compiled and run here. ck-dispatcher: the exported heuristic, compiled with the published headers of
AMD's dispatcher (--dispatcher), in which all candidates are registered. aiter: an exported table, looked up as AITER
does, by the exact key and then by padded M. inductor: the first instance of PyTorch's template with ckh's order
installed, against ckh's ranking of Inductor's instances.

Each consumer gets a fresh export; --export names existing ones, which are compared as they are. A consumer that cannot
be tried here (no compiler, no headers, no PyTorch, no model to export) is listed with the reason and counts neither as
equal nor as different; if none can be tried, or one of --consumer cannot, the exit code is 3.
"""
C, DISPATCHER, AITER, INDUCTOR = CONSUMERS = ("c", "ck-dispatcher", "aiter", "inductor")
_MOST_SHOWN = 50


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


def register(group: typer.Typer) -> None:
    """Add the command to `ckh validate`."""
    group.command(
        name="parity",
        short_help="Compare the picks of consumers with ckh's.",
        help=_HELP,
        epilog=examples(
            "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16",
            "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16 --dispatcher ck/dispatcher/include",
            "ckh validate parity --problems untuned_fmoe.csv --op aiter_moe --arch gfx950 --export tables",
            "ckh validate parity --problems llm --op gemm_universal --arch gfx942 --dtype bf16 --consumer inductor",
            "ckh validate parity --problems layers.csv --model models/mine --json --junit junit.xml",
        ),
    )(parity)


def parity(
    problems: str = completed(
        "problems", "A set, a .txt, .csv, .json or AMD's .py file, or a source of ckh shapes.", default=...
    ),
    op: str | None = completed("op", OP_HELP),
    variant: Direction | None = typer.Option(None, "--variant", help="Direction of convolutions.  [forward]"),
    dtype: str | None = completed("dtype", "Element type."),
    arch: str | None = completed("arch", "Architecture.  [this machine's GPU, else gfx950]", panel=PROBLEM),
    model: Path | None = completed("model", "Model directory.  [the first that fits]"),
    consumer: list[str] = typer.Option(
        [],
        "--consumer",
        metavar="[" + "|".join(CONSUMERS) + "]",
        help="Consumer that must be compared; may be repeated.  [all that can be tried]",
    ),
    export: list[Path] = typer.Option(
        [], "--export", metavar="DIR", help="Existing output of ckh export to compare; may be repeated."
    ),
    dispatcher: Path | None = typer.Option(
        None, "--dispatcher", metavar="DIR", help="Include folder with ck_tile/dispatcher, of CK's source."
    ),
    junit: Path | None = JUNIT,
    summary: Path | None = SUMMARY,
    force: bool = FORCE,
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Compare, print and give the verdict."""
    from ckh.learn.answers.answering import Chooser
    from ckh.shapes.problems import stated_operation

    if unknown := [name for name in consumer if name not in CONSUMERS]:
        raise UsageError(f"unknown consumer {unknown[0]!r}", one_of(unknown[0], CONSUMERS), code="unknown-name")
    files = VerdictFiles(junit, summary)
    files.check(force=force, inputs=[*export, *([model] if model else [])])
    exports = _exports(export)
    chooser = Chooser(model, arch, dtype, op or (None if model is not None else stated_operation(problems)))
    answers = _answers(chooser, problems, variant, dtype)
    compared = _Compared(chooser, model, answers, exports, dispatcher)
    result = compared.all_of(consumer)
    verdict = _verdict(result, chooser, len(answers))
    is_tried = any(item.compared for item in result)
    passes = is_tried and not verdict.failures
    show(
        verdict,
        ParityDocument(chooser.op.name, chooser.arch, len(answers), tuple(result), verdict.failures, passes),
        files,
        as_json=as_json,
    )
    untried = [item for item in result if not item.compared and item.consumer in (consumer or CONSUMERS)]
    if not verdict.failures and untried and (consumer or not is_tried):
        reason = next(iter(untried[0].not_compared), "no problem")
        raise DeviceError(f"{untried[0].consumer} was not compared: {reason}", code="no-consumer")
    conclude(verdict)


def _exports(folders: Sequence[Path]) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Target -> the export named for it, and its list of files."""
    from ckh.export.folder import list_of

    result: dict[str, tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        document = list_of(folder)
        target = str(document.get("to"))
        if target not in CONSUMERS:
            raise DataError(f"{folder} is an export to {target}", one_of(target, CONSUMERS), code="not-an-export")
        if target in result:
            raise UsageError(
                f"{folder} and {result[target][0]} are both for {target}", "name one", code="duplicate-name"
            )
        result[target] = folder, document
    return result


def _answers(chooser: Chooser, source: str, variant: Direction | None, dtype: str | None) -> list[Ranking]:
    """Answers for the problems with an applicable kernel."""
    from ckh.export.answered import answered

    problems = chooser.load_problems(source, None if variant is None else str(variant), dtype)
    answers = [ranking for ranking in answered(chooser, problems) if len(ranking.order)]
    if not answers:
        raise NoKernelError(f"no kernel applies to any of {len(problems)} problems")
    if len(answers) < len(problems):
        warn(f"left out {len(problems) - len(answers)} problems that no kernel applies to", "no-kernel")
    return answers


@dataclass(frozen=True, slots=True)
class _Compared:
    """Comparison of all consumers of an operation."""

    chooser: Chooser  # selects the model
    model: Path | None  # folder of the named model
    answers: list[Ranking]  # ckh's answers
    exports: Mapping[str, tuple[Path, dict[str, Any]]]  # existing exports by target
    dispatcher: Path | None  # include folder of AMD's dispatcher

    def all_of(self, consumers: Sequence[str]) -> list[ConsumerParity]:
        """Compare the named consumers, or all of the operation."""
        from ckh.export.consumers import consumers_of

        parts = consumers_of(self.chooser.op)
        of: dict[str, Callable[[], tuple[list[Pick], Mapping[str, int]]] | None] = {
            C: (lambda: self._c(None)) if self.chooser.op.exported is not None else None,
            DISPATCHER: next((lambda item=header: self._c(item) for header in parts.headers), None),
            AITER: next((lambda item=table: self._table(item) for table in parts.tables), None),
            INDUCTOR: self._inductor if parts.instances else None,
        }
        result = []
        wanted = [name for name in CONSUMERS if (name in consumers if consumers else of[name] is not None)]
        with progress("comparing picks", len(wanted)) as advance:
            for name in wanted:
                advance(0, name)
                result.append(self._one(name, of[name]))
                advance(1, name)
        return result

    def _one(self, name: str, compare: Callable[[], tuple[list[Pick], Mapping[str, int]]] | None) -> ConsumerParity:
        picks: list[Pick] = []
        reasons: Mapping[str, int] = {f"{name} does not use {self.chooser.op.name}": len(self.answers)}
        if compare is not None:
            try:
                picks, reasons = compare()
            except CkhError as error:
                reasons = {error.message: len(self.answers)}
        return ConsumerParity(name, len(picks), tuple(pick for pick in picks if pick.ckh != pick.consumer), reasons)

    def _c(self, header: ModelHeader | None) -> tuple[list[Pick], Mapping[str, int]]:
        """Picks of exported C, or with a header those of AMD's dispatcher."""
        from ckh.export import parity

        include = None if header is None else self._include()
        groups = parity.by_model(self.answers)
        reasons: Counter[str] = Counter()
        if left := len(self.answers) - sum(map(len, groups.values())):
            reasons["ckh answers by an estimate or another GPU's model, which is not exported"] = left
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work, "export")
            document = self._exported_models(folder, header, [some[0].model for some in groups.values()])
            has = {item["name"] for item in document["models"]}
            for name in [name for name in groups if name not in has]:
                reasons[f"the export has no model {name}"] = len(groups.pop(name))
            picks: list[Pick] = []
            objects = parity.compiled_sources(folder) if groups else []
            for name, some in groups.items():
                if header is None or include is None:
                    picks += parity.c_picks(folder, objects, name, some, is_embedded=bool(document["embedded"]))
                else:
                    picks += parity.dispatcher_picks(folder, objects, name, some, header, include)
        return picks, reasons

    def _include(self) -> Path:
        """Folder with the headers of AMD's dispatcher."""
        if self.dispatcher is None:
            raise UsageError("no headers of AMD's dispatcher: name them with --dispatcher", code="no-headers")
        if not (self.dispatcher / "ck_tile" / "dispatcher").is_dir():
            raise UsageError(f"{self.dispatcher} has no folder ck_tile/dispatcher", code="no-headers")
        return self.dispatcher

    def _exported_models(self, folder: Path, header: ModelHeader | None, models: Sequence[Model]) -> dict[str, Any]:
        """Export models into a folder, or copy an existing export; returns its list of files."""
        from ckh.export.to_c import model_files

        target = C if header is None else DISPATCHER
        if target in self.exports:
            source, document = self.exports[target]
            shutil.copytree(source, folder)
            return document
        if not models:
            return {"models": []}
        files, report = model_files(target, models)
        write_folder(folder, files.items())
        return report

    def _table(self, table: ChoiceTable) -> tuple[list[Pick], Mapping[str, int]]:
        """Picks of a program with lookup tables."""
        from ckh.export.consumers import Choices
        from ckh.export.parity import table_picks

        if AITER in self.exports:
            folder, document = self.exports[AITER]
            rows = {item["problem"]: item for item in document.get("choices", ()) if not item["predicted"]}
            measured = {problem: str(row["kernel"]) for problem, row in rows.items()}
            return table_picks(folder, table, self.answers, measured), {}
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work, "export")
            write_folder(folder, table.write(Choices(self.answers, None, None)).files.items())
            return table_picks(folder, table, self.answers), {}

    def _inductor(self) -> tuple[list[Pick], Mapping[str, int]]:
        """The picks of Inductor's hook, which an export gives the model in its folder."""
        from ckh.export.to_python import MODEL_FOLDER
        from ckh.integrations.inductor import inductor_picks

        own = self.exports[INDUCTOR][0] / MODEL_FOLDER if INDUCTOR in self.exports else None
        model = self.model if own is None or not own.is_dir() else own
        return inductor_picks(self.chooser, model, [answer.problem for answer in self.answers])


def _verdict(consumer_parities: Sequence[ConsumerParity], chooser: Chooser, problems: int) -> Verdict:
    from ckh.assess.verdict import Check, Verdict, VerdictTable

    rows = [
        [item.consumer, str(item.compared), str(item.compared - len(item.differences)), str(len(item.differences))]
        for item in consumer_parities
    ]
    lines = [
        f"{item.consumer}: not compared on {count} of {problems} problems: {reason}"
        for item in consumer_parities
        for reason, count in item.not_compared.items()
    ]
    tables = [VerdictTable("", ("consumer", "compared", "equal", "different"), rows)]
    for item in consumer_parities:
        if item.differences:
            shown = [[pick.problem, pick.ckh, pick.consumer] for pick in item.differences[:_MOST_SHOWN]]
            title = f"{item.consumer}: {len(shown)} of {len(item.differences)} differences"
            tables.append(VerdictTable(title, ("problem", "ckh", item.consumer), shown, names=2))
    return Verdict(
        command="ckh validate parity",
        title=f"{chooser.op.name} on {chooser.arch}: {problems} problems",
        checks=tuple(Check(item.consumer, _failure(item)) for item in consumer_parities if item.compared),
        lines=tuple(lines),
        tables=tuple(tables),
    )


def _failure(consumer_parity: ConsumerParity) -> str:
    count = len(consumer_parity.differences)
    return (
        f"{consumer_parity.consumer} picks another kernel for {count} of {consumer_parity.compared} problems"
        if count
        else ""
    )
