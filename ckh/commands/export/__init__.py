"""`ckh export`: models that run without Python and LightGBM, and kernel choices for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, completed, examples, print_json, print_table, say
from ckh.commands.export.output import (
    DescribedKernels,
    ExportChoicesDocument,
    ExportDocument,
    ExportedChoice,
    ExportListsDocument,
    FallbackList,
    MissingChoice,
)
from ckh.commands.panels import AITER, PROBLEM
from ckh.errors import UsageError
from ckh.export.consumers import all_of, named, the_table
from ckh.files.outputs import check_output, write_folder
from ckh.requested import as_option
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from ckh.export.consumers import WrittenChoices
    from ckh.learn.models.artifact import Model

_HELP = """Export models or choices of kernels to other programs (docs/consumers.md).

Models: --to c writes a folder that needs only a C compiler: a header, sources, model files (or with --embed models
compiled into the sources), CMakeLists.txt and an example; it ranks as `ckh predict` does. --to ck-dispatcher is --to
c plus a C++ header that implements a heuristic of AMD's dispatcher.

Problems: --to aiter writes tuned tables for --problems, of GEMMs or mixtures of experts. Winners of measured rows
(--data) take precedence over predictions, which are written to separate files and marked as not measured. --installed
is the AITER that will read the tables: shapes in its own tables, padded or not, are left out (unless --replace), and a
merged file has its rows and the new ones. --check AITER runs its generator and lookup on an export, without a GPU.

Kernels: --to amd-registry writes the --top kernels of each of --problems, or those of --registry, as a JSON registry of
CK's dispatcher and as the smallest configuration of the tile engine that contains them. With --ordered it writes a
first-fit fallback list, from measured rows (--data) or predictions.

PyTorch: --to inductor writes a Python module that makes Inductor time the CK and CK Tile instances that ckh ranks first
instead of a random sample.

`ckh convert` reads back the output of --to aiter.
"""
_C, _LISTS = "c", "amd-registry"


@dataclass(frozen=True, slots=True)
class _Typed:
    """Given options besides --to, --out, --force and --json; None or empty: not given."""

    model: tuple[Path, ...]
    registry: Path | None
    embed: bool
    problems: str | None
    data: tuple[Path, ...]
    op: str | None
    arch: str | None
    dtype: str | None
    variant: str | None
    num_cus: int | None
    installed: Path | None
    top: int | None
    replace: bool
    check: Path | None
    skip_unsupported: bool
    ordered: bool

    def require(self, to: str, needed: str | None, *others: str) -> None:
        """Refuse options that a target does not support, and require those that it needs."""
        typed = [name for name in self.__slots__ if getattr(self, name)]
        if strange := [name for name in typed if name not in (needed, *others)]:
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


def _targets() -> dict[str, str]:
    """Target -> source of its files: models, or a kind of `Consumers`."""
    result = {_C: "models"}
    for kind in ("headers", "tables", "instances"):
        result |= {registry_wanted.name: kind for _, registry_wanted in all_of(kind)}
    return result | {_LISTS: "lists"}


_TARGETS = _targets()


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="export",
        help=_HELP,
        epilog=examples(
            "ckh export --model models/grouped_conv_forward_fp32_host --to c --out ckh_c",
            "ckh export --model models/forward --model models/bwd_data --to c --embed --out ckh_c --force",
            "ckh export --model models/forward --registry set.json --to c --out ckh_c",
            "ckh export --model models/grouped_conv_forward_bf16_gfx950 --to ck-dispatcher --out ckh_cpp",
            "ckh export --to aiter --arch gfx942 --problems vllm.log --installed AITER --out tables",
            "ckh export --to aiter --out tables --check AITER",
            "ckh export --to aiter --arch gfx942 --problems vllm.log --data a8w8_tuned_gemm.csv --out tables",
            "ckh export --to aiter --arch gfx950 --problems untuned_fmoe.csv --installed AITER --out tables",
            "ckh export --to amd-registry --arch gfx950 --dtype bf16 --problems resnet50 --top 8 --out lists",
            "ckh export --to amd-registry --ordered --arch gfx950 --dtype bf16 --problems resnet50 --out fallback",
            "ckh export --to inductor --arch gfx942 --top 8 --out choices",
        ),
    )(export)


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
    variant: str | None = typer.Option(None, "--variant", help="Direction of convolutions."),
    num_cus: int | None = typer.Option(
        None, "--num-cus", min=1, help="Compute units of problems without them.  [those of --arch]"
    ),
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
    skip_unsupported: bool = typer.Option(
        False, "--skip-unsupported", help="Exit code 0 even if some --problems got no row; they are listed."
    ),
    top: int | None = typer.Option(
        None,
        "--top",
        min=1,
        help="With --to inductor: number of instances to time.  [Inductor's setting] With --to amd-registry: "
        "kernels of each problem [5], or with --ordered of the list [64].",
    ),
    ordered: bool = typer.Option(False, "--ordered", help="With --to amd-registry: a fallback list, first fit first."),
    force: bool = typer.Option(False, "--force", help="Replace an export in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Write the files and list them."""
    if to not in _TARGETS:
        raise UsageError(f"unknown target {to!r}", one_of(to, _TARGETS), code="unknown-name")
    typed = _Typed(
        *(tuple(model), registry, embed, problems, tuple(data), op, arch, dtype, variant, num_cus, installed, top),
        *(replace, check, skip_unsupported, ordered),
    )
    of = {"tables": _export_choices, "instances": _export_module, "lists": _export_lists}
    write = of.get(_TARGETS[to], _export_models)
    write(typed, to, out, force=force, as_json=as_json)


