"""`ckh export`: models that run without Python and LightGBM, and kernel choices for other programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, completed, examples, print_json, print_table, say
from ckh.commands.help import AITER, PROBLEM
from ckh.documents import Document
from ckh.errors import ExitCode, UsageError
from ckh.export.consumers import CheckedFile, ExportedChoice, MissingChoice, all_of, the_table
from ckh.export.folder import EXPORT, with_list
from ckh.files.outputs import check_output, write_folder
from ckh.requested import as_option
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.export.consumers import TakenRow, WrittenChoices

_HELP = """Export models or choices of kernels to other programs (docs/consumers.md).

Models: --to c writes a folder that needs only a C compiler: a header, sources, model files (or with --embed models
compiled into the sources), CMakeLists.txt and an example; it ranks as `ckh predict` does. --to ck-dispatcher is --to
c plus a C++ header that implements a heuristic of AMD's dispatcher.

Problems: --to aiter writes tuned tables for --problems, of GEMMs or mixtures of experts. Winners of measured rows
(--data) take precedence over predictions, which are written to separate files and marked as not measured. --installed
is the AITER that will read the tables: shapes in its own tables, padded or not, are left out (unless --replace), and a
merged file has its rows and the new ones. --check AITER runs its generator and lookup on an export, without a GPU.
Problems without a row are listed; exit code 5 if there are any.

Kernels: --to amd-registry writes the --top kernels of each of --problems, or those of --registry, as a JSON registry of
CK's dispatcher and as the smallest configuration of the tile engine that contains them.

PyTorch: --to inductor writes a Python module that makes Inductor time the CK and CK Tile instances that ckh ranks first
instead of a random sample.

`ckh convert` reads back the output of --to aiter.
"""
_C, _LISTS = "c", "amd-registry"
_UNMEASURED = "predicted, unmeasured"  # instead of the upper bound that AITER's tables need


class ExportDocument(Document):
    """ckh export --json: exported files."""

    schema = "export"

    out: str
    """The folder."""
    ckh: str
    """Version."""
    to: str
    """The program or format."""
    models: tuple[Mapping[str, Any], ...]
    files: Mapping[str, int]
    """Bytes by name."""
    embedded: bool | None = None
    """Whether C sources hold the models."""


class ExportChoicesDocument(Document):
    """ckh export --json of problems: choices and exported files."""

    schema = "export_choices"

    out: str
    """The folder."""
    to: str
    """The program."""
    op_type: str
    """The operation."""
    replaces: bool
    """Whether choices replace the program's own rows."""
    choices: tuple[ExportedChoice, ...]
    """Choices in the order of the problems."""
    missing: tuple[MissingChoice, ...]
    """Problems without a row."""
    environment: Mapping[str, str]
    """Environment variables that make the program read the files, in shell syntax; OUT stands for the folder."""
    checked: tuple[CheckedFile, ...] | None
    """Tables as read by the program's own code; null: not checked."""
    files: Mapping[str, int]
    """Bytes by name."""


@dataclass(frozen=True, slots=True)
class DescribedKernels:
    """The kernels of a file."""

    form: Literal["registry", "configuration"]
    kernels: int
    """Kernels of the file that the architecture supports."""


class ExportListsDocument(Document):
    """ckh export --json of kernels for AMD's tools: kernels and exported files."""

    schema = "export_lists"

    out: str
    """The folder."""
    to: str
    """The format."""
    op_type: str
    """The operation."""
    arch: str
    kernels: tuple[str, ...]
    """Complete names, in the order of the lists."""
    described: Mapping[str, DescribedKernels]
    """Kernels of each file."""
    files: Mapping[str, int]
    """Bytes by name."""


class ExportCheckedDocument(Document):
    """ckh export --check --json: an export as read by a program's own code."""

    schema = "export_checked"

    out: str
    """The folder."""
    to: str
    """The program."""
    checked: tuple[CheckedFile, ...]
    """Tables as read by the program's own code."""


