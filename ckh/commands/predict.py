"""`ckh predict`: ranks all kernels for a problem, or for many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import JSON_HELP, examples, print_json, print_table
from ckh.errors import NoKernelError, UsageError
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from ckh.learn.answer import Answer
    from ckh.learn.artifact import Model, Ranked
    from ckh.problems import ConvProblem


class Variant(StrEnum):
    """What `--variant` takes."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


_HELP = """Rank all kernels for a convolution, best first.

What is left out has defaults: N=1, C=64, K=C, G=1, input 28x28, filter 3x3, stride 1, dilation 1, padding that keeps
the size ("same"), forward; in 3D depth 8 and Z=Y. The model is chosen by operation, direction, dtype and
architecture (the GPU of this machine, else host) from $CKH_MODELS, your own models and those that ship.
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
            "ckh predict --problems layers.csv --json",
            "ckh predict --c 256 --model models/mine",
        ),
    )(predict)


def predict(
    n: int | None = typer.Option(None, "--n", help="Batch.  [1]"),
    c: int | None = typer.Option(None, "--c", help="Input channels, all groups together.  [64]"),
    k: int | None = typer.Option(None, "--k", help="Output channels, all groups together.  [C]"),
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
    sizes = {"n": n, "c": c, "k": k, "g": g, "hi": hi, "wi": wi, "y": y, "x": x, "ndim": ndim, "di": di, "z": z}
    steps = {"stride": stride, "pad": pad, "dilation": dilation}
    given = {name: value for name, value in (sizes | steps).items() if value is not None}
    chooser = _Chooser(model, arch, dtype)
    if problems is None:
        problem = _resolve(given, "forward" if variant is None else str(variant), chooser.dtype)
        _print_one(chooser, problem, top, as_json=as_json)
        return
    if given:
        raise UsageError(f"--{next(iter(given))} says one problem, --problems many", "leave one of them out")
    _print_many(chooser, _load(problems, variant, chooser), top, as_json=as_json)


class _Chooser:
    """Gives each problem its model: the one that was named, or the first that fits."""

    def __init__(self, path: Path | None, arch: str | None, dtype: str | None) -> None:
        from ckh.archs import default_arch, load_arch
        from ckh.learn.artifact import load_model

        self._named = None if path is None else load_model(path)
        if self._named is not None:
            self.arch = arch or self._named.spec.arch
            self.dtype = dtype or self._named.spec.dtype
        else:
            self.arch = load_arch(arch or default_arch()).name
            self.dtype = dtype or load_arch(self.arch).default_dtype
        self._found: dict[Any, Model] = {}

    def model(self, problem: ConvProblem) -> Model:
        from ckh.learn.answer import wanted_for
        from ckh.learn.artifact import find_model

        wanted = wanted_for(problem, self.arch)
        if self._named is not None:
            self._named.require(wanted)
            return self._named
        if wanted not in self._found:
            self._found[wanted] = find_model(wanted)
        return self._found[wanted]


_DEFAULTS = {"n": 1, "c": 64, "g": 1, "hi": 28, "y": 3}
_DEFAULT_DEPTH = 8
_AXES = {2: ("h", "w"), 3: ("d", "h", "w")}
_TAPS = {"d": "z", "h": "y", "w": "x"}
_3D = 3


def _resolve(given: dict[str, Any], variant: str, dtype: str) -> ConvProblem:
    """The problem that was typed, with the defaults that the help states.

    Raises:
        UsageError: it is impossible.
    """
    from ckh.problems import ConvProblem, Direction

    ndim = given.get("ndim", _3D if {"di", "z"} & given.keys() else 2)
    if ndim != _3D and {"di", "z"} & given.keys():
        raise UsageError("a 2D convolution has no --di and --z", "leave out --ndim 2")
    sizes: dict[str, Any] = {name: given.get(name, default) for name, default in _DEFAULTS.items()}
    sizes |= {"k": given.get("k", sizes["c"]), "wi": given.get("wi", sizes["hi"]), "x": given.get("x", sizes["y"])}
    if ndim == _3D:
        sizes |= {"di": given.get("di", _DEFAULT_DEPTH), "z": given.get("z", sizes["y"])}
    axes = _AXES[ndim]
    strides = _per_axis("stride", given.get("stride", "1"), axes)
    dilations = _per_axis("dilation", given.get("dilation", "1"), axes)
    same = {f"pad_{axis}": dilations[f"dilation_{axis}"] * (sizes[_TAPS[axis]] - 1) // 2 for axis in axes}
    pads = _per_axis("pad", given["pad"], axes) if "pad" in given else same
    sizes |= strides | dilations | pads
    return ConvProblem(variant=Direction(variant), ndim=ndim, dtype=dtype, **sizes)


def _per_axis(name: str, text: str, axes: tuple[str, ...]) -> dict[str, int]:
    parts = text.split("x")
    if len(parts) not in (1, len(axes)) or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--{name} {text!r} is neither a number nor {len(axes)} of them", f"write --{name} 2 or 2x1")
    values = parts if len(parts) == len(axes) else parts * len(axes)
    return {f"{name}_{axis}": int(value) for axis, value in zip(axes, values, strict=True)}


def _load(source: str, variant: Variant | None, chooser: _Chooser) -> tuple[ConvProblem, ...]:
    from ckh.problem_sets import load_problems, set_names
    from ckh.problems import Direction

    direction = None if variant is None else Direction(str(variant))
    # A file may state its own dtype; a set has that of the architecture.
    return load_problems(source, direction, chooser.dtype if source in set_names() else None)


def _print_one(chooser: _Chooser, problem: ConvProblem, top: int, *, as_json: bool) -> None:
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
    rows = [[str(place), *_cells(ranked)] for place, ranked in enumerate(found.ranked[:top], 1)]
    print_table("", ("", "predicted TFLOPS", "predicted ms", "kernel"), rows)


def _print_many(chooser: _Chooser, problems: tuple[ConvProblem, ...], top: int, *, as_json: bool) -> None:
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
        rows = [[found.problem.canonical(), *_cells(ranked)] for found, _ in answers for ranked in found.ranked[:top]]
        print_table("", ("problem", "predicted TFLOPS", "predicted ms", "kernel"), rows)
    if failures:
        raise NoKernelError(f"{len(failures)} of {len(problems)} problems have no kernel; {failures[0].message}")


def _cells(ranked: Ranked) -> list[str]:
    from ckh.kernels.names import amd_short_name

    return [f"{ranked.tflops:.4g}", f"{ranked.latency_ms:.4g}", amd_short_name(ranked.kernel)]


def _warning(model: Model) -> str:
    return " (host numbers: they say nothing about a GPU)" if model.spec.arch == "host" else ""


def _in_words(problem: ConvProblem) -> str:
    depth = (f"{problem.di}x", f"{problem.z}x") if problem.ndim == _3D else ("", "")
    text = f"{problem.variant} {problem.dtype}, N={problem.n} C={problem.c} K={problem.k} G={problem.g}, "
    text += f"input {depth[0]}{problem.hi}x{problem.wi}, filter {depth[1]}{problem.y}x{problem.x}, "
    steps = (("stride", "stride"), ("padding", "pad"), ("dilation", "dilation"))
    return text + ", ".join(
        f"{word} " + "x".join(str(getattr(problem, f"{name}_{axis}")) for axis in _AXES[problem.ndim])
        for word, name in steps
    )


def _document(found: Answer, model: Model, top: int) -> dict[str, Any]:
    from ckh.kernels.names import kernel_name

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
                "kernel": kernel_name(ranked.kernel),
                "score": ranked.score,
                "predicted_tflops": ranked.tflops,
                "predicted_latency_ms": ranked.latency_ms,
            }
            for ranked in found.ranked[:top]
        ],
    }
