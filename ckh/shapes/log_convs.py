"""Convolutions in logs of MIOpen and ckProfiler, and in Composable Kernel's test sets."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO

from ckh.errors import DataError, UsageError
from ckh.problems import dtype_name
from ckh.shapes.layers import TRANSPOSED, Convolution, Matmul, StatedTime, convolution
from ckh.shapes.log_lines import (
    FORMATS,
    OF_TORCH,
    SEARCHED,
    StatedShape,
    batch_of,
    integer_of,
    options_of,
    torch_product,
)
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_DIRECTIONS = {"forward": 1, "bwd_data": 2, "bwd_weight": 4}  # bits of MIOpenDriver's -F; 0 is all of them
_FUSED = "CBAInfer"  # MIOpenDriver's convolutions with bias and activation, whose -F is not a direction
_DRIVER = re.compile(
    rf"(?:MIOpenDriver(?:\.exe)?['\"]?,?\s+['\"]?|Problem=\")(?P<op>(?:conv|{_FUSED})\w*)\b(?P<rest>.*)"
)
_OF_DRIVER, _OF_CK = FORMATS["miopen_driver"], FORMATS["ck_profiler"]
_KEY = re.compile(
    r"\b(?P<first>\d+(?:-\d+){2,3})-(?P<taps>\d+(?:x\d+){1,2})-(?P<second>\d+(?:-\d+){2,3})-(?P<n>\d+)"
    r"-(?P<pad>[\dx]+)-(?P<stride>[\dx]+)-(?P<dilation>[\dx]+)-\d+-(?P<layout>N[CDHW]+)(?:-[A-Z]+){0,2}"
    r"-(?P<dtype>[A-Z]+\d+)-(?P<direction>[FBW])(?:_g(?P<g>\d+))?"
)
_CALL = re.compile(r"miopenConvolution(?P<direction>Forward|BackwardData|BackwardWeights)(?P<rest>\w*)\(")
_TENSOR, _LISTS = re.compile(r"d?([xwy])Desc = \{([\d, ]+)\}"), re.compile(r"convDesc = [^{]*((?:\{[\d, ]+\}[, ]*){3})")
_OF_EVENTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_BETWEEN_EVENTS = re.compile(r"[\s,:\[]*")
_MAX_EVENT = 1 << 24  # characters
_OF_TORCH, _OF_HIPDNN = FORMATS["torch_convolutions"], FORMATS["hipdnn"]
_PROFILER = re.compile(r"ckProfiler\s+(?P<op>\w+)(?P<numbers>(?:\s+-?\d+)*)")
_PROFILER_LISTS = ("taps", "spatial", "stride", "dilation", "left", "right")
_HEADS = (6, 7)  # arguments of ckProfiler before the number of dimensions, without and with a type of indices
_MORE = 2  # optional arguments at its end: the split of K, and an instance


def driver_line(line: str) -> Iterator[StatedShape]:
    """The convolution of an MIOpenDriver command, as printed by MIOPEN_ENABLE_LOGGING_CMD, in each direction."""
    if (match := _DRIVER.search(line)) is None:
        return
    values = {_OF_DRIVER["short_options"].get(name, name): value for name, value in options_of(match["rest"]).items()}
    mode = values.get("mode", "conv")
    if mode not in ("conv", "trans"):
        raise UsageError(f"convolutions of the mode {mode[:40]}", code="unsupported")
    number = {name: integer_of(name, values.get(name, default)) for name, default in _OF_DRIVER["defaults"].items()}
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
    op, is_fused = match["op"].replace(_FUSED, "conv"), _FUSED in match["op"]
    if op not in _OF_DRIVER["dtypes"]:
        raise UsageError(f"convolutions of {match['op'][:40]}", code="unsupported")
    if is_fused:
        note_once("convolutions with bias and activation (CBAInfer) are listed without them")
    wanted = _DIRECTIONS["forward"] if is_fused else number["forw"] or sum(_DIRECTIONS.values())
    for variant, bit in _DIRECTIONS.items():
        if wanted & bit:
            shape = Convolution(
                number["batchsize"],
                number["in_channels"],
                number["out_channels"],
                g=number["group_count"],
                **lists,
                dilation=dilation,
                variant=variant,
                dtype=_OF_DRIVER["dtypes"][op],
                layout=values.get("in_layout", "nchw" if len(axes) == len("hw") else "ncdhw").lower(),
            )
            more = [number[f"trans_output_pad_{axis}"] for axis in axes]
            yield StatedShape(shape.transposed(more) if mode == "trans" else shape)


def _padding(
    mode: str, spatial: tuple[int, ...], taps: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...]
) -> tuple[int, ...]:
    """The padding that MIOpenDriver computes by its option -z."""
    if mode == "same":
        steps = (size % step or step if step else 0 for size, step in zip(spatial, stride, strict=True))
        return tuple(max(tap - step, 0) // 2 for tap, step in zip(taps, steps, strict=True))
    return (0,) * len(pad) if mode == "valid" else pad


def key_line(line: str) -> Iterator[StatedShape]:
    """The convolution of a key in MIOpen's databases and in its lookups; backward keys begin with the output."""
    if (match := _KEY.search(line)) is None:
        return
    sides = [[*map(int, match[name].split("-"))] for name in ("first", "second")]
    (c, *spatial), (k, *output) = sides if match["direction"] == "F" else sides[::-1]
    of = FORMATS["miopen_key"]
    if match["dtype"] not in of["dtypes"]:
        raise UsageError(f"convolutions of {match['dtype']:.20}", code="unsupported")
    shape = Convolution(
        int(match["n"]),
        c,
        k,
        tuple(spatial),
        **{name: tuple(map(int, match[name].split("x"))) for name in ("taps", "pad", "stride", "dilation")},
        g=int(match["g"] or 1),
        variant=of["directions"][match["direction"]],
        dtype=of["dtypes"][match["dtype"]],
        layout=match["layout"].lower(),
    )
    shape.require_output([k, *output])
    found = [
        StatedTime(float(hit["ms"]), hit["name"]) for form in FORMATS["find_db"] for hit in re.finditer(form, line)
    ]
    yield StatedShape(shape, rank=SEARCHED, time=min(found, default=None))


