"""ONNX models: convolutions and matrix products, with shapes from ONNX's shape inference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.shapes.layers import MAX_SIZE, BatchedMatmul, Convolution, Layer, Matmul

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ckh.shapes.run_options import RunOptions

MAX_BYTES = 2**31 - 1  # of a protobuf message
_DTYPES = {
    1: "fp32",
    10: "fp16",
    16: "bf16",
    11: "fp64",
    2: "int8",
    3: "int8",
    6: "int32",
    17: "fp8",
    18: "fp8",
    19: "bf8",
    20: "bf8",
    23: "pk_fp4",
}
_BATCH_WORDS = ("batch", "n", "bs", "b")
_OF_PRODUCTS = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3), "Gemm": (0, 1)}
_OF_CONVOLUTIONS = {"Conv": (0, 1), "ConvInteger": (0, 1), "QLinearConv": (0, 3)}
_UNREAD = ("ConvTranspose", "DeformConv", "FusedConv", "FusedMatMul", "FusedGemm", "If", "Loop", "Scan")
_DIMENSIONS = (1, 2, 3)
_MATRIX = 2
_UNSUPPORTED = "unsupported"  # nodes without an operation, which are not an error of a model


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor's element type and shape; None: a size is unknown."""

    dtype: str
    shape: tuple[int | None, ...]


def onnx_layers(path: Path, name: str, wanted: RunOptions) -> tuple[list[Layer], dict[str, int], dict[str, int]]:
    """The layers of a model, with counts of errors and of what is left out.

    Raises:
        UsageError: the package onnx is missing.
        DataError: the file is damaged, or a shape depends on unknown sizes.
    """
    model = _loaded(path, name)
    layers: list[Layer] = []
    bad: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for sizes in _open_sizes(model, wanted):
        tensors = _inferred(model, name, sizes)
        for number, node in enumerate(model.graph.node, 1):
            where = f"{name}: node {node.name or number} ({node.op_type})"
            if node.op_type in _UNREAD:
                left_out[node.op_type] += 1
            try:
                layers += _layers(node, tensors, where)
            except UsageError as error:
                if error.code == _UNSUPPORTED:
                    left_out[error.message] += 1
                    continue
                if not wanted.skip_bad:
                    raise DataError(f"{where}: {error.message}", error.hint, code=error.code) from error
                bad[f"{where}: {error.message}"] += 1
    return layers, dict(bad), dict(left_out)


def _loaded(path: Path, name: str) -> Any:
    try:
        import onnx
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
    if not model.graph.node:
        raise DataError(f"{name} is damaged: an ONNX model without nodes", code="damaged")
    return model


