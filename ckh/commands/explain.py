"""`ckh explain`: cycle breakdown of a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands._common import JSON_HELP, examples, print_json
from ckh.commands._problem_options import Typed, says_a_problem
from ckh.errors import UsageError
from ckh.problems import Direction
from ckh.text.log import emit

if TYPE_CHECKING:
    from ckh.isa.describe import Described
    from ckh.ops.base import Problem

_HELP = """Show where a kernel's clocks go, from its machine code. No GPU is needed.

The code is the kernel in the cache, else it is compiled with a HIP compiler; --code-object names a file: a code object
(.co, .hsaco), or a library with GPU code for gfx90a, gfx942 or gfx950.

It shows the kernel's GPU functions, and for the one that the problem runs (without a problem: the one with the
largest loop) one iteration over K: instructions by kind, bytes, clocks of each pipe, waits, registers, and blocks per
compute unit with their limit. Clocks are counted, or simulated for in-order waves; nothing is measured.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="explain",
        help=_HELP,
        epilog=examples(
            "ckh explain KERNEL --arch gfx950 --n 16 --c 256",
            "ckh explain KERNEL --code-object kernel.hsaco --svg iteration.svg",
            "ckh explain Kernel --code-object kernel.co --json",
        ),
    )(explain)


@says_a_problem
def explain(
    typed: Typed,
    kernel: str = typer.Argument(
        ..., metavar="KERNEL", help="Complete name, as ckh predict prints it; with --code-object, part of a function's."
    ),
    code_object: Path | None = typer.Option(
        None, "--code-object", metavar="FILE", help="File with the machine code.  [the cache, else compiled]"
    ),
    svg: Path | None = typer.Option(
        None, "--svg", metavar="FILE", help="Draw the timeline of one iteration's waves as SVG."
    ),
    force: bool = typer.Option(False, "--force", help="Replace a picture in --svg."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Explain and print."""
    from ckh.files.outputs import SVG, check_output
    from ckh.isa.source import described
    from ckh.isa.text import anatomy_text

    if svg is not None:
        check_output(svg, SVG, force=force, inputs=[] if code_object is None else [code_object])
    result = described(kernel, _problem(typed, kernel), typed.arch, code_object)
    if svg is not None:
        _draw(result, svg)
    if as_json:
        print_json(result.anatomy)
    else:
        emit(anatomy_text(result.anatomy))


def _problem(typed: Typed, name: str) -> Problem | None:
    """The given problem, of the kernel's operation, direction and element type; None if none was given."""
    from ckh.isa.source import kernel_named

    if not typed.sizes:
        return None
    named = kernel_named(name)
    if named is None:
        raise UsageError(f"{name!r} is not a complete name of a kernel", "omit the problem", code="incomplete-kernel")
    op, kernel = named
    variant = typed.variant or (Direction(kernel.variant) if op.has_directions else None)
    whole = replace(typed, op=op.name, dtype=typed.dtype or kernel.dtype, variant=variant)
    return whole.problem(whole.chooser(typed.arch), "explain")


def _draw(described: Described, path: Path) -> None:
    from ckh.files.outputs import write_output
    from ckh.isa.text import timeline_svg

    if described.timeline is None:
        raise UsageError("the kernel has no loop to draw", "omit --svg", code="inapplicable-option")
    write_output(path, timeline_svg(described.anatomy, described.timeline).encode())