def call_block(line: str) -> Iterator[StatedShape]:
    """The convolution of a call in MIOpen's API trace, joined to a line; calls that do not run it are searches."""
    call, lists = _CALL.search(line), _LISTS.search(line)
    tensors = {name: [*map(int, sizes.split(","))] for name, sizes in _TENSOR.findall(line)}
    if call is None or lists is None or not {"x", "w"} <= set(tensors):
        return
    each = [[*map(int, sizes.split(","))] for sizes in re.findall(r"[\d, ]*\d", lists[1])]
    named = dict(zip(("pad", "stride", "dilation"), each, strict=True))
    variant = FORMATS["miopen_calls"][call["direction"]]
    if "miopenTranspose" in lists[0]:  # the convolution from its output to its input, in the other direction
        tensors |= {"x": tensors.get("y", []), "y": tensors["x"]}
        variant = TRANSPOSED.get(variant, variant)
    shape = _of_tensors(tensors, named, 0, "", variant)
    yield StatedShape(shape, rank=0 if call["rest"] in ("", "Immediate") else SEARCHED)


def profiler_line(line: str) -> Iterator[StatedShape]:
    """The convolution or product of a ckProfiler command."""
    if (match := _PROFILER.search(line)) is None:
        return
    op, numbers = match["op"].removeprefix("grouped_").removesuffix("_tile"), [*map(int, match["numbers"].split())]
    if op not in {*_OF_CK["convolutions"], *_OF_CK["products"]} or not numbers:
        raise UsageError(f"ckProfiler's {match['op']:.40}", code="unsupported")
    if (dtype := _OF_CK["dtypes"].get(str(numbers[0]))) is None:
        raise UsageError(f"ckProfiler's {match['op']} of type {numbers[0]}", code="unsupported")
    if op in _OF_CK["products"]:
        if len(numbers) < _HEADS[1] + 2 or not 0 <= numbers[1] < len(_OF_CK["layouts"]):
            raise UsageError(f"ckProfiler's {op} with {len(numbers)} arguments", code="bad-row")
        m, n, k = numbers[_HEADS[0] :][:3]
        yield StatedShape(Matmul(m, n, k, dtype, _OF_CK["layouts"][numbers[1]]))
        return
    for head in _HEADS:
        ndim, sizes = (numbers[head : head + 1] or [0])[0], numbers[head + 1 :]
        if ndim in (1, 2, 3) and 0 <= len(sizes) - 4 - len(_PROFILER_LISTS) * ndim <= _MORE:
            lists = {name: sizes[4 + at * ndim :][:ndim] for at, name in enumerate(_PROFILER_LISTS)}
            yield StatedShape(_per_group(sizes[:4], lists, dtype, _OF_CK["convolutions"][op]))
            return
    raise UsageError(f"ckProfiler's {op} with {len(numbers)} arguments", code="bad-row")


