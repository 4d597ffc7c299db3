"""Draws charts as inline SVG, without scripts. The page's style sheet has the colours.

Each chart is drawn twice, for a wide window and for a telephone, because scaled text is hard to
read. The style sheet shows one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

MAX_SERIES: Final = 8
"""The largest number of series in a chart: the number of colours that a reader can distinguish."""

_DAY_MS: Final = 24 * 60 * 60 * 1000
_MONTHS_MS: Final = 91 * _DAY_MS
"""If the step of a time axis is at least this long, the labels are months: two neighbouring moments
are always in different months."""
_TIME_STEPS_MS: Final = (
    *(n * 1000 for n in (1, 2, 5, 10, 15, 30)),
    *(n * 60_000 for n in (1, 2, 5, 10, 15, 30)),
    *(n * 3_600_000 for n in (1, 2, 3, 6, 12)),
    *(n * _DAY_MS for n in (1, 2, 7, 14, 28, 91, 365)),
)


def time_step_ms(least_ms: float) -> int:
    """Return the shortest step for a time axis, such as 15 s, 2 min or 6 h, that is at least
    ``least_ms``. The longest step is 365 days.
    """
    return next((step for step in _TIME_STEPS_MS if step >= least_ms), _TIME_STEPS_MS[-1])


@dataclass(frozen=True)
class Span:
    """The time that a chart covers."""

    since_ms: int
    until_ms: int

    def ticks(self, most: int) -> list[tuple[int, str]]:
        """Return round moments (ms) with their labels: about ``most``, or fewer. Neighbouring
        labels always differ.
        """
        length = max(self.until_ms - self.since_ms, 1)
        step_ms = time_step_ms(length / most)
        first = math.ceil(self.since_ms / step_ms) * step_ms
        moments = range(first, self.until_ms + 1, step_ms)
        return [(at_ms, self._label(at_ms, step_ms)) for at_ms in moments]

    def _label(self, at_ms: int, step_ms: int) -> str:
        """Format a moment of the axis: as a time, a day or a month, depending on the step."""
        if step_ms < 60_000:
            form = "%H:%M:%S"
        elif step_ms < _DAY_MS:
            # Steps of hours divide a day, so the midnight at the start of each day has its date.
            has_days = self.since_ms < at_ms or self.until_ms - self.since_ms > _DAY_MS
            form = "%d %b" if has_days and at_ms % _DAY_MS == 0 else "%H:%M"
        else:
            form = "%d %b" if step_ms < _MONTHS_MS else "%b %Y"
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)


def short_number(value: float) -> str:
    """Format a number for an axis, with at most four digits: 950, 187.5k, 3.4M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}"


MAX_STEPS: Final = 6
"""The largest number of steps of an axis of values."""


def value_ticks(largest: float, least_step: float = 0.0) -> list[float]:
    """Return the round values of an axis, from 0 to the first one that is at least ``largest``.

    A step is 1, 2 or 5 times a power of ten, and at least ``least_step``.
    """
    if largest <= 0:
        return [0.0, 1.0]
    about = max(largest / MAX_STEPS, least_step) * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10(about))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= about)
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


@dataclass(frozen=True)
class _Frame:
    """The size of a chart and the scales of its axes. Converts values to positions in the chart."""

    width: int
    height: int
    span: Span
    ticks: Sequence[float]
    """The values of the grid, from the lower to the upper edge."""
    unit: str = ""
    left: int = 46
    right: int = 12

    UPPER = 24
    LOWER = 24

    def x(self, at_ms: float) -> float:
        length = max(self.span.until_ms - self.span.since_ms, 1)
        inner = self.width - self.left - self.right
        return self.left + (at_ms - self.span.since_ms) / length * inner

    def y(self, value: float) -> float:
        inner = self.height - self.UPPER - self.LOWER
        return self.height - self.LOWER - value / self.ticks[-1] * inner

    def axes(self) -> str:
        """Return SVG of the grid, of its numbers with their unit, and of the time axis."""
        parts = [f'<text class="unit" x="0" y="11">{escape(self.unit)}</text>']
        right = self.width - self.right
        for value in self.ticks:
            y = self.y(value)
            kind = "grid" if value else "axis"
            parts.append(
                f'<line class="{kind}" x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{short_number(value)}</text>"
            )
        parts += self.times()
        return "".join(parts)

    def times(self) -> list[str]:
        """Return SVG of the labels of the time axis."""
        parts = []
        inner = self.width - self.left - self.right
        for at_ms, label in self.span.ticks(max(1, inner // 80)):
            # no label may extend beyond the picture
            x = min(self.x(at_ms), self.width - 4 * len(label))
            parts.append(
                f'<text x="{x:.1f}" y="{self.height - 6}" text-anchor="middle">{label}</text>'
            )
        return parts

    def svg(self, content: str, says: str) -> str:
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(says)}">'
            f"{content}</svg>"
        )


