"""Shapes of models and logs, as weighted lists of problems.

>>> import ckh.shapes
>>> problems = ckh.shapes.read("llama3-70b", tp=8)
>>> layers = ckh.shapes.of(torch.nn.Linear(1024, 4096), torch.empty(16, 1024))
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.problems import as_integer

if TYPE_CHECKING:
    from ckh.shapes.layers import Shapes

__all__ = ["of", "read"]


def of(module: Any, *inputs: Any, op: str | None = None, **keywords: Any) -> Shapes:
    """The problems that a PyTorch module's call runs, each with how often and in which layers.

    It runs on the meta device: nothing is computed, and the module is not changed.

    Args:
        module: a `torch.nn.Module`.
        inputs: its positional inputs.
        op: operation of the problems; None: the default for each shape.
        keywords: its keyword inputs.

    Raises:
        CkhError: PyTorch is missing, the call fails, or it executes no supported operation.
    """
    from ckh.files.account import Account
    from ckh.ops import operation
    from ckh.shapes.layers import DEFAULT, Shapes
    from ckh.shapes.modules import traced
    from ckh.shapes.problems import weighted
    from ckh.shapes.sources import Source, SourceKind, SourceLayers

    layers, left_out = traced(module, inputs, keywords)
    source = Source(SourceKind.MODULE, type(module).__name__)
    own = None if op is None else operation(op).name
    account = Account(used=len(layers), known=left_out)
    found = weighted([SourceLayers(source, layers, account)], DEFAULT, own)
    return Shapes(found.problems, found.left_out)


def read(*sources: str, op: str | None = None, **wanted: Any) -> Shapes:
    """The problems of sources, as `ckh shapes` reads them.

    Args:
        sources: files, folders or built-in models.
        op: operation of the problems; None: the default for each shape.
        wanted: fields of `ckh.shapes.layers.RunOptions`, e.g. tp=8, tokens=(1, 4096), or with weights
            tokens={1: 2000, 8192: 1}; or workload, "decode", "prefill" or "mixed".

    Raises:
        CkhError: a source is unusable.
    """
    from ckh.shapes.layers import DEFAULT, Shapes, token_options, typed
    from ckh.shapes.problems import shapes_of

    wanted |= token_options(typed(wanted.pop("tokens", None)), wanted.pop("workload", None))
    plain: dict[str, Any] = {
        name: tuple(map(as_integer, value)) if isinstance(value, (list, tuple)) else as_integer(value)
        for name, value in wanted.items()
    }
    found = shapes_of(sources, replace(DEFAULT, **plain), op)
    return Shapes(found.problems, found.left_out)
