"""PyTorch modules run on the meta device: shapes, strides and element types without weights or a GPU."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import CkhError, UsageError
from ckh.problems import DTYPE_BYTES, dtype_name
from ckh.shapes.layers import BatchedMatmul, GroupedMatmul, Layer, Matmul, Scaling, convolution
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.shapes.layers import Convolution

_META = "meta"
_EXAMPLE = "e.g. def factory(): return model, torch.empty(1, 3, 224, 224)"
_TRACING_HINT = "what looks at values cannot be traced: trace the part that computes"
_INNER = 2  # dimensions of a matrix
_PRODUCTS: dict[str, tuple[int, int]] = {  # operator -> places of its two operands
    **dict.fromkeys(("mm", "bmm", "mv", "_int_mm", "_scaled_mm", "_grouped_mm"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), (1, 2)),
}
_OWN_OPERATORS = ("aten", "prim", "prims", "c10d", "_c10d_functional")
_MULTIPLIES = re.compile(
    r"(^|_)(add|badd|addb|b)?mm(_|$)|(^|_)linear(_|$)|conv(?!ert)|attention|_trilinear$|_rnn(_|$)|(^|_)v?dot$"
)


def traced(
    module: Any, inputs: Sequence[Any], keywords: dict[str, Any] | None = None
) -> tuple[list[Layer], Counter[str]]:
    """The layers executed by a call of a module, in order, and counts of what is left out.

    The module is not changed: its parameters and buffers are replaced by meta tensors for the call.
    """
    torch = _torch()
    recorder = _recorder(torch)
    names = {id(part): name for name, part in module.named_modules()}
    tensors = dict((*module.named_parameters(), *module.named_buffers()))
    if lazy := [name for name, tensor in tensors.items() if torch.nn.parameter.is_lazy(tensor)]:
        what = f"{type(module).__name__}: {lazy[0]} has no size yet, as its module is lazy"
        raise UsageError(what, "call the module once with an input before it is traced", code="bad-module")
    state, given, by_name = _to_meta(torch, (tensors, tuple(inputs), keywords or {}))
    what = f"{type(module).__name__} fails on the meta device"
    with ExitStack() as stack:
        stack.enter_context(_in_module(torch, names, recorder.path))
        stack.enter_context(_reported(what, _TRACING_HINT))
        stack.enter_context(_without_attention(torch, recorder.left_out))
        stack.enter_context(torch.no_grad())
        stack.enter_context(recorder)
        torch.func.functional_call(module, state, given, by_name)
    return recorder.layers, recorder.left_out


def traced_factory(name: str) -> tuple[list[Layer], Counter[str]]:
    """The layers of a factory's result: a module and its inputs, created on the meta device."""
    module_name, is_pair, attribute = name.partition(":")
    if not (module_name and is_pair and attribute):
        raise UsageError(f"--torch {name!r:.80} is not pkg.module:factory", _EXAMPLE, code="bad-name")
    torch = _torch()
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        with _reported(f"{name} cannot be imported", "it is looked for in this folder and in what is installed"):
            factory = getattr(importlib.import_module(module_name), attribute)
        with _reported(f"{name} fails on the meta device", _TRACING_HINT), torch.device(_META):
            made = factory()
    finally:
        sys.path.remove(here)
    if not isinstance(made, tuple) or len(made) < _INNER or not isinstance(made[0], torch.nn.Module):
        raise UsageError(f"{name} does not return a module and its inputs", _EXAMPLE, code="bad-module")
    return traced(made[0], made[1:])


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError("PyTorch is missing", "pip install 'ckh[torch]'", code="not-installed") from error
    return torch


@contextmanager
def _reported(what: str, hint: str) -> Iterator[None]:
    """Report an error of a user's module in one line, and redirect its output to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except CkhError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UsageError(f"{what}: {text}", hint, code="bad-module") from error


@contextmanager
def _without_attention(torch: Any, left_out: Counter[str]) -> Iterator[None]:
    """Treat attention as one operation that is left out: a single kernel on a GPU, but several products here."""

    def attention(query: Any, key: Any, value: Any, *_others: Any, **_more: Any) -> Any:
        del key
        left_out["attention"] += 1
        return query.new_empty(*query.shape[:-1], value.shape[-1])

    functions, switch = torch.nn.functional, torch.backends.mha
    whole, is_fast = functions.scaled_dot_product_attention, switch.get_fastpath_enabled()
    functions.scaled_dot_product_attention = attention
    switch.set_fastpath_enabled(False)
    try:
        yield
    finally:
        functions.scaled_dot_product_attention = whole
        switch.set_fastpath_enabled(is_fast)


def _to_meta(torch: Any, value: Any) -> Any:
    def moved(tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)

    return torch.utils._pytree.tree_map_only(torch.Tensor, moved, value)  # noqa: SLF001 - of containers


@contextmanager
def _in_module(torch: Any, names: dict[int, str], path: list[str]) -> Iterator[None]:
    """Track the path of the running module in `path`."""
    hooks = torch.nn.modules.module

    def enter(module: Any, _inputs: Any) -> None:
        path.append(names.get(id(module), ""))

    def leave(_module: Any, _inputs: Any, _output: Any) -> None:
        if path:
            path.pop()

    with ExitStack() as stack:
        for handle in (
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave),
        ):
            stack.callback(handle.remove)
        yield


def _recorder(torch: Any) -> Any:
    """A dispatch mode that records layers in `layers`; defined here because its base class is imported late."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class DispatchRecorder(TorchDispatchMode):  # type: ignore[misc]
        """Records the executed operations."""

        def __init__(self) -> None:
            super().__init__()
            self.layers: list[Layer] = []
            self.left_out: Counter[str] = Counter()
            self.path: list[str] = []

        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            shape = _shape(torch, func, args, output)
            if isinstance(shape, str):
                self.left_out[shape] += 1
            elif shape is not None:
                name = self.path[-1] if self.path else ""
                self.layers.append(Layer(name, shape, 1, f"module {name or 'itself'}"))
            return output

    return DispatchRecorder()


