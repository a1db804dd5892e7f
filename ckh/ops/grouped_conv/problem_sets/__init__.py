"""Named sets of problems, from the lists in this folder, and problem files; README.md states the lists' sources.

Each problem occurs once in a set, in a fixed order. No training set of ckh (`train`, `train-*`, `host-train`) contains
a layer of `holdout`, whatever direction and dtype; `host-train` contains none at any batch size. AMD's own lists under
AMD's names (`training`, `validation`, `wide`, `edge`) are complete: they contain such layers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.ops.grouped_conv.problem_sets import files
from ckh.ops.problem_files import is_problem_file
from ckh.problems import Direction, unknown_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ckh.files.account import Account

__all__ = ["load_problems", "problem_set", "set_names"]

_BATCHES = (1, 8)  # of `holdout`
_FOLDER = Path(__file__).parent
FAMILIES = (
    *("small", "medium", "large", "asymmetric", "tiny-batch", "big-batch", "grouped", "depthwise", "strided"),
    *("dilated", "3d-dense", "3d-strided"),
)


def _networks() -> dict[str, Callable[[], list[ConvProblem]]]:
    """Return, by name, functions that parse the layers of a network, which a heading of networks.txt names."""
    texts: dict[str, list[str]] = {}
    for line in (_FOLDER / "networks.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            texts[line[2:].partition(":")[0]] = layers = []
        else:
            layers.append(line)
    return {name: lambda lines=lines: list(map(parse_conv_problem, lines)) for name, lines in texts.items()}  # type: ignore[misc]


# A network's layers in execution order, with duplicates, at batch 1, forward and fp32. Fully connected classifiers are
# not convolutions; squeeze-and-excitation layers and ConvNeXt's pointwise layers are (1x1). Derived from torchvision's
# definitions, except U-Net (Ronneberger 2015 with padding; an up-convolution is the bwd_data of a 2x2 stride-2 layer).
NETWORKS = _networks()


def network(name: str) -> tuple[ConvProblem, ...]:
    """Return a network's distinct layers at batch 1."""
    return tuple(dict.fromkeys(NETWORKS[name]()))


@cache
def _holdout() -> tuple[ConvProblem, ...]:
    layers = dict.fromkeys(layer for name in NETWORKS for layer in network(name))
    return tuple(replace(layer, n=n) for n in _BATCHES for layer in layers)


@cache
def _grids() -> dict[str, list[dict[str, Any]]]:
    grids: dict[str, list[dict[str, Any]]] = json.loads((_FOLDER / "amd_grids.json").read_text(encoding="utf-8"))
    return grids


