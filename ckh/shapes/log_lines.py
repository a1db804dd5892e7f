"""Parsers of log lines with a shape, of MIOpen, hipBLASLt, rocBLAS, PyTorch, vLLM and profilers.

BLAS libraries are column-major: their `m x n` result is PyTorch's row-major `n x m`, so m and n are swapped, and their
A is our B.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, dtype_name
from ckh.shapes.layers import BatchedMatmul, Matmul, Scaling, StatedTime
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.shapes.layers import Shape

FORMATS: dict[str, Any] = json.loads(Path(__file__).with_name("log_formats.json").read_bytes())
REPEATED, SEARCHED = 1, 2  # ranks of statements
_BLAS = re.compile(r"(?:hipblaslt-bench|rocblas-bench)\b(?P<rest>.*)")
_BLAS_PROFILE = re.compile(r"\{ *(?:rocblas_)?function: .*")
_OF_BLAS, _OF_PROFILE = FORMATS["blas"], FORMATS["profile"]
_QUANTISED, _FALSE = ("fp8", "bf8", "int8", "pk_fp4"), ("0", "false", "none")
_AUTOTUNE = re.compile(r"AUTOTUNE (?P<op>\w+)\((?P<sizes>[\dx, ]*)\)")
OF_TORCH = {"mm": 0, "bmm": 0, "scaled_mm": 0, "_scaled_mm": 0, "addmm": 1, "baddbmm": 1}  # operator -> place of A
_TUNABLE = re.compile(
    r"(?P<scaled>Scaled)?Gemm(?P<kind>StridedBatched|AndBias)?TunableOp_(?P<types>[A-Za-z0-9_:<>]+?)_(?P<blas>[TN]{2}),"
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
_NUMBER, _INTEGER = re.compile(r"-?[0-9.]+"), re.compile(r"[+-]?[0-9]{1,19}")
_LAYOUT_OF = {"TN": "rcr", "NN": "rrr", "NT": "crr", "TT": "ccr"}  # of BLAS' transA and transB


@dataclass(frozen=True, slots=True)
class StatedShape:
    """A shape stated by a line."""

    shape: Shape
    name: str = ""  # name of the layer or kernel; empty: none is stated
    count: int = 1  # number of executions
    rank: int = 0
    """0: an execution. `REPEATED`: one that another line may state too, counted if none does. `SEARCHED`: a search or a
    key, counted once if no line states an execution."""
    time: StatedTime | None = None


def blas_line(line: str) -> Iterator[StatedShape]:
    """The product, or batch of products, of a hipblaslt-bench or rocblas-bench command."""
    if (match := _BLAS.search(line)) is not None:
        yield blas_product(options_of(match["rest"]))


def blas_profile(line: str) -> Iterator[StatedShape]:
    """The product of a line in the profile logs of hipBLASLt and rocBLAS, with its number of calls."""
    if (match := _BLAS_PROFILE.search(line)) is not None:
        yield blas_product(dict(re.findall(r"(\w+): *['\"]?([^,'\"}\s]*)", match[0])))


def blas_row(row: Mapping[str, str]) -> Iterator[StatedShape]:
    """The product of a row of hipblaslt-bench's or rocblas-bench's results, whose command may be in the log too."""
    library = next((name.partition("-")[0] for name in row if name.endswith("-Gflops")), "BLAS")
    time = StatedTime(float(row["us"]) / 1000, library) if row.get("us") else None
    yield replace(blas_product(row), rank=REPEATED, time=time)


def blas_product(values: Mapping[str, str]) -> StatedShape:
    """Return the product of a BLAS call's arguments, under the names of commands, profiles or columns of results."""

    def value(*names: str, default: str = "") -> str:
        return next((values[name] for name in names if name in values), default)

    function = value("f", "function", "rocblas_function", default="gemm")
    if "gemm" not in function and function != "matmul":
        raise UsageError(f"calls of {function[:40]}", code="unsupported")
    if missing := [name for name in "mnk" if not value(name, name.upper())]:
        raise UsageError(f"-{missing[0]} is missing", code="missing-field")
    m, n, k = (integer_of(name, value(name, name.upper())) for name in "mnk")
    blas = (value("transA", "transposeA", default="N") + value("transB", "transposeB", default="N")).upper()
    own = next((dtype for name, dtype in _OF_BLAS["functions"].items() if name in function), "f32_r")
    a, b = (_blas_dtype(value(f"{letter}_type", "r", "input_type", "d_type", default=own)) for letter in "ab")
    if a != b:
        raise UsageError(f"products of {a} and {b}", code="unsupported")
    scale = value("scaleA") or "0"
    if scale not in _OF_BLAS["scaled"]:
        raise UsageError(f"products of scale mode {scale:.20}", code="unsupported")
    scaling = Scaling(_OF_BLAS["scaled"][scale]) if a in _QUANTISED else Scaling.NONE
    has_bias = value("bias_vector", default="0").lower() not in _FALSE
    product = replace(_blas_product(m, n, k, blas, a, scaling), has_bias=has_bias)
    batch = batch_of(product, integer_of("batch_count", value("batch_count") or 1))
    return replace(batch, count=batch.count * max(integer_of("call_count", value("call_count") or 1), 1))


def autotune_block(line: str) -> Iterator[StatedShape]:
    """The product of Inductor's AUTOTUNE line, joined with the lines of its operands' strides and types."""
    if (match := _AUTOTUNE.search(line)) is None:
        return
    sizes = [[*map(int, text.split("x"))] for text in re.findall(r"\d+(?:x\d+)*", match["sizes"])]
    strides = [[*map(int, text.split(","))] for text in re.findall(r"\[([\d, ]+)\]", line.partition("strides: ")[2])]
    yield torch_product(match["op"], sizes, strides, re.findall(r"torch\.(\w+)", line.partition("dtypes: ")[2]))