def _open_sizes(model: Any, wanted: RunOptions) -> Iterator[dict[str, int]]:
    """Values of symbolic input sizes: each number of images, and for other inputs each number of tokens."""
    names: dict[str, bool] = {}
    for number, item in enumerate(_inputs(model)):
        for place, size in enumerate(item.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                name = size.dim_param or f"{number}.{place}"
                names.setdefault(name, place == 0 or name.lower().split("_")[0] in _BATCH_WORDS)
    axes = [wanted.batch if is_batch else wanted.tokens for is_batch in dict.fromkeys(names.values())]
    for values in product(*axes):
        by_kind = dict(zip(dict.fromkeys(names.values()), values, strict=True))
        yield {name: by_kind[is_batch] for name, is_batch in names.items()}


def _inputs(model: Any) -> list[Any]:
    weights = {layer.name for layer in model.graph.initializer}
    return [layer for layer in model.graph.input if layer.name not in weights]


def _inferred(model: Any, name: str, sizes: Mapping[str, int]) -> dict[str, _Tensor]:
    """Tensors by name, by ONNX's shape inference with all sizes known."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for number, item in enumerate(_inputs(whole)):
        for place, size in enumerate(item.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                size.dim_value = sizes[size.dim_param or f"{number}.{place}"]
    del whole.graph.value_info[:]
    for output in whole.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(whole, data_prop=True)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{name}: ONNX cannot infer shapes: {text}", code="bad-data") from error
    graph = inferred.graph
    result = {layer.name: _tensor(layer) for layer in (*graph.input, *graph.value_info, *graph.output)}
    weights = {item.name: _Tensor(_DTYPES.get(item.data_type, ""), tuple(item.dims)) for item in graph.initializer}
    return result | weights


def _tensor(value: Any) -> _Tensor:
    kind = value.type.tensor_type
    shape = tuple(size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim)
    return _Tensor(_DTYPES.get(kind.elem_type, ""), shape)


def _layers(node: Any, tensors: Mapping[str, _Tensor], where: str) -> Iterator[Layer]:
    operands = _OF_PRODUCTS.get(node.op_type) or _OF_CONVOLUTIONS.get(node.op_type)
    if operands is None:
        return
    a, b = (_known(tensors, node.input[place] if place < len(node.input) else "") for place in operands)
    name = (node.name or node.op_type).replace(" ", "_")
    if node.op_type in _OF_CONVOLUTIONS:
        yield Layer(name, _convolution(node, a, b), 1, where)
    elif node.op_type == "Gemm":
        yield Layer(name, _gemm(node, a, b), 1, where)
    else:
        yield Layer(name, _matmul(a, b), 1, where)


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

    return {layer.name: onnx.helper.get_attribute_value(layer) for layer in node.attribute}


def _convolution(node: Any, x: _Tensor, w: _Tensor) -> Convolution:
    given, ndim = _attributes(node), len(x.shape) - 2
    if ndim not in _DIMENSIONS or len(w.shape) != len(x.shape):
        raise UsageError(f"convolutions of {ndim} dimensions", code=_UNSUPPORTED)
    spatial, taps = (tuple(size or 0 for size in item.shape[2:]) for item in (x, w))
    stride, dilation = (_sizes(given, name, ndim, 1) for name in ("strides", "dilations"))
    pads = _sizes(given, "pads", 2 * ndim, 0)
    if given.get("auto_pad", b"").startswith(b"SAME"):
        needed = [
            max(0, (-(-size // step) - 1) * step + (tap - 1) * gap + 1 - size)
            for size, step, tap, gap in zip(spatial, stride, taps, dilation, strict=True)
        ]
        pads = (*(item // 2 for item in needed), *(item - item // 2 for item in needed))
    # Asymmetric padding by one row costs as much as padding both sides: use the larger one.
    pad = tuple(max(pair) for pair in zip(pads[:ndim], pads[ndim:], strict=True))
    more = (1,) if ndim == 1 else ()  # of one dimension: an image of height 1
    return Convolution(
        x.shape[0] or 0,
        x.shape[1] or 0,
        w.shape[0] or 0,
        more + spatial,
        more + taps,
        _sizes({"group": [given.get("group", 1)]}, "group", 1, 1)[0],
        more + stride,
        (0,) * len(more) + pad,
        more + dilation,
        dtype=x.dtype,
    )


def _sizes(given: Mapping[str, Any], name: str, count: int, default: int) -> tuple[int, ...]:
    """The integers of an attribute.

    Raises:
        UsageError: it has other values, or another number of them.
    """
    value = given.get(name, [default] * count)
    if not isinstance(value, list) or len(value) != count or not all(isinstance(item, int) for item in value):
        raise UsageError(f"{name} must be {count} integers, not {value!r:.60}", code="bad-field")
    least = min(1, default)
    if not all(least <= item <= MAX_SIZE for item in value):
        raise UsageError(f"{name} has a value out of range: {value!r:.60}", code="out-of-range")
    return tuple(value)


def _gemm(node: Any, a: _Tensor, b: _Tensor) -> Matmul:
    if len(a.shape) != _MATRIX or len(b.shape) != _MATRIX:
        raise UsageError(f"operands of {len(a.shape)} and {len(b.shape)} dimensions", code="impossible-problem")
    given = _attributes(node)
    is_a, is_b = (bool(given.get(name, 0)) for name in ("transA", "transB"))
    rows, inner = (a.shape[1], a.shape[0]) if is_a else (a.shape[0], a.shape[1])
    columns = b.shape[0] if is_b else b.shape[1]
    layout = ("c" if is_a else "r") + ("c" if is_b else "r") + "r"
    return Matmul(rows or 0, columns or 0, inner or 0, a.dtype, layout)


def _matmul(a: _Tensor, b: _Tensor) -> Matmul | BatchedMatmul:
    """The product or products; a batch with a shared weight is one product with all rows."""
    sizes_a = [size or 0 for size in a.shape]
    sizes_b = [size or 0 for size in b.shape]
    if len(sizes_a) == 1:
        sizes_a = [1, *sizes_a]
    if len(sizes_b) == 1:
        sizes_b = [*sizes_b, 1]
    batch = prod(sizes_b[:-2])
    inner, columns = sizes_b[-2:]
    if batch == 1:
        return Matmul(prod(sizes_a[:-1]), columns, inner, a.dtype, "rrr")
    return BatchedMatmul(max(batch, prod(sizes_a[:-2])), sizes_a[-2], columns, inner, a.dtype, "rrr")
