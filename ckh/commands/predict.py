"""`ckh predict`: ranks all kernels for a problem, or for many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, OP_HELP, examples, print_json, print_table
from ckh.errors import NoKernelError, UsageError
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, MIOPEN_CONV
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.learn.answer import Answer
    from ckh.learn.artifact import Model, Ranked
    from ckh.ops.base import Problem

_GEMM_OPTIONS = frozenset({"m", "n", "k", "layout", "split_k"})
_GEMM_ONLY = _GEMM_OPTIONS - {"n", "k"}


class Variant(StrEnum):
    """What `--variant` takes."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


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
    op: str | None = typer.Option(None, "--op", help=OP_HELP + "  [grouped_conv; with --m gemm_universal]"),
    n: int | None = typer.Option(None, "--n", help="Batch; columns of a GEMM's result.  [1]"),
    c: int | None = typer.Option(None, "--c", help="Input channels, all groups together.  [64]"),
    k: int | None = typer.Option(None, "--k", help="Output channels, all groups together; what a GEMM sums over.  [C]"),
    g: int | None = typer.Option(None, "--g", help="Groups.  [1]"),
    hi: int | None = typer.Option(None, "--hi", help="Input height.  [28]"),
    wi: int | None = typer.Option(None, "--wi", help="Input width.  [Hi]"),
    y: int | None = typer.Option(None, "--y", help="Filter height.  [3]"),
    x: int | None = typer.Option(None, "--x", help="Filter width.  [Y]"),
    stride: str | None = typer.Option(None, "--stride", metavar="S|SHxSW", help="Stride, e.g. 2 or 2x1.  [1]"),
    pad: str | None = typer.Option(None, "--pad", metavar="P|PHxPW", help="Padding on each side.  [same]"),
    dilation: str | None = typer.Option(None, "--dilation", metavar="D|DHxDW", help="Dilation.  [1]"),
    ndim: int | None = typer.Option(None, "--ndim", min=2, max=3, help="Dimensions; 3 if --di or --z is given.  [2]"),
    di: int | None = typer.Option(None, "--di", help="Input depth, 3D.  [8]"),
    z: int | None = typer.Option(None, "--z", help="Filter depth, 3D.  [Y]"),
    m: int | None = typer.Option(None, "--m", help="GEMM: rows of the result."),
    layout: str | None = typer.Option(
        None, "--layout", help="GEMM: of A, B and C, e.g. rrr.  [rcr]  miopen_conv: e.g. nhwc.  [nchw]"
    ),
    split_k: int | None = typer.Option(None, "--split-k", help="GEMM: parts that K is split into.  [1]"),
    variant: Variant | None = typer.Option(None, "--variant", help="Direction.  [forward]"),
    dtype: str | None = typer.Option(None, "--dtype", help="Element type; the model's own, or the architecture's."),
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
    chooser = _Chooser(model, arch, dtype, op or (GEMM_UNIVERSAL if m is not None else None))
    if problems is None:
        problem = _resolve(chooser, given, variant)
        _print_one(chooser, problem, top, as_json=as_json)
        return
    if given:
        raise UsageError(f"{_option(next(iter(given)))} says one problem, --problems many", "leave one of them out")
    _print_many(chooser, _load(problems, variant, chooser), top, as_json=as_json)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _resolve(chooser: _Chooser, given: dict[str, Any], variant: Variant | None) -> Problem:
    """The problem that was typed.

    Raises:
        UsageError: it is impossible, or an option does not go with the operation.
    """
    is_gemm = chooser.op.name == GEMM_UNIVERSAL
    strange = (
        sorted(given.keys() - _GEMM_OPTIONS)
        if is_gemm
        else sorted(given.keys() & _not_of_convolutions(chooser.op.name))
    )
    if is_gemm and variant is not None:
        strange.append("variant")
    if strange:
        raise UsageError(f"{chooser.op.name} has no {_option(strange[0])}", "see ckh predict --help")
    if not is_gemm:
        return _resolve_convolution(chooser, given, "forward" if variant is None else str(variant))
    from ckh.ops.gemm_universal.problem import GemmProblem

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing")
    return GemmProblem(**given, dtype=chooser.dtype)


