"""Comparisons: verdicts by test and by threshold, unlike and untrusted runs, the null experiment."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumps import DATA, sglang_json, stepscope_json
from stepscope.analyse.comparison.cohort import Cohort, observe
from stepscope.analyse.comparison.compare import compare, fails_above, undecided, unlike, withhold_verdicts
from stepscope.analyse.comparison.compare_results import Basis, Severity, Verdict
from stepscope.analyse.comparison.statistics import ALPHA, holm, sample_of, welch
from stepscope.analyse.run.summarise import summarise
from stepscope.record.perf_dump_reader import perf_dump_from_json


def cohort(label, *documents):
    runs = [
        observe(summarise(perf_dump_from_json(document, origin=label), path=f"{label}-{index}.json"))
        for index, document in enumerate(documents)
    ]
    return Cohort(label=label, runs=tuple(runs))


def noisy(label, step_ms, runs, *, seed, noise=0.01, **changes):
    """Runs of ten steps whose step time varies from run to run by ``noise``."""
    generator = np.random.default_rng(seed)
    factors = generator.normal(1.0, noise, runs)
    return cohort(label, *(stepscope_json([step_ms * float(factor)] * 10, **changes) for factor in factors))


def test_one_run_a_side_uses_thresholds_and_says_so() -> None:
    """A single pair cannot tell noise from change: thresholds, a warning, and 'no change' within 2 %."""
    base = cohort("base", stepscope_json([350.0] * 10))
    same = compare(base, cohort("new", stepscope_json([352.0] * 10)))
    assert same.basis is Basis.THRESHOLDS
    assert same.total.verdict is Verdict.NO_CHANGE
    assert same.total.p_value is None
    assert any("cannot tell noise from change" in text for text in same.warnings)
    slower = compare(base, cohort("new", stepscope_json([420.0] * 10)))
    assert slower.total.verdict is Verdict.WORSE
    rows = {row.name: row for row in slower.stages}
    assert rows["DenoisingStage"].verdict is Verdict.WORSE
    assert rows["DecodingStage"].verdict is Verdict.NO_CHANGE
    assert slower.throughput is not None
    assert slower.throughput.change == pytest.approx(-0.1562, abs=0.001)


def test_a_small_stage_that_doubles_is_flagged_where_it_matters() -> None:
    """SGLang's table can never flag a stage under 120 ms; ours weighs it against the run."""
    base = cohort("base", stepscope_json([100.0] * 8, encode_ms=40.0))
    new = cohort("new", stepscope_json([100.0] * 8, encode_ms=90.0))
    assert {row.name: row.verdict for row in compare(base, new).stages}["TextEncodingStage"] is Verdict.WORSE
    long_base = cohort("base", stepscope_json([2000.0] * 50, encode_ms=40.0))
    long_new = cohort("new", stepscope_json([2000.0] * 50, encode_ms=90.0))
    assert compare(long_base, long_new).stages[0].verdict is Verdict.NO_CHANGE


def test_repeated_runs_are_tested() -> None:
    """Ten percent in one percent of noise is faster with a p-value and an interval around it."""
    result = compare(noisy("base", 350.0, 5, seed=1), noisy("new", 315.0, 5, seed=2))
    assert result.basis is Basis.SIGNIFICANCE
    assert result.total.verdict is Verdict.BETTER
    assert result.total.p_value is not None
    assert result.total.p_value < ALPHA
    assert result.total.interval is not None
    low, high = result.total.interval
    assert low < -0.09 < high < 0
    assert {row.name: row.verdict for row in result.stages}["DenoisingStage"] is Verdict.BETTER
    assert result.step_median is not None
    assert result.step_median.verdict is Verdict.BETTER


def test_no_change_means_that_two_percent_were_excluded() -> None:
    """In 10 % of noise three runs cannot tell, and it is said what could; in 0.5 % five runs exclude 2 %."""
    noisy_pair = compare(noisy("b", 350.0, 3, seed=1, noise=0.1), noisy("n", 350.0, 3, seed=2, noise=0.1))
    assert noisy_pair.total.verdict is Verdict.CANNOT_TELL
    assert "2 % is not excluded" in noisy_pair.total.reason
    assert any(re.search(r"would tell: .* runs a side", text) for text in noisy_pair.warnings)
    quiet_pair = compare(noisy("b", 350.0, 5, seed=1, noise=0.005), noisy("n", 350.0, 5, seed=2, noise=0.005))
    assert quiet_pair.total.verdict is Verdict.NO_CHANGE
    assert not any("would tell" in text for text in quiet_pair.warnings)


