"""Parsers of log lines with a shape, of MIOpen, hipBLASLt, rocBLAS, PyTorch, vLLM and profilers.

BLAS libraries are column-major: their `m x n` result is PyTorch's row-major `n x m`, so m and n are swapped, and their
A is our B.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, dtype_name
from ckh.shapes.layers import BatchedMatmul, Convolution, Matmul, Scaling, Shape
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DIRECTIONS = {"forward": 1, "bwd_data": 2, "bwd_weight": 4}  # bits of MIOpenDriver's -F; 0 is all of them
_DRIVER = re.compile(r"MIOpenDriver(?:\.exe)?['\"]?,?\s+['\"]?(?P<op>conv\w*)\b(?P<rest>.*)")
_OF_DRIVER = json.loads(Path(__file__).with_name("miopen_driver.json").read_bytes())
_BLAS = re.compile(r"(?:hipblaslt-bench|rocblas-bench)\b(?P<rest>.*)")
_BLAS_DTYPES = {"f8": "fp8", "f4": "pk_fp4", "h": "fp16", "s": "fp32", "d": "fp64"}
_TUNABLE = re.compile(
    r"(?P<scaled>Scaled)?Gemm(?P<kind>StridedBatched|AndBias)?TunableOp_(?P<types>[A-Za-z0-9_]+?)_(?P<blas>[TN]{2}),"
    r"[tn]{2}_(?P<m>\d{1,19})_(?P<n>\d{1,19})_(?P<k>\d{1,19})(?:_B_(?P<batch>\d{1,19}))?(?P<rest>\w*)"
)
AITER_MARK = "not found tuned"  # then `config`, `CK config` or `/padded config`
_MISSED = re.compile(
    r"shape is (?:[BG]:\s*(?P<b>\d{1,19}),\s*)?M:\s*(?P<m>\d{1,19}),\s*N:\s*(?P<n>\d{1,19}),\s*K:\s*(?P<k>\d{1,19})"
    rf"(?P<rest>.*){AITER_MARK}"
)
_STATED_DTYPE = re.compile(r"(?:q_)?dtype(?:_w)?\s*(?:[:=]|is)\s*['\"]?(?:torch\.)?(?P<dtype>\w+)")
_RESULT = re.compile(r"otype\s*=\s*['\"]?(?:torch\.)?(\w+)")
_VLLM = re.compile(
    r"Config file not found at .*?(?:E=(?P<e>\d{1,9}),)?N=(?P<n>\d{1,19})(?:,K=(?P<k>\d{1,19}))?,"
    r"device_name=[^,\s]*(?:,dtype=(?P<dtype>\w+))?(?P<rest>.*)"
)
_VLLM_DTYPES = {"fp8_w8a8": "fp8", "int8_w8a8": "int8"}
_KERNEL = re.compile(
    r"(?<![A-Za-z])[Mm][_=]?(\d{1,7})[_x, ]{1,2}[Nn][_=]?(\d{1,7})[_x, ]{1,2}[Kk][_=]?(\d{1,7})(?![0-9])"
)
_KERNEL_DTYPE = re.compile(
    r"(?<![a-z0-9])(bf16|bfloat16|fp16|f16|half|fp8|f8|fp32|f32|int8|i8)(?![a-z0-9])", re.IGNORECASE
)
_OF_TILES = re.compile(r"(tile|block|wave|warp|inst|size|mfma|wmma)[a-z]*[_:]*$", re.IGNORECASE)  # before M, N, K
_LAYOUT_OF = {"TN": "rcr", "NN": "rrr", "NT": "crr", "TT": "ccr"}  # of BLAS' transA and transB


@dataclass(frozen=True, slots=True)
class StatedShape:
    """A shape stated by a line."""

    shape: Shape
    name: str = ""  # name of the layer or kernel; empty: none is stated
    count: int = 1  # number of executions


def driver_line(line: str) -> Iterator[StatedShape]:
    """The convolution of an MIOpenDriver command, as printed by MIOPEN_ENABLE_LOGGING_CMD, in each direction."""
    if (match := _DRIVER.search(line)) is None:
        return
    values = {_OF_DRIVER["short_options"].get(name, name): value for name, value in _options(match["rest"]).items()}
    if values.get("mode", "conv") != "conv":
        raise UsageError(f"convolutions of the mode {values['mode'][:40]}", code="unsupported")
    number = {name: _integer(name, values.get(name, default)) for name, default in _OF_DRIVER["defaults"].items()}
    axes = "dhw"[-number["spatial_dim"] :] if number["spatial_dim"] in (2, 3) else ""
    if not axes:
        raise UsageError(f"convolutions of {number['spatial_dim']} dimensions", code="unsupported")
    lists = {
        ours: tuple(number[f"{theirs}_{axis}"] for axis in axes)
        for ours, theirs in {"spatial": "in", "taps": "fil", "stride": "conv_stride", "pad": "pad"}.items()
    }
    dilation = tuple(number[f"dilation_{axis}"] for axis in axes)
    if set(dilation) == {1} or set(lists["taps"]) == {1}:
        lists["pad"] = _padding(values.get("pad_mode", ""), **lists)
    if match["op"] not in _OF_DRIVER["dtypes"]:
        raise UsageError(f"convolutions of {match['op'][:40]}", code="unsupported")
    wanted = number["forw"] or sum(_DIRECTIONS.values())
    for variant, bit in _DIRECTIONS.items():
        if wanted & bit:
            yield StatedShape(
                Convolution(
                    number["batchsize"],
                    number["in_channels"],
                    number["out_channels"],
                    g=number["group_count"],
                    **lists,
                    dilation=dilation,
                    variant=variant,
                    dtype=_OF_DRIVER["dtypes"][match["op"]],
                    layout=values.get("in_layout", "nchw" if len(axes) == len("hw") else "ncdhw").lower(),
                )
            )


def _padding(
    mode: str, spatial: tuple[int, ...], taps: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...]
) -> tuple[int, ...]:
    """The padding that MIOpenDriver computes by its option -z."""
    if mode == "same":
        steps = (size % step or step if step else 0 for size, step in zip(spatial, stride, strict=True))
        return tuple(max(tap - step, 0) // 2 for tap, step in zip(taps, steps, strict=True))
    return (0,) * len(pad) if mode == "valid" else pad


def blas_line(line: str) -> Iterator[StatedShape]:
    """The product, or batch of products, of a hipblaslt-bench or rocblas-bench command."""
    if (match := _BLAS.search(line)) is None:
        return
    values = _options(match["rest"])
    function = values.get("f", values.get("function", "gemm"))
    if "gemm" not in function and function != "matmul":
        raise UsageError(f"calls of {function[:40]}", code="unsupported")
    if missing := [name for name in "mnk" if name not in values]:
        raise UsageError(f"-{missing[0]} is missing", code="missing-field")
    m, n, k = (_integer(name, values[name]) for name in "mnk")
    blas = (
        values.get("transA", values.get("transposeA", "N")) + values.get("transB", values.get("transposeB", "N"))
    ).upper()
    a, b = (_blas_dtype(values.get(f"{letter}_type", values.get("r", "f32_r"))) for letter in "ab")
    if a != b:
        raise UsageError(f"products of {a} and {b}", code="unsupported")
    scaling = (
        Scaling.ROW if values.get("scaleA", "0") not in ("0", "") and a in ("fp8", "bf8", "int8") else Scaling.NONE
    )
    batch = _integer("batch_count", values.get("batch_count", "1"))
    yield _batch_of(_blas_product(m, n, k, blas, a, scaling), batch)


def tunable_line(line: str) -> Iterator[StatedShape]:
    """The product, or batch of products, of a row of PyTorch's TunableOp, untuned or tuned."""
    if (match := _TUNABLE.search(line)) is None:
        return
    types = match["types"]
    whole = dtype_name(types)
    operands = re.split(r"_(?=[A-Z])", types)
    dtype = whole if whole in DTYPE_BYTES else dtype_name(operands[0])
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"unknown element type {types!r:.60}", code="unknown-dtype")
    if whole != dtype and len(operands) > 1 and operands[0] != operands[1]:
        raise UsageError(f"products of {operands[0]} and {operands[1]}", code="unsupported")
    scaling = Scaling.ROW if match["scaled"] else Scaling.NONE
    shape = _blas_product(int(match["m"]), int(match["n"]), int(match["k"]), match["blas"], dtype, scaling)
    yield _batch_of(shape, int(match["batch"] or 1))


