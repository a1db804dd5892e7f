"""`ckh explain`: cycle breakdown of a kernel."""

from __future__ import annotations

from pathlib import Path

import typer

from ckh.commands._common import JSON_HELP, completed, examples, print_json
from ckh.text.log import emit

_HELP = """Show where a kernel's clocks go, from its machine code. No GPU is needed.

The code is the kernel in the cache, else it is compiled with a HIP compiler; --code-object names a file: a code object
(.co, .hsaco), or a library with GPU code for gfx90a, gfx942 or gfx950.

It shows the kernel's GPU functions, and for the one that the problem runs (without a problem: the one with the
largest loop) one iteration over K: instructions by kind, bytes, clocks of each pipe, waits, registers, and blocks per
compute unit with their limit. Clocks are counted; nothing is measured.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="explain",
        help=_HELP,
        epilog=examples(
            "ckh explain KERNEL PROBLEM --arch gfx950",
            "ckh explain Kernel --code-object kernel.co --json",
        ),
    )(explain)


def explain(
    kernel: str = typer.Argument(
        ..., metavar="KERNEL", help="Complete name, as ckh predict prints it; with --code-object, part of a function's."
    ),
    problem: str | None = typer.Argument(
        None, metavar="[PROBLEM]", help="A problem that it runs: its text, as ckh predict prints it.  [none]"
    ),
    arch: str | None = completed("arch", "Architecture.  [the code object's, else this machine's GPU]"),
    code_object: Path | None = typer.Option(
        None, "--code-object", metavar="FILE", help="File with the machine code.  [the cache, else compiled]"
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Explain and print."""
    from ckh.archs import default_arch
    from ckh.isa.source import described
    from ckh.isa.text import anatomy_text
    from ckh.shapes.problems import problem_of_text

    runs = None if problem is None else problem_of_text(problem, arch or default_arch())
    anatomy = described(kernel, runs, arch, code_object)
    if as_json:
        print_json(anatomy)
    else:
        emit(anatomy_text(anatomy))
