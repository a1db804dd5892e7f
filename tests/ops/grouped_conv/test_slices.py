"""Slices of a kind partition the problems."""

from __future__ import annotations

from typing import Any

import pytest

from ckh.ops.grouped_conv.operation import SLICES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction


def problem(**sizes: Any) -> ConvProblem:
    """A dense 2D 3x3 problem with unit stride and N = 1, with the given changes."""
    defaults: dict[str, Any] = {"n": 1, "c": 64, "k": 64, "g": 1, "hi": 9, "wi": 9, "y": 3, "x": 3}
    return ConvProblem(Direction.FORWARD, **(defaults | sizes))


@pytest.mark.parametrize(
    ("kind", "name", "sizes"),
    [
        ("dimensions", "2D", {}),
        ("dimensions", "3D", {"ndim": 3, "di": 1, "z": 1}),
        ("filter", "1x1", {"y": 1, "x": 1}),
        ("filter", "3x3", {"ndim": 3, "di": 8, "z": 3}),
        ("filter", "3x3", {"ndim": 3, "di": 8, "z": 1}),
        ("filter", "other", {"ndim": 3, "di": 8, "z": 3, "y": 1, "x": 1}),
        ("filter", "other", {"y": 1, "x": 7}),
        ("groups", "dense", {}),
        ("groups", "grouped", {"g": 32}),
        ("groups", "depthwise", {"g": 64}),
        ("groups", "depthwise", {"g": 64, "k": 128}),
        ("groups", "dense", {"c": 1, "k": 8}),
        ("stride", "unit stride", {}),
        ("stride", "strided", {"stride_w": 2}),
        ("stride", "strided", {"ndim": 3, "di": 8, "z": 3, "stride_d": 2}),
        ("batch", "N = 1", {}),
        ("batch", "N = 2 to 8", {"n": 8}),
        ("batch", "N > 8", {"n": 9}),
    ],
)
def test_slices_match_their_names(kind: str, name: str, sizes: dict[str, int]) -> None:
    """Boundaries of each slice, and filters of depth 1."""
    assert SLICES[kind][name](problem(**sizes))
