"""`ckh search`: finds kernels beyond the candidate pool, by a model's opinion or by measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ckh.bench.device import DeviceOptions
from ckh.bench.limits import BenchLimits
from ckh.cluster import CLUSTER_HELP, everywhere_or_here
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, examples
from ckh.commands._declared_options import option_of
from ckh.commands._problem_options import Typed, says_a_problem
from ckh.data.settings import Settings
from ckh.errors import ExitCode, UsageError
from ckh.requested import as_option
from ckh.strenum import StrEnum

_TOP, _SEEDS, _BUDGET, _KEEP = 10, 10, 500, 0.99


class StrategyName(StrEnum):
    """The values of `--strategy`."""

    SURROGATE = "surrogate"
    LOCAL = "local"
    DE = "de"
    RANDOM = "random"


class TimedDevice(StrEnum):
    """The values of `--device`."""

    HOST = "host"
    HIP = "hip"


_HELP = """Find the fastest kernel for a problem among all that can be built, not only those that predict ranks.

The problem is said as for ckh predict. Every kernel keeps the rules of the architecture and of the problem; the space
holds the candidates and every other combination of tile, waves, warp tile, pipeline and options.

Without --measure a model scores all of them: what is printed is exactly what it expects to be the fastest. Kernels that
the model cannot tell apart are one. With --measure a strategy proposes kernels, each of which is compiled, checked
and timed on the device, in a worker of its own; failures count. There the space has a random part of the combinations
if they are very many. A model, if there is one, says where to begin. Compilers that wait (--jobs) get the kernels that
will probably follow. At the end the best --top and the model's first choice of the candidates are timed again in turns.
Every result is journalled in --out; Ctrl-C keeps all of them.

--set K chooses the fewest of the kernels measured in --data that keep 99 % (--keep) of the oracle's mean over its
problems, with one that works for every problem: exactly for small pools, else greedily, with the number that any set
needs. ckh bench, predict and export take the registry that --write-registry writes.

Strategies: surrogate (a Gaussian process, the default), de (differential evolution), local (iterated local search),
random (the best of random ones).
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
            "ckh search --replay measured.parquet --strategy surrogate --budget 220 --seeds 20",
            "ckh convert runs/layer1 --out layer1.parquet",
        ),
    )(search)


@says_a_problem
def search(
    typed: Typed,
    strategy: StrategyName | None = typer.Option(None, "--strategy", help="How to choose proposals; see above."),
    budget: int | None = typer.Option(None, "--budget", min=1, help="Proposals, failures included.  [500]"),
    top: int | None = typer.Option(None, "--top", min=1, help="How many kernels to print.  [10]"),
    seed: int | None = typer.Option(None, "--seed", min=0, help="What all random choices follow from.  [0]"),
    measure: bool = typer.Option(False, "--measure", help="Compile and time the proposals."),
    time: str | None = typer.Option(None, "--time", metavar="TIME", help="Measure proposals for so long, e.g. 10m."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder of the journal.  [runs/search-<arch>-<time>]"),
    force: bool = typer.Option(False, "--force", help="Replace a journal in --out."),
    device: TimedDevice | None = typer.Option(None, "--device", help="Measure on host or hip; host where no GPU is."),
    samples: int | None = option_of(Settings, "samples"),
    timeout: str | None = option_of(BenchLimits, "timeout_s"),
    compile_timeout: str | None = option_of(BenchLimits, "compile_timeout_s"),
    hipcc: str | None = option_of(DeviceOptions, "hipcc"),
    ck_include: str | None = option_of(DeviceOptions, "ck_include"),
    gpu: int | None = typer.Option(None, "--gpu", min=0, help="hip: the GPU to use.  [the first]"),
    cold: bool = typer.Option(False, "--cold", help="hip: empty the caches before every timed run."),
    replay: Path | None = typer.Option(
        None, "--replay", metavar="FILE", help="Search recorded measurements of a whole space, in Parquet."
    ),
    seeds: int | None = typer.Option(None, "--seeds", min=1, help="Replay so many searches.  [10]"),
    jobs: int | None = typer.Option(
        None, "--jobs", "-j", min=1, max=1024, help="Compilers at a time; by cores and memory. Replay: processes.  [1]"
    ),
    cluster: str | None = typer.Option(None, "--cluster", metavar="ADDRESS", help=f"Replay: {CLUSTER_HELP}"),
    kernel_set: int | None = typer.Option(
        None, "--set", metavar="K", min=1, help="Choose the fewest kernels, K at most, of those measured in --data."
    ),
    data: list[Path] = typer.Option([], "--data", help="--set: measured dataset; may be repeated."),
    keep: float | None = typer.Option(
        None, "--keep", metavar="SHARE", min=0.01, max=1.0, help="--set: of the oracle's mean to keep.  [0.99]"
    ),
    problems: str | None = typer.Option(
        None,
        "--problems",
        autocompletion=_completion.problem_sets,
        metavar="SET|FILE",
        help="--set: only these problems of the data.",
    ),
    write_registry: Path | None = typer.Option(
        None, "--write-registry", help="--set: write the kernels to a JSON registry."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Search and print."""
    from ckh.commands import _search_modes as modes

    measuring: dict[str, Any] = {"time": time, "out": out, "device": device, "samples": samples, "timeout": timeout}
    measuring |= {"compile_timeout": compile_timeout, "hipcc": hipcc, "ck_include": ck_include, "gpu": gpu}
    measuring |= {"cold": cold or None, "force": force or None}
    replaying = {"seeds": seeds, "cluster": cluster}
    choosing = {"data": data or None, "keep": keep, "problems": problems, "write_registry": write_registry}
    named = None if strategy is None else str(strategy)
    effort = modes.Effort(named, _BUDGET if budget is None else budget, seed or 0, top or _TOP)
    if kernel_set is not None:
        others = {**typed.given, "strategy": strategy, "budget": budget, "top": top, "seed": seed, "jobs": jobs}
        others |= {**measuring, "force": None, "measure": measure or None, "replay": replay, **replaying}
        _refuse(others, "does not go with --set")
        from ckh.commands._search_set import SetRequest, search_set

        wanted = SetRequest(kernel_set, _KEEP if keep is None else keep, tuple(data), problems, write_registry)
        search_set(wanted, force=force, as_json=as_json)
        return
    _refuse(choosing, "needs --set")
    if replay is not None:
        not_replayed = {**typed.given, "top": top, **measuring, "measure": measure or None}
        if cluster is not None:
            _refuse({"jobs": jobs}, "does not go with --cluster, whose workers are all used")
        _refuse(not_replayed, "does not go with --replay")
        with everywhere_or_here(cluster):
            modes.replay_recording(replay, effort, seeds or _SEEDS, -1 if cluster else jobs or 1, as_json=as_json)
        return
    _refuse(replaying, "needs --replay")
    if not measure:
        _refuse({"strategy": strategy, "budget": budget, "seed": seed, **measuring, "jobs": jobs}, "needs --measure")
        modes.ask_model(typed, effort.top, as_json=as_json)
        return
    gpu_options = modes.GpuOptions(hipcc, ck_include, gpu, cold=cold)
    limits = modes.SearchLimits(time, samples, timeout, compile_timeout, jobs)
    kind = None if device is None else str(device)
    if not modes.measure(typed, effort, kind, gpu_options, limits, out, force=force, as_json=as_json):
        raise typer.Exit(int(ExitCode.INTERRUPTED))


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options that were given and would do nothing.

    Raises:
        UsageError: there is one.
    """
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{as_option(name)} {why}", "see ckh search --help")
