"""How models of convolutions become C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.export.groups import DIRECTION, DTYPE, Code, Exported, ProblemKind, element_types, ruled_group
from ckh.ops.grouped_conv.kernels.pool import POOLS
from ckh.ops.grouped_conv.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS, ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

_DEFAULT = "default"  # of the operation
_LAYOUTS = (_DEFAULT, *CONV_LAYOUTS.values(), "nchw", "nhwc", "ncdhw", "ndhwc")
KIND = ProblemKind(
    "conv",
    0,
    "a grouped convolution; all sizes are those of the forward pass, C and K totals over all groups. Its layout is "
    f"CKH_LAYOUT_{_DEFAULT.upper()}, the operation's own, or another of them. In 2D the depth has its defaults.",
    (
        DIRECTION,
        DTYPE,
        Code("layout", "layout", 2, _LAYOUTS, "CKH_LAYOUT_", "CKH_LAYOUTS"),
        Code("ndim", "ndim", 3, tuple(CONV_LAYOUTS), end=max(CONV_LAYOUTS) + 1, least=min(CONV_LAYOUTS)),
    ),
    CONV_COLUMNS,
    ConvProblem,
    {"n": 16, "c": 256, "k": 256, "g": 1, "hi": 28, "wi": 28, "y": 3, "x": 3, "pad_h": 1, "pad_w": 1},
)


def smallest(kind: type[ConvProblem], direction: str, dtype: str, ndim: int, layout: str) -> ConvProblem:
    """The problem all of whose sizes are 1."""
    sizes: dict[str, Any] = dict.fromkeys(("n", "c", "k", "g", "hi", "wi", "y", "x"), 1)
    return kind(variant=Direction(direction), dtype=dtype, ndim=ndim, layout=layout, **sizes)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for direction in Direction if model.spec.variant is None else (model.spec.variant,):
        for dtype in element_types(model):
            for ndim, layout in CONV_LAYOUTS.items():
                pool = POOLS.sequence(arch, direction, ndim, dtype, model=model.candidates_of, only=model.only)
                yield ruled_group(
                    KIND, smallest(ConvProblem, direction, dtype, ndim, layout), pool, PROBLEM_RULES, arch
                )


EXPORTED = Exported(KIND, _groups)