def _of_grids(name: str) -> Iterator[ConvProblem]:
    """Yield the problems of a list's grids, with duplicates, forward and fp32."""
    for grid in _grids()[name]:
        channels = [(*map(int, text.split("x")), 1)[:3] for text in grid["channels"].split()]
        axes = (grid.get("depths", [None]), grid["sizes"], channels, grid["batches"], grid["filters"])
        for depth, size, (c, k, g), n, filter_ in product(*axes):
            taps, stride, dilation = filter_["taps"], filter_.get("stride", 1), filter_.get("dilation", 1)
            pad = filter_.get("padding", dilation * (taps - 1) // 2)
            height, width = size if isinstance(size, list) else (size, size)
            deep: dict[str, Any] = {}
            if depth is not None:
                deep = {"ndim": 3, "di": depth, "z": taps, "pad_d": pad, "dilation_d": dilation}
                deep["stride_d"] = filter_.get("stride_d", 1)
            plane = (n, c, k, g, height, width, taps, taps, stride, stride, pad, pad, dilation, dilation)
            yield ConvProblem(Direction.FORWARD, *plane, **deep)


def family(name: str, variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's problems of one family for a direction, with duplicates, as forward fp32 problems."""
    yield from _of_grids(f"{name} {variant}")


def _families(variant: Direction, ndims: tuple[int, ...] = (2, 3)) -> Iterator[ConvProblem]:
    for name in FAMILIES:
        yield from (problem for problem in family(name, variant) if problem.ndim in ndims)


def _ordered(name: str) -> list[ConvProblem]:
    """Return the distinct problems of a coverage list in AMD's order: by N, G, C, K, input and filter."""
    names = ("n", "g", "c", "k", "hi", "wi", "y", "x", "stride_h", "stride_w", "pad_h", "pad_w")
    return sorted(set(_of_grids(name)), key=lambda problem: tuple(getattr(problem, field) for field in names))


def _without_holdout(problems: Iterable[ConvProblem]) -> Iterator[ConvProblem]:
    held_out = frozenset(_holdout())
    return (problem for problem in problems if problem not in held_out)


def training(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's training problems of a direction, with duplicates, as forward fp32; forward: MIOpen's first."""
    if variant is Direction.FORWARD:
        yield from files.read_problems(_FOLDER / "amd_miopen_shapes.csv")
    yield from _families(variant)


def validation(variant: Direction) -> Iterable[ConvProblem]:
    """Return AMD's validation problems of a direction, as forward fp32 problems."""
    is_forward = variant is Direction.FORWARD
    return files.read_problems(_FOLDER / "amd_validation.csv") if is_forward else _of_grids("backward validation")


# A set's problems, given the direction, which `problem_set` replaces.
_SETS: dict[str, Callable[[Direction], Iterable[ConvProblem]]] = {
    **{f"train-{name}": lambda v, name=name: _without_holdout(family(name, v)) for name in FAMILIES},  # type: ignore[misc]
    "train-2d": lambda v: _without_holdout(_families(v, (2,))),
    "train-3d": lambda v: _without_holdout(_families(v, (3,))),
    "train": lambda v: _without_holdout(_families(v)),
    # AMD's list whole, with hold-out layers; forward with 299 of its 300 MIOpen shapes.
    "training": training,
    # 300 forward, two of them twice; ten of each backward direction.
    "validation": validation,
    # AMD's forward shapes in 2D.
    "wide": lambda _: _ordered("wide"),
    "edge": lambda _: _ordered("edge"),
    "host-train": lambda _: files.read_problems(_FOLDER / "host_train.csv"),
    **{name: lambda _, name=name: network(name) for name in NETWORKS},  # type: ignore[misc]
    "holdout": lambda _: _holdout(),
    "host-holdout": lambda _: files.read_problems(_FOLDER / "host_holdout.csv"),
}


def set_names() -> tuple[str, ...]:
    """The names of all sets."""
    return tuple(_SETS)


def problem_set(name: str, variant: Direction = Direction.FORWARD, dtype: str = "fp32") -> tuple[ConvProblem, ...]:
    """Return the distinct problems of a set, in a fixed order."""
    if name not in _SETS:
        raise unknown_set(f"unknown problem set {name!r}", name, _SETS)
    return _problem_set(name, variant, dtype)


@cache
def _problem_set(name: str, variant: Direction, dtype: str) -> tuple[ConvProblem, ...]:
    variant = replace(_holdout()[0], variant=variant, dtype=dtype).variant  # rejects unknown ones
    base = dict.fromkeys(_SETS[name](variant))
    return tuple(replace(problem, variant=variant, dtype=dtype) for problem in base)


def load_problems(
    source: str,
    variant: str | None = None,
    dtype: str | None = None,
    default_dtype: str = "fp32",
    account: Account | None = None,
) -> tuple[ConvProblem, ...]:
    """Return the distinct problems of a named set or of a .txt, .csv, .json or .py file (see `files.read_problems`)."""
    direction = None if variant is None else Direction(variant)
    if source in _SETS:
        return problem_set(source, direction or Direction.FORWARD, dtype or default_dtype)
    if not is_problem_file(source):
        raise unknown_set(f"{source!r} is neither a problem set nor a .txt, .csv, .json or .py file", source, _SETS)
    return files.read_problems(source, direction, dtype, default_dtype, account)