def test_a_quarter_less_in_too_few_runs_is_not_called_no_change() -> None:
    """Two runs against three, 24 % faster, p = 0.04: the interval reaches -48 %, so nothing can be told."""
    wide = compare(totals([1000.0, 1100.0]), totals([700.0, 900.0, 780.0]))
    assert wide.total.change is not None
    assert wide.total.change < -0.2
    assert wide.total.verdict is Verdict.CANNOT_TELL
    assert fails_above(wide, 0.01) is None
    assert "this is no failure" in (undecided(wide, 0.01) or "")
    assert "not more than 5.0 % slower" in (undecided(wide, 0.05) or "")


@given(
    st.lists(st.floats(50, 150), min_size=2, max_size=6), st.lists(st.floats(50, 150), min_size=2, max_size=6)
)
def test_no_change_and_the_interval_never_contradict_each_other(base, new) -> None:
    """Where repeated runs say 'no change' end to end, their interval lies within 2 % either way."""
    total = compare(totals(base), totals(new)).total
    if total.verdict is Verdict.NO_CHANGE and total.interval is not None:
        assert max(map(abs, total.interval)) <= 0.02


def test_a_small_stage_is_not_held_to_more_than_it_weighs() -> None:
    """A stage of 1 % that may have changed by a third has no weight: no change; one of a quarter has."""

    def side(stage_ms):
        return Cohort(label="x", runs=tuple(
            replace(TEMPLATE, total_ms=1000.0 + ms, stages={"A": ms, "B": 10 * ms}) for ms in stage_ms
        ))  # fmt: skip

    a, b = compare(side([10.0, 11.0, 12.0]), side([11.0, 12.0, 10.2])).stages
    assert (a.verdict, b.verdict) == (Verdict.NO_CHANGE, Verdict.CANNOT_TELL)
    assert "10 % is not excluded" in b.reason


def test_no_interval_says_that_a_time_became_negative() -> None:
    """Wild runs: the interval of the change ends at -100 %."""
    wide = compare(totals([1000.0, 10.0]), totals([900.0, 5.0]))
    assert wide.total.interval is not None
    assert wide.total.interval[0] == -1.0


def test_a_sure_but_tiny_change_is_no_change() -> None:
    """Three tenths of a percent, without noise, is not worth a verdict."""
    base = cohort("base", *(stepscope_json([350.0 + 0.01 * i] * 10) for i in range(5)))
    new = cohort("new", *(stepscope_json([351.05 + 0.01 * i] * 10) for i in range(5)))
    total = compare(base, new).total
    assert total.p_value is not None
    assert total.p_value < 0.001
    assert total.verdict is Verdict.NO_CHANGE
    assert "0.5 %" in total.reason


def test_an_outlier_does_not_make_a_direction() -> None:
    """Where medians and means point opposite ways nothing is called faster or slower."""
    base = cohort("base", *(stepscope_json([ms] * 10) for ms in (350.0, 350.1, 350.2, 350.1, 350.0)))
    new = cohort("new", *(stepscope_json([ms] * 10) for ms in (345.0, 345.1, 345.2, 345.1, 390.0)))
    assert compare(base, new).total.verdict is Verdict.CANNOT_TELL


def test_equal_memory_without_noise_is_compared_exactly() -> None:
    """Peaks that never vary are equal or not; no division by a spread of zero."""
    base, same = noisy("base", 350.0, 3, seed=1), noisy("new", 350.0, 3, seed=2)
    assert compare(base, same).memory.verdict is Verdict.NO_CHANGE
    checkpoints = stepscope_json([1.0])["memory_checkpoints"]
    checkpoints["after_DenoisingStage"]["peak_allocated_mb"] = 60000
    more = noisy("new", 350.0, 3, seed=2, memory_checkpoints=checkpoints)
    assert compare(base, more).memory.verdict is Verdict.WORSE


def test_steps_are_aligned_by_index() -> None:
    """Step 4 alone is slower: its row says so, the others do not; a step of one side has no verdict."""
    base = cohort("base", stepscope_json([350.0] * 6))
    new = cohort("new", stepscope_json([350.0] * 4 + [500.0, 350.0, 350.0]))
    rows = compare(base, new).steps
    assert [row.verdict for row in rows[:6]] == [Verdict.NO_CHANGE] * 4 + [Verdict.WORSE, Verdict.NO_CHANGE]
    assert rows[6].verdict is Verdict.NO_VERDICT
    assert rows[6].reason == "only in the new runs"


