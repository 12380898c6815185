"""What charts of the HTML page are made of: plain numbers, places in per cent, readings in words.

Positions in per cent let the drawing follow the page's width while its text keeps its size. Every mark has a
reading in words, which the page shows on hover and reads out under the arrow keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.render import units

MOST_READINGS = 150
_TICKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A bar: its place in per cent of the lane, and the class that draws it."""

    left: float
    width: float
    height: float = 100.0
    css: str = "bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the chart says at a place."""

    at: float  # per cent
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of a chart: a label and what is drawn beside it."""

    label: str
    note: str = ""
    marks: tuple[Mark, ...] = ()
    area: str = ""  # an SVG path in 1000 x 100
    level: float | None = None  # a line across, in per cent from below
    tall: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure: lanes over one axis. ``summary`` says in a sentence what it shows."""

    id: str
    title: str
    summary: str
    lanes: tuple[Lane, ...]
    ticks: tuple[Reading, ...]
    readings: tuple[Reading, ...]
    legend: tuple[tuple[str, str], ...] = ()  # css class, what it means


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    low: float
    high: float

    def at(self, value: float) -> float:
        """``value`` in per cent of the axis, at its end where it lies beyond."""
        return round(units.clamped((value - self.low) / (self.high - self.low)) * 100, 3)


def scale_of(low: float, high: float) -> Scale | None:
    """An axis between two numbers; None where there is nothing to tell apart, a nanosecond at least."""
    return Scale(low=low, high=high) if units.drawable(low, high) and high - low >= 1e-6 else None


def ticks_of(scale: Scale) -> tuple[Reading, ...]:
    """A few round times along the axis."""
    rough = (scale.high - scale.low) / _TICKS
    magnitude = 10.0 ** (len(f"{int(rough)}") - 1) if rough >= 1 else 10.0 ** -len(f"{int(1 / rough)}")
    step = next((factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough), rough)
    first = int(scale.low // step)
    values = [(first + at) * step for at in range(2 * _TICKS + 2)]
    return tuple(
        Reading(at=scale.at(value), text=units.round_time(value))
        for value in values
        if scale.low <= value <= scale.high
    )