def missed_line(line: str) -> Iterator[StatedShape]:
    """The bf16 or fp16 product, or batch of products, without a row in AITER's tuned table."""
    if (match := _MISSED.search(line)) is None:
        return
    stated = _STATED_DTYPE.search(match["rest"])
    text = line[match.start() :]
    dtype = dtype_name(stated["dtype"]) if stated else next((name for name in ("bf16", "fp16") if name in text), "")
    if match["b"] and dtype not in DTYPE_BYTES:
        what = "batches of AITER's quantised products, whose scales its line does not state"
        raise UsageError(what, code="unsupported")
    if dtype in DTYPE_BYTES:
        m, n, k = (int(match[name]) for name in "mnk")
        result, has_bias = _RESULT.search(match["rest"]), "bias=True" in match["rest"]
        shape = Matmul(m, n, k, dtype, has_bias=has_bias, result=dtype_name(result[1]) if result else "")
        yield _batch_of(shape, int(match["b"] or 1))


def vllm_line(line: str, tokens: Sequence[tuple[int, int]]) -> Iterator[StatedShape]:
    """Products without a vLLM or SGLang configuration, for each number of tokens with its weight.

    The line of a mixture of experts states neither its columns nor the experts per token, so it gives no shape.
    """
    if (match := _VLLM.search(line)) is None:
        return
    if match["e"] or not match["k"]:
        what = f"E={match['e']}, N={match['n']}" if match["e"] else f"N={match['n']}"
        lacks = "whose line states neither columns nor choices; the model's config.json has them, with --tp or --ep"
        raise UsageError(f"mixtures of experts of vLLM ({what}), {lacks}", code="unsupported")
    blocks = re.search(r"block_shape=\[(\d+), ?(\d+)\]", match["rest"])
    dtype = _VLLM_DTYPES.get(match["dtype"] or "", "")
    if (match["dtype"] and not dtype) or (blocks and set(blocks.groups()) != {"128"}):
        raise UsageError(f"products of vLLM in {match['dtype']:.20}{match['rest']:.30}", code="unsupported")
    scaling = Scaling.BLOCK_128 if blocks else Scaling.ROW
    for m, times in tokens:
        matmul = Matmul(m, int(match["n"]), int(match["k"]), dtype, scaling=scaling if dtype else Scaling.NONE)
        yield StatedShape(matmul, count=times)