def _not_of_convolutions(op: str) -> frozenset[str]:
    return _GEMM_ONLY - {"layout"} if op == MIOPEN_CONV else _GEMM_ONLY


def _resolve_convolution(chooser: _Chooser, given: dict[str, Any], variant: str) -> Problem:
    from ckh.commands._conv_sizes import resolve

    layout = given.pop("layout", "")
    problem = resolve(given, variant, chooser.dtype)
    if chooser.op.name != MIOPEN_CONV:
        return problem
    from ckh.ops.miopen_conv.operation import from_convolution

    return from_convolution(problem, layout)


class _Chooser:
    """Gives each problem its model: the one that was named, or the first that fits."""

    def __init__(self, path: Path | None, arch: str | None, dtype: str | None, op: str | None) -> None:
        from ckh.archs import default_arch, load_arch
        from ckh.learn.artifact import load_model
        from ckh.learn.spec import ANY
        from ckh.ops import operation

        self._named = None if path is None else load_model(path)
        if self._named is not None:
            spec = self._named.spec
            self.op = operation(op or spec.op_type)
            self.arch = arch or spec.arch
            own_dtype = None if spec.dtype == ANY else spec.dtype
        else:
            self.op = operation(op or GROUPED_CONV)
            self.arch = load_arch(arch or default_arch()).name
            own_dtype = None
        self.dtype = dtype or own_dtype or load_arch(self.arch).default_dtype
        self._found: dict[Any, Model] = {}

    def model(self, problem: Problem) -> Model:
        from ckh.learn.answer import wanted_for
        from ckh.learn.artifact import find_model

        wanted = wanted_for(problem, self.arch)
        if self._named is not None:
            self._named.require(wanted)
            return self._named
        if wanted not in self._found:
            self._found[wanted] = find_model(wanted)
        return self._found[wanted]


def _load(source: str, variant: Variant | None, chooser: _Chooser) -> tuple[Problem, ...]:
    if variant is not None and not chooser.op.has_directions:
        raise UsageError(f"{chooser.op.name} has no directions", "leave out --variant")
    # A file may state its own dtype; a set has that of the architecture.
    dtype = chooser.dtype if source in chooser.op.set_names() else None
    return chooser.op.load_problems(source, None if variant is None else str(variant), dtype)


def _print_one(chooser: _Chooser, problem: Problem, top: int, *, as_json: bool) -> None:
    from ckh.learn.answer import answer

    model = chooser.model(problem)
    found = answer(problem, model)
    if as_json:
        print_json(_document(found, model, top))
        return
    typer.echo(f"problem  {_in_words(problem)}")
    typer.echo(f"         {problem.canonical()}")
    typer.echo(f"model    {model.path.name}, measured on {model.spec.device or model.spec.arch}{_warning(model)}")
    typer.echo(f"kernels  {len(found.ranked)} candidates, {sum(found.refused.values())} refused")
    for reason, count in found.refused.items():
        typer.echo(f"         {count} x {reason}")
    typer.echo("")
    rows = [[str(place), *_cells(ranked, model)] for place, ranked in enumerate(found.ranked[:top], 1)]
    print_table("", ("", "predicted TFLOPS", "predicted ms", "kernel"), rows)


def _print_many(chooser: _Chooser, problems: tuple[Problem, ...], top: int, *, as_json: bool) -> None:
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


def _in_words(problem: Problem) -> str:
    from ckh.problems import ConvProblem

    if isinstance(problem, ConvProblem):
        from ckh.commands._conv_sizes import in_words

        return in_words(problem)
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items())


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
