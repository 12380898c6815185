"""The size of a trace before it is recorded, and the steps that fit below a cap."""

from __future__ import annotations

import pytest

from stepscope.session.generate_options import ProfileOptions
from stepscope.session.trace_forecast import TraceForecast, plan_window

FORECAST = TraceForecast(step_bytes=1e6, step_raw_bytes=2e7, outside_share=2.0)


def profile(steps: int = 5, *, all_stages: bool = False, cap_mb: float | None = None) -> ProfileOptions:
    cap = None if cap_mb is None else round(cap_mb * 1e6)
    return ProfileOptions(steps=steps, all_stages=all_stages, max_bytes=cap)


@pytest.mark.parametrize(
    ("options", "total", "text"),
    [
        (profile(), 20, "tracing 5 steps: expect about 5.0 MB, and 100 MB beside it while it is written"),
        (profile(), 3, "tracing 2 steps: expect about 2.0 MB, and 40 MB beside it while it is written"),
        (
            profile(-1),
            100,
            "tracing 100 steps: expect about 100 MB, and 2.0 GB beside it while it is written",
        ),
        (
            profile(all_stages=True),
            10,
            "tracing all stages of 10 steps: expect about 12 MB, and 240 MB beside it while it is written; "
            "without --profile-all-stages it is smaller",
        ),
    ],
)
def test_the_forecast_counts_what_will_be_recorded(options: ProfileOptions, total: int, text: str) -> None:
    """Steps after step 0, all of them, or the whole call with its other stages."""
    planned = plan_window(options, total, FORECAST)

    assert (planned.forecast, planned.note) == (text, "")
    assert (planned.steps, planned.all_stages) == (options.steps, options.all_stages)


@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        (profile(cap_mb=3.5), 3),
        (profile(cap_mb=0.1), 1),
        (profile(-1, cap_mb=7), 7),
        (profile(all_stages=True, cap_mb=7), 7),
    ],
)
def test_a_cap_shortens_the_window_and_says_so(options: ProfileOptions, fitting: int) -> None:
    """At least one step; all stages become steps only, since that is what can be shortened."""
    planned = plan_window(options, 20, FORECAST)

    assert (planned.steps, planned.all_stages) == (fitting, False)
    assert f"so {fitting} step" in planned.note
    assert "--max-trace-mb" in planned.note


def test_a_cap_that_is_not_reached_changes_nothing() -> None:
    """Nor does a forecast that could not be made."""
    assert plan_window(profile(cap_mb=5), 20, FORECAST).note == ""
    assert plan_window(profile(cap_mb=0.1), 20, None).steps == 5
    assert plan_window(profile(-1, cap_mb=0.1), None, FORECAST).steps == -1