def _export_models(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.folder import EXPORT, with_list
    from ckh.export.to_c import c_files
    from ckh.learn.models.artifact import load_model

    typed.require(to, "model", "registry", *(("embed",) if to == _C else ()))
    check_output(out, EXPORT, force=force, inputs=[*typed.model, *([typed.registry] if typed.registry else [])])
    models = [load_model(path) for path in typed.model]
    if typed.registry is not None:
        from ckh.bench.planning.registry import limited_models

        models = limited_models(str(typed.registry), models)
    made, report = c_files(models, embed=typed.embed)
    if to != _C:
        made |= _headers(to, models)
        made["README.md"] += next(iter(named("headers", to).values())).how_to.encode()
        report["to"] = to
    files = with_list(made, report)
    write_folder(out, files.items())
    if as_json:
        print_json(ExportDocument(str(out), **report, files=_sizes(files)))
        return
    for item in report["models"]:
        targets = " and ".join(item["targets"])
        say(f"model  {item['name']}, {item['kernels']} kernels, {targets}, {item['bytes'] / 1e6:.1f} MB")
    _print_written(out, files)


def _headers(to: str, models: list[Model]) -> dict[str, bytes]:
    """Headers of a program for models, one per operation."""
    from ckh.archs import HOST
    from ckh.export.folder import model_names

    of_op = named("headers", to)
    files = {}
    for name, model in zip(model_names(models), models, strict=True):
        header = of_op.get(model.spec.op_type)
        if header is None:
            raise UsageError(f"{to} has no {model.spec.op_type}", "it has " + ", ".join(of_op), code="unsupported")
        if model.spec.arch == HOST:
            raise UsageError(
                f"{model.path} is for CPUs, and {to} runs kernels of GPUs",
                "name a model of a GPU",
                code="model-mismatch",
            )
        files[f"{name}.hpp"] = header.text(name, model).encode()
    return files


def _export_choices(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.commands.export.output import check_export, checked_document, checked_tables, conclude, print_checked
    from ckh.export.answered import ChoicesWanted, choice_table
    from ckh.export.folder import EXPORT, with_list
    from ckh.version import __version__

    others = ("model", "data", "op", "arch", "dtype", "variant", "num_cus", "installed", "replace", "skip_unsupported")
    if typed.check is not None and typed.problems is None:
        typed.require(to, "check", "op")
        check_export(to, out, typed.check, as_json=as_json)
        return
    typed.require(to, "problems", "check", *others)
    installed = typed.installed or typed.check
    if typed.replace and installed is None:
        raise UsageError("--replace needs AITER's own tables", "name it with --installed", code="inapplicable-option")
    model = typed.the_model(to)
    check_output(out, EXPORT, force=force, inputs=[*typed.model, *typed.data, Path(str(typed.problems))])
    op, table = the_table(to, typed.op, str(typed.problems))
    wanted = ChoicesWanted(
        str(typed.problems),
        model,
        *(typed.arch, typed.dtype, typed.variant, typed.num_cus, typed.data, installed, typed.replace),
    )
    made = choice_table(op, table, wanted)
    report: dict[str, Any] = {
        "to": to,
        "op_type": op.name,
        "replaces": typed.replace,
        "choices": list(made.rows),
        "missing": list(made.missing),
        "environment": dict(made.environment),
    }
    files = with_list({**made.files, "README.md": made.how_to.encode()}, {"ckh": __version__, **report})
    write_folder(out, files.items())
    checked = None if typed.check is None else checked_tables(to, out, typed.check)
    if as_json:
        print_json(
            ExportChoicesDocument(
                str(out),
                to,
                op.name,
                typed.replace,
                tuple(ExportedChoice(**row) for row in made.rows),
                tuple(MissingChoice(**item) for item in made.missing),
                made.environment,
                None if checked is None else checked_document(checked),
                _sizes(files),
            )
        )
    else:
        _print_choices(made, out, files)
        if checked is not None:
            print_checked(checked)
    conclude(checked or (), has_missing=bool(made.missing) and not typed.skip_unsupported)


def _print_choices(made: WrittenChoices, out: Path, files: dict[str, bytes]) -> None:
    rows = [[row["problem"], row["kernel"], row["basis"]] for row in made.rows]
    print_table("", ("problem", "kernel", "basis"), rows)
    predicted = sum(bool(row["predicted"]) for row in made.rows)
    if predicted:
        say(f"\nNOT MEASURED: {predicted} of {len(rows)} choices are predictions, in separate files")
    if made.missing:
        print_table("", ("no row for", "reason"), [[item["problem"], item["reason"]] for item in made.missing])
        say(f"\nNO ROW: {len(made.missing)} of {len(rows) + len(made.missing)} problems")
    for name, value in made.environment.items():
        say(f'export {name}="{value.replace("OUT/", f"{out.resolve()}/")}"')
    _print_written(out, files)


def _export_module(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.folder import EXPORT, with_list
    from ckh.export.to_python import module_files

    typed.require(to, None, "model", "arch", "top")
    model = typed.the_model(to)
    check_output(out, EXPORT, force=force, inputs=typed.model)
    made, report = module_files(to, model, typed.arch, typed.top)
    files = with_list(made, report)
    write_folder(out, files.items())
    if as_json:
        print_json(ExportDocument(str(out), **report, files=_sizes(files)))
        return
    _print_written(out, files)


def _export_lists(typed: _Typed, to: str, out: Path, *, force: bool, as_json: bool) -> None:
    from ckh.export.folder import EXPORT, with_list
    from ckh.export.kernel_lists import RegistryWanted, registry_files
    from ckh.learn.models.choice import Chooser

    typed.require(to, None, "model", "registry", "problems", "data", "op", "arch", "dtype", "top", "ordered")
    model = typed.the_model(to)
    _require_source(typed)
    inputs = [*typed.model, *typed.data, *([typed.registry] if typed.registry else [])]
    check_output(out, EXPORT, force=force, inputs=inputs)
    chooser = Chooser(model, typed.arch, typed.dtype, typed.op)
    wanted = RegistryWanted(typed.problems, typed.data, typed.registry, typed.top, typed.ordered, out.name)
    made, report = registry_files(chooser, wanted)
    files = with_list(made, report)
    write_folder(out, files.items())
    if as_json:
        described = {name: DescribedKernels(**item) for name, item in report["described"].items()}
        ordered = report["ordered"] and FallbackList(**report["ordered"])
        print_json(
            ExportListsDocument(str(out), **report | {"described": described, "ordered": ordered}, files=_sizes(files))
        )
        return
    for name, item in report["described"].items():
        say(f"{item['form']}  {name}, {item['kernels']} kernels")
    if (result := report["ordered"]) is not None:
        say(
            f"first fit of {len(report['kernels'])} kernels: {result['efficiency']:.1%} of the best speed on "
            f"{result['problems']} problems ({result['basis']}); the best single kernel: "
            f"{result['single_efficiency']:.1%}; the best of each: {result['oracle']:.1%}"
        )
    _print_written(out, files)


def _require_source(typed: _Typed) -> None:
    """Refuse conflicting options of kernel lists, and missing ones."""
    if typed.registry is not None and (typed.ordered or typed.problems or typed.data):
        raise UsageError(
            "--registry determines the kernels",
            "omit --ordered, --problems and --data",
            code="inapplicable-option",
        )
    if typed.registry is not None and typed.top:
        raise UsageError("--top and --registry exclude each other", "omit --top", code="conflicting-options")
    if typed.data and not typed.ordered:
        raise UsageError("--data is for --ordered", "omit it, or add --ordered", code="inapplicable-option")
    if typed.registry is None and typed.problems is None and not typed.data:
        raise UsageError(
            f"--to {_LISTS} needs --problems or --registry", "see ckh export --help", code="missing-option"
        )


def _sizes(files: dict[str, bytes]) -> dict[str, int]:
    return {name: len(content) for name, content in files.items()}


def _print_written(out: Path, files: dict[str, bytes]) -> None:
    size = sum(map(len, files.values()))
    say(f"wrote  {out}: {len(files)} files, {size / 1e6:.1f} MB; {out / 'README.md'} says how to use them")
