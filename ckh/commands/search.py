"""`ckh search`: finds kernels beyond the candidate pool, by a model's opinion or by measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ckh.cluster.connection import CLUSTER_HELP
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples
from ckh.commands._declared_options import has_options_of, typed_as
from ckh.commands._problem_options import Typed, says_a_problem
from ckh.commands._search_options import Effort, Measuring
from ckh.errors import ExitCode, UsageError
from ckh.strenum import StrEnum

_KEEP = 0.99


class OnlyMeasured(StrEnum):
    """The values of `--require`."""

    MEASURED = "measured"


_HELP = """Find the fastest kernel for a problem among all kernels that can be built, not only predict's candidates.

The problem is given as for ckh predict. The search space has the candidates and every other combination of tile, waves,
warp tile, pipeline and options that satisfies the rules of the architecture and the problem.

Without --measure a model scores the whole space, and the output is its exact optimum; tied kernels count once. If no
model fits, the nearest or an estimate scores, as for ckh predict, marked NOT MEASURED; --require measured refuses that.
With --measure a strategy proposes kernels, which are compiled, checked and timed on the device, each in a separate
worker; failures count. Very large spaces are subsampled. The scores without --measure determine the initial proposals.
Idle compilers (--jobs) compile likely next proposals. At the end the best --top and the model's first choice among the
candidates are timed again, interleaved. Every result is journalled in --out; Ctrl-C keeps all of them.

--set K selects the smallest set of the kernels measured in --data that keeps 99 % (--keep) of the oracle's mean over
its problems, with a working kernel for every problem: exactly for small pools, else greedily, with a lower bound of the
set size. ckh bench, predict and export take the registry that --write-registry writes.

Strategies: surrogate (a Gaussian process, the default), de (differential evolution), local (iterated local search),
random (random sampling).
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="search",
        help=_HELP,
        epilog=examples(
            "ckh search --n 16 --c 256",
            "ckh search --m 128 --n 1536 --k 7168 --top 5",
            "ckh search --n 16 --c 256 --measure --budget 200 --time 10m --out runs/layer1",
            "ckh search --m 16 --n 4096 --k 4096 --measure --device hip --json",
            "ckh search --set 20 --keep 0.99 --data layers.parquet --write-registry set.json",
            "ckh convert runs/layer1 --out layer1.parquet",
        ),
    )(search)


@says_a_problem
@has_options_of(effort=Effort, measuring=Measuring)
def search(
    typed: Typed,
    effort: dict[str, Any],
    measure: bool = typer.Option(False, "--measure", help="Compile and time the proposals."),
    *,
    measuring: dict[str, Any],
    force: bool = typer.Option(False, "--force", help="Replace a journal in --out."),
    require: OnlyMeasured | None = typer.Option(
        None, "--require", help="Refuse, with exit code 4, answers not by a model of this GPU and element type."
    ),
    jobs: int | None = typer.Option(
        None, "--jobs", "-j", min=1, max=1024, help="Parallel compilers.  [by cores and memory]"
    ),
    cluster: str | None = typer.Option(
        None, "--cluster", metavar="ADDRESS", help=f"Measure: {CLUSTER_HELP[0].lower()}{CLUSTER_HELP[1:]}"
    ),
    kernel_set: int | None = typer.Option(
        None, "--set", metavar="K", min=1, help="Select the smallest set of kernels, at most K, from --data."
    ),
    data: list[Path] = typer.Option([], "--data", help="--set: measured dataset; may be repeated."),
    keep: float | None = typer.Option(
        None, "--keep", metavar="SHARE", min=0.01, max=1.0, help="--set: share of the oracle's mean to keep.  [0.99]"
    ),
    problems: str | None = typer.Option(
        None,
        "--problems",
        autocompletion=_completion.problem_sets,
        metavar="SET|FILE",
        help="--set: restrict to these problems.",
    ),
    write_registry: Path | None = typer.Option(
        None, "--write-registry", help="--set: write the set to a JSON registry."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Search and print."""
    from ckh.commands import _search_modes as modes

    shared = {"jobs": jobs, "measure": measure or None, "require": require, "cluster": cluster}
    choosing = {"data": data or None, "keep": keep, "problems": problems, "write_registry": write_registry}
    if kernel_set is not None:
        _refuse({**typed.given, **effort, **measuring, **shared}, "does not go with --set")
        from ckh.commands._search_set import SetRequest, search_set

        wanted = SetRequest(kernel_set, _KEEP if keep is None else keep, tuple(data), problems, write_registry)
        search_set(wanted, force=force, as_json=as_json)
        return
    _refuse(choosing, "needs --set")
    forced = {"force": force or None}
    if not measure:
        proposing = {name: value for name, value in effort.items() if name != "top"}
        _refuse({**proposing, **measuring, **forced, "jobs": jobs, "cluster": cluster}, "needs --measure")
        modes.ask_model(typed, Effort(**effort).top, must_be_measured=require is not None, as_json=as_json)
        return
    flags = {"must_be_measured": require is not None, "force": force, "as_json": as_json}
    if not modes.measure(typed, Effort(**effort), Measuring(**measuring), jobs, cluster, **flags):
        raise typer.Exit(int(ExitCode.INTERRUPTED))


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options that were given and would do nothing.

    Raises:
        UsageError: there is one.
    """
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{typed_as(name)} {why}", "see ckh search --help", code="inapplicable-option")