def test_a_step_traced_on_one_side_has_no_verdict() -> None:
    """A profiler's cost is not a change of the pipeline."""
    traced = stepscope_json([350.0] * 3 + [480.0] * 3 + [350.0] * 3)
    for step in traced["denoise_steps_ms"][3:6]:
        step["traced"] = True
    result = compare(cohort("base", stepscope_json([350.0] * 9)), cohort("new", traced))
    assert result.steps[4].verdict is Verdict.NO_VERDICT
    assert result.step_median.verdict is Verdict.NO_CHANGE
    assert "traced no against yes" in unlike(result)


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"workload": {"height": 512}}, Severity.UNLIKE),
        ({"workload": {"model": "black-forest-labs/FLUX.1-dev"}}, Severity.UNLIKE),
        ({"environment": {"device_name": "NVIDIA H100"}}, Severity.UNLIKE),
        ({"workload": {"compile": "blocks"}}, Severity.SETTING),
        ({"workload": {"dtype": "float8"}}, Severity.SETTING),
        ({"environment": {"driver": "590.2"}}, Severity.SETTING),
        ({"environment": {"packages": {"torch": "2.12.0"}}}, Severity.SETTING),
        ({"environment": {"host": "b"}}, Severity.NOTE),
    ],
)
def test_what_differs_is_listed_by_gravity(change, severity) -> None:
    """Other work or another GPU is unlike; a flag or driver is a setting; a host name is a note."""
    document = stepscope_json([350.0] * 5)
    document["environment"]["host"] = "a"
    other = stepscope_json([350.0] * 5)
    other["environment"]["host"] = "a"
    for part, values in change.items():
        other[part] |= values
    found = compare(cohort("base", document), cohort("new", other)).differences
    assert [difference.severity for difference in found] == [severity]


def test_a_model_in_a_folder_is_the_model_of_that_name() -> None:
    """Qwen/Qwen-Image and /models/Qwen/Qwen-Image are one model."""
    other = stepscope_json([350.0] * 5)
    other["workload"]["model"] = other["meta"]["model"] = "/models/Qwen/Qwen-Image"
    assert compare(cohort("a", stepscope_json([350.0] * 5)), cohort("b", other)).differences == ()


def test_runs_unlike_within_a_side_are_seen() -> None:
    """A side that mixes two sizes is unlike the other even if one of its runs is not."""
    small = stepscope_json([350.0] * 5)
    small["workload"]["height"] = 512
    mixed = cohort("new", stepscope_json([350.0] * 5), small)
    assert unlike(compare(cohort("base", stepscope_json([350.0] * 5)), mixed)) == (
        "height 1024 against 1024 / 512",
    )


def test_dumps_without_environment_say_that_they_cannot_be_checked() -> None:
    """SGLang's dumps do not say what they ran on."""
    result = compare(cohort("a", sglang_json([350.0] * 5)), cohort("b", sglang_json([350.0] * 5)))
    assert sum("does not record its environment" in text for text in result.warnings) == 2


def test_untrusted_runs_get_no_verdict() -> None:
    """Enqueue times are not compared as if they were durations."""
    base = cohort("base", sglang_json([350.0] * 20))
    new = cohort("new", sglang_json([45.2, 107.1, *[128.0] * 18]))
    raw = compare(base, new)
    assert raw.total.verdict is Verdict.BETTER
    held = withhold_verdicts(raw, compare(new, base).new)
    assert held.total.verdict is Verdict.NO_VERDICT
    assert "enqueue" in held.total.reason
    assert {row.verdict for row in (*held.stages, *held.steps)} == {Verdict.NO_VERDICT}
    assert fails_above(held, 0.05) is not None
    noisy_pair = compare(noisy("b", 350.0, 3, seed=1, noise=0.1), noisy("n", 350.0, 3, seed=2, noise=0.1))
    assert any("would tell" in text for text in noisy_pair.warnings)
    untrusted = withhold_verdicts(noisy_pair, held.new)
    assert not any("would tell" in text for text in untrusted.warnings)
    honest = compare(base, base)
    assert withhold_verdicts(honest, honest.new) == honest


def test_failing_above_a_limit() -> None:
    """A single run is held to the limit itself; repeated runs must be slower beyond noise as well."""
    base = cohort("base", stepscope_json([350.0] * 10))
    single = compare(base, cohort("new", stepscope_json([354.0] * 10)))
    assert fails_above(single, 0.05) is None
    assert "1.1 %" in (fails_above(single, 0.01) or "")
    wild = compare(noisy("b", 350.0, 3, seed=1, noise=0.2), noisy("n", 370.0, 3, seed=5, noise=0.2))
    assert wild.total.verdict is Verdict.CANNOT_TELL
    assert fails_above(wild, 0.0) is None
    faster = compare(base, cohort("new", stepscope_json([300.0] * 10)))
    assert fails_above(faster, 0.0) is None


