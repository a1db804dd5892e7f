"""Problems as they are requested on the command line: `ckh.problem`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.api.inputs import direction_of
from ckh.errors import UsageError
from ckh.learn.models.choice import Chooser
from ckh.ops import all_requested, as_problem, canonical_options, meant_operation, requested

if TYPE_CHECKING:
    from ckh.ops.base import Problem


def problem(
    text: str | None = None,
    *,
    op: str | None = None,
    variant: str | None = None,
    dtype: str | None = None,
    arch: str | None = None,
    **sizes: Any,
) -> Problem:
    """A problem from its canonical text, or from sizes with the defaults of `ckh predict`.

    Args:
        text: the canonical text; no other argument goes with it.
        op: the operation; by default that of the sizes' names (`m` means a GEMM), else a convolution.
        variant: the direction; forward by default.
        dtype: the element type; by default that of the operation or of the architecture.
        arch: the architecture; by default this machine's GPU, else host.
        sizes: options of `ckh predict` by name, e.g. n=16, c=256, stride=2, or m=128, n=1536, k=7168, layout="rcr".

    Raises:
        UsageError: it is impossible, or an option is unknown or goes with another operation.
    """
    others = {"op": op, "variant": variant, "dtype": dtype, "arch": arch}
    if text is not None:
        if given := [*sizes, *(name for name, value in others.items() if value is not None)]:
            raise UsageError(f"text and {given[0]} exclude each other", code="conflicting-options")
        return as_problem(text)
    options = canonical_options({**sizes, **others})
    values = {name: options[name] for name in sizes}
    chosen = Chooser(None, options["arch"], options["dtype"], options["op"] or meant_operation(values, all_requested()))
    part = requested(chosen.op.name)
    kinds = {} if part is None else {option.name: option.kind for option in part.options}
    typed = {name: _typed(name, value, kinds.get(name)) for name, value in values.items()}
    return chosen.problem(typed, str(direction_of(variant) or ""), "predict")


def _typed(name: str, value: Any, kind: type | None) -> Any:
    """A value as the command line gives it: the text of a stride may be a number, or one for each axis."""
    if kind is str and not isinstance(value, str):
        return "x".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"{name} must be an integer, not {value!r}", code="bad-number")
    return value
