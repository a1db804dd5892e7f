"""`ckh tune`: from the shapes of a model to a tuned table for its server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples, print_json, print_table, say
from ckh.commands._declared_options import has_options_of
from ckh.errors import ExitCode
from ckh.text.log import emit, note
from ckh.tune.settings import TuneOptions, settings_of

if TYPE_CHECKING:
    from ckh.tune.tuning import ModelTuning

_HELP = """Tune the kernels of a model: list its shapes, measure, train, and export tuned tables.

SOURCE is anything that `ckh shapes` reads, such as a Hugging Face config.json, or what it writes. Each step is a
command of ckh on the folder --out, printed before it runs: shapes, predict (current choices), bench --plan auto (shapes
weighted by count and time), convert, train (with six or more measured problems), export. After an interruption or the
end of the budget the same command continues; --budget may change. Shapes that were not measured are listed with
predicted kernels.

The summary shows for each shape the current kernel (of the list --today, else the choice of ckh predict), the fastest
measured kernel, the measured and the predicted gain with their intervals and its share of the model's time, and in
total the gains, whether it is worthwhile, and how good choices for unmeasured shapes are. A gain is established by
interleaved rounds of both kernels on a steady machine only; else the reason is stated. The file summary.md in the
folder has the same, with the commands. On this device, ckh predict puts the measured kernels first afterwards.

ckh does not measure AITER's kernels: with --to aiter the steps are shapes, predict and export, of GEMMs unless --op
names mixtures of experts. They are those of quantised models: a bf16 model needs --dtype fp8, if it is served so.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="tune",
        help=_HELP,
        epilog=examples(
            "ckh tune config.json --tp 8 --budget 15m --to amd-registry",
            "ckh tune config.json --tp 8 --to amd-registry --today registry.json",
            "ckh tune config.json --tp 8 --arch gfx942 --to aiter",
            "ckh tune resnet50 --batch 32 --arch gfx950 --dry-run",
            "ckh tune miopen.log --budget 1h --to c --out tuned",
        ),
    )(tune)


@has_options_of(options=TuneOptions)
def tune(
    sources: list[str] | None = typer.Argument(
        None, metavar="[SOURCE]...", autocompletion=_completion.sources, help="Source of shapes, as for ckh shapes."
    ),
    *,
    options: dict[str, Any],
    out: Path = typer.Option(Path("tuned"), "--out", "-o", help="Folder."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only list the shapes, and print the steps and their time."),
    force: bool = typer.Option(False, "--force", help="Start over in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Run the steps and print the summary."""
    from ckh.api.tuner import tuned_operation
    from ckh.tune.page import summary
    from ckh.tune.tuning import ModelTuning, StepError

    given = TuneOptions(**options)
    given = replace(given, op=tuned_operation(given.op, given.to))
    tuning = ModelTuning(settings_of(sources or [], given), out, force=force, is_quiet=as_json)
    try:
        if dry_run:
            _print_plan(tuning)
            return
        document = tuning.run()
    except StepError as error:
        if error.step != "shapes" or error.step_code == ExitCode.INTERRUPTED:  # it only refuses what it is given
            note(f"{error.message}; {error.hint}")
        raise typer.Exit(error.step_code) from error
    if as_json:
        print_json(document)
    else:
        emit(summary(document, given.budget))


def _print_plan(tuning: ModelTuning) -> None:
    """Print the steps, and the output of `ckh bench --dry-run` for each measurement."""
    from ckh.tune.tuning import StepError, dry

    _, _, measuring = tuning.planned()
    rows = [
        [shape["problem"], " ".join(shape["layers"]), str(shape["count"]), f"{shape['share']:.1%}"]
        for shape in tuning.listed()["problems"]
    ]
    print_table("", ("problem", "layers", "count", "work"), rows)
    for step in measuring:
        if step.name == "bench" and (code := tuning.called(dry(step, tuning.out))):
            raise StepError(step.name, code)
        emit(f"$ {step.line}\n")
    export = f", ckh export --to {tuning.settings.to}" if tuning.settings.to else ""
    say(f"then: ckh train of six measured problems or more{export}")