def both_widths(draw: Callable[[int, int], str]) -> str:
    """Return HTML with two drawings, for a wide and for a narrow window. ``draw`` is called with
    the width and the height in pixels.
    """
    return f'<div class="wide">{draw(1180, 280)}</div><div class="narrow">{draw(360, 220)}</div>'


Points = Sequence[tuple[int, float]]
"""Moments and values, in order of time."""


def line_chart(
    series: Mapping[str, Points],
    span: Span,
    unit: str,
    holds_ms: int | None = None,
    partial_ms: int = 0,
) -> str:
    """Return HTML of a chart with one line for each name.

    A value is valid until the next value, but at most for ``holds_ms``. After that the line has a
    gap. A line on top of another line is dashed, so that both are visible. The last ``partial_ms``
    are pale: this time has not ended yet, so its values may change.
    """
    dashes = _dashes(series)
    ticks = value_ticks(max((v for points in series.values() for _, v in points), default=1))

    def draw(width: int, height: int) -> str:
        frame = _Frame(width, height, span, ticks, unit)
        lines = [
            f"<g{dashes[name]}>{_line(frame, n, name, points, unit, holds_ms)}</g>"
            for n, (name, points) in enumerate(series.items(), 1)
        ]
        shade = _shade(frame, partial_ms)
        return frame.svg(frame.axes() + "".join(lines) + shade, f"{unit} over time")

    return legend(series) + both_widths(draw)


def _shade(frame: _Frame, partial_ms: int) -> str:
    """Return SVG that makes the last ``partial_ms`` of a chart pale, because this time has not
    ended yet.
    """
    if not partial_ms:
        return ""
    x = frame.x(frame.span.until_ms - partial_ms)
    width = max(frame.x(frame.span.until_ms) - x, 3.0)
    height = frame.height - frame.UPPER - frame.LOWER
    return (
        f'<rect class="shade" x="{x:.1f}" y="{frame.UPPER}" width="{width:.1f}" height="{height}">'
        "<title>not over yet: these values may change</title></rect>"
    )


_DASH: Final = 6
"""The length of the shortest dash of a line, in pixels."""


def _dashes(series: Mapping[str, Points]) -> dict[str, str]:
    """Return the SVG dash attribute of each line.

    A line is dashed if at least a tenth of its points lie on a line that was drawn before it, so
    that both lines are visible. Otherwise the attribute is empty.
    """
    drawn: list[set[tuple[int, float]]] = []
    depths = {}
    for name, points in series.items():
        places = set(points)
        depths[name] = sum(10 * len(places & below) >= max(len(places), 1) for below in drawn)
        drawn.append(places)
    most = max(depths.values(), default=0) + 1
    return {
        name: f' stroke-dasharray="{_DASH * (most - depth)} {_DASH * depth}"' if depth else ""
        for name, depth in depths.items()
    }


def _line(
    frame: _Frame, number: int, name: str, points: Points, unit: str, holds_ms: int | None
) -> str:
    if not points:
        return ""
    path = []
    until_ms = None
    for (at_ms, value), (next_ms, _) in zip(
        points, [*points[1:], (frame.span.until_ms, 0)], strict=True
    ):
        begins = "M{x:.1f} {y:.1f}" if until_ms != at_ms else "V{y:.1f}"
        until_ms = next_ms if holds_ms is None else min(next_ms, at_ms + holds_ms)
        path.append(begins.format(x=frame.x(at_ms), y=frame.y(value)) + f"H{frame.x(until_ms):.1f}")
    at_ms, value = max(points, key=lambda point: point[1])
    says = f"{name}: at most {short_number(value)} {unit}, {moment(at_ms)}"
    peak = f'<circle cx="{frame.x(at_ms):.1f}" cy="{frame.y(value):.1f}" r="3"/>'
    drawn = f'<path d="{"".join(path)}"/>{peak}'
    return f'<g class="line s{number}"><title>{escape(says)}</title>{drawn}</g>'


