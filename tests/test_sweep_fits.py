"""What a sweep tells of its points: planted laws are found, and what is not known is not told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.comparison.scaling import power_law, sweep_report, tokens_of
from stepscope.analyse.comparison.sweep_results import CurvePoint
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.render.comparison.sweep_views import (
    render_sweep_html,
    render_sweep_terminal,
)
from stepscope.session.sweeping.sweep import Grid
from sweeps import row, run


def test_planted_laws_are_found(tmp_path) -> None:
    """The fake step is fixed plus quadratic in tokens and its decode linear: the fits say so."""
    sizes = tuple((width, 256) for width in (256, 512, 1024, 2048, 4096))
    report = sweep_report(run(tmp_path, Grid(resolutions=sizes, steps=(4, 8, 16))))
    fits = {(fit.series, fit.against, fit.group): fit for fit in report.fits}
    assert fits["DenoisingStage", "steps", "1024x256"].exponent == pytest.approx(1.0, abs=0.01)
    assert fits["DecodingStage", "tokens", "4 steps"].exponent == pytest.approx(1.0, abs=0.05)
    assert fits["step", "tokens", "4 steps"].exponent == pytest.approx(2.0, abs=0.02)
    (composition, *_) = report.compositions
    assert composition.fixed_ms == pytest.approx(1.0, rel=0.01)
    assert composition.quadratic_ms_per_token2 == pytest.approx(1e-3, rel=0.01)
    assert composition.quadratic_share > 0.99
    assert composition.worst_residual < 0.01


def test_the_crossover_is_where_the_curves_meet() -> None:
    """Linear 100 n against quadratic n^2: the second takes over at 100 tokens."""
    rows = [
        row(16 * n, stages={"TextEncodingStage": 100.0 * n, "DenoisingStage": float(n * n)})
        for n in (10, 50, 200, 1000)
    ]
    (crossover,) = sweep_report(rows).crossovers
    assert (crossover.before, crossover.after, crossover.within) == (
        "TextEncodingStage",
        "DenoisingStage",
        True,
    )
    assert crossover.tokens == pytest.approx(100.0)
    assert crossover.interval == pytest.approx((100.0, 100.0), rel=0.01)


def stages_of(sizes, text_ms, denoising_ms):
    return [
        row(16 * n, stages={"TextEncodingStage": float(text), "DenoisingStage": float(denoising)})
        for n, text, denoising in zip(sizes, text_ms, denoising_ms, strict=True)
    ]


def test_a_crossover_has_the_uncertainty_of_its_fits() -> None:
    """Some 3 % of residual move where linear meets quadratic; between measured points it is measured."""
    sizes = (10, 30, 90, 110, 300, 900)
    wobble = (1.03, 0.97, 1.02, 0.99, 0.97, 1.03)
    rows = stages_of(
        sizes,
        [100 * n * w for n, w in zip(sizes, wobble, strict=True)],
        [n * n * w for n, w in zip(sizes, wobble[::-1], strict=True)],
    )
    (crossover,) = sweep_report(rows).crossovers
    low, high = crossover.interval
    assert crossover.within
    assert 90.0 <= low < crossover.tokens < high <= 110.0
    assert all(not each.within for each in sweep_report(rows[:3]).crossovers)


def test_a_crossover_that_the_fits_hardly_know_is_not_told_but_why() -> None:
    """Residuals of 12 to 14 %, extrapolated: the interval is wider than a factor of two, so no number."""
    sizes = (64, 100, 144, 256)
    report = sweep_report(stages_of(sizes, [52.0, 84.0, 88.0, 175.0], [20.0, 26.0, 52.0, 90.0]))
    assert report.crossovers == ()
    (said,) = report.crossovers_withheld
    assert "is not told (TextEncodingStage and DenoisingStage, 4 steps): the fits allow " in said
    assert said in render_sweep_html(report)
    assert "is not told" in render_sweep_terminal(report)


_wobble = st.lists(st.floats(0.97, 1.03), min_size=4, max_size=4)


@given(_wobble, _wobble, st.floats(0.5, 2.5), st.floats(0.5, 2.5), st.floats(5.0, 200.0))
def test_what_is_told_of_a_crossover_holds_of_the_measured_points(one, other, power, steeper, place) -> None:
    """Its interval holds it and spans no more than a factor of two; 'measured' has a point on each side."""
    sizes = (10, 20, 40, 80)
    text_ms = [100 * (n / place) ** power * w for n, w in zip(sizes, one, strict=True)]
    denoising_ms = [100 * (n / place) ** steeper * w for n, w in zip(sizes, other, strict=True)]
    for told in sweep_report(stages_of(sizes, text_ms, denoising_ms)).crossovers:
        low, high = told.interval
        assert low <= told.tokens <= high <= 2 * low
        first, second = (text_ms, denoising_ms)
        if told.before == "DenoisingStage":
            first, second = second, first
        longer = [n for n, a, b in zip(sizes, first, second, strict=True) if a > b]
        after = [n for n, a, b in zip(sizes, first, second, strict=True) if b > a]
        assert all(n <= high for n in longer)
        assert all(n >= low for n in after)
        assert told.within == bool(longer and after and max(longer) < min(after))


def test_two_models_of_a_page_that_contradict_each_other_tell_no_crossover() -> None:
    """The power law of denoising meets decoding ahead; by the split of the step, quadratic, it never does."""
    rows = [
        row(16 * n, steps=1, stages={"DenoisingStage": 60 + n * n / 1000, "DecodingStage": 0.0044 * n**1.7})
        for n in (100, 140, 200, 280)
    ]
    report = sweep_report(rows)
    assert report.crossovers == ()
    assert "by the split of a step" in report.crossovers_withheld[0]


def test_an_exponent_has_an_interval_not_a_bare_number() -> None:
    """95 % by Student's t: with three sizes one degree of freedom, so 12.7 standard errors."""
    points = [CurvePoint(x=2.0**at, ms=ms) for at, ms in enumerate((1.0, 2.1, 4.0))]
    fit = power_law(points, series="s", against="tokens", group="")
    low, high = fit.exponent_interval
    assert high - low == pytest.approx(2 * 12.706 * fit.exponent_error, rel=1e-3)


