"""Options of commands on a single problem, with the problem and the model that they request."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ckh.commands._common import OP_HELP, completed
from ckh.commands._declared_options import with_options
from ckh.commands.help import PROBLEM
from ckh.ops import DEFAULT_OPERATION, all_requested, meant_operation, own_options
from ckh.problems import Direction
from ckh.requested import as_option, typed_again
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.learn.answers.answering import Chooser
    from ckh.ops.base import Problem
    from ckh.requested import SizeOption

_PARTS = all_requested()
_DEFAULTS = "; ".join(
    [DEFAULT_OPERATION, *(f"with {as_option(option)} {name}" for option, name in own_options(_PARTS).items())]
)
_BEFORE: dict[str, tuple[Any, Any]] = {
    "op": (str, completed("op", f"{OP_HELP} With --help: its options.  [{_DEFAULTS}]", panel=PROBLEM)),
}
_AFTER: dict[str, tuple[Any, Any]] = {
    "variant": (Direction, typer.Option(None, "--variant", help="Direction.  [forward]", rich_help_panel=PROBLEM)),
    "dtype": (str, completed("dtype", "Element type.  [the model's, else the architecture's]", panel=PROBLEM)),
    "arch": (str, completed("arch", "Architecture.  [this machine's GPU, else gfx950]", panel=PROBLEM)),
    "model": (Path, completed("model", "Model directory.  [the first that fits]")),
}


@dataclass(frozen=True, slots=True)
class Typed:
    """Options of a problem and of the model that were given; None: not given."""

    sizes: dict[str, Any]
    op: str | None
    variant: Direction | None
    dtype: str | None
    arch: str | None
    model: Path | None

    @property
    def given(self) -> dict[str, Any]:
        """Given options by name."""
        common = {name: getattr(self, name) for name in (*_BEFORE, *_AFTER)}
        return self.sizes | {name: value for name, value in common.items() if value is not None}

    def as_typed(self) -> str:
        """Command-line text of the given options."""
        return typed_again(self.given)

    def chooser(self, arch: str | None, problems: str | None = None, cus: int | None = None) -> Chooser:
        """Chooser of a model for an architecture; None: the model's, or this machine's. Sources may state the op."""
        from ckh.learn.answers.answering import Chooser
        from ckh.shapes.problems import stated_operation

        op = self.op or meant_operation(self.sizes, all_requested())
        if op is None and self.model is None:
            op = stated_operation(problems)
        return Chooser(self.model, arch, self.dtype, op, cus or 0)

    def problem(self, chooser: Chooser, command: str) -> Problem:
        """The problem, as `Chooser.problem`."""
        return chooser.problem(self.sizes, str(self.variant or ""), command)


def says_a_problem(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: the options of a problem replace its parameter `typed`, which receives them as a `Typed`."""
    common = {*_BEFORE, *_AFTER}
    options = _BEFORE | _size_options(common | inspect.signature(command).parameters.keys()) | _AFTER

    def typed(values: dict[str, Any]) -> Typed:
        sizes = {name: value for name, value in values.items() if name not in common and value is not None}
        return Typed(sizes, **{name: values[name] for name in common})

    return with_options(command, {"typed": options}, {"typed": typed})


def _size_options(taken: set[str]) -> dict[str, tuple[Any, Any]]:
    """Name -> type and Typer option of the sizes of all operations, which must not use the command's other names."""
    by_name: dict[str, list[SizeOption]] = {}
    for name, part in _PARTS.items():
        for option in part.options:
            same = by_name.setdefault(option.name, [])
            if option.name in taken or (same and same[0].kind is not option.kind):
                warn(f"{as_option(option.name)} of {name} is left out: another option has this name", "duplicate-name")
            elif option not in same:
                same.append(option)
    return {name: (same[0].kind, _option(same[0])) for name, same in by_name.items() if same}


def _option(first: SizeOption) -> Any:
    return typer.Option(
        None,
        as_option(first.name),
        help=first.sentence,
        metavar=first.metavar,
        min=first.low,
        max=first.high,
        rich_help_panel=PROBLEM,
    )
