"""A line chart with logarithmic axes as inline SVG: no script, no font, nothing loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from stepscope.render import units

_WIDTH, _HEIGHT = 560, 360  # of the axes with their titles; the names of the curves stand below
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 16, 44
_NAME_HEIGHT = 18
_COLOURS = ("#2f6fdb", "#c2571a", "#17743a", "#8e3fae", "#b3261e", "#0d7c86", "#7a6a00", "#6c7686")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve: measured points, and the ends of the fitted line through them."""

    name: str
    points: Sequence[tuple[float, float]]
    line: Sequence[tuple[float, float]] = ()


def log_chart(series: Sequence[Series], *, x_title: str, y_title: str) -> Markup:
    """The series as a chart; names are escaped. Empty where there is nothing to draw."""
    points = [point for one in series for point in (*one.points, *one.line) if min(point) > 0]
    if not points:
        return Markup()
    x_axis = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    y_axis = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, _HEIGHT + _NAME_HEIGHT * len(series) + 8, f"{y_title} against {x_title}"
        ),
        *_grid_lines(x_axis, y_axis),
        _text(_LEFT, _HEIGHT - 6, x_title),
        _text(4, _TOP - 4, y_title),
    ]
    for index, one in enumerate(series):
        parts += _drawn(one, _COLOURS[index % len(_COLOURS)], x_axis, y_axis)
        y = _HEIGHT + 12 + _NAME_HEIGHT * index
        parts.append(_swatch(_LEFT + 4, y - 4, _COLOURS[index % len(_COLOURS)]))
        parts.append(_text(_LEFT + 18, y, one.name))
    return Markup("\n").join([*parts, Markup("</svg>")])


class _Axis:
    """A logarithmic scale from the least to the largest value, with a little room."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.04 * (high - low), 0.05)
        self._low, self._high = low - room, high + room
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """The coordinate of a value."""
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + part * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round values within the axis: 1, 2, 5 of each power of ten, or only 1 where those are many."""
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
        values = [step * 10.0**power for power in powers for step in steps]
        return [value for value in values if self._low <= math.log10(value) <= self._high]


def _grid_lines(x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
    lines = []
    for value in x_axis.ticks():
        x = x_axis.at(value)
        lines.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM))
        lines.append(_text(x, _HEIGHT - _BOTTOM + 16, f"{value:,g}", anchor="middle"))
    for value in y_axis.ticks():
        y = y_axis.at(value)
        lines.append(_line(_LEFT, y, _WIDTH - _RIGHT, y))
        lines.append(_text(_LEFT - 8, y + 4, f"{value:,g}", anchor="end"))
    return lines


def _drawn(one: Series, colour: str, x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
    parts = []
    ends = [(x_axis.at(x), y_axis.at(y)) for x, y in one.line if min(x, y) > 0]
    if len(ends) >= 2:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        parts.append(
            Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>').format(path, colour)
        )
    parts += [
        Markup('<circle cx="{}" cy="{}" r="4" fill="{}"><title>{}</title></circle>').format(
            f"{x_axis.at(x):.1f}",
            f"{y_axis.at(y):.1f}",
            colour,
            f"{one.name}: {units.duration(y)} at {units.number(x)}",
        )
        for x, y in one.points
        if min(x, y) > 0
    ]
    return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup(
        '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="currentColor" stroke-opacity="0.15"/>'
    ).format(f"{x1:.1f}", f"{y1:.1f}", f"{x2:.1f}", f"{y2:.1f}")


def _swatch(x: float, y: float, colour: str) -> Markup:
    return Markup('<circle cx="{}" cy="{}" r="4" fill="{}"/>').format(x, y, colour)


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
        f"{x:.1f}", f"{y:.1f}", anchor, escape(text)
    )