def test_untrusted_and_failed_rows_are_in_no_fit() -> None:
    """A wrong number does not bend a curve; it is named instead."""
    good = [row(16 * n, stages={"DenoisingStage": float(n)}) for n in (1, 2, 4)]
    bad = row(16 * 8, stages={"DenoisingStage": 1e6}, untrusted=("enqueue times",))
    report = sweep_report([*good, bad])
    assert next(fit for fit in report.fits if fit.series == "DenoisingStage").exponent == pytest.approx(1.0)
    assert any("enqueue times" in text for text in report.warnings)


def test_a_law_needs_three_sizes() -> None:
    """Fewer, or a time of zero, give no exponent rather than a made-up one."""
    assert power_law([CurvePoint(x=1, ms=1)] * 3, series="s", against="tokens", group="") is None
    points = [CurvePoint(x=1, ms=0), CurvePoint(x=2, ms=1), CurvePoint(x=3, ms=2)]
    assert power_law(points, series="s", against="tokens", group="") is None
    two = [CurvePoint(x=1, ms=3), CurvePoint(x=2, ms=6)]
    assert power_law(two, series="s", against="tokens", group="") is None


@pytest.mark.parametrize(
    ("times_ms", "doubt"),
    [
        ((1.0, 2.0, 4.0), ""),
        ((4.0, 2.0, 1.0), "falls as size grows"),
        ((1.0, 6.0, 4.0), "misses a point by"),
        ((1.0, 1.1, 1.0), "not distinguishable"),
    ],
)
def test_a_fit_that_should_not_be_believed_says_so(times_ms, doubt) -> None:
    """Beside the number: it is not left to the reader to know that time does not fall with size."""
    points = [CurvePoint(x=2.0**at, ms=ms) for at, ms in enumerate(times_ms)]
    fit = power_law(points, series="s", against="tokens", group="")
    assert fit.doubt.startswith(doubt)
    assert bool(fit.doubt) == bool(doubt)


def test_a_doubt_is_whole_in_the_terminal() -> None:
    """It wraps where it has to, and never loses its middle."""
    rows = stages_of((1, 2, 4), (5.0, 5.5, 5.1), (1.0, 2.0, 4.0))
    for width, words in ((110, "not distinguishable from"), (80, "not")):
        text = render_sweep_terminal(sweep_report(rows), width=width)
        assert words in text
        assert "distinguishable" in text
        assert "growth" in text
        assert "…" not in text


def test_a_sweep_of_too_few_points_says_why_there_is_no_fit() -> None:
    """Two sizes and one step count describe no growth; a first call that was faster cost nothing."""
    rows = [row(16 * n, stages={"DenoisingStage": float(n)}, first_use_ms=-5.0) for n in (1, 2)]
    report = sweep_report(rows)
    assert report.fits == ()
    assert any("no growth is fitted over sizes: 2 were" in text for text in report.warnings)
    assert "not distinguishable" in render_sweep_terminal(report)
    assert "-5" not in render_sweep_terminal(report)


def test_tokens_of_pictures_and_videos() -> None:
    """1024 x 1024 is 4,096 tokens; Wan's 81 frames of 1280 x 720 are the 75,600 of facts 6.4."""
    assert tokens_of(row(1024, stages={}, **{})) == 64
    video = SweepRow(id="x", point=SweepPoint(), status="ok", width=1280, height=720, frames=81)
    assert tokens_of(video) == 75_600
    assert tokens_of(SweepRow(id="x", point=SweepPoint(), status="ok")) is None
