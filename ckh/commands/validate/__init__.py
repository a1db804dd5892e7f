"""`ckh validate`: gates, with the verdict as exit code."""

from __future__ import annotations

import typer

from ckh.commands._common import examples
from ckh.commands.validate import compare, kernels, oracle, parity, selection


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(
        name="validate",
        help="Gates: choices against an oracle or golden ones, models against each other, consumers, working kernels.",
        epilog=examples(
            "ckh validate oracle --model models/mine --data holdout.parquet",
            "ckh validate compare models/old models/new --data holdout.parquet",
            "ckh validate selection golden.json",
            "ckh validate parity --problems resnet50 --arch gfx950 --dtype bf16",
            "ckh validate kernels --matrix pipelines",
        ),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    oracle.register(group)
    compare.register(group)
    selection.register(group)
    parity.register(group)
    kernels.register(group)
    app.add_typer(group)