def torch_product(
    op: str, sizes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]], dtypes: Sequence[str]
) -> StatedShape:
    """Return the product of an operator of PyTorch, given its operands; strides and types may be missing."""
    if (first := OF_TORCH.get(op)) is None or len(sizes) < first + 2:
        raise UsageError(f"PyTorch's {op:.40}, whose line does not state all of its sizes", code="unsupported")
    both = slice(first, first + 2)
    (*batch, m, k), n = sizes[first], sizes[first + 1][-1]
    is_stated = len(strides) >= first + 2
    layout = "".join("r" if of_one[-1:] == [1] else "c" for of_one in strides[both]) + "r" if is_stated else "rcr"
    operands = [dtype_name(dtype) for dtype in dtypes[both]]
    if len(set(operands)) > 1 or not set(operands) <= {*DTYPE_BYTES}:
        raise UsageError(f"products of {' and '.join(operands):.60}", code="unsupported")
    scaling = Scaling.ROW if "scaled" in op else Scaling.NONE
    has_bias = bool(first) and (len(sizes[0]) == 1 or (is_stated and strides[0][:1] == [0]))  # others add a matrix
    product = Matmul(m, n, k, operands[0] if operands else "", layout, scaling, has_bias=has_bias)
    return batch_of(product, batch[0] if batch else 1)


def tunable_line(line: str) -> Iterator[StatedShape]:
    """The product, or batch of products, of a row of PyTorch's TunableOp, untuned or tuned."""
    if (match := _TUNABLE.search(line)) is None:
        return
    types = match["types"]
    operands = [types] if dtype_name(types) in DTYPE_BYTES else re.split(r"_(?=[A-Z])", types)
    dtype = dtype_name(operands[0])
    if dtype not in DTYPE_BYTES or len(set(operands[:2])) > 1:
        raise UsageError(f"products of {types:.60}", code="unsupported")
    scaling = Scaling.ROW if match["scaled"] else Scaling.NONE
    shape = _blas_product(int(match["m"]), int(match["n"]), int(match["k"]), match["blas"], dtype, scaling)
    result = re.match(r",(\w+),(\d+\.\d+)\s*$", line[match.end() :])
    time = None if result is None else StatedTime(float(result[2]), result[1])
    product = replace(shape, has_bias=match["kind"] == "AndBias")
    yield replace(batch_of(product, int(match["batch"] or 1)), time=time)


def missed_line(line: str) -> Iterator[StatedShape]:
    """The bf16 or fp16 product, or batch of products, without a row in AITER's tuned table."""
    if (match := _MISSED.search(line)) is None:
        return
    stated = _STATED_DTYPE.search(match["rest"])
    named = next((name for name in ("bf16", "fp16") if name in line[match.start() :]), "")
    dtype = dtype_name(stated["dtype"]) if stated else named
    if match["b"] and dtype not in DTYPE_BYTES:
        raise UsageError("batches of AITER's quantised products, without their scales", code="unsupported")
    if dtype in DTYPE_BYTES:
        m, n, k = (int(match[name]) for name in "mnk")
        result, has_bias = _RESULT.search(match["rest"]), "bias=True" in match["rest"]
        shape = Matmul(m, n, k, dtype, has_bias=has_bias, result=dtype_name(result[1]) if result else "")
        yield batch_of(shape, int(match["b"] or 1))


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


def kernel_row(row: Mapping[str, str]) -> Iterator[StatedShape]:
    """The product whose sizes are in a kernel's name of a profiler's table, as m128_n1536_k7168, by calls or rows.

    Most names contain tile sizes only.
    """
    name, count = (
        next((row[column] for column in _OF_PROFILE[kind] if column in row), "") for kind in ("names", "counts")
    )
    match = next((sizes for sizes in _KERNEL.finditer(name) if not _OF_TILES.search(name[: sizes.start()])), None)
    if match is None:
        raise UsageError("results whose names do not state all of the problem", code="unsupported")
    m, n, k = map(int, match.groups())
    dtype, calls = _KERNEL_DTYPE.search(name), max(int(count) if count.isdecimal() else 1, 1)
    yield StatedShape(Matmul(m, n, k, dtype_name(dtype[1]) if dtype else ""), name[:80], calls)


def batch_of(matmul: Matmul, batch: int) -> StatedShape:
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
    bare = text.removesuffix("_r").removesuffix("_fnuz")  # gfx942's FP8
    dtype: str = _OF_BLAS["dtypes"].get(bare, dtype_name(bare))
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"products in {text[:40]}", code="unsupported")
    return dtype


def options_of(text: str) -> dict[str, str]:
    """Options of a command line by name, without dashes."""
    words = text.replace("',", " ").replace("'", " ").replace('"', " ").split()
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, is_joined, value = word.partition("=") if word.startswith("-") else ("", "", "")
        if len(name) > 1 and _NUMBER.fullmatch(name) is None:
            options[name.lstrip("-")] = value if is_joined else following
    return options


def integer_of(name: str, value: object) -> int:
    """Parse the integer of an option or cell; raises `UsageError`."""
    text = str(value)
    if _INTEGER.fullmatch(text) is None:
        raise UsageError(f"{name} is {text[:40]!r}, not an integer", code="bad-number")
    return int(text)
