"""`ckh report`: figures of datasets, runs, searches and models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands._common import JSON_HELP, examples, import_lightgbm, print_json, say
from ckh.commands.evaluate import AMONG, LEARNED_FROM
from ckh.documents import Document
from ckh.errors import DataError, UsageError
from ckh.files.outputs import FileKind, check_output, head_of, write_output
from ckh.learn.judging.judged_data import Among, files_learned_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.report.drawing import Report

_HELP = """Plot measurements or models, as a self-contained HTML page or as files.

WHAT is a dataset or a folder of ckh bench or ckh search measure (sizes, times, winning kernels, failures, noise and
drift over time), or a model with --data (efficiency beside baselines, regret, a heat map, calibration, worst
choices). A model is evaluated by the answers of `ckh predict`; --among measured ranks the measured kernels only.
ckh validate compare compares two models.

The page supports light and dark colours, phones and screen readers, with the numbers of every figure. --plots writes
each figure as SVG and PNG too.
"""


class ReportDocument(Document):
    """ckh report --json: the report and its figures."""

    schema = "report"

    out: str
    """The report file."""
    figures: tuple[str, ...]
    """Names of the figures, in order."""
    plots: str | None
    """Folder of the SVG and PNG files."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="report",
        help=_HELP,
        epilog=examples(
            "ckh report data.parquet",
            "ckh report runs/resnet --out run.html --force",
            "ckh report models/mine --data holdout.parquet --train-data train.parquet",
            "ckh report models/mine --data holdout.parquet --plots pictures",
        ),
    )(report)


def report(
    what: list[Path] = typer.Argument(..., metavar="DIR|DATA...|MODEL", help="Datasets, run or model to plot."),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="HTML page to write."),
    plots: Path | None = typer.Option(None, "--plots", metavar="DIR", help="Write each figure as SVG and PNG too."),
    data: list[Path] = typer.Option([], "--data", help="Model: measured dataset to evaluate on; may be repeated."),
    train_data: list[Path] = typer.Option([], "--train-data", help=f"Model. {LEARNED_FROM}"),
    among: Among = AMONG,
    force: bool = typer.Option(False, "--force", help="Replace files of an earlier report."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Collect the data, plot and write."""
    from ckh.report.draw import require_matplotlib

    require_matplotlib()
    check_output(out, _page_kind(), force=force, inputs=[*what, *data, *train_data])
    if _is_model(what):
        made = _report_model(what[0], data, train_data, among)
    else:
        made = _report_data(what, [*data, *train_data])
    written = _write(made, out, plots, force=force)
    if as_json:
        print_json(ReportDocument(str(out), tuple(written), None if plots is None else str(plots)))
        return
    folder = "" if plots is None else f", and each as SVG and PNG in {plots}"
    say(f"wrote {out}: {len(written)} figures{folder}")


def _page_kind() -> FileKind:
    from ckh.report.html_page import PAGE_START

    return FileKind("report of ckh", lambda path: head_of(path).startswith(PAGE_START))


def _is_run(path: Path) -> bool:
    from ckh.data.journal import JOURNAL_NAME

    return (path / JOURNAL_NAME).is_file() or path.name == JOURNAL_NAME


def _is_model(paths: Sequence[Path]) -> bool:
    from ckh.learn.models.spec import SPEC_NAME

    is_model = any((path / SPEC_NAME).is_file() for path in paths)
    if is_model and len(paths) > 1:
        hint = "compare two models with ckh validate compare"
        raise UsageError(f"{len(paths)} paths: a report is of one model", hint, code="several-models")
    return is_model


def _report_data(paths: list[Path], data: Sequence[Path]) -> Report:
    from tempfile import TemporaryDirectory

    from ckh.data.conversion import convert
    from ckh.data.dataset import read_dataset
    from ckh.data.formats import ReadOptions
    from ckh.report.measurements import report_dataset

    if data:
        raise UsageError("--data and --train-data are for a model", "omit them", code="inapplicable-option")
    if len(paths) == 1 and _is_run(paths[0]):
        with TemporaryDirectory(prefix="ckh-data-") as folder:
            convert(paths, Path(folder, "run.parquet"), ReadOptions())
            return report_dataset(read_dataset(folder), paths)
    for path in paths:
        if path.is_dir() and not list(path.glob("*.parquet")):
            raise DataError(
                f"{path} is neither a run, a model nor a dataset",
                "name a folder of ckh bench, a model directory or a file of ckh convert",
                code="unknown-format",
            )
    return report_dataset(read_dataset(*paths), paths)


def _report_model(path: Path, data: list[Path], train_data: list[Path], among: Among) -> Report:
    from ckh.learn.judging.judged_data import held_out, load_judged, won
    from ckh.learn.models.artifact import load_model
    from ckh.report.of_models import judge, report_model
    from ckh.report.roofline import HARDWARE_COLUMNS

    if not data:
        raise UsageError(
            "a model needs measured problems", "name them with --data HOLDOUT.parquet", code="missing-option"
        )
    import_lightgbm()
    model = load_model(path)
    parts = held_out(load_judged(model, data, HARDWARE_COLUMNS), [model])
    if (is_won := won(parts, model)).all():
        raise UsageError("only winners are known, without efficiency", "see ckh evaluate", code="winners-only")
    dataset = parts.select_problems(~is_won).whole()
    judged = judge(model, dataset, measured_alone=among is Among.MEASURED)
    train_data = files_learned_from(model, train_data, data)
    learned_from = load_judged(model, train_data).whole() if train_data else None
    return report_model(judged, learned_from)


def _write(made: Report, out: Path, plots: Path | None, *, force: bool) -> list[str]:
    """Write the page and, with a folder, the figures; returns the names of the figures."""
    from ckh.report.draw import file_png, file_svg
    from ckh.report.html_page import page

    files = (
        {}
        if plots is None
        else {plots / f"{figure.name}.{kind}": figure for figure in made.figures for kind in ("svg", "png")}
    )
    for path in files:
        check_output(path, _SVG if path.suffix == ".svg" else _PNG, force=force)
    for path, figure in files.items():
        write_output(path, file_svg(figure) if path.suffix == ".svg" else file_png(figure))
    write_output(out, page(made))
    return [figure.name for figure in made.figures]


_SVG = FileKind("picture in SVG", lambda path: b"<svg" in head_of(path))
_PNG = FileKind("picture in PNG", lambda path: head_of(path).startswith(b"\x89PNG"))
