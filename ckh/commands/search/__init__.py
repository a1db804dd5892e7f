"""`ckh search`: kernels beyond the candidates, by a model or by measuring (`measure`), and small sets (`set`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.cluster.connection import CLUSTER_HELP
from ckh.commands._common import JSON_HELP, completed, examples, print_json, print_table, say
from ckh.commands._declared_options import has_options_of
from ckh.commands._problem_options import Typed, says_a_problem
from ckh.errors import ExitCode, ModelError, UsageError
from ckh.search.settings import SearchSettings
from ckh.strenum import StrEnum
from ckh.text.durations import format_duration
from ckh.text.log import emit, note
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from ckh.search.kernel_set import SearchSetDocument

_SHOWN = 40  # printed steps of a curve
_HELP = """Find the fastest kernel for a problem among all kernels that can be built, not only predict's candidates.

The problem is given as for ckh predict. The search space has the candidates and every other combination of tile, waves,
warp tile, pipeline and options that satisfies the rules of the architecture and the problem.

A model scores the whole space, and the output is its exact optimum; tied kernels count once. If no model fits, the
nearest or an estimate scores, as for ckh predict, marked NOT MEASURED; --require measured refuses that.

ckh search measure compiles and times kernels of this space; ckh search set selects a small set of measured kernels.
"""
_MEASURE_HELP = """Find the fastest kernel for a problem by compiling and timing kernels of the space of ckh search.

PROBLEM is the text by which ckh predict names it, or a source of shapes, as of ckh tune, that has a single one.

A Gaussian process proposes kernels, which are compiled, checked and timed on the device, each in a separate worker,
until --evaluations of them or the time of --budget are used up; failures count. Very large spaces are subsampled. A
model's scores, if one fits, determine the initial proposals. Idle compilers (--jobs) compile likely next proposals. At
the end the best --top and the model's first choice among the candidates are timed again, interleaved. Every result is
journalled in --out; Ctrl-C keeps all of them.
"""
_SET_HELP = """Select the smallest set of measured kernels that is enough for a workload.

