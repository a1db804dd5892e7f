"""C++ header with which AMD's dispatcher uses an exported model; operations supply their parts as text."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.export.consumers import ModelHeader
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.learn.models.artifact import Model

NAME = "ck-dispatcher"
_HOW_TO = """
## AMD's dispatcher

Each model has a header of its name, such as `NAME.hpp`, C++17. Compile the C sources, or link what CMake builds of
them; then

```cpp
#include "NAME.hpp"
dispatcher.set_heuristic(ckh::NAME::Heuristic("models/NAME.ckhm"));
dispatcher.set_strategy(std::decay_t<decltype(dispatcher)>::SelectionStrategy::Heuristic);
```

It returns the names of the applicable kernels, best first; the dispatcher uses the first that is registered. The
dispatcher of convolutions matches names as substrings of the registered names. So the heuristic returns only names that
match exactly one registered kernel: the code generator's, or a declaration's, which ends at the warp tile. `left_out()`
lists registered kernels without such a name. It uses `GroupedConvRegistry::instance()`; another registry can be passed
as the constructor's second argument.
The split-K factor is an argument of the launch: for convolutions, `best_split_k(problem)` returns the best factor,
before the problem is dispatched.
"""
_FOLDER = Path(__file__).with_name("c")


@dataclass(frozen=True, slots=True)
class DispatcherPart:
    """An operation's problems and kernels in C++."""

    kind: str  # its kind of problems in exported C
    include: str  # the dispatcher's header, below ck_tile/dispatcher
    dispatcher: str  # the dispatcher's class
    problem: str  # its class of problems
    function: str  # its type of heuristics
    rename: str  # statements that build a `Kernel` from `name`, ckh's name of it
    detail: str  # functions, including `split_k_of`, which returns the split-K factor of a problem
    fill: str  # statements that set the fields of `p` from `problem`, or return false
    pick: str
    """A type `Row` of kernels, a function that registers one, and one that returns the name of the selected kernel for
    a problem's fields in C's order, with the model in the file @PATH@."""
    row: Callable[[Any], str]  # a kernel as an initializer of `Row`
    parameters: str = ""  # further parameters of the constructor, each preceded by a comma
    initializers: str = ""  # member initializers of the constructor
    members: str = ""  # declarations of the members
    before: str = ""  # functions that `rename` calls
    registered: str = ""  # statements before kernels are named
    named: str = "kernel.name"  # an expression for the dispatcher's name of `kernel`; an empty name leaves it out
    methods: str = ""  # further public functions


def dispatcher_header(part: Callable[[Model], DispatcherPart], called: Callable[[Any], str]) -> ModelHeader:
    """Build the header of an operation; `called` is the dispatcher's name of a kernel."""
    return ModelHeader(
        NAME,
        "a heuristic for AMD's dispatcher",
        _HOW_TO,
        lambda name, model: _header(name, model, part(model)),
        called,
        lambda name, model, kernels: _program(name, part(model), kernels),
    )


def _program(name: str, part: DispatcherPart, kernels: Sequence[Any]) -> str:
    pick = part.pick.replace("@PATH@", _path(name))
    return _filled("parity.cpp.in", _names(name) | {"PICK": pick, "ROWS": ",\n    ".join(map(part.row, kernels))})


def _path(name: str) -> str:
    return f"models/{name}.ckhm"


def _names(name: str) -> dict[str, str]:
    return {"NAME": name, "IDENTIFIER": re.sub(r"^(?=\d)|\W", "_", name)}


def _header(name: str, model: Model, part: DispatcherPart) -> str:
    spec = model.spec
    placeholders = _names(name) | {field.name.upper(): getattr(part, field.name) for field in fields(part)}
    placeholders |= {
        "VERSION": __version__,
        "PATH": _path(name),
        "PURPOSE": spec.purpose,
        "MEASURED": f"Measured on {spec.device or spec.arch}.",
    }
    return _filled("dispatcher.hpp.in", placeholders)


def _filled(file: str, texts: dict[str, str]) -> str:
    """Fill in a template."""
    return re.sub("@([A-Z]+)@", lambda match: texts[match[1]], (_FOLDER / file).read_text(encoding="utf-8"))