def test_random_weights_are_stamped() -> None:
    """Results on dummy weights say so."""
    document = stepscope_json([350.0] * 5)
    document["workload"]["load_format"] = "dummy"
    assert compare(cohort("a", document), cohort("b", document)).random_weights


TEMPLATE = replace(cohort("x", stepscope_json([])).runs[0], stages={}, steps={})


def totals(values) -> Cohort:
    return Cohort(label="x", runs=tuple(replace(TEMPLATE, total_ms=float(value)) for value in values))


def test_null_experiment_small() -> None:
    """A/A pairs change in at most 5 %, a 3 % slowdown in 1 % noise and five runs is found in 95 % (seeded).

    benchmarks/null_experiment.py is the large one; of these 400 pairs 3.4 % and 96.7 % are expected.
    """
    generator = np.random.default_rng(20261130)
    noise = np.asarray(json.loads((DATA.parent / "measured_noise.json").read_text()))

    def measured():
        return totals(1000 * generator.choice(noise, 5))

    def normal(mean_ms):
        return totals(mean_ms * generator.normal(1.0, 0.01, 5))

    def changed(pairs):
        return sum(compare(*pair).total.verdict in (Verdict.BETTER, Verdict.WORSE) for pair in pairs)

    assert changed((measured(), measured()) for _ in range(400)) <= 20
    assert changed((normal(1000), normal(1000)) for _ in range(400)) <= 20
    planted = [compare(normal(1000), normal(1030)).total.verdict for _ in range(400)]
    assert planted.count(Verdict.WORSE) >= 380


def test_rows_below_the_first_are_corrected_for_their_number() -> None:
    """In A/A pairs any false 'changed' among 50 step rows is as rare as the end-to-end one."""
    generator = np.random.default_rng(7)

    def side():
        return Cohort(label="x", runs=tuple(
            replace(TEMPLATE, steps={i: float(ms) for i, ms in enumerate(generator.normal(100, 2, 50))})
            for _ in range(5)
        ))  # fmt: skip

    wrong = sum(
        any(row.verdict in (Verdict.BETTER, Verdict.WORSE) for row in compare(side(), side()).steps)
        for _ in range(100)
    )
    assert wrong <= 6


def test_a_row_that_only_the_correction_holds_back_says_so() -> None:
    """Its interval leaves out zero, which beside a bare 'within noise' reads as a contradiction."""
    rows = [each for each in _pairs_of_steps() if each.interval and each.interval[0] * each.interval[1] > 0]
    held = [row for row in rows if row.verdict is Verdict.NO_CHANGE]
    assert held
    for row in held:
        assert re.fullmatch(r"p = \S+ corrected for 50 rows, 0.02 asked; the interval .* alone", row.reason)


def test_a_p_value_that_looks_small_has_the_level_beside_it() -> None:
    """At 0.04 a p-value of 0.046 rejects nothing: the row says what was asked."""
    new = replace(TEMPLATE, total_ms=1.0)
    sides = [[100.0, 101.0, 99.0, 100.5, 99.5], [101.1, 102.1, 99.9, 101.6, 100.6]]
    base, later = (
        Cohort(label="x", runs=tuple(replace(new, total_ms=ms) for ms in values)) for values in sides
    )
    total = compare(base, later).total
    assert total.p_value is not None
    assert ALPHA <= total.p_value < 0.1
    assert total.reason == f"within noise: p = {total.p_value:.2g}, 0.04 asked; 2 % is not excluded"


def _pairs_of_steps():
    generator = np.random.default_rng(7)
    base, new = (
        Cohort(label="x", runs=tuple(
            replace(TEMPLATE, steps={i: float(ms) for i, ms in enumerate(generator.normal(mean, 2, 50))})
            for _ in range(5)
        ))
        for mean in (100, 103)
    )  # fmt: skip
    return compare(base, new).steps


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_is_ordered_and_never_smaller(p_values) -> None:
    """Corrected p-values are no smaller than the raw ones, at most 1, and keep the order."""
    corrected = holm(p_values)
    assert all(0 <= raw <= new <= 1 for raw, new in zip(p_values, corrected, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [corrected[i] for i in order] == sorted(corrected)


def test_holm_by_hand() -> None:
    """Holm's own procedure on four values."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_a_failed_test_is_an_error() -> None:
    """One value or a value that is not finite is never 'significant'."""
    one, two = sample_of([1.0]), sample_of([1.0, float("nan")])
    with pytest.raises(ValueError, match="finite"):
        welch(one, sample_of([1.0, 2.0]))
    with pytest.raises(ValueError, match="finite"):
        welch(two, sample_of([1.0, 2.0]))