_KINDS = ("headers", "tables", "instances")  # of `Consumers`
# Target -> source of its files: models, or a kind of `Consumers`.
_TARGETS = {_C: "models", **{part.name: kind for kind in _KINDS for _, part in all_of(kind)}, _LISTS: "lists"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="export",
        help=_HELP,
        epilog=examples(
            "ckh export --model models/grouped_conv_forward_bf16_gfx950 --to c --out ckh_c",
            "ckh export --model models/forward --model models/bwd_data --to c --embed --out ckh_c --force",
            "ckh export --model models/grouped_conv_forward_bf16_gfx950 --to ck-dispatcher --out ckh_cpp",
            "ckh export --to aiter --arch gfx942 --problems vllm.log --installed AITER --out tables",
            "ckh export --to aiter --out tables --check AITER",
            "ckh export --to aiter --arch gfx942 --problems vllm.log --data a8w8_tuned_gemm.csv --out tables",
            "ckh export --to amd-registry --arch gfx950 --dtype bf16 --problems resnet50 --top 8 --out lists",
            "ckh export --to inductor --arch gfx942 --top 8 --out choices",
        ),
    )(export)


@dataclass(frozen=True, slots=True)
class _Typed:
    """The options that only some targets take; None or empty: not given."""

    model: tuple[Path, ...]
    registry: Path | None
    embed: bool
    problems: str | None
    data: tuple[Path, ...]
    op: str | None
    arch: str | None
    dtype: str | None
    installed: Path | None
    replace: bool
    check: Path | None
    top: int | None

    def require(self, to: str, needed: str | None, *optional: str) -> None:
        """Refuse options that a target does not support, and require those that it needs."""
        typed = [name for name in self.__slots__ if getattr(self, name)]
        if strange := [name for name in typed if name not in (needed, *optional)]:
            raise UsageError(
                f"{as_option(strange[0])} is not supported by --to {to}", "omit it", code="inapplicable-option"
            )
        if needed is not None and needed not in typed:
            raise UsageError(f"--to {to} needs {as_option(needed)}", "see ckh export --help", code="missing-option")

    def the_model(self, to: str) -> Path | None:
        """The model of a target that takes one, if given."""
        if len(self.model) > 1:
            raise UsageError(
                f"--to {to} takes one --model",
                "omit it to use the first model that fits each problem",
                code="several-models",
            )
        return self.model[0] if self.model else None


