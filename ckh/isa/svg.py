"""SVG timeline of the waves in one iteration."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ckh.isa.waves import WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.isa.anatomy import Anatomy
    from ckh.isa.waves import Span, Timeline

_COLOURS = {
    "vector ALU": "#4c78a8",
    "matrix": "#e45756",
    "LDS": "#54a24b",
    "memory": "#b279a2",
    WAITING: "#e6e6e6",
}
_WIDTH, _LEFT, _ROW, _GAP, _TOP = 900, 60, 14, 4, 44
_MOST_WAVES = 32
_TICKS = 5


def timeline_svg(anatomy: Anatomy, timeline: Timeline) -> str:
    """The picture: a row for each wave, with its instructions by pipe, and its waiting times."""
    waves = min(_MOST_WAVES, 1 + max(span.wave for span in timeline.spans))
    height = _TOP + waves * (_ROW + _GAP) + 30
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">',
            f"<title>{escape(anatomy.kernel)}, {escape(anatomy.arch)}: one iteration</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="14">{escape(anatomy.kernel)}</text>',
            *_legend(),
            *(f'<text x="4" y="{_y(wave) + _ROW - 3}">wave {wave}</text>' for wave in range(waves)),
            *(_bar(span, timeline.loop) for span in timeline.spans if span.wave < waves and span.end > span.start),
            *_axis(timeline.loop, _y(waves) + 10),
            "</svg>\n",
        ]
    )


def _legend() -> Iterator[str]:
    for place, (name, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 110 * place
        yield f'<rect x="{x}" y="22" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="31">{name}</text>'


def _axis(clocks: float, y: int) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        at = clocks * tick / _TICKS
        anchor = "end" if tick == _TICKS else "middle" if tick else "start"
        text = f"{at:,.0f}" + " clocks" * (tick == _TICKS)
        yield f'<text x="{_x(at, clocks):.1f}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _bar(span: Span, clocks: float) -> str:
    x, width = _x(span.start, clocks), _x(span.end, clocks) - _x(span.start, clocks)
    y, height = (_y(span.wave) + _ROW // 2 - 1, 2) if span.what == WAITING else (_y(span.wave), _ROW)
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.4):.1f}" height="{height}" fill="{_COLOURS[span.what]}"/>'


def _x(clock: float, clocks: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - 10) * clock / max(clocks, 1.0)


def _y(wave: int) -> int:
    return _TOP + wave * (_ROW + _GAP)
