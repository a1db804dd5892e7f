"""`ckh validate selection`: first choices against golden ones. The exit code is the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, print_table, say
from ckh.commands._duration import parse_duration
from ckh.commands.panels import PROBLEM
from ckh.commands.validate.choices import WantedChoices, changed_choices, create_golden, with_data, with_measurements
from ckh.commands.validate.verdicts import FORCE, JUNIT, SUMMARY, VerdictFiles, give_verdict
from ckh.documents import Document
from ckh.errors import UsageError
from ckh.problems import Direction
from ckh.text.log import emit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.assess.selection import Change, Golden
    from ckh.assess.verdict import Verdict

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
    """The file of golden choices."""
    op: str
    arch: str
    problems: int
    changes: tuple[Change, ...]
    failures: tuple[str, ...]
    """Why the gate fails."""
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
    problems: str | None = typer.Option(
        None,
        "--problems",
        autocompletion=_completion.problem_sets,
        metavar="SET|FILE",
        help="--create: a set, or a .txt, .csv or .json file; of convolutions, GEMMs also AMD's .py.",
    ),
    op: str | None = typer.Option(None, "--op", autocompletion=_completion.operations, help=f"--create: {OP_HELP}"),
    variant: Direction | None = typer.Option(None, "--variant", help="--create: direction.  [forward]"),
    dtype: str | None = typer.Option(
        None, "--dtype", autocompletion=_completion.dtypes, help="--create: element type."
    ),
    arch: str | None = typer.Option(
        None,
        "--arch",
        autocompletion=_completion.architectures,
        rich_help_panel=PROBLEM,
        help="--create: architecture.  [this machine's GPU, else host]",
    ),
    model: Path | None = typer.Option(
        None, "--model", autocompletion=_completion.models, help="Model directory.  [the first that fits]"
    ),
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
    from ckh.assess.selection import read_golden

    if create:
        _refuse({"--data": data, "--on-device": on_device, "--junit": junit, "--summary": summary}, "goes without")
        text = create_golden(golden, problems, WantedChoices(model, arch, dtype, op, variant), force=force)
        emit(text if as_json else "")
        return
    given = {"--problems": problems, "--op": op, "--variant": variant, "--dtype": dtype, "--arch": arch}
    _refuse(given, "goes with")
    if data and on_device:
        raise UsageError(
            "--data and --on-device exclude each other",
            "leave one of them out",
            code="conflicting-options",
        )
    files = VerdictFiles(junit, summary)
    files.check(force=force, inputs=[golden, *data, *([model] if model else [])])
    timeout_s = parse_duration(timeout)
    kept = read_golden(golden)
    found = changed_choices(kept, model)
    if found and data:
        found = with_data(found, data, kept.arch)
    elif found and on_device:
        found = with_measurements(found, kept, timeout_s)
    verdict = _verdict(kept, found, str(golden), max_loss, allows_unmeasured=allow_unmeasured)
    files.write(verdict)
    if as_json:
        print_json(
            SelectionDocument(
                golden=str(golden),
                op=kept.op,
                arch=kept.arch,
                problems=len(kept.kernels),
                changes=tuple(found),
                failures=tuple(verdict.failures),
                passes=not verdict.failures,
            )
        )
    else:
        _print(verdict)
    give_verdict(verdict.failures)


def _refuse(given: Mapping[str, object], how: str) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {how} --create", "see ckh validate selection --help", code="conflicting-options")


def _verdict(golden: Golden, found: list[Change], title: str, max_loss: float, *, allows_unmeasured: bool) -> Verdict:
    from ckh.assess.selection import checks
    from ckh.assess.verdict import Verdict, VerdictTable

    slowdowns = [one.slowdown for one in found if one.slowdown is not None]
    lines = [f"{len(golden.kernels)} problems, {len(found)} changed, {len(slowdowns)} of them measured both ways"]
    if slowdowns:
        lines.append(f"the changed choices take {sum(slowdowns) / len(slowdowns):+.1%} on average")
    rows = [[one.problem, _ms(one.was_ms), _ms(one.now_ms), _by(one), one.was, one.now or "none"] for one in found]
    table = VerdictTable("", ("changed", "was ms", "is ms", "longer", "was", "is"), rows)
    return Verdict(
        command="ckh validate selection",
        title=title,
        checks=checks(golden, found, max_loss, allows_unmeasured=allows_unmeasured),
        lines=tuple(lines),
        tables=(table,) if rows else (),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _by(one: Change) -> str:
    if one.failed:
        return "failed"
    return "-" if one.slowdown is None else f"{one.slowdown:+.1%}"


def _print(verdict: Verdict) -> None:
    say(f"{verdict.title}: " + "\n".join(verdict.lines))
    for table in verdict.tables:
        say()
        print_table("", table.columns[:4], [row[:4] for row in table.rows])
        for problem, *_, was, now in table.rows:
            say(f"\n{problem}\n  was {was}\n  is  {now}")
