"""Colours and sizes of figures; the colours are Okabe and Ito's, which are distinguishable by colour-blind people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour on light and on dark paper, by the name of its CSS variable."""

    name: str
    light: str
    dark: str


PAPER = Colour("paper", "#fefefe", "#14181d")
INK = Colour("ink", "#1b1f24", "#e6e9ec")
MUTED = Colour("muted", "#5f6b76", "#9aa5b1")
RULE = Colour("rule", "#e1e5e9", "#2d343c")
QUIET = Colour("quiet", "#a9b4be", "#5d6873")
LINES = (
    Colour("c1", "#0072b2", "#56aee6"),
    Colour("c2", "#d55e00", "#f0935a"),
    Colour("c3", "#009e73", "#3fc79f"),
    Colour("c4", "#aa4499", "#d98bcb"),
    Colour("c5", "#8a6d00", "#d9b93b"),
)
ALL = (PAPER, INK, MUTED, RULE, QUIET, *LINES)
# Of a heat map, from the worst to the best: one hue, light to dark, so that it is readable without colour.
HEAT = ("#f4e3d3", "#e3d9c6", "#bcd0d6", "#7fb0cf", "#3f8abf", "#0b5c94")

WIDE_IN, NARROW_IN = 7.4, 3.7  # inches; at 100 pixels an inch
PIXELS = 100
