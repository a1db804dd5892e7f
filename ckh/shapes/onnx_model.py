"""ONNX models: convolutions and matrix products, with shapes from ONNX's shape inference."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.account import Account
from ckh.shapes.layers import MAX_SIZE, BatchedMatmul, Convolution, Layer, Matmul
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.shapes.layers import RunOptions

MAX_BYTES = 2**31 - 1  # of a protobuf message
_OPERATORS = json.loads(Path(__file__).with_name("onnx_operators.json").read_bytes())
_DTYPES = {int(number): dtype for number, dtype in _OPERATORS["dtypes"].items()}
_LAYOUTS = {2: "nchw", 3: "ncdhw"}  # of convolutions, by their dimensions
_LAYOUTS_LAST = {2: "nhwc", 3: "ndhwc"}
_BATCH_WORDS = ("batch", "n", "bs", "b")
_OF_PRODUCTS = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3), "Gemm": (0, 1), "Einsum": (0, 1)}
_OF_CONVOLUTIONS = {"Conv": (0, 1), "ConvInteger": (0, 1), "QLinearConv": (0, 3), "ConvTranspose": (0, 1)}
# Operators that multiply no matrices; others that are not read are counted as left out.
_WITHOUT_PRODUCTS = frozenset(_OPERATORS["without_products"])
_READ = {**_OF_PRODUCTS, **_OF_CONVOLUTIONS}  # operator -> places of its two operands
_MOVING = ("Transpose", "Reshape", "Identity", "Flatten", "Squeeze", "Unsqueeze")  # values keep their type
_OF_8_BITS = ("int8", "uint8", "fp8", "bf8")
_DIMENSIONS = (1, 2, 3)
_MATRIX = 2
_ELLIPSIS = "0123456789"  # axes of an Einsum without a letter, the last one last
_OTHER_EINSUM = "Einsum of other than two operands, or without a stated result"
_UNSUPPORTED = "unsupported"  # nodes without an operation, which are not an error of a model


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor's element type and shape; None: a size is unknown."""

    dtype: str
    shape: tuple[int | None, ...]
    stored: str = ""  # element type of 8 bits before it was dequantised


