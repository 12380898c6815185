"""Numbers for people: never 0.0 for something, never a zero for something unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.render import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.006, "0.006"),
        (0.0001, "<0.001"),
        (-0.0001, ">-0.001"),
        (0.35, "0.350"),
        (0.99951, "1.00"),
        (4.44, "4.44"),
        (9.996, "10.0"),
        (350.14, "350.1"),
        (999.96, "1,000.0"),
        (1804.4, "1,804.4"),
        (13123.0, "13,123"),
        (-12.34, "-12.3"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    """Three digits where they matter, thousands separators, and a dash for what was not measured."""
    assert units.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (350.1, "350.1 ms"),
        (13123.0, "13.12 s"),
        (0.0123, "12.3 µs"),
        (0.0, "0 ms"),
        (None, "–"),
        (100301.0, "100.30 s"),
    ],
)
def test_duration(value: float | None, text: str) -> None:
    """A sentence gets the unit that suits the size."""
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.954, "95.4 %"), (0.0, "0.0 %"), (0.0001, "<0.1 %"), (1.0, "100.0 %"), (None, "–")]
)
def test_share(value: float | None, text: str) -> None:
    """Shares are percentages with one decimal; something is never 0.0 %."""
    assert units.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (61_203_283_968, "57.0 GiB"),
        (2**60, "1,024.0 PiB"),
        (None, "–"),
    ],
)
def test_size(value: float | None, text: str) -> None:
    """Bytes in binary units, the largest that keeps the number above one."""
    assert units.size(value) == text


def test_small_formats() -> None:
    """Ratios, counts, flags and launch geometry."""
    assert units.ratio(1.239) == "1.24x"
    assert units.ratio(None) == "–"
    assert units.count(55337) == "55,337"
    assert units.counted(1, "step") == "1 step"
    assert units.counted(2, "retry", "retries") == "2 retries"
    assert units.yes_no(None) == "–"
    assert units.dimensions((128, 1, 1)) == "128x1x1"


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_something_never_reads_as_nothing(value: float) -> None:
    """A positive number never shows as zero, and what shows is close to it."""
    shown = units.number(value)
    if shown.startswith("<"):
        assert value < 0.0005
        return
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.006, abs=0.0006)


@pytest.mark.parametrize(
    ("value_ms", "beside_ms", "text"),
    [
        (-0.0022, 0.0562, "-2.20 µs"),
        (0.5, 350.0, "+0.500 ms"),
        (-220.0, 13_120.0, "-0.220 s"),
        (0.0, 0.0, "0 ms"),
        (float("nan"), 1.0, "–"),
    ],
)
def test_a_difference_has_the_unit_of_the_times_beside_it(value_ms, beside_ms, text) -> None:
    """56.2 µs and 54.0 µs differ by µs, not by thousandths of a millisecond."""
    assert units.signed_duration(value_ms, beside_ms=beside_ms) == text