def export(
    to: str = typer.Option(..., "--to", metavar="[" + "|".join(_TARGETS) + "]", help="Target."),
    out: Path = typer.Option(..., "--out", help="Output folder."),
    model: list[Path] = typer.Option(
        [], "--model", "-m", autocompletion=_completion.models, help="Model directory; may be repeated for C."
    ),
    registry: Path | None = typer.Option(None, "--registry", help="Only the kernels of this JSON registry."),
    embed: bool = typer.Option(False, "--embed", help="With --to c: compile models into the sources."),
    problems: str | None = completed(
        "problems", "Problems as in ckh predict; also AITER's untuned CSV files and logs."
    ),
    data: list[Path] = typer.Option(
        [], "--data", metavar="FILE", help="Measured datasets, or any input of ckh convert; may be repeated."
    ),
    op: str | None = completed("op", "Operation, if the target supports several."),
    arch: str | None = completed("arch", "Architecture.", panel=PROBLEM),
    dtype: str | None = completed("dtype", "Element type of problems without one."),
    installed: Path | None = typer.Option(
        None,
        "--installed",
        rich_help_panel=AITER,
        help="With --to aiter: AITER's source or package: its kernels, numbers and own tables.",
    ),
    replace: bool = typer.Option(
        False, "--replace", rich_help_panel=AITER, help="Include shapes of AITER's own tables."
    ),
    check: Path | None = typer.Option(
        None,
        "--check",
        metavar="AITER",
        rich_help_panel=AITER,
        help="Run the generator and lookup of this AITER on an existing export, or on that of --problems.",
    ),
    top: int | None = typer.Option(
        None,
        "--top",
        min=1,
        help="With --to inductor: number of instances to time.  [Inductor's setting] With --to amd-registry: "
        "kernels of each problem.  [5]",
    ),
    force: bool = typer.Option(False, "--force", help="Replace an export in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Write the files and list them."""
    if to not in _TARGETS:
        raise UsageError(f"unknown target {to!r}", one_of(to, _TARGETS), code="unknown-name")
    typed = _Typed(
        *(tuple(model), registry, embed, problems, tuple(data), op, arch, dtype, installed, replace, check),
        top,
    )
    exporters = {"tables": _export_choices, "instances": _export_module, "lists": _export_lists}
    exporters.get(_TARGETS[to], _export_models)(typed, to, out, force=force, as_json=as_json)


def _export_models(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.to_c import model_files
    from ckh.learn.models.artifact import load_model

    typed.require(to, "model", "registry", *(("embed",) if to == _C else ()))
    check_output(out, EXPORT, force=force, inputs=[*typed.model, *([typed.registry] if typed.registry else [])])
    models = [load_model(path) for path in typed.model]
    if typed.registry is not None:
        from ckh.bench.planning.registry import limited_models

        models = limited_models(str(typed.registry), models)
    files, report = model_files(to, models, embed=typed.embed)
    sizes = _write(out, files, report)
    if as_json:
        print_json(ExportDocument(str(out), **report, files=sizes))
        return
    for model in report["models"]:
        targets = " and ".join(model["targets"])
        say(f"model  {model['name']}, {model['kernels']} kernels, {targets}, {model['bytes'] / 1e6:.1f} MB")
    _say_written(out, sizes)


def _export_choices(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.answered import ChoicesWanted, checked_tables, choice_table
    from ckh.version import __version__

    if typed.check is not None and typed.problems is None:
        typed.require(to, "check", "op")
        existing = checked_tables(to, out, typed.check)
        if as_json:
            print_json(ExportCheckedDocument(str(out), to, existing))
        else:
            _print_checked(existing)
        if any(table.problems for table in existing):
            raise typer.Exit(int(ExitCode.GATE_FAILED))
        return
    optional = ("model", "data", "op", "arch", "dtype", "installed", "replace")
    typed.require(to, "problems", "check", *optional)
    installed = typed.installed or typed.check
    if typed.replace and installed is None:
        raise UsageError("--replace needs AITER's own tables", "name it with --installed", code="inapplicable-option")
    model, problems = typed.the_model(to), str(typed.problems)
    check_output(out, EXPORT, force=force, inputs=[*typed.model, *typed.data, Path(problems)])
    op, table = the_table(to, typed.op, problems)
    wanted = ChoicesWanted(problems, model, typed.arch, typed.dtype, typed.data, installed)
    made = choice_table(op, table, wanted, replaces=typed.replace)
    report: dict[str, Any] = {
        "to": to,
        "op_type": op.name,
        "replaces": typed.replace,
        "choices": list(map(asdict, made.rows)),
        "missing": list(map(asdict, made.missing)),
        "environment": dict(made.environment),
    }
    sizes = _write(out, {**made.files, "README.md": made.how_to.encode()}, {"ckh": __version__, **report})
    checked = None if typed.check is None else checked_tables(to, out, typed.check)
    if as_json:
        report |= {"choices": made.rows, "missing": made.missing}
        print_json(ExportChoicesDocument(str(out), **report, checked=checked, files=sizes))
    else:
        _print_choices(made, out, sizes)
        if checked is not None:
            _print_checked(checked)
    if any(table.problems for table in checked or ()):
        raise typer.Exit(int(ExitCode.GATE_FAILED))
    if made.missing:
        raise typer.Exit(int(ExitCode.NO_KERNEL))


def _print_choices(made: WrittenChoices, out: Path, sizes: Mapping[str, int]) -> None:
    rows = [[row.problem, row.kernel, _UNMEASURED if row.predicted else row.basis] for row in made.rows]
    print_table("", ("problem", "kernel", "basis"), rows)
    predicted = sum(row.predicted for row in made.rows)
    if predicted:
        say(f"\nNOT MEASURED: {predicted} of {len(rows)} choices are predictions, in separate files")
    if made.missing:
        print_table("", ("no row for", "reason"), [[choice.problem, choice.reason] for choice in made.missing])
        say(f"\nNO ROW: {len(made.missing)} of {len(rows) + len(made.missing)} problems")
    for name, value in made.environment.items():
        say(f'export {name}="{value.replace("OUT/", f"{out.resolve()}/")}"')
    _say_written(out, sizes)


def _print_checked(checked: Sequence[CheckedFile]) -> None:
    """Print the row that the program selects for each shape, without and with the export, and errors."""

    def words(row: TakenRow | None) -> str:
        if row is None:
            return "default"
        basis = "not measured" if row.predicted else f"{row.us} us"
        return f"{row.kernel} splitK={row.split_k} ({basis})"

    for table in checked:
        rows = [[shape.problem, words(shape.today), words(shape.export)] for shape in table.shapes]
        print_table(table.file, ("problem", "today", "with this export"), rows)
        say(f"rows  {table.rows_before} today, {table.rows_after} with this export, {table.lost} lost")
        for problem in table.problems:
            say(f"WRONG  {problem}")
    if not checked:
        say("nothing to check: the export has no table")
    elif not any(table.problems for table in checked):
        say("OK: the program finds every row, builds every kernel, and keeps its own rows")


def _export_module(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.to_python import module_files

    typed.require(to, None, "model", "arch", "top")
    model = typed.the_model(to)
    check_output(out, EXPORT, force=force, inputs=typed.model)
    files, report = module_files(to, model, typed.arch, typed.top)
    sizes = _write(out, files, report)
    if as_json:
        print_json(ExportDocument(str(out), **report, files=sizes))
    else:
        _say_written(out, sizes)


def _export_lists(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.answered import registry_files
    from ckh.learn.answers.answering import Chooser

    typed.require(to, None, "model", "registry", "problems", "op", "arch", "dtype", "top")
    if typed.registry is not None and (typed.problems or typed.top):
        raise UsageError("--registry determines the kernels", "omit --problems and --top", code="inapplicable-option")
    if typed.registry is None and typed.problems is None:
        raise UsageError(f"--to {to} needs --problems or --registry", "see ckh export --help", code="missing-option")
    check_output(out, EXPORT, force=force, inputs=[*typed.model, *([typed.registry] if typed.registry else [])])
    chooser = Chooser(typed.the_model(to), typed.arch, typed.dtype, typed.op)
    files, report = registry_files(chooser, typed.registry, typed.problems, typed.top, out.name)
    sizes = _write(out, files, report)
    if as_json:
        print_json(ExportListsDocument(str(out), **report, files=sizes))
        return
    for name, description in report["described"].items():
        say(f"{description['form']}  {name}, {description['kernels']} kernels")
    _say_written(out, sizes)


def _write(out: Path, made: Mapping[str, bytes], report: Mapping[str, Any]) -> dict[str, int]:
    """Write an export with its list of files, and return the bytes of each."""
    files = with_list(made, report)
    write_folder(out, files.items())
    return {name: len(content) for name, content in files.items()}


def _say_written(out: Path, sizes: Mapping[str, int]) -> None:
    size = sum(sizes.values())
    say(f"wrote  {out}: {len(sizes)} files, {size / 1e6:.1f} MB; {out / 'README.md'} says how to use them")