def kernel_name(name: str, count: int = 1) -> Iterator[StatedShape]:
    """The product whose sizes are in a kernel's name, as m128_n1536_k7168; most names contain tile sizes only."""
    match = next((sizes for sizes in _KERNEL.finditer(name) if not _OF_TILES.search(name[: sizes.start()])), None)
    if match is not None:
        m, n, k = map(int, match.groups())
        dtype = _KERNEL_DTYPE.search(name)
        yield StatedShape(Matmul(m, n, k, dtype_name(dtype[1]) if dtype else ""), name[:80], count)


READERS: Mapping[str, Callable[[str], Iterator[StatedShape]]] = {
    "MIOpenDriver": driver_line,
    "hipblaslt-bench": blas_line,
    "rocblas-bench": blas_line,
    "TunableOp_": tunable_line,
    AITER_MARK: missed_line,
}
VLLM_MARK = "Config file not found at"
# Where a statement begins in a line, after timestamps and process names.
STATEMENT = re.compile(rf"MIOpenDriver|\w+-bench\b|\w*TunableOp_|shape is (?:[BG]:\s*\d+,\s*)?M:|{VLLM_MARK}")
IGNORED = "[LogCmdFind"  # MIOpen's solver search; the convolution itself is logged separately


def _batch_of(matmul: Matmul, batch: int) -> StatedShape:
    """A batch of equal products; scaled ones, which no kernel batches here, count once each."""
    if batch == 1 or matmul.scaling:
        return StatedShape(matmul, count=batch)
    return StatedShape(BatchedMatmul(batch, matmul.m, matmul.n, matmul.k, matmul.dtype, matmul.layout))


def _blas_product(m: int, n: int, k: int, blas: str, dtype: str, scaling: Scaling) -> Matmul:
    """Row-major product of a column-major one, with A and B swapped."""
    layout = _LAYOUT_OF.get(blas.replace("C", "T"))
    if layout is None:
        raise UsageError(f"unknown transposes {blas!r:.20}", code="unknown-name")
    note_once(f"column-major {blas} of BLAS is {layout} here, with m and n swapped")
    return Matmul(n, m, k, dtype, layout, scaling)


def _blas_dtype(text: str) -> str:
    bare = text.removesuffix("_r")
    dtype = _BLAS_DTYPES.get(bare, dtype_name(bare))
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"products in {text[:40]}", code="unsupported")
    return dtype


def _options(text: str) -> dict[str, str]:
    """Options of a command line by name, without dashes."""
    words = text.replace("',", " ").replace("'", " ").replace('"', " ").split()
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, is_joined, value = word.partition("=")
        if name.startswith("-") and len(name) > 1 and re.fullmatch(r"-?[0-9.]+", name) is None:
            options[name.lstrip("-")] = value if is_joined else following
    return options


def _integer(name: str, value: object) -> int:
    text = str(value)
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None:
        raise UsageError(f"{name} is {text[:40]!r}, not an integer", code="bad-number")
    return int(text)