def _shape(torch: Any, func: Any, args: Sequence[Any], output: Any) -> Any:
    """The shape or problem of an executed operator, or the reason why it has none; None: it multiplies nothing."""
    name = func.overloadpacket.__name__
    if func.namespace == "aten" and name in _PRODUCTS:
        operands = [args[place] for place in _PRODUCTS[name]]
    elif func is torch.ops.aten.convolution.default:
        operands = [*args[:2]]
    elif func.namespace not in _OWN_OPERATORS or _MULTIPLIES.search(name):
        return f"{func.namespace}.{name}"
    else:
        return None
    if (reason := _left_out(operands)) is not None:
        return reason
    if name == "_grouped_mm" and operands[1].dim() == _INNER:
        return f"aten.{name} along N or K"
    if name in _PRODUCTS:
        product = _product(operands[0], operands[1], _scaling(*args[:4]) if name == "_scaled_mm" else Scaling.NONE)
        return replace(product, has_bias=True) if name == "addmm" and args[0].dim() == 1 else product
    return _convolution(torch, args, output)


def _product(a: Any, b: Any, scaling: Scaling | None) -> Any:
    if scaling is None:
        return "products with other scales"
    b = b if b.dim() > 1 else b.unsqueeze(1)
    layout = f"{_order(a)}{_order(b)}r"
    sizes, dtype = (a.shape[-2], b.shape[-1], a.shape[-1]), dtype_name(str(a.dtype))
    if a.dim() < b.dim():
        least, more = divmod(a.shape[0], groups := b.shape[0])
        note_once(f"rows of grouped products are spread evenly over {groups} groups: a trace has no values")
        return GroupedMatmul((least + 1,) * more + (least,) * (groups - more), *sizes[1:], dtype, layout)
    if a.dim() > _INNER and a.shape[0] > 1:
        return BatchedMatmul(a.shape[0], *sizes, dtype, layout)
    return Matmul(*sizes, dtype, layout, scaling)


def _convolution(torch: Any, args: Sequence[Any], output: Any) -> Convolution:
    x, w, _, *lists, is_transposed, more, groups = args
    ndim = x.dim() - 2
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    is_last = ndim in formats and x.is_contiguous(memory_format=formats[ndim])
    layout = {2: "nhwc" if is_last else "nchw", 3: "ndhwc" if is_last else "ncdhw"}.get(ndim, "")
    sizes = [own if len(own) == ndim else tuple(own) * ndim for own in (x.shape[2:], w.shape[2:], *lists)]
    shape = convolution(x.shape[0], x.shape[1], output.shape[1], groups, sizes, dtype_name(str(x.dtype)), layout)
    if is_transposed:
        shape = shape.transposed(more if len(more) == ndim else more * ndim)
    shape.require_output((x if is_transposed else output).shape[1:])
    return shape


def _scaling(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Scaling | None:
    """Scaling of the operands of a scaled product; None: another."""
    (rows, inner), columns = a.shape, b.shape[1]
    if scale_a.numel() in (1, rows) and scale_b.numel() in (1, columns):
        return Scaling.ROW
    blocks = [-(-size // 128) for size in (inner, columns)]
    is_blocked = (list(scale_a.shape), list(scale_b.shape)) == ([rows, blocks[0]], blocks)
    return Scaling.BLOCK_128 if is_blocked else None


def _order(matrix: Any) -> str:
    """Memory order of a matrix: r (row-major) or c; other strides count as row-major."""
    rows, columns = matrix.stride()[-2:]
    return "c" if columns != 1 and rows == 1 else "r"


def _left_out(operands: Sequence[Any]) -> str | None:
    """Reason why a product or convolution has no problem, or None."""
    if not all(operand.numel() for operand in operands):
        return "operands without elements"
    strange = next((operand.dtype for operand in operands if dtype_name(str(operand.dtype)) not in DTYPE_BYTES), None)
    kinds = list(dict.fromkeys(dtype_name(str(operand.dtype)) for operand in operands))
    if strange is None and len(kinds) > 1:
        return f"products of {' and '.join(kinds)}"
    return None if strange is None else str(strange)
