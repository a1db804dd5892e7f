"""A convolution from the sizes that were typed, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError

if TYPE_CHECKING:
    from ckh.problems import ConvProblem

_DEFAULTS = {"n": 1, "c": 64, "g": 1, "hi": 28, "y": 3}
_DEFAULT_DEPTH = 8
_AXES = {2: ("h", "w"), 3: ("d", "h", "w")}
_TAPS = {"d": "z", "h": "y", "w": "x"}
_3D = 3


def resolve(given: dict[str, Any], variant: str, dtype: str) -> ConvProblem:
    """The problem that was typed, with the defaults that the help states.

    Raises:
        UsageError: it is impossible.
    """
    from ckh.problems import ConvProblem, Direction

    ndim = given.get("ndim", _3D if {"di", "z"} & given.keys() else 2)
    if ndim != _3D and {"di", "z"} & given.keys():
        raise UsageError("a 2D convolution has no --di and --z", "leave out --ndim 2")
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
    return ConvProblem(variant=Direction(variant), ndim=ndim, dtype=dtype, **sizes)


def _per_axis(name: str, text: str, axes: tuple[str, ...]) -> dict[str, int]:
    parts = text.split("x")
    if len(parts) not in (1, len(axes)) or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--{name} {text!r} is neither a number nor {len(axes)} of them", f"write --{name} 2 or 2x1")
    values = parts if len(parts) == len(axes) else parts * len(axes)
    return {f"{name}_{axis}": int(value) for axis, value in zip(axes, values, strict=True)}


def in_words(problem: ConvProblem) -> str:
    """All sizes, as people write them."""
    depth = (f"{problem.di}x", f"{problem.z}x") if problem.ndim == _3D else ("", "")
    text = f"{problem.variant} {problem.dtype}, N={problem.n} C={problem.c} K={problem.k} G={problem.g}, "
    text += f"input {depth[0]}{problem.hi}x{problem.wi}, filter {depth[1]}{problem.y}x{problem.x}, "
    steps = (("stride", "stride"), ("padding", "pad"), ("dilation", "dilation"))
    return text + ", ".join(
        f"{word} " + "x".join(str(getattr(problem, f"{name}_{axis}")) for axis in _AXES[problem.ndim])
        for word, name in steps
    )
