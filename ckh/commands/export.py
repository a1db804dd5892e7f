"""`ckh export`: models for programs that have neither Python nor LightGBM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples, print_json
from ckh.errors import UsageError
from ckh.outputs import check_output, write_folder
from ckh.strenum import StrEnum

_HELP = """Write models for other programs: as C, or as text for LightGBM's C interface.

--to c writes a folder that needs nothing but a C compiler: a header, sources, the models as files (or with --embed as
part of the sources), CMakeLists.txt and an example. It ranks as `ckh predict` does. --to lgbm writes LightGBM's text
and the inputs' names.
"""


class Target(StrEnum):
    """What models are written as."""

    C = "c"
    LGBM = "lgbm"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="export",
        help=_HELP,
        epilog=examples(
            "ckh export --model models/grouped_conv_forward_fp32_host --to c --out ckh_c",
            "ckh export --model models/forward --model models/bwd_data --to c --embed --out ckh_c --force",
            "ckh export --model models/forward --registry set.json --to c --out ckh_c",
            "ckh export --model models/gemm_universal_fp32_host --to lgbm --out text",
        ),
    )(export)


def export(
    model: list[Path] = typer.Option(
        ..., "--model", "-m", autocompletion=_completion.models, help="Model directory; may be repeated."
    ),
    to: Target = typer.Option(..., "--to", help="What to write."),
    out: Path = typer.Option(..., "--out", help="Folder to write."),
    registry: Path | None = typer.Option(None, "--registry", help="Only the kernels of this JSON registry."),
    embed: bool = typer.Option(False, "--embed", help="With --to c: models as part of the sources."),
    force: bool = typer.Option(False, "--force", help="Replace an export in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Write the folder and say what is in it."""
    from ckh.export.folder import EXPORT, with_list
    from ckh.export.to_c import c_files
    from ckh.export.to_lgbm import lgbm_files
    from ckh.learn.artifact import load_model

    for name, is_given in (("--embed", embed), ("--registry", registry is not None)):
        if is_given and to is not Target.C:
            raise UsageError(f"{name} goes with --to c only", "leave it out")
    check_output(out, EXPORT, force=force, inputs=[*model, *([] if registry is None else [registry])])
    models = [load_model(path) for path in model]
    if registry is not None:
        from ckh.bench.registry import limit_models

        limit_models(registry, models)
    made, report = c_files(models, embed=embed) if to is Target.C else lgbm_files(models)
    files = with_list(made, report)
    write_folder(out, files.items())
    if as_json:
        print_json(
            "export", {"out": str(out), **report, "files": {name: len(content) for name, content in files.items()}}
        )
        return
    for one in report["models"]:
        typer.echo(f"model  {one['name']}, {_in_words(one)}")
    size = sum(map(len, files.values()))
    typer.echo(f"wrote  {out}: {len(files)} files, {size / 1e6:.1f} MB; {out / 'README.md'} tells how to use them")


def _in_words(one: dict[str, Any]) -> str:
    if "kernels" not in one:
        return f"{', '.join(one['targets'])} of {one['features']} features"
    return f"{one['kernels']} kernels, {' and '.join(one['targets'])}, {one['bytes'] / 1e6:.1f} MB"
