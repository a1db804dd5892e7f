"""What the commands that take one problem share: its options, the problem that they say, and the model for it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from ckh.commands import _completion
from ckh.commands._common import OP_HELP
from ckh.errors import UsageError
from ckh.ops import GEMM_UNIVERSAL, GROUPED_CONV, MIOPEN_CONV
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.learn.artifact import Model
    from ckh.ops.base import Problem

_GEMM_OPTIONS = frozenset({"m", "n", "k", "layout", "split_k"})
_GEMM_ONLY = _GEMM_OPTIONS - {"n", "k"}

# Name -> type and option, in the order of the help.
_SIZES: dict[str, tuple[Any, Any]] = {
    "n": (int, typer.Option(None, "--n", help="Batch; columns of a GEMM's result.  [1]")),
    "c": (int, typer.Option(None, "--c", help="Input channels, all groups together.  [64]")),
    "k": (int, typer.Option(None, "--k", help="Output channels, all groups together; what a GEMM sums over.  [C]")),
    "g": (int, typer.Option(None, "--g", help="Groups.  [1]")),
    "hi": (int, typer.Option(None, "--hi", help="Input height.  [28]")),
    "wi": (int, typer.Option(None, "--wi", help="Input width.  [Hi]")),
    "y": (int, typer.Option(None, "--y", help="Filter height.  [3]")),
    "x": (int, typer.Option(None, "--x", help="Filter width.  [Y]")),
    "stride": (str, typer.Option(None, "--stride", metavar="S|SHxSW", help="Stride, e.g. 2 or 2x1.  [1]")),
    "pad": (str, typer.Option(None, "--pad", metavar="P|PHxPW", help="Padding on each side.  [same]")),
    "dilation": (str, typer.Option(None, "--dilation", metavar="D|DHxDW", help="Dilation.  [1]")),
    "ndim": (int, typer.Option(None, "--ndim", min=2, max=3, help="Dimensions; 3 if --di or --z is given.  [2]")),
    "di": (int, typer.Option(None, "--di", help="Input depth, 3D.  [8]")),
    "z": (int, typer.Option(None, "--z", help="Filter depth, 3D.  [Y]")),
    "m": (int, typer.Option(None, "--m", help="GEMM: rows of the result.")),
    "layout": (
        str,
        typer.Option(None, "--layout", help="GEMM: of A, B and C, e.g. rrr.  [rcr]  miopen_conv: e.g. nhwc.  [nchw]"),
    ),
    "split_k": (int, typer.Option(None, "--split-k", help="GEMM: parts that K is split into.  [1]")),
}
_BEFORE: dict[str, tuple[Any, Any]] = {
    "op": (
        str,
        typer.Option(
            None,
            "--op",
            autocompletion=_completion.operations,
            help=OP_HELP + "  [grouped_conv; with --m gemm_universal]",
        ),
    ),
}
_AFTER: dict[str, tuple[Any, Any]] = {
    "variant": (Direction, typer.Option(None, "--variant", help="Direction.  [forward]")),
    "dtype": (
        str,
        typer.Option(
            None,
            "--dtype",
            autocompletion=_completion.dtypes,
            help="Element type; the model's own, or the architecture's; miopen_conv: fp32.",
        ),
    ),
    "arch": (
        str,
        typer.Option(
            None,
            "--arch",
            autocompletion=_completion.architectures,
            help="Architecture; this machine's GPU, else host.",
        ),
    ),
    "model": (
        Path,
        typer.Option(
            None, "--model", autocompletion=_completion.models, help="Model directory, instead of the first that fits."
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed of one problem and of what ranks its kernels; None: it was not.

    Attributes:
        sizes: the options of the problem that were given.
        op: the operation.
        variant: the direction.
        dtype: the element type.
        arch: the architecture.
        model: the folder of a model.
    """

    sizes: dict[str, Any]
    op: str | None
    variant: Direction | None
    dtype: str | None
    arch: str | None
    model: Path | None

    @property
    def given(self) -> dict[str, Any]:
        """All options that were given, by name."""
        others = {name: getattr(self, name) for name in (*_BEFORE, *_AFTER)}
        return self.sizes | {name: value for name, value in others.items() if value is not None}

    def chooser(self, arch: str | None) -> Chooser:
        """What is ranked for on an architecture; None: the model's, or this machine's."""
        op = self.op or (GEMM_UNIVERSAL if "m" in self.sizes else None)
        return Chooser(self.model, arch, self.dtype, op)

    def problem(self, chooser: Chooser, command: str) -> Problem:
        """The problem, as `Chooser.problem`."""
        return chooser.problem(self.sizes, self.variant, command)


