"""Requests to `ckh predict` and `ckh search` that can be answered quickly: one problem, from plain options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckh.ops import DEFAULT_OPERATION, built_in_requested, canonical_options, meant_operation
from ckh.requested import typed_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.learn.answers.answering import Chooser

# Integer and text options, besides those of problems. All other options and unusual values, and problems of installed
# operations, are left to the full command.
NUMBERS = ("top",)
TEXTS = ("variant", "dtype", "arch", "op", "model")
# For each command its flags, and the default number of kernels printed.
FLAGS = {"predict": ("json", "why", "wide", "measured", "no_measured"), "search": ("json", "wide")}
TOP = {"predict": 5, "search": 10}

_MOST_DIGITS = 9


class Request(NamedTuple):
    """Options of a call."""

    sizes: dict[str, int | str]
    top: int
    kind: dict[str, str]
    flags: frozenset[str] = frozenset()
    op: str = ""

    def as_typed(self) -> str:
        """Format the options that define the problem and the model as a command line."""
        names = [option.name for part in built_in_requested().values() for option in part.options]
        sizes = {name: self.sizes[name] for name in names if name in self.sizes}
        texts = {"op": self.op, **{name: self.kind[name] for name in ("variant", "dtype", "arch", "model")}}
        return typed_again(sizes | {name: text for name, text in texts.items() if text})

    def chooser(self) -> Chooser:
        """Return the selector of a model for such calls."""
        from ckh.learn.answers.answering import Chooser

        kind = self.kind
        path = Path(kind["model"]) if kind["model"] else None
        return Chooser(path, kind["arch"] or None, kind["dtype"] or None, kind["op"] or None)


def parse(args: Sequence[str]) -> Request | None:
    """Parse a command line; None if the full command must handle it."""
    parts = built_in_requested()
    kinds = {option.name: option.kind for part in parts.values() for option in part.options}
    kinds |= dict.fromkeys(NUMBERS, int) | dict.fromkeys(TEXTS, str)
    given: dict[str, int | str] = {}
    flags: set[str] = set()
    command, *words = args
    rest = iter(words)
    for option in rest:
        name = option[2:].replace("-", "_")
        if option != "--" + name.replace("_", "-") or name in given or name in flags:
            return None
        if name in FLAGS[command]:
            flags.add(name)
            continue
        value = next(rest, "-")
        if value.startswith("-"):
            return None
        if kinds.get(name) is int:
            if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
                return None
            given[name] = int(value)
        elif name in kinds and value:
            given[name] = value
        else:
            return None
    top = given.get("top", TOP[command])
    if not isinstance(top, int) or top < 1 or {"measured", "no_measured"} <= flags:
        return None
    given = {
        name: value for name, value in canonical_options({**dict.fromkeys(kinds), **given}).items() if value is not None
    }
    kind = {name: str(given.get(name, "")) for name in TEXTS}
    sizes = {name: value for name, value in given.items() if name not in (*NUMBERS, *TEXTS)}
    op = kind["op"]
    kind["op"] = op or meant_operation(sizes, parts) or ""
    request = {**sizes, "variant": kind["variant"]}
    asked = [kind["op"] or DEFAULT_OPERATION] if kind["op"] or not kind["model"] else list(parts)
    kind |= {f"pool of {name}": parts[name].pool(request) for name in asked if name in parts}
    return Request(sizes, top, kind, frozenset(flags), op)