def onnx_layers(path: Path, name: str, wanted: RunOptions) -> tuple[list[Layer], Account]:
    """The layers of a model, and the account of its nodes."""
    model = _loaded(path, name)
    layers: list[Layer] = []
    account = Account(wanted.strict)
    for operator in _unread(model.graph):
        account.leave_out(operator)
    nodes = [new for node in model.graph.node if node.output for new in _standard(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    stated = {value.name: _tensor(value) for value in (*model.graph.value_info, *model.graph.output)}
    for sizes, times in _open_sizes(model, name, wanted):
        tensors = _inferred(model, name, sizes)
        for number, node in enumerate(model.graph.node, 1):
            where = f"{name}: node {node.name or number} ({node.op_type})"
            try:
                layers += (replace(layer, count=times) for layer in _layers(node, tensors, stated, where))
            except UsageError as error:
                if error.code == _UNSUPPORTED:
                    account.leave_out(error.message)
                else:
                    account.refuse(error, where)
    return layers, account


def _loaded(path: Path, name: str) -> Any:
    try:
        import onnx
        import onnx.inliner
    except ImportError as error:
        raise UsageError(
            f"{name}: the package onnx is missing", "pip install 'ckh[onnx]'", code="not-installed"
        ) from error
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{name} is larger than 2 GiB", "store the weights as external data", code="too-large")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise DataError(f"{name} is damaged: not an ONNX model, or truncated", code="damaged") from error
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if not model.graph.node:
        raise DataError(f"{name} is damaged: an ONNX model without nodes", code="damaged")
    return model


def _unread(graph: Any, owner: str = "") -> Iterator[str]:
    """Name the nodes that may multiply and are not read: of other operators, and all of inner graphs."""
    for node in graph.node:
        if node.op_type not in _WITHOUT_PRODUCTS and (owner or node.op_type not in (*_READ, *_OPERATORS["standard"])):
            yield node.op_type + owner
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _unread(inner, f" in {node.op_type}")


def _standard(node: Any) -> list[Any]:
    """The nodes of ONNX that compute one of ONNX Runtime, so that the shapes behind it are inferred."""
    from onnx.helper import make_attribute, make_node

    kind = _OPERATORS["standard"].get(node.op_type)
    if node.domain and node.op_type in _OPERATORS["like_first"]:
        return [make_node("Identity", node.input[:1], [output]) for output in node.output if output]
    if not node.domain or kind is None or not all(node.input[:2]):
        return [node]
    given, y = _attributes(node), node.output[0]
    if kind == "MatMul" and any(given.get(name) for name in given if name.startswith("trans")):
        terms = (_term(given, side, axes) for side, axes in (("A", ("i", "k")), ("B", ("k", "j"))))
        return [make_node("Einsum", node.input[:2], [y], node.name, equation=f"{','.join(terms)}->...ij")]
    inner = type(node)()
    inner.CopyFrom(node)
    inner.op_type, inner.domain = kind, ""
    if not given.get("channels_last", node.op_type.startswith("Nhwc")) or len(node.input) < _MATRIX:
        return [inner]
    kernel = given.get("kernel_shape")
    axes = range(2, 2 + (len(kernel) if isinstance(kernel, list) and kernel else 2))
    last, first = (0, *axes, 1), (0, axes[-1], *(axis - 1 for axis in axes))
    moves = [make_node("Transpose", node.input[:1], [f"{y} input"], perm=first)]
    if node.op_type == "NhwcConv":  # others have their filter as in ONNX
        moves.append(make_node("Transpose", node.input[1:2], [f"{y} filter"], perm=first))
        inner.input[1] = f"{y} filter"
    inner.input[0], inner.output[0] = f"{y} input", f"{y} output"
    inner.attribute.append(make_attribute("channels_last", 1))
    return [*moves, inner, make_node("Transpose", inner.output[:1], [y], perm=last)]


def _term(given: Mapping[str, Any], side: str, axes: tuple[str, str]) -> str:
    """Axes of an operand of ONNX Runtime's products with transposes, as Einsum has them."""
    first, last = axes[::-1] if given.get(f"trans{side}") else axes
    return f"{first}...{last}" if given.get(f"transBatch{side}") else f"...{first}{last}"


def _open_sizes(model: Any, name: str, wanted: RunOptions) -> Iterator[tuple[dict[str, int], int]]:
    """Values of open input sizes, and how often they run: each number of images and tokens, and what is known.

    Names the open sizes that have none.
    """
    batch: dict[str, bool] = {}
    owners: dict[str, str] = {}
    for tensor in _inputs(model):
        for place, size in enumerate(tensor.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                size.dim_param = size.dim_param or f"{tensor.name}[{place}]"
                batch.setdefault(size.dim_param, place == 0 or size.dim_param.lower().split("_")[0] in _BATCH_WORDS)
                owners.setdefault(size.dim_param, tensor.name)
    known, read = _of_convolutions(model, name) if batch else ({}, frozenset())
    for owner in (tensor.name for tensor in _inputs(model) if tensor.name in read):
        images = [size for size, of in owners.items() if of == owner and not batch[size] and size not in known]
        known |= _of_image(images, wanted.image, f"{name}: the sizes {', '.join(images)[:120]} of {owner[:60]!r}")
    kinds = {size: is_batch for size, is_batch in batch.items() if size not in known}
    axes = [
        dict.fromkeys(wanted.batch, 1) if is_batch else wanted.weights for is_batch in dict.fromkeys(kinds.values())
    ]
    for sizes in product(*axes):
        by_kind = dict(zip(dict.fromkeys(kinds.values()), sizes, strict=True))
        times = prod(axis[size] for axis, size in zip(axes, sizes, strict=True))
        yield {size: by_kind[is_batch] for size, is_batch in kinds.items()} | known, times


def _of_image(images: Sequence[str], stated: Sequence[int], what: str) -> dict[str, int]:
    """The open sizes of an image as --image states them."""
    if images and len(images) != len(stated):
        own = f", and --image has {len(stated)}" if stated else ""
        example = "x".join(["224"] * len(images))
        raise DataError(f"{what} are open{own}", f"e.g. ckh shapes MODEL.onnx --image {example}", code="missing-field")
    return dict(zip(images, stated, strict=False))


def _of_convolutions(model: Any, name: str) -> tuple[dict[str, int], frozenset[str]]:
    """Open channels with their number in the filter, and tensors that convolutions read without a product before."""
    graph = _with_shapes(model, name)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info)}
    weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    channels: dict[str, int] = {}
    read = []
    for node in graph.node:
        x, w = (node.input[place : place + 1] for place in _OF_CONVOLUTIONS.get(node.op_type, (0, 0)))
        if node.op_type in _OF_CONVOLUTIONS and x and w:
            read += x
            own, filters = shapes.get(x[0], ()), weights.get(w[0], ())
            if len(own) > 1 and own[1].dim_param and len(filters) > 1:
                groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
                channels.setdefault(
                    own[1].dim_param, filters[0] if node.op_type == "ConvTranspose" else filters[1] * groups
                )
    for tensor in read:
        maker = makers.pop(tensor, None)
        if maker is not None and maker.op_type in _WITHOUT_PRODUCTS - {"Gather"}:
            read += maker.input
    return channels, frozenset(read)


def _inputs(model: Any) -> list[Any]:
    weights = {weight.name for weight in model.graph.initializer}
    return [tensor for tensor in model.graph.input if tensor.name not in weights]


def _inferred(model: Any, name: str, sizes: Mapping[str, int]) -> dict[str, _Tensor]:
    """Tensors by name, by ONNX's shape inference with all sizes known."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for tensor in _inputs(whole):
        for size in tensor.type.tensor_type.shape.dim:
            if not size.HasField("dim_value"):
                size.dim_value = sizes[size.dim_param]
    del whole.graph.value_info[:]
    for output in whole.graph.output:
        output.type.tensor_type.ClearField("shape")
    graph = _with_shapes(whole, name)
    tensors = {value.name: _tensor(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    for weight in graph.initializer:
        tensors[weight.name] = _Tensor(_DTYPES.get(weight.data_type, ""), tuple(weight.dims))
    for node in graph.node:
        source, (result, *_) = tensors.get(node.input[0] if node.input else ""), node.output
        if source is not None and result in tensors and node.op_type in ("DequantizeLinear", *_MOVING):
            stored = source.stored if node.op_type in _MOVING else source.dtype
            tensors[result] = replace(tensors[result], stored=stored if stored in _OF_8_BITS else "")
    return tensors


def _with_shapes(model: Any, name: str) -> Any:
    """A model's graph with inferred shapes."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{name}: ONNX cannot infer shapes: {text}", code="bad-data") from error


def _tensor(value: Any) -> _Tensor:
    kind = value.type.tensor_type
    shape = tuple(size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim)
    return _Tensor(_DTYPES.get(kind.elem_type, ""), shape)


def _layers(node: Any, tensors: Mapping[str, _Tensor], stated: Mapping[str, _Tensor], where: str) -> Iterator[Layer]:
    operands = _READ.get(node.op_type)
    if operands is None:
        return
    if node.op_type == "Einsum" and len(node.input) != len(operands):
        raise UsageError(_OTHER_EINSUM, code=_UNSUPPORTED)
    a, b = (_known(tensors, node.input[place] if place < len(node.input) else "") for place in operands)
    if a.stored and b.stored:
        a, b = replace(a, dtype=a.stored), replace(b, dtype=b.stored)
    if "uint8" in (a.dtype, b.dtype):
        note_once("uint8 operands are taken as int8")
        a, b = (replace(tensor, dtype=tensor.dtype.removeprefix("u")) for tensor in (a, b))
    if a.dtype != b.dtype:
        raise UsageError(f"products of {a.dtype} and {b.dtype}", code=_UNSUPPORTED)
    name = (node.name or node.op_type).replace(" ", "_")
    if node.op_type in _OF_CONVOLUTIONS:
        shape = _convolution(node, a, b)
        for known in (tensors, stated):
            if (output := known.get(node.output[0])) is not None and output.shape:
                shape.require_output((a if node.op_type == "ConvTranspose" else output).shape[1:])
        yield Layer(name, shape, 1, where)
    else:
        added = tensors.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > len(operands) else None
        yield from (Layer(name, _with_bias(product, added), 1, where) for product in _product(node, a, b))


def _with_bias(product: Matmul | BatchedMatmul, added: _Tensor | None) -> Matmul | BatchedMatmul:
    """A product with what Gemm adds, if that is a vector."""
    is_bias = added is not None and added.shape in ((product.n,), (1, product.n))
    return replace(product, has_bias=True) if is_bias and isinstance(product, Matmul) else product


def _known(tensors: Mapping[str, _Tensor], name: str) -> _Tensor:
    tensor = tensors.get(name)
    if tensor is None or not tensor.shape or None in tensor.shape:
        raise UsageError(
            f"the shape of {name[:60]!r} cannot be inferred", "export the model with fixed sizes", code="missing-field"
        )
    if not tensor.dtype:
        raise UsageError("nodes of other element types", code=_UNSUPPORTED)
    return tensor


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _convolution(node: Any, x: _Tensor, w: _Tensor) -> Convolution:
    given, ndim = _attributes(node), len(x.shape) - 2
    if ndim not in _DIMENSIONS or len(w.shape) != len(x.shape):
        raise UsageError(f"convolutions of {ndim} dimensions", code=_UNSUPPORTED)
    spatial, taps = (tuple(size or 0 for size in tensor.shape[2:]) for tensor in (x, w))
    stride, dilation = (_sizes(given, name, ndim, 1) for name in ("strides", "dilations"))
    pads = _sizes(given, "pads", 2 * ndim, 0)
    is_transposed = node.op_type == "ConvTranspose"
    if is_transposed and ("output_shape" in given or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")):
        raise UsageError("transposed convolutions of a stated output", code=_UNSUPPORTED)
    if given.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        needed = [
            max(0, (-(-size // step) - 1) * step + (tap - 1) * gap + 1 - size)
            for size, step, tap, gap in zip(spatial, stride, taps, dilation, strict=True)
        ]
        pads = (*(count // 2 for count in needed), *(count - count // 2 for count in needed))
    # Asymmetric padding: an input that is padded by the difference, as PyTorch computes it.
    pairs = list(zip(pads[:ndim], pads[ndim:], strict=True))
    pad = tuple(map(min, pairs))
    if any(first != last for first, last in pairs):
        note_once("asymmetric padding: the longer side is part of the image")
    if not is_transposed:  # whose result is cropped instead
        spatial = tuple(size + abs(a - b) for size, (a, b) in zip(spatial, pairs, strict=True))
    groups = _sizes({"group": [given.get("group", 1)]}, "group", 1, 1)[0]
    if x.shape[1] != (channels := (w.shape[0] or 0) if is_transposed else (w.shape[1] or 0) * groups):
        raise UsageError(
            f"an input of {x.shape[1]} channels, and a filter of {groups} x {w.shape[1]}", code="impossible-problem"
        )
    more = (1,) if ndim == 1 else ()  # of one dimension: an image of height 1
    shape = Convolution(
        x.shape[0] or 0,
        channels,
        (w.shape[1] or 0) * groups if is_transposed else w.shape[0] or 0,
        more + spatial,
        more + taps,
        groups,
        more + stride,
        (0,) * len(more) + pad,
        more + dilation,
        dtype=x.dtype,
        layout=(_LAYOUTS_LAST if given.get("channels_last") else _LAYOUTS).get(ndim, ""),
    )
    return shape.transposed(_sizes(given, "output_padding", ndim, 0)) if is_transposed else shape


def _sizes(given: Mapping[str, Any], name: str, count: int, default: int) -> tuple[int, ...]:
    """The integers of an attribute."""
    value = given.get(name, [default] * count)
    if not isinstance(value, list) or len(value) != count or not all(isinstance(size, int) for size in value):
        raise UsageError(f"{name} must be {count} integers, not {value!r:.60}", code="bad-field")
    least = min(1, default)
    if not all(least <= size <= MAX_SIZE for size in value):
        raise UsageError(f"{name} has a value out of range: {value!r:.60}", code="out-of-range")
    return tuple(value)


def _equation(node: Any, a: _Tensor, b: _Tensor) -> str:
    """A product as an equation of Einsum."""
    given = _attributes(node)
    if node.op_type == "Einsum":
        return bytes(given.get("equation") or b"").decode("utf-8", "replace").replace(" ", "")
    if node.op_type == "Gemm":
        return f"{'ki' if given.get('transA') else 'ik'},{'jk' if given.get('transB') else 'kj'}->ij"
    return f"{'...ik' if len(a.shape) > 1 else 'k'},{'...kj' if len(b.shape) > 1 else 'k'}->...ij"


def _product(node: Any, a: _Tensor, b: _Tensor) -> Iterator[Matmul | BatchedMatmul]:
    """The product or products of a node; none if it sums over no axis of both operands."""
    equation = _equation(node, a, b)
    inputs, _, output = equation.replace("->...", f"->{_ELLIPSIS}").partition("->")
    if not output or inputs.count(",") != 1:
        raise UsageError(_OTHER_EINSUM, code=_UNSUPPORTED)
    sizes = []
    for term, tensor in zip(inputs.split(","), (a, b), strict=False):
        letters = term.replace("...", _ELLIPSIS[len(_ELLIPSIS) + len(term.replace("...", "")) - len(tensor.shape) :])
        if len(letters) != len(tensor.shape):
            raise UsageError(f"{equation:.60} does not fit {len(tensor.shape)} dimensions", code="impossible-problem")
        sizes.append(dict(zip(letters, (size or 0 for size in tensor.shape), strict=True)))
        if len(sizes[-1]) < len(letters):
            raise UsageError("Einsum of diagonals", code=_UNSUPPORTED)
    pairs = (sizes, sizes[::-1])
    left, right = ({axis: size for axis, size in own.items() if size != 1 or axis not in other} for own, other in pairs)
    summed = [axis for axis in left if axis in right and axis not in output]
    if any(left[axis] != right[axis] for axis in left if axis in right):
        raise UsageError(f"{equation:.60}: the operands' sizes differ", code="impossible-problem")
    if any(axis not in output for axis in left.keys() ^ right.keys()):
        raise UsageError("Einsum with sums over an axis of one operand", code=_UNSUPPORTED)
    if summed:
        if output[-1] in left and output[-1] not in right and right.keys() - left.keys():  # C^T = B^T A^T
            left, right = right, left
        yield _of_axes(left, right, summed, a.dtype)


def _of_axes(
    left: Mapping[str, int], right: Mapping[str, int], summed: Sequence[str], dtype: str
) -> Matmul | BatchedMatmul:
    """The product of operands by their axes in order; rows and columns are the last neighbours that one has alone."""

    def alone(own: Mapping[str, int], other: Mapping[str, int]) -> tuple[str, ...]:
        runs = [tuple(axes) for is_shared, axes in groupby(own, other.__contains__) if not is_shared]
        return runs[-1] if runs else ()

    rows, columns = alone(left, right), alone(right, left)
    batch = prod(({**left, **right} | dict.fromkeys((*rows, *columns, *summed), 1)).values())
    m, n, k = (prod(own[axis] for axis in axes) for own, axes in ((left, rows), (right, columns), (left, summed)))
    order = ("c" if [*left][-1] in rows else "r") + ("c" if columns and [*right][-1] not in columns else "r") + "r"
    return Matmul(m, n, k, dtype, order) if batch == 1 else BatchedMatmul(batch, m, n, k, dtype, order)