def bar_chart(series: Mapping[str, Points], span: Span, bucket_ms: int, unit: str) -> str:
    """Return HTML of a chart with one stacked bar for each moment. Each name has one part of the
    bar, in its colour.
    """
    heights: dict[int, float] = {}
    for points in series.values():
        for at_ms, value in points:
            heights[at_ms] = heights.get(at_ms, 0) + value
    ticks = value_ticks(max(heights.values(), default=1), least_step=1)

    def draw(width: int, height: int) -> str:
        frame = _Frame(width, height, span, ticks, unit)
        breadth = max(2.0, min(40.0, frame.x(span.since_ms + bucket_ms) - frame.left - 1))
        floor: dict[int, float] = {}
        parts = []
        for number, (name, points) in enumerate(series.items(), 1):
            for at_ms, value in points:
                below = floor.get(at_ms, 0)
                floor[at_ms] = below + value
                upper, lower = frame.y(below + value), frame.y(below)
                says = escape(f"{moment(at_ms)}: {short_number(value)} {unit}, {name}")
                parts.append(
                    f'<rect class="fill s{number}" x="{frame.x(at_ms):.1f}" y="{upper:.1f}" '
                    f'width="{breadth:.1f}" height="{max(lower - upper, 0):.1f}">'
                    f"<title>{says}</title></rect>"
                )
        shade = _shade(frame, bucket_ms)
        return frame.svg(frame.axes() + "".join(parts) + shade, f"{unit} over time")

    return legend(series) + both_widths(draw)


def density_chart(series: Mapping[str, Points], span: Span, bucket_ms: int) -> str:
    """Return HTML of a chart with a row for each name, and a bar in it for each interval. A higher
    bar means that more happened.

    Each row has its own scale. The number at the end of a row is the sum of its values.
    """

    def draw(width: int, _: int) -> str:
        height = 34 * len(series) + 34
        longest = max(map(len, series), default=0)
        left = max(96, 12 + 7 * longest)
        frame = _Frame(width, height, span, (0.0, 1.0), left=left, right=58)
        breadth = max(3.0, frame.x(span.since_ms + bucket_ms) - frame.left - 0.5)
        parts = []
        for number, (name, points) in enumerate(series.items(), 1):
            floor = 34 * number
            end = width - frame.right
            parts.append(
                f'<line class="grid" x1="{frame.left}" x2="{end}" y1="{floor}" y2="{floor}"/>'
                f'<text x="0" y="{floor - 6}">{escape(name)}</text>'
                f'<text x="{width}" y="{floor - 6}" text-anchor="end">'
                f"{short_number(sum(value for _, value in points))}</text>"
            )
            most = max((value for _, value in points), default=1)
            for at_ms, value in points:
                high = 4 + 22 * math.sqrt(value / most)
                x = min(frame.x(at_ms), end - breadth)
                says = f"{moment(at_ms)}: {short_number(value)}, {name}"
                parts.append(
                    f'<rect class="fill s{number}" x="{x:.1f}" y="{floor - high:.1f}" '
                    f'width="{breadth:.1f}" height="{high:.1f}">'
                    f"<title>{escape(says)}</title></rect>"
                )
        return frame.svg("".join([*parts, *frame.times()]), "what happened when")

    return both_widths(draw)


def legend(series: Mapping[str, Sequence[object]]) -> str:
    """Return HTML that lists the series with their colours. Series without points are left out.

    A name that is too long for its line is cut. The tooltip has the whole name.
    """
    items = (
        f'<span class="key" title="{escape(name)}"><i class="swatch s{number}"></i>'
        f"{escape(name)}</span>"
        for number, (name, points) in enumerate(series.items(), 1)
        if points
    )
    return f'<p class="legend">{"".join(items)}</p>'


def moment(at_ms: int | None) -> str:
    """Format a moment (ms since the epoch) in UTC, to the second. None is formatted as ""."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