The set keeps 99 % (--keep) of the oracle's mean over the problems in --data, with a working kernel for every problem:
exactly for small pools, else greedily, with a lower bound of the set size. ckh bench, predict and export take the
registry that --write-registry writes.
"""


class OnlyMeasured(StrEnum):
    """The values of `--require`."""

    MEASURED = "measured"


_REQUIRE = typer.Option(
    None, "--require", help="Refuse, with exit code 4, answers not by a model of this GPU and element type."
)
_JSON = typer.Option(False, "--json", help=JSON_HELP)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(
        name="search",
        help=_HELP,
        epilog=examples(
            "ckh search --n 16 --c 256",
            "ckh search --m 128 --n 1536 --k 7168 --top 5",
            "ckh search measure layer1.csv --evaluations 200 --budget 10m --out runs/layer1",
            "ckh search set --size 20 --data layers.parquet --write-registry set.json",
        ),
        invoke_without_command=True,
        subcommand_metavar="[COMMAND]",
        rich_markup_mode=None,
    )
    group.callback()(search)
    group.command(
        name="measure",
        help=_MEASURE_HELP,
        short_help="Compile and time kernels of the space, proposed by a Gaussian process.",
        epilog=examples(
            "ckh search measure layer1.csv --evaluations 200 --budget 10m --out runs/layer1",
            "ckh search measure gemm_fp16_rcr_m16_n4096_k4096_splitk1 --device hip --json",
            "ckh convert runs/layer1 --out layer1.parquet",
        ),
    )(measure)
    group.command(
        name="set",
        help=_SET_HELP,
        short_help="Select the smallest set of measured kernels that is enough.",
        epilog=examples(
            "ckh search set --size 20 --data layers.parquet",
            "ckh search set --size 20 --keep 0.95 --data layers.parquet --write-registry set.json",
        ),
    )(select)
    app.add_typer(group)


@says_a_problem
def search(
    typed: Typed,
    context: typer.Context,
    require: OnlyMeasured | None = _REQUIRE,
    top: int | None = typer.Option(None, "--top", min=1, help="Number of kernels to print.  [10]"),
    as_json: bool = _JSON,
) -> None:
    """Score with the model and print."""
    if context.invoked_subcommand is not None:
        if any(given not in (None, False) for given in context.params.values()):
            place = f"ckh search {context.invoked_subcommand}"
            raise UsageError(f"options come after {place}", f"see {place} --help")
        return
    from ckh.archs import load_arch
    from ckh.learn.analytic.transfer import RANDOM
    from ckh.search.on_model import search_json, search_model, search_text
    from ckh.search.space import searched

    chooser = typed.chooser(typed.arch)
    searched(chooser.op)
    problem = typed.problem(chooser, "search")
    try:
        model = chooser.model(problem, stands_in=require is None)
        if model.not_measured is not None and model.not_measured.basis == RANDOM:
            model = chooser.model(problem)  # which is refused
    except ModelError as error:
        hint = f"{error.hint}; or search by measuring: ckh search measure {problem.canonical()}"
        raise ModelError(error.message, hint, code=error.code) from error
    arch = model.spec.arch
    if model.not_measured is not None:
        doubts = model.not_measured.of_problem(problem, arch)
        first = f"ckh search measure {problem.canonical()} --arch {arch}"
        model.not_measured = replace(doubts, next_commands=(first, *doubts.next_commands))
    found = search_model(problem, model, load_arch(arch), top or SearchSettings().top)
    emit((search_json if as_json else search_text)(problem, model, found))


@has_options_of(settings=SearchSettings)
def measure(
    problem: str = typer.Argument(..., metavar="PROBLEM", help="The problem's text, or a source of one shape."),
    *,
    settings: dict[str, Any],
    arch: str | None = completed("arch", "Architecture.  [the device's]"),
    model: Path | None = completed("model", "Model directory.  [the first that fits]"),
    require: OnlyMeasured | None = _REQUIRE,
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=CLUSTER_HELP),
    force: bool = typer.Option(False, "--force", help="Replace a journal in --out."),
    as_json: bool = _JSON,
) -> None:
    """Measure and print."""
    from ckh.bench.supervision.limits import StopReason
    from ckh.commands.search.measured import print_measured
    from ckh.search.measuring import search_measured

    chosen = SearchSettings(**settings)
    flags = {"must_be_measured": require is not None, "force": force}
    measured = search_measured(problem, chosen, arch=arch, model=model, cluster=cluster, **flags)
    print_measured(measured, chosen, as_json=as_json)
    if measured.reason is StopReason.INTERRUPTED:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    measured.require_kernel()


def select(
    size: int = typer.Option(..., "--size", metavar="K", min=1, help="Maximum number of kernels."),
    keep: float = typer.Option(
        0.99, "--keep", metavar="SHARE", min=0.01, max=1.0, help="Share of the oracle's mean to keep."
    ),
    data: list[Path] = typer.Option(..., "--data", help="Measured dataset; may be repeated."),
    problems: str | None = completed("problems", "Workload.  [all problems of the data]"),
    write_registry: Path | None = typer.Option(None, "--write-registry", help="Write the set to a JSON registry."),
    force: bool = typer.Option(False, "--force", help="Replace a registry."),
    as_json: bool = _JSON,
) -> None:
    """Select and print."""
    from ckh.search.kernel_set import search_set

    document = search_set(size, keep, data, problems, write_registry, force=force)
    if as_json:
        print_json(document)
    else:
        _print_set(document, keep)


def _print_set(document: SearchSetDocument, keep: float) -> None:
    """Print the curve, then the set."""
    where = f"{document.op} on {document.arch}"
    say(f"{document.problems} problems of {where}, {document.measured_kernels} kernels measured\n")
    rows = [
        (
            str(step.kernels),
            f"{step.efficiency_mean:.2%}",
            f"{step.efficiency_min:.2%}",
            "-" if step.at_most is None else f"{step.at_most:.2%}",
            "" if step.build_s is None else format_duration(step.build_s),
            "" if step.library_bytes is None else f"{step.library_bytes / 1e6:.1f} MB",
        )
        for step in document.curve[:_SHOWN]
    ]
    columns = ("kernels", "mean", "worst problem", "no set above", "build", "size")
    print_table("efficiency of the first kernels in greedy order:", columns, rows)
    say()
    count = len(document.kernels)
    verdict = f"{count} kernel{'s' * (count > 1)} keep {document.efficiency_mean:.2%} of the oracle's mean, "
    verdict += f"{document.efficiency_min:.2%} on the worst problem; "
    needed = f"at least {document.fewest_possible} are needed"
    if document.keeps:
        verdict += "no set of fewer does" if document.is_fewest else needed
    else:
        verdict += f"for {keep:.4g} of it, with one for every problem, "
        verdict += needed if (document.fewest_possible or 0) > count else "more are needed"
    print_table(f"{verdict}:", ("kernel",), [(name,) for name in document.kernels])
    if document.pairs_not_measured > 0:
        note(f"{document.pairs_not_measured:.1%} of the pairs were not measured and count as failures")
    if document.registry is not None:
        say(f"\nwrote {document.registry}; next: ckh bench --registry {shell_word(document.registry)}")
