"""What was asked of `ckh predict`, where it can be answered quickly: one problem, from plain options."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Options with a whole number and with text. Everything else, and whatever looks strange, is for the full command.
NUMBERS = ("n", "c", "k", "g", "hi", "wi", "y", "x", "ndim", "di", "z", "m", "split_k", "top")
TEXTS = ("stride", "pad", "dilation", "layout", "variant", "dtype", "arch", "op", "model")
FLAGS = ("json", "why", "measured", "no_measured")

_NOT_OF_PROBLEM = ("top", "variant", "dtype", "arch", "op", "model")
_MOST_DIGITS = 9
_TOP = 5


class Asked(NamedTuple):
    """Options of a call.

    Attributes:
        sizes: those of the problem, as typed.
        top: how many kernels to print.
        kind: the others, by name; empty if not given. Calls with the same are answered by the same model and pool
            unless sizes say otherwise.
        flags: those of `FLAGS` that were given.
    """

    sizes: dict[str, int | str]
    top: int
    kind: dict[str, str]
    flags: frozenset[str] = frozenset()


def parse(args: Sequence[str]) -> Asked | None:
    """What was asked, or None where the full command must look at it.

    Args:
        args: the command line after `predict`.
    """
    given: dict[str, int | str] = {}
    flags: set[str] = set()
    rest = iter(args)
    for option in rest:
        name = option[2:].replace("-", "_")
        if option != "--" + name.replace("_", "-") or name in given or name in flags:
            return None
        if name in FLAGS:
            flags.add(name)
            continue
        value = next(rest, "-")
        if value.startswith("-"):
            return None
        if name in NUMBERS:
            if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
                return None
            given[name] = int(value)
        elif name in TEXTS and value:
            given[name] = value
        else:
            return None
    top = given.get("top", _TOP)
    if not isinstance(top, int) or top < 1 or {"measured", "no_measured"} <= flags:
        return None
    kind = {name: str(given.get(name, "")) for name in _NOT_OF_PROBLEM if name != "top"}
    sizes = {name: value for name, value in given.items() if name not in _NOT_OF_PROBLEM}
    # What a pool depends on besides: dimensions and layout, and for MIOpen's solvers whether there are groups.
    kind["is_gemm"] = "yes" if "m" in sizes or kind["op"] == "gemm_universal" else ""
    kind["is_3d"] = "yes" if sizes.get("ndim") == 3 or {"di", "z"} & sizes.keys() else ""  # noqa: PLR2004
    kind["is_grouped"] = "yes" if sizes.get("g", 1) != 1 else ""
    kind["layout"] = str(sizes.get("layout", ""))
    return Asked(sizes, top, kind, frozenset(flags))