def says_a_problem(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, before its own options, those that say a problem; its first argument is then a `Typed`."""
    types = get_type_hints(command)
    _, *own = inspect.signature(command).parameters.values()

    @wraps(command)
    def with_problem(**values: Any) -> None:
        sizes = {name: values.pop(name) for name in _SIZES}
        others = {name: values.pop(name) for name in (*_BEFORE, *_AFTER)}
        command(Typed({name: value for name, value in sizes.items() if value is not None}, **others), **values)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None)
        for name, (kind, option) in (_BEFORE | _SIZES | _AFTER).items()
    ]
    mine = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[one.name]) for one in own]
    parameters = [*shared, *mine]
    with_problem.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_problem.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_problem


def as_option(name: str) -> str:
    """How an option of a name is typed."""
    return "--" + name.replace("_", "-")


class Chooser:
    """What is ranked for: operation, architecture and element type; and for each problem its model.

    A model is the one that was named, or the first that fits (`artifact.fitting_models`).

    Raises:
        UsageError: there is no such operation or architecture.
        ModelError: the model that was named is missing or damaged.
    """

    def __init__(self, path: Path | None, arch: str | None, dtype: str | None, op: str | None) -> None:
        from ckh.archs import default_arch, load_arch
        from ckh.learn.artifact import load_model
        from ckh.learn.spec import ANY
        from ckh.ops import operation

        self._named = None if path is None else load_model(path)
        if self._named is not None:
            spec = self._named.spec
            self.op = operation(op or spec.op_type)
            spec_of_arch = load_arch(spec.arch if arch is None else arch)
            own_dtype = None if spec.dtype == ANY else spec.dtype
        else:
            self.op = operation(op or GROUPED_CONV)
            spec_of_arch = load_arch(default_arch() if arch is None else arch)
            own_dtype = None
        self.arch = spec_of_arch.name
        self.dtype = dtype or own_dtype or self.op.default_dtype or spec_of_arch.default_dtype
        self._found: dict[Any, Model] = {}

    def model(self, problem: Problem) -> Model:
        """The model for a problem.

        Raises:
            ModelError: there is none, or it is damaged.
            UsageError: the one that was named is for something else.
        """
        from ckh.learn.answer import wanted_for
        from ckh.learn.artifact import find_model

        wanted = wanted_for(problem, self.arch)
        if self._named is not None:
            self._named.require(wanted)
            return self._named
        if wanted not in self._found:
            self._found[wanted] = find_model(wanted)
        return self._found[wanted]

    def problem(self, given: dict[str, Any], variant: Direction | None, command: str) -> Problem:
        """The problem that was typed.

        Args:
            given: the options that were given, by name.
            variant: the direction, if it was given.
            command: the one whose help is referred to.

        Raises:
            UsageError: it is impossible, or an option does not go with the operation.
        """
        strange = sorted(given.keys() & _not_of(self.op.name) if not self._is_gemm else given.keys() - _GEMM_OPTIONS)
        if self._is_gemm and variant is not None:
            strange.append("variant")
        if strange:
            raise UsageError(f"{self.op.name} has no {as_option(strange[0])}", f"see ckh {command} --help")
        if not self._is_gemm:
            return self._convolution(given, "forward" if variant is None else str(variant))
        from ckh.ops.gemm_universal.problem import GemmProblem

        if missing := [name for name in ("m", "n", "k") if name not in given]:
            raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing")
        return GemmProblem(**given, dtype=self.dtype)

    @property
    def _is_gemm(self) -> bool:
        return self.op.name == GEMM_UNIVERSAL

    def _convolution(self, given: dict[str, Any], variant: str) -> Problem:
        from ckh.commands._conv_sizes import resolve

        problem = resolve(given, variant, self.dtype)
        if self.op.name != MIOPEN_CONV:
            return problem
        from ckh.ops.miopen_conv.problem import from_convolution

        return from_convolution(problem, given.get("layout", ""))


def _not_of(op: str) -> frozenset[str]:
    """Options that an operation on convolutions does not have."""
    return _GEMM_ONLY - {"layout"} if op == MIOPEN_CONV else _GEMM_ONLY
