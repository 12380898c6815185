"""Every number that people read is formatted here, and nowhere is a formatted number read back.

A value that is None was not measured: it shows as ``NOT_KNOWN``, never as a zero, and a value that is too
small for its column shows as less than the column's step, never as 0.0.
"""

from __future__ import annotations

import math

NOT_KNOWN = "–"
_SECONDS_FROM_MS = 10_000.0  # above this a reader thinks in seconds
_MICROSECONDS_BELOW_MS = 0.1
_ABSURD = 1e12  # from here on the digits say nothing and would burst a column
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None) -> str:
    """A plain number with thousands separators: one decimal from 10 on, three significant digits below."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    magnitude = abs(value)
    if magnitude >= _ABSURD:
        return f"{value:.3g}"
    if magnitude >= 999.95:
        return f"{value:,.0f}" if magnitude >= 9_999.5 else f"{value:,.1f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.9995:
        return f"{value:.2f}"
    if magnitude == 0:
        return "0"
    return f"{value:.3f}" if magnitude >= 0.0005 else ("<0.001" if value > 0 else ">-0.001")


def milliseconds(value_ms: float | None) -> str:
    """A duration for a table cell, without its unit: the column's head names it."""
    return number(value_ms)


def microseconds(value_us: float | None) -> str:
    """A short duration for a table cell, without its unit."""
    return number(value_us)


def duration(value_ms: float | None) -> str:
    """A duration in a sentence, with the unit that suits its size: 350.1 ms, 13.12 s, 12.3 µs."""
    if value_ms is None or not math.isfinite(value_ms):
        return NOT_KNOWN
    if abs(value_ms) >= _SECONDS_FROM_MS:
        return f"{value_ms / 1e3:,.2f} s" if abs(value_ms) < _ABSURD else f"{value_ms / 1e3:.3g} s"
    if 0 < abs(value_ms) < _MICROSECONDS_BELOW_MS:
        return f"{number(value_ms * 1e3)} µs"
    return f"{number(value_ms)} ms"


def round_time(value_ms: float) -> str:
    """A round time, as an axis has it: 500 ms, 2.5 s."""
    return f"{value_ms / 1e3:,g} s" if abs(value_ms) >= _SECONDS_FROM_MS else f"{value_ms:,g} ms"


def share(value: float | None) -> str:
    """A share of 0 to 1 as a percentage with one decimal: 95.4 %."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if 0 < value < 0.0005:
        return "<0.1 %"
    if abs(value) >= _ABSURD:
        return f"{value * 100:.3g} %"
    return f"{value * 100:,.1f} %"


def clamped(value: float | None) -> float:
    """A share for drawing: from 0 to 1, and 0 where it is not known."""
    return min(max(value, 0.0), 1.0) if value is not None and math.isfinite(value) else 0.0


def drawable(*values: float) -> bool:
    """Whether numbers can stand on an axis."""
    return all(abs(value) < _ABSURD for value in values)


def ratio(value: float | None) -> str:
    """A ratio as a factor: 1.24x."""
    return f"{value:,.2f}x" if value is not None and math.isfinite(value) else NOT_KNOWN


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return NOT_KNOWN if value is None else f"{value:,d}"


def size(value_bytes: float | None) -> str:
    """Bytes in binary units: 52.7 GiB."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return NOT_KNOWN
    scaled, unit = float(value_bytes), _BYTE_UNITS[0]
    for unit in _BYTE_UNITS:
        if abs(scaled) < 1023.95 or unit == _BYTE_UNITS[-1]:
            break
        scaled /= 1024
    return f"{scaled:,.0f} {unit}" if unit == "B" else f"{scaled:,.1f} {unit}"


def rate(value_gb_per_s: float | None) -> str:
    """A transfer rate in decimal GB/s for a table cell, without its unit."""
    return number(value_gb_per_s)


def dimensions(value: tuple[int, ...] | None) -> str:
    """A launch geometry: 128 x 1 x 1."""
    return NOT_KNOWN if value is None else "x".join(str(part) for part in value)


def yes_no(value: bool | None) -> str:
    """A flag in a word."""
    return NOT_KNOWN if value is None else ("yes" if value else "no")


def counted(amount: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: 1 step, 50 steps."""
    return f"{count(amount)} {noun if amount == 1 else plural or noun + 's'}"


def signed_share(value: float | None) -> str:
    """A change relative to a base, with its sign: +3.2 %."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    return f"{value * 100:+.3g} %" if abs(value) >= _ABSURD else f"{value * 100:+,.1f} %"


def signed_milliseconds(value_ms: float | None) -> str:
    """A difference of durations for a table cell, with its sign and without its unit."""
    if value_ms is None or not math.isfinite(value_ms):
        return NOT_KNOWN
    if 0 < abs(value_ms) < 0.0005:
        return "+0.000" if value_ms > 0 else "-0.000"
    return f"+{number(value_ms)}" if value_ms > 0 else number(value_ms)


def signed_duration(value_ms: float | None, *, beside_ms: float) -> str:
    """A difference with its sign, in the unit that ``duration`` gives the time beside which it stands."""
    if value_ms is None or not math.isfinite(value_ms):
        return NOT_KNOWN
    if abs(beside_ms) >= _SECONDS_FROM_MS:
        return f"{signed_milliseconds(value_ms / 1e3)} s"
    if 0 < abs(beside_ms) < _MICROSECONDS_BELOW_MS:
        return f"{signed_milliseconds(value_ms * 1e3)} µs"
    return f"{signed_milliseconds(value_ms)} ms"


def probability(value: float | None) -> str:
    """A p-value as a statement: p = 0.034, p < 0.001."""
    if value is None or not math.isfinite(value):
        return f"p {NOT_KNOWN}"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
