"""Hold-out sets: layers of real networks, which are excluded from all training sets.

`holdout` is the union over `NETWORKS` at batch 1 and 8. `host-holdout` is the part that suits one CPU thread, unscaled:
layers at batch 1 of `HOST_MFLOP` work. They are divided by `kind`, and of each kind `HOST_QUOTAS` are taken, evenly
spaced in order of work, including the cheapest and the most expensive.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.ops.grouped_conv.problem import parse_conv_problem
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ckh.ops.grouped_conv.problem import ConvProblem

BATCHES = (1, 8)
HOST_MFLOP = (0.5, 300.0)


def _networks() -> dict[str, Callable[[], list[ConvProblem]]]:
    """Return, by name, functions that parse the layers of a network, which a heading of networks.txt names."""
    texts: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("networks.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            texts[line[2:].partition(":")[0]] = layers = []
        else:
            layers.append(line)
    return {name: partial(_parsed, lines) for name, lines in texts.items()}


def _parsed(lines: Sequence[str]) -> list[ConvProblem]:
    return list(map(parse_conv_problem, lines))


# A network's layers in execution order, with duplicates, at batch 1, forward and fp32. Fully connected classifiers are
# not convolutions; squeeze-and-excitation layers and ConvNeXt's pointwise layers are (1x1). Derived from torchvision's
# definitions, except U-Net (Ronneberger 2015 with padding; an up-convolution is the bwd_data of a 2x2 stride-2 layer).
NETWORKS = _networks()


class LayerKind(StrEnum):
    """The main kinds of convolutions; the first that matches applies."""

    VOLUME = "3d"
    STEM = "stem"
    DEPTHWISE = "depthwise"
    GROUPED = "grouped"
    STRIDED = "strided"
    POINTWISE = "1x1"
    SQUARE = "3x3"
    OTHER = "other"


HOST_QUOTAS: dict[LayerKind, int] = {
    LayerKind.VOLUME: 16,
    LayerKind.STEM: 8,
    LayerKind.DEPTHWISE: 30,
    LayerKind.GROUPED: 7,
    LayerKind.STRIDED: 14,
    LayerKind.POINTWISE: 36,
    LayerKind.SQUARE: 16,
    LayerKind.OTHER: 10,
}


def kind(problem: ConvProblem) -> LayerKind:
    """Return the kind of a problem; a stem reads an image of at most four channels."""
    strides = (problem.stride_d, problem.stride_h, problem.stride_w)
    rules = (
        (problem.ndim > len("hw"), LayerKind.VOLUME),
        (problem.c <= len("rgba"), LayerKind.STEM),
        (1 < problem.g == problem.c, LayerKind.DEPTHWISE),
        (problem.g > 1, LayerKind.GROUPED),
        (max(strides) > 1, LayerKind.STRIDED),
        ((problem.y, problem.x) == (1, 1), LayerKind.POINTWISE),
        ((problem.y, problem.x) == (3, 3), LayerKind.SQUARE),
        (True, LayerKind.OTHER),
    )
    return next(name for holds, name in rules if holds)


@cache
def network(name: str) -> tuple[ConvProblem, ...]:
    """Return a network's distinct layers at batch 1."""
    return distinct(NETWORKS[name]())


@cache
def layers_at_batch_1() -> tuple[ConvProblem, ...]:
    """Return the distinct layers of all networks at batch 1."""
    return distinct(layer for name in NETWORKS for layer in network(name))


@cache
def holdout() -> tuple[ConvProblem, ...]:
    """Return the distinct layers of all networks at each of `BATCHES`."""
    return tuple(replace(layer, n=n) for n in BATCHES for layer in layers_at_batch_1())


@cache
def host_holdout() -> tuple[ConvProblem, ...]:
    """Return the layers for one CPU thread, in the order of `LayerKind` and of work."""
    low, high = (1e6 * limit for limit in HOST_MFLOP)
    fitting = [layer for layer in layers_at_batch_1() if low <= layer.flops <= high]
    chosen: list[ConvProblem] = []
    for wanted, quota in HOST_QUOTAS.items():
        stratum = sorted((p for p in fitting if kind(p) is wanted), key=lambda p: (p.flops, p))
        chosen += _evenly_spaced(stratum, quota)
    return tuple(chosen)


def distinct(problems: Iterable[ConvProblem]) -> tuple[ConvProblem, ...]:
    """Deduplicate problems, in the order of first appearance."""
    return tuple(dict.fromkeys(problems))


def _evenly_spaced(items: Sequence[ConvProblem], count: int) -> list[ConvProblem]:
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]
