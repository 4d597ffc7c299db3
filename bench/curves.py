"""Draw the curves of ``bench/scale.py`` as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 28, 40
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37")


class Curve(NamedTuple):
    """One chart: a line for each request."""

    name: str
    counts: Sequence[int]
    lines: Mapping[str, Sequence[float]]
    """Request -> its CPU time in microseconds at each of ``counts``."""


def draw(curves: Sequence[Curve]) -> str:
    """Return an SVG of all charts side by side. Both axes are logarithmic."""
    charts = "".join(
        f'<g transform="translate({position * WIDTH},0)">{_chart(curve)}</g>\n'
        for position, curve in enumerate(curves)
    )
    width = WIDTH * len(curves)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}"'
        f' height="{HEIGHT}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>\n{charts}</svg>\n'
    )


def _chart(curve: Curve) -> str:
    figures = [figure for line in curve.lines.values() for figure in line]
    floor = math.floor(math.log10(min(figures)))
    top = math.ceil(math.log10(max(figures)))
    first, last = math.log10(curve.counts[0]), math.log10(curve.counts[-1])

    def x(count: int) -> float:
        return LEFT + (math.log10(count) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(figure: float) -> float:
        height = HEIGHT - TOP - BOTTOM
        return TOP + (top - math.log10(figure)) / (top - floor) * height

    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{curve.name}</text>']
    for power in range(floor, top + 1):
        at = y(10.0**power)
        parts.append(
            f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            f'<text x="{LEFT - 4}" y="{at + 4:.1f}" text-anchor="end">{10**power:,} us</text>'
        )
    parts.extend(
        f'<text x="{x(count):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{count:,}</text>'
        for count in curve.counts
    )
    for position, (name, line) in enumerate(curve.lines.items()):
        points = " ".join(
            f"{x(count):.1f},{y(figure):.1f}"
            for count, figure in zip(curve.counts, line, strict=True)
        )
        colour = COLOURS[position]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{LEFT + 70 + 80 * position}" y="16" fill="{colour}">{name}</text>'
        )
    return "\n".join(parts)