def test_set_row(row: Mapping[str, str]) -> Iterator[StatedShape]:
    """The convolution of a row in Composable Kernel's test sets."""
    number = {name: integer_of(name, cell) for name, cell in row.items() if name != "TestName"}
    axes = "DHW"[-number["NDim"] :]
    names = ("Kernel", "Input", "Stride", "Dilation", "LeftPad", "RightPad")
    lists = {ours: [number[name + axis] for axis in axes] for ours, name in zip(_PROFILER_LISTS, names, strict=True)}
    sizes = [number[name] for name in ("Groups", "BatchSize", "OutChannels", "InChannels")]
    shape = _per_group(sizes, lists)
    if f"Output{axes}"[:7] in number:
        shape.require_output([shape.k, *(number[f"Output{axis}"] for axis in axes)])
    yield StatedShape(shape)


def trace_event(line: str) -> Iterator[StatedShape]:
    """The convolutions or product of an event in a profiler's trace, as `traced_events` writes it."""
    op, args = json.loads(line)
    sizes, dtypes = args["Input Dims"], [text.rpartition("::")[2] for text in args.get("Input type", ())]
    if op in OF_TORCH:
        yield torch_product(op, sizes, args.get("Input Strides", ()), dtypes)
    else:
        yield from _traced(op, sizes, dtypes, args.get("Concrete Inputs", ()))


def traced_events(file: BinaryIO) -> Iterator[bytes]:
    """Yield the products and convolutions in a trace of PyTorch's profiler, each as a line, in constant memory."""
    text, decoder, mark = "", json.JSONDecoder(), '"traceEvents"'
    decode, is_begun = codecs.getincrementaldecoder("utf-8")("replace").decode, False
    while part := file.read(1 << 16):
        text += decode(part)
        if not is_begun:
            is_begun, text = mark in text, text.partition(mark)[2] or text[-len(mark) :]
        at = _BETWEEN_EVENTS.match(text).end() if is_begun else 0  # type: ignore[union-attr]
        while is_begun and at < len(text):
            try:
                event, at = decoder.raw_decode(text, at)
            except ValueError:
                break
            at = _BETWEEN_EVENTS.match(text, at).end()  # type: ignore[union-attr]
            own = event if isinstance(event, dict) else {}
            op, args = str(own.get("name", "")).removeprefix("aten::"), own.get("args")
            if op in (*OF_TORCH, *_OF_TORCH) and isinstance(args, dict) and "Input Dims" in args:
                yield json.dumps([op, {name: args.get(name, []) for name in _OF_EVENTS}]).encode()
        text = text[at:]
        if len(text) > _MAX_EVENT:
            raise DataError("an event of the trace is too long, or the trace is not JSON", code="bad-json")


