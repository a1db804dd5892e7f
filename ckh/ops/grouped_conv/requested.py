"""Requests of convolutions: their options, the problem that options state, and its description.

Channels of problems can be padded, so that kernels with wide vectors can run them. A padded problem is another problem:
it is measured, stored and compared as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ckh.ops.grouped_conv.problem import ConvProblem

CHANNEL_MULTIPLE = 8  # divisible by the widest common vector of 16 bits
_MOST_PADDED = 1.5  # times the work: problems that padding would add more to have kernels of narrow vectors


def has_few_channels(c: int, k: int, g: int) -> bool:
    """True if padding channels would add so much work that kernels must take them as they are."""
    c, k = c // max(g, 1), k // max(g, 1)
    return _wide(c) * _wide(k) > _MOST_PADDED * c * k


def pad_channels(problems: Iterable[ConvProblem]) -> tuple[ConvProblem, ...]:
    """The padded problems without duplicates, in order."""
    return tuple(dict.fromkeys(map(padded, problems)))


def padded(problem: ConvProblem) -> ConvProblem:
    """Round C and K per group up to a multiple that all kernels of the pool can load, if they are not."""
    try:
        return problem.replaced(c=_wide(problem.c_per_group) * problem.g, k=_wide(problem.k_per_group) * problem.g)
    except UsageError:  # the channels exceed the limit of a problem
        return problem


def _wide(channels: int) -> int:
    return -(-channels // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


OPTIONS = (
    SizeOption("n", "Batch", "1"),
    SizeOption("c", "Input channels, all groups together", "64"),
    SizeOption("k", "Output channels, all groups together", "C"),
    SizeOption("g", "Groups", "1"),
    SizeOption("hi", "Input height", "28"),
    SizeOption("wi", "Input width", "Hi"),
    SizeOption("y", "Filter height", "3"),
    SizeOption("x", "Filter width", "Y"),
    SizeOption("stride", "Stride, e.g. 2 or 2x1", "1", str, "S|SHxSW"),
    SizeOption("pad", "Padding on each side", "same", str, "P|PHxPW"),
    SizeOption("dilation", "Dilation", "1", str, "D|DHxDW"),
    SizeOption("ndim", "Dimensions, 2 or 3; 3 if --di or --z is given", "2", low=1, high=3),
    SizeOption("di", "Input depth, 3D", "8"),
    SizeOption("z", "Filter depth, 3D", "Y"),
)

_DEFAULTS = {"n": 1, "c": 64, "g": 1, "hi": 28, "y": 3}
_DEFAULT_DEPTH = 8
_AXES = {2: ("h", "w"), 3: ("d", "h", "w")}
_TAPS = {"d": "z", "h": "y", "w": "x"}
_3D = 3


def requested_convolution(given: Mapping[str, Any], variant: str, dtype: str) -> ConvProblem:
    """Return the requested problem, with the defaults that the help states; forward unless a direction was given."""
    from ckh.ops.grouped_conv.problem import ConvProblem, not_2d_or_3d
    from ckh.problems import Direction

    ndim = dimensions(given)
    if ndim not in _AXES:
        raise not_2d_or_3d(ndim)
    if ndim != _3D and {"di", "z"} & given.keys():
        raise UsageError("a 2D convolution has no --di and --z", "omit --ndim 2", code="inapplicable-option")
    sizes: dict[str, Any] = {name: given.get(name, default) for name, default in _DEFAULTS.items()}
    sizes |= {"k": given.get("k", sizes["c"]), "wi": given.get("wi", sizes["hi"]), "x": given.get("x", sizes["y"])}
    if ndim == _3D:
        sizes |= {"di": given.get("di", _DEFAULT_DEPTH), "z": given.get("z", sizes["y"])}
    axes = _AXES[ndim]
    strides = _per_axis("stride", given.get("stride", "1"), axes)
    dilations = _per_axis("dilation", given.get("dilation", "1"), axes)
    same = {f"pad_{axis}": dilations[f"dilation_{axis}"] * (sizes[_TAPS[axis]] - 1) // 2 for axis in axes}
    pads = _per_axis("pad", given["pad"], axes) if "pad" in given else same
    sizes |= strides | dilations | pads
    return ConvProblem(variant=Direction(variant or Direction.FORWARD), ndim=ndim, dtype=dtype, **sizes)


def _per_axis(name: str, text: str, axes: tuple[str, ...]) -> dict[str, int]:
    parts = text.split("x")
    if len(parts) not in (1, len(axes)) or not all(part.isdecimal() for part in parts):
        raise UsageError(
            f"--{name} {text!r} is neither a number nor {len(axes)} of them",
            f"write --{name} 2 or 2x1",
            code="bad-number",
        )
    numbers = parts if len(parts) == len(axes) else parts * len(axes)
    return {f"{name}_{axis}": int(number) for axis, number in zip(axes, numbers, strict=True)}


def in_words(problem: ConvProblem) -> str:
    """Describe the sizes of a problem for a reader, without groups, strides and dilations of 1."""
    depth = (f"{problem.di}x", f"{problem.z}x") if problem.ndim == _3D else ("", "")
    groups = f" G={problem.g}" if problem.g > 1 else ""
    text = f"{problem.variant} {problem.dtype}, N={problem.n} C={problem.c} K={problem.k}{groups}, "
    text += f"input {depth[0]}{problem.hi}x{problem.wi}, filter {depth[1]}{problem.y}x{problem.x}"
    for word, name, usual in (("stride", "stride", 1), ("padding", "pad", None), ("dilation", "dilation", 1)):
        sizes = [getattr(problem, f"{name}_{axis}") for axis in _AXES[problem.ndim]]
        text += "" if {*sizes} == {usual} else f", {word} {'x'.join(map(str, sizes))}"
    return text


def pool(given: Mapping[str, Any]) -> str:
    """Return direction and number of dimensions of the pool, and whether it is for few channels per group."""
    c = given.get("c", _DEFAULTS["c"])
    few = " few channels" if has_few_channels(c, given.get("k", c), given.get("g", _DEFAULTS["g"])) else ""
    return f"{given.get('variant') or 'forward'} {dimensions(given)}D{few}"


def dimensions(given: Mapping[str, Any]) -> int:
    """Number of dimensions requested."""
    return int(given.get("ndim", _3D if {"di", "z"} & given.keys() else 2))


_LAYOUT = (
    "ckh builds channels-last kernels of CK Tile only, nhwgc in 2D and ndhwgc in 3D",
    "omit it; transpose other layouts to channels last, as MIOpen does",
)
_SIZE = r"\d+x\d+x\d+"
_KERNEL = (  # the second buffer in LDS, which compv4 always has, is no option of it
    r"grouped_conv_\w+?_[23]d_(?P<pipeline>(compv4)|\w+?)_(?P<epilogue>[^_]+)_(?P<scheduler>[^_]+)"
    rf"_(?P<tile>{_SIZE})_(?P<waves>{_SIZE})_(?P<instruction>{_SIZE})(?(2)(?:_dsb)?)(?P<others>\w*)"
)


def notes(answer: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield why the first kernel is less accurate than others."""
    if "_splitk" not in (kernel := answer.kernels[0].kernel):
        return
    from ckh.ops.grouped_conv.kernel import parse_kernel_name

    parsed = parse_kernel_name(kernel)
    if parsed.rounds_parts:
        reason = f"adds its {parsed.split_k} parts of K in {parsed.dtype}, not in float32"
        message = f"row 1 {reason}: a wrong_result where errors exceed the limits of float32 sums"
        yield "inexact", message, {"reason": reason}


REQUESTED = Requested(
    OPTIONS,
    requested_convolution,
    in_words,
    has_directions=True,
    pool=pool,
    padded=padded,
    refused={"layout": _LAYOUT},
    kernel=_KERNEL,
    notes=notes,
)
