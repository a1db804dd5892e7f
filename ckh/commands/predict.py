"""`ckh predict`: ranks all kernels for a problem, or for many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands import _problem_options as options
from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.commands._problem_options import Chooser, as_option, in_words
from ckh.errors import NoKernelError, UsageError
from ckh.ops import GEMM_UNIVERSAL
from ckh.problems import Direction

if TYPE_CHECKING:
    from ckh.learn.answer import Answer
    from ckh.learn.artifact import Model, Ranked
    from ckh.ops.base import Problem

_HELP = """Rank all kernels for a problem, best first: a convolution, or with --m a GEMM.

What is left out of a convolution has defaults: N=1, C=64, K=C, G=1, input 28x28, filter 3x3, stride 1, dilation 1,
padding that keeps the size ("same"), forward; in 3D depth 8 and Z=Y. A GEMM needs --m, --n and --k; its layout is rcr.
The model is chosen by operation, direction, dtype and architecture (the GPU of this machine, else host) from
$CKH_MODELS, your own models and those that ship.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="predict",
        help=_HELP,
        epilog=examples(
            "ckh predict --n 16 --c 256",
            "ckh predict --n 1 --c 64 --k 128 --hi 56 --stride 2 --top 3",
            "ckh predict --variant bwd_weight --c 32 --g 32 --hi 112 --y 3 --json",
            "ckh predict --c 64 --ndim 3 --di 16 --hi 28",
            "ckh predict --m 128 --n 1536 --k 7168 --layout rcr",
            "ckh predict --problems layers.csv --json",
            "ckh predict --op gemm_universal --problems host-llm --top 1",
            "ckh predict --op miopen_conv --arch gfx90a --n 16 --c 256",
            "ckh predict --c 256 --model models/mine",
        ),
    )(predict)


def predict(
    op: str | None = options.OP,
    n: int | None = options.N,
    c: int | None = options.C,
    k: int | None = options.K,
    g: int | None = options.G,
    hi: int | None = options.HI,
    wi: int | None = options.WI,
    y: int | None = options.Y,
    x: int | None = options.X,
    stride: str | None = options.STRIDE,
    pad: str | None = options.PAD,
    dilation: str | None = options.DILATION,
    ndim: int | None = options.NDIM,
    di: int | None = options.DI,
    z: int | None = options.Z,
    m: int | None = options.M,
    layout: str | None = options.LAYOUT,
    split_k: int | None = options.SPLIT_K,
    variant: Direction | None = options.VARIANT,
    dtype: str | None = options.DTYPE,
    problems: str | None = typer.Option(
        None, "--problems", metavar="SET|FILE", help="Many problems: a set, or a .txt, .csv or .json file."
    ),
    arch: str | None = typer.Option(None, "--arch", help="Architecture; this machine's GPU, else host."),
    model: Path | None = typer.Option(None, "--model", help="Model directory, instead of a search."),
    top: int = typer.Option(5, "--top", min=1, help="How many kernels to print of each ranking."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Rank and print."""
    typed: dict[str, Any] = {"n": n, "c": c, "k": k, "g": g, "hi": hi, "wi": wi, "y": y, "x": x, "di": di, "z": z}
    typed |= {"ndim": ndim, "stride": stride, "pad": pad, "dilation": dilation}
    typed |= {"m": m, "layout": layout, "split_k": split_k}
    given = {name: value for name, value in typed.items() if value is not None}
    chooser = Chooser(model, arch, dtype, op or (GEMM_UNIVERSAL if m is not None else None))
    if problems is None:
        problem = chooser.problem(given, variant, "predict")
        _print_one(chooser, problem, top, as_json=as_json)
        return
    if given:
        raise UsageError(f"{as_option(next(iter(given)))} says one problem, --problems many", "leave one of them out")
    _print_many(chooser, _load(problems, variant, chooser), top, as_json=as_json)


def _load(source: str, variant: Direction | None, chooser: Chooser) -> tuple[Problem, ...]:
    if variant is not None and not chooser.op.has_directions:
        raise UsageError(f"{chooser.op.name} has no directions", "leave out --variant")
    # A file may state its own dtype; a set has that of the architecture.
    dtype = chooser.dtype if source in chooser.op.set_names() else None
    return chooser.op.load_problems(source, None if variant is None else str(variant), dtype)


def _print_one(chooser: Chooser, problem: Problem, top: int, *, as_json: bool) -> None:
    from ckh.learn.answer import answer

    model = chooser.model(problem)
    found = answer(problem, model)
    if as_json:
        print_json(_document(found, model, top))
        return
    typer.echo(f"problem  {in_words(problem)}")
    typer.echo(f"         {problem.canonical()}")
    typer.echo(f"model    {model.path.name}, measured on {model.spec.device or model.spec.arch}{_warning(model)}")
    typer.echo(f"kernels  {len(found.ranked)} candidates, {sum(found.refused.values())} refused")
    for reason, count in found.refused.items():
        typer.echo(f"         {count} x {reason}")
    typer.echo("")
    rows = [[str(place), *_cells(ranked, model)] for place, ranked in enumerate(found.ranked[:top], 1)]
    print_table("", ("", "predicted TFLOPS", "predicted ms", "kernel"), rows)


def _print_many(chooser: Chooser, problems: tuple[Problem, ...], top: int, *, as_json: bool) -> None:
    from ckh.learn.answer import answer

    answers: list[tuple[Answer, Model]] = []
    failures: list[NoKernelError] = []
    for problem in problems:
        model = chooser.model(problem)
        try:
            answers.append((answer(problem, model), model))
        except NoKernelError as error:
            failures.append(error)
    if as_json:
        print_json({"results": [_document(found, model, top) for found, model in answers]})
    else:
        rows = [
            [found.problem.canonical(), *_cells(ranked, model)]
            for found, model in answers
            for ranked in found.ranked[:top]
        ]
        print_table("", ("problem", "predicted TFLOPS", "predicted ms", "kernel"), rows)
    if failures:
        raise NoKernelError(f"{len(failures)} of {len(problems)} problems have no kernel; {failures[0].message}")


def _cells(ranked: Ranked, model: Model) -> list[str]:
    figures = ["-" if value is None else f"{value:.4g}" for value in (ranked.tflops, ranked.latency_ms)]
    return [*figures, model.spec.op.short_name(ranked.kernel)]


def _warning(model: Model) -> str:
    return " (host numbers: they say nothing about a GPU)" if model.spec.arch == "host" else ""


def _document(found: Answer, model: Model, top: int) -> dict[str, Any]:
    return {
        "problem": found.problem.canonical(),
        "sizes": found.problem.to_dict(),
        "model": str(model.path),
        "arch": model.spec.arch,
        "device": model.spec.device,
        "candidates": len(found.ranked),
        "refused": found.refused,
        "kernels": [
            {
                "kernel": model.spec.op.kernel_name(ranked.kernel),
                "score": ranked.score,
                "predicted_tflops": ranked.tflops,
                "predicted_latency_ms": ranked.latency_ms,
            }
            for ranked in found.ranked[:top]
        ],
    }
