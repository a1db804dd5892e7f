"""Users' arrays as kernels' operands and back: NumPy, PyTorch, and whatever exports itself by DLPack."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.bench.isolated.typed import Array, element_type
from ckh.errors import UsageError

if TYPE_CHECKING:
    from ckh.bench.computation import ArrayForm, Shape

# Element type -> names of NumPy's, of ml_dtypes, and of the codes that stand for them.
_ACCEPTED = {
    "fp32": ("float32",),
    "fp16": ("float16",),
    "bf16": ("bfloat16", "uint16"),
    "fp8": ("float8_e4m3fn", "uint8"),
    "bf8": ("float8_e5m2", "uint8"),
    "int8": ("int8",),
    "int32": ("int32",),
}
_FNUZ = {"fp8": ("float8_e4m3fnuz", "uint8"), "bf8": ("float8_e5m2fnuz", "uint8")}
_TORCH = "torch"
# PyTorch's types that NumPy lacks -> those of the same size that it has.
_TORCH_CODES = {"bfloat16": "int16", **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz"), "uint8")}
_TORCH_CODES |= dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz"), "uint8")


@dataclass(frozen=True, slots=True)
class Taken:
    """A user's array as an operand."""

    values: Array
    dtype: np.dtype[Any]
    is_other: bool
    torch_dtype: str = ""
    torch_device: Any = None


def taken(array: Any, form: ArrayForm, dtype: str, *, fnuz_floats: bool) -> Taken:
    """Convert a user's array to an operand."""
    torch_dtype, torch_device = "", None
    if type(array).__module__.partition(".")[0] == _TORCH:
        torch_dtype, torch_device = str(getattr(array, "dtype", "")).removeprefix("torch."), array.device
        values = _of_tensor(array, torch_dtype, form.name)
    else:
        values = _of_array(array, form.name)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    name = torch_dtype or values.dtype.name
    accepted = (_FNUZ if fnuz_floats else {}).get(dtype, _ACCEPTED[dtype])
    if name not in accepted:
        raise UsageError(
            f"{form.name} has elements of {name}, the problem is of {dtype}",
            f"convert it to {' or '.join(accepted)}",
            code="column-type",
        )
    if values.shape not in (form.shape, form.other_shape):
        either = "" if form.other_shape is None else f" or {form.other_shape}"
        axes = f" ({form.axes})" if form.axes else ""
        raise UsageError(
            f"{form.name} has the shape {values.shape}, expected {form.shape}{axes}{either}", code="bad-problem"
        )
    is_other = values.shape != form.shape
    stored = values.reshape(form.shape)
    stored = np.ascontiguousarray(stored.T if form.is_transposed else stored)
    return Taken(stored.view(element_type(dtype).storage), values.dtype, is_other, torch_dtype, torch_device)


def _of_array(array: object, name: str) -> Array:
    if isinstance(array, np.ma.MaskedArray):
        raise UsageError(
            f"{name} is a masked array, and kernels know no masks", "fill it: array.filled(0)", code="column-type"
        )
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    if not hasattr(array, "__dlpack__"):
        raise UsageError(
            f"{name} must be an array, not {type(array).__name__}",
            "NumPy's, PyTorch's, or one with __dlpack__",
            code="column-type",
        )
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{name} cannot be read by DLPack: {error}", "copy it to the memory of the CPU", code="column-type"
        ) from error


def _of_tensor(tensor: Any, dtype: str, name: str) -> Array:
    kind = "meta" if tensor.device.type == "meta" else str(tensor.layout).removeprefix("torch.")
    if kind != "strided":
        raise UsageError(
            f"{name} is a {kind} tensor, expected one with all elements", "make it dense", code="column-type"
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if codes := _TORCH_CODES.get(dtype):
        tensor = tensor.contiguous().view(getattr(sys.modules[_TORCH], codes))
    return np.asarray(tensor)


def enlarged(values: Array, shape: Shape) -> Array:
    """Pad an operand with zeros behind its elements along each axis, to a shape."""
    if values.shape == shape:
        return values
    made = np.zeros(shape, values.dtype)
    made[tuple(map(slice, values.shape))] = values
    return made


def given_back(stored: Array, form: ArrayForm, like: Taken, *, has_its_dtype: bool) -> Any:
    """Convert a result to an array or tensor `like` an operand, with its element type if it `has_its_dtype`."""
    shape = form.shape[::-1] if form.is_transposed else form.shape
    values = np.ascontiguousarray(stored[tuple(map(slice, shape))])
    values = values.T if form.is_transposed else values
    if like.is_other and form.other_shape is not None:
        values = values.reshape(form.other_shape)
    if not like.torch_dtype:
        return values.view(like.dtype) if has_its_dtype else values
    codes = _TORCH_CODES.get(like.torch_dtype) if has_its_dtype else None
    torch: Any = sys.modules[_TORCH]
    tensor = torch.from_numpy(values.view(codes) if codes else values)
    tensor = tensor.view(getattr(torch, like.torch_dtype)) if codes else tensor
    return tensor.to(like.torch_device)