def _traced(
    op: str, sizes: Sequence[Sequence[int]], dtypes: Sequence[str], inputs: Sequence[str]
) -> Iterator[StatedShape]:
    """The convolutions of an operator of PyTorch, by its lists of integers, which are the last ones."""
    of = _OF_TORCH[op]
    x, w = sizes[of["x"]], sizes[of["x"] + 1]
    lists = [[*map(int, text.strip("[]").split(","))] for text in inputs if re.fullmatch(r"\[[\d, ]*\d\]", text)]
    groups = next((int(text) for text in inputs if text.isdecimal()), 1)
    is_transposed = "True" in inputs and of["rank"] == 0 and inputs.index("True") == of["transposed"]
    if len(lists) < of["lists"] or not x or not w:
        raise UsageError("convolutions of a trace without strides, which record_shapes=True states", code="unsupported")
    own = dict(zip(of["names"], lists[-of["lists"] :], strict=True))
    w = [w[1] * groups, w[0] // groups, *w[2:]] if is_transposed else w
    masks = next((text for text in inputs if text.startswith(("[True", "[False"))), "[True, True")
    wanted = [name == "True" for name in re.findall(r"True|False", masks)]
    for variant, is_wanted in zip(of["variants"], wanted, strict=False):
        if is_wanted:
            ndim = len(x) - 2
            each = {name: values * (ndim if len(values) == 1 else 1) for name, values in own.items()}
            stated = {"x": x, "w": w, "y": sizes[0] if of["x"] and not is_transposed else ()}
            shape = _of_tensors(stated, each, groups, dtype_name(dtypes[of["x"]]) if dtypes else "", variant)
            yield StatedShape(shape.transposed(each["more"]) if is_transposed else shape, rank=of["rank"])


def graph_shapes(document: Any, where: str) -> Iterator[StatedShape | str]:
    """The convolutions and products of a hipDNN graph, and the types of other nodes, which are left out."""
    try:
        tensors = {tensor["uid"]: tensor for tensor in document["tensors"]}
        for node in document["nodes"]:
            kind = str(node.get("type", "")).removesuffix("Attributes")
            uids = {**node.get("inputs", {}), **node.get("outputs", {})}
            of = {name.removesuffix("_tensor_uid"): tensors[uid] for name, uid in uids.items() if uid in tensors}
            if kind == "Matmul":
                (*batch, m, k), n = of["a"]["dims"], of["b"]["dims"][-1]
                layout = "".join("r" if of[name]["strides"][-1] == 1 else "c" for name in "ab") + "r"
                dtype = dtype_name(of["a"]["data_type"])
                yield batch_of(Matmul(m, n, k, dtype, layout), prod(batch))
            elif kind in _OF_HIPDNN["variants"]:
                given = node["parameters"]
                lists = {"left": given["pre_padding"], "right": given.get("post_padding", given["pre_padding"])}
                lists |= {name: given[name] for name in ("stride", "dilation")}
                stated = {name: of.get(name, of.get(f"d{name}", {})) for name in "xwy"}
                sizes = {name: tensor.get("dims", ()) for name, tensor in stated.items()}
                dtype = dtype_name(stated["x"].get("data_type", ""))
                yield StatedShape(_of_tensors(sizes, lists, 0, dtype, _OF_HIPDNN["variants"][kind]))
            else:
                yield f"hipDNN's {kind:.40}"
    except UsageError as error:
        raise DataError(f"{where}: {error.message}", code=error.code) from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        what = f"not a graph of hipDNN: {type(error).__name__} {error}"
        raise DataError(f"{where}: {what:.200}", code="bad-field") from error


def _of_tensors(
    of: Mapping[str, Sequence[int]], lists: Mapping[str, Sequence[int]], groups: int, dtype: str, variant: str
) -> Convolution:
    """The convolution of an input x, a filter w and a stated output y; 0 groups: channels of x by those of w."""
    x, w = of["x"], of["w"]
    g = groups or max(x[1] // max(w[1], 1), 1)
    both = {"left": lists.get("pad", ()), "right": lists.get("pad", ())} | dict(lists)
    shape = _per_group((g, x[0], w[0] // g, x[1] // g), both | {"spatial": x[2:], "taps": w[2:]}, dtype, variant)
    if of.get("y"):
        shape.require_output(of["y"][1:])
    return shape


def _per_group(
    sizes: Sequence[int], lists: Mapping[str, Sequence[int]], dtype: str = "", variant: str = ""
) -> Convolution:
    """The convolution of G, N, and K and C per group; asymmetric padding is an input padded by the difference."""
    g, n, k, c = sizes
    pads = [*zip(lists["left"], lists["right"], strict=True)]
    spatial = [size + abs(a - b) for size, (a, b) in zip(lists["spatial"], pads, strict=True)]
    whole = (spatial, lists["taps"], lists["stride"], [*map(min, pads)], lists["dilation"])
    return replace(convolution(n, c * g, k * g, g, whole, dtype, ""), variant=variant)
