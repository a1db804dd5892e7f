"""Conversion between shapes and convolutions."""

from __future__ import annotations

from dataclasses import replace

from ckh.ops.grouped_conv.problem import CONV_LAYOUTS, ConvProblem
from ckh.ops.grouped_conv.problem_sets import NETWORKS
from ckh.problems import Direction
from ckh.shapes.layers import Convolution
from ckh.shapes.shaped import Shaped

_AXES = "dhw"
_TAPS = "zyx"


def sizes_of(shape: Convolution) -> dict[str, int]:
    """Return the sizes of a convolution by `ConvProblem`'s field names."""
    sizes = {"n": shape.n, "c": shape.c, "k": shape.k, "g": shape.g, "ndim": len(shape.spatial)}
    axes, taps = _AXES[-len(shape.spatial) :], _TAPS[-len(shape.spatial) :]
    sizes |= {f"{axis}i": size for axis, size in zip(axes, shape.spatial, strict=True)}
    sizes |= dict(zip(taps, shape.taps, strict=True))
    for name in ("stride", "pad", "dilation"):
        sizes |= {f"{name}_{axis}": size for axis, size in zip(axes, getattr(shape, name), strict=True)}
    return sizes


def shape_of(problem: ConvProblem, layout: str = "") -> Convolution:
    """Return the shape of a problem; the layout is unspecified unless it is MIOpen's."""
    axes, taps = _AXES[-problem.ndim :], _TAPS[-problem.ndim :]
    lists = {name: tuple(getattr(problem, f"{name}_{axis}") for axis in axes) for name in ("stride", "pad", "dilation")}
    return Convolution(
        problem.n,
        problem.c,
        problem.k,
        tuple(getattr(problem, f"{axis}i") for axis in axes),
        tuple(getattr(problem, tap) for tap in taps),
        problem.g,
        **lists,
        variant=str(problem.variant),
        dtype=problem.dtype,
        layout=layout,
    )


def _problem(shape: Convolution, dtype: str) -> ConvProblem:
    """Return the problem, channels last: MIOpen transposes other layouts for kernels of Composable Kernel."""
    variant = Direction(shape.variant or Direction.FORWARD)
    layout = CONV_LAYOUTS.get(len(shape.spatial), "")
    return ConvProblem(variant=variant, **sizes_of(shape), dtype=shape.dtype or dtype, layout=layout)


SHAPED = Shaped(
    Convolution,
    _problem,
    shape_of,
    networks={
        name: lambda batch, layers=layers: [replace(layer, n=batch) for layer in layers()]  # type: ignore[misc]
        for name, layers in NETWORKS.items()
    },
)
