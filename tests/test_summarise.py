"""A dump's numbers reconciled: what is published and wrong is called untrusted, what is right is not."""

from typing import Any

import pytest

from dumps import DATA, sglang_json, stepscope_json
from stepscope.analyse.results import RunSummary
from stepscope.analyse.run.summarise import flatten, summarise
from stepscope.record.perf_dump_reader import perf_dump_from_json, read_perf_dump
from stepscope.render.report.answer import steps_sentence, total_sentence
from stepscope.render.report.run_tables import not_in_stages, run_steps


def summary_of(document: dict[str, Any]) -> RunSummary:
    return summarise(perf_dump_from_json(document, origin="test"))


ENQUEUE = {
    "sglang #15537": [904.15, 31.58, 86.27, *[88.0] * 47],
    "sglang #22365": [45.2, 107.1, *[128.0] * 48],
    "sglang h100 flux": [30.2, 53.9, *[128.0, 139.0] * 24],
    "sglang h100 flux_2": [65.0, 129.0, *[440.0] * 48],
    "sglang #16219": [128.0, *[374.5] * 49],
}


@pytest.mark.parametrize("name", ENQUEUE)
def test_published_enqueue_times_are_untrusted(name) -> None:
    """Published dumps whose first steps are enqueue times are recognised, with the reason."""
    trust = summary_of(sglang_json(ENQUEUE[name])).trust
    assert not trust.ok
    assert any("enqueue" in reason for reason in trust.reasons)


@pytest.mark.parametrize(("steps_ms", "stage_ms"), [(135.0, 2518.0), (1842.0, 55237.0), (4442.0, 114602.0)])
def test_steps_far_below_their_stage_are_untrusted(steps_ms, stage_ms) -> None:
    """SGLang #39956 on XPU: steps 18 to 30 times too small against DenoisingStage."""
    trust = summary_of(sglang_json([steps_ms / 20] * 20, denoise_ms=stage_ms, decode_ms=400)).trust
    assert not trust.ok
    assert f"{stage_ms / steps_ms:.1f} times" in trust.reasons[0]


@pytest.mark.parametrize(("decode_ms", "step_ms"), [(6.0, 369.5), (0.0, 44.0)])
def test_an_invisible_decode_is_untrusted(decode_ms, step_ms) -> None:
    """FLUX.2's DecodingStage of 0.006 s and the SDXL card's decode of 0.00 ms."""
    trust = summary_of(sglang_json([step_ms] * 40, decode_ms=decode_ms)).trust
    assert any("next to nothing" in reason for reason in trust.reasons)


def test_engine_dump_with_the_profiler_inside_is_untrusted() -> None:
    """SGLang's dump of a profiled run holds the profiler's stop and export in steps 4 and 5."""
    summary = summarise(read_perf_dump(DATA / "sglang_cpu_asked_3.perf.json"))
    assert not summary.trust.ok
    assert "profiler" in summary.trust.reasons[0]
    assert "step 4" in summary.trust.reasons[0]
    assert "step 5" in summary.trust.reasons[0]
    assert [step.index for step in summary.steps if step.outlier] == [4, 5]


def test_engine_dump_without_a_profiler_is_fine() -> None:
    """The same run untraced agrees with itself."""
    summary = summarise(read_perf_dump(DATA / "sglang_cpu_untraced.perf.json"), path="p.json")
    assert summary.trust.ok
    assert summary.producer == "sglang"
    assert summary.dominant_stage == "DecodingStage"
    assert summary.unaccounted_ms == pytest.approx(4.26, abs=0.01)
    assert summary.path == "p.json"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_ms": 1000.0}, "more than the total"),
        ({"total_ms": 9000.0}, "in no stage"),
        ({"total_ms": 9000.0}, "loses all but the last of a stage that occurs several times"),
        ({"total_ms": 3890.0}, "in no stage"),  # 2.8 %: design, rules of truth 2
        ({"denoise_ms": 2000.0}, "more than the denoising stage"),
        ({"total_ms": 0.0}, "missing or zero"),
        ({"decode_ms": -3.0}, "impossible"),
    ],
)
def test_contradictions_are_named(changes, words) -> None:
    """Stages beyond the total, time in no stage, steps beyond their stage, no total, negative times."""
    trust = summary_of(sglang_json([350.0] * 10, **changes)).trust
    assert not trust.ok
    assert any(words in reason for reason in trust.reasons)


def test_a_recorders_own_doubt_is_kept() -> None:
    """What the recorder said of its clock stands first among the reasons."""
    document = stepscope_json(
        [350.0] * 10, trust={"ok": False, "reasons": ["the clock failed its self-test"]}
    )
    assert summary_of(document).trust.reasons == ("the clock failed its self-test",)


def test_a_steady_warm_up_and_compilation_in_the_first_step_exclude_each_other() -> None:
    """No cause is guessed that the run's own warm-up has ruled out."""
    steps = [900.0, *[350.0] * 9]
    guessed = summary_of(stepscope_json(steps)).steps[0].outlier or ""
    steady = summary_of(stepscope_json(steps, warmup={"requests": 1, "steady": True})).steps[0].outlier or ""
    assert "compilation" in guessed
    assert "compilation" not in steady
    assert "the warm-up was steady" in steady


@pytest.mark.parametrize(
    ("steps", "uniform", "decided", "odd"),
    [
        ([350.0] * 9 + [360.0], True, "spread 0.3 % of at most 10 %", 9),
        ([300.0, 350.0] * 5, False, "spread 15.4 %, above 10 %", 0),
        ([350.0] * 18 + [40.0], False, "step 18 is below 0.6x the median", 18),
        ([350.0] * 18 + [700.0], False, "step 18 is above 1.5x the median", 18),
    ],
    ids=["uniform", "spread", "one fast", "one slow"],
)
def test_one_rule_says_what_uniform_is_and_names_the_step_that_is_odd(
    steps: list[float], uniform: bool, decided: str, odd: int
) -> None:
    """The number that decides, beside its limit; the odd step may be a fast one."""
    statistics = summary_of(stepscope_json(steps)).step_statistics
    assert statistics is not None
    assert (statistics.uniform, statistics.decided_by, statistics.odd) == (uniform, decided, odd)
    said = steps_sentence(statistics, ())
    assert decided in said
    assert f"is step {odd} " in said


def test_what_a_profiler_was_in_is_said_of_the_total() -> None:
    """Steps under it are in the total, and so is what it cost them; who asked for 5 sees why they are 6."""
    document = stepscope_json([350.0] * 10)
    for step in document["denoise_steps_ms"][1:4]:
        step["traced"] = True
    summary = summary_of(document)
    assert summary.traced_ms == pytest.approx(1050)
    assert "1,050.0 ms of it in 3 steps under the profiler, with its overhead" in total_sentence(summary)
    document["denoise_steps_ms"][0] |= {"traced": True, "profiler_warmup": True}
    said = total_sentence(summary_of(document))
    assert "1,400.0 ms of it in 4 steps under the profiler (step 0 warms it up), with its overhead" in said
    assert "profiler" not in total_sentence(summary_of(stepscope_json([350.0] * 10)))


def test_the_only_step_is_not_called_the_profilers_warm_up() -> None:
    """A one-step run records step 0, which is all there is."""
    document = stepscope_json([350.0])
    document["denoise_steps_ms"][0] |= {"traced": True, "profiler_warmup": True}
    assert "350.0 ms of it in 1 step under the profiler, with its" in total_sentence(summary_of(document))


@pytest.mark.parametrize(
    ("warmup", "ratio"),
    [
        ({"last_step_ns": 20_000_000, "last_step_forwards": 2}, 1.5),
        ({"last_step_ns": 20_000_000, "last_step_forwards": 1}, None),  # a step of another kind
        ({"last_step_ns": 0, "last_step_forwards": 2}, None),
        ({"last_step_ns": "20", "last_step_forwards": 2}, None),
        ({}, None),
    ],
)
def test_traced_steps_are_held_against_the_warm_up(warmup: dict[str, object], ratio: float | None) -> None:
    """What tracing cost in this very run; the step in which the profiler started does not count."""
    times = [(90.0, True, True), (30.0, True, False), (31.0, True, False), (28.0, True, False)]
    document = stepscope_json([20.0] * 5) | {"warmup": warmup}
    for step, (ms, traced, starting) in zip(document["denoise_steps_ms"], times, strict=False):
        step |= {"duration_ms": ms, "traced": traced, "profiler_warmup": starting}
    for step in document["denoise_steps_ms"]:
        step["forwards"] = [{"component": "transformer", "duration_ms": 1.0}] * 2

    assert summary_of(document).traced_over_warmup == ratio


def test_shares_sum_to_the_whole() -> None:
    """What is in no stage, and weights moved, are rows of their own."""
    summary = summary_of(sglang_json([350.0] * 10, total_ms=4000.0))
    shares = [stage.share for stage in summary.stages] + [row.share for row in not_in_stages(summary)]
    assert sum(shares) == pytest.approx(1.0, abs=0.002)
    assert [row.name for row in not_in_stages(summary)] == ["(in no stage)"]


def two_loops(first, second) -> dict[str, Any]:
    """SGLang's LTX-2: a denoising stage and a refinement stage, their steps one after the other."""
    document = sglang_json([*first, *second], denoise_ms=sum(first), total_ms=280 + sum([*first, *second]))
    document["steps"].insert(2, {"name": "LTX2RefinementStage", "duration_ms": sum(second)})
    return document


GOOD = {
    "uniform": sglang_json([350.0] * 10),
    "compiled in the first step": sglang_json([25_000.0, *[271.0] * 19]),
    "few steps": sglang_json([300.0, 310.0, 305.0, 302.0], decode_ms=600),
    "one step": sglang_json([300.0]),
    "no steps": sglang_json([], denoise_ms=300.0),
    "cached steps further on": sglang_json([350.0] * 4 + [40.0, 350.0] * 8),
    "device events, short first step": stepscope_json([90.0, *[350.0] * 19]),
    "device events, weights moved in step 6": stepscope_json([350.0] * 6 + [4000.0] + [350.0] * 6),
    "a refinement of two long steps": two_loops([50.0] * 8, [400.0] * 2),
    "a draft of two short steps": two_loops([50.0] * 2, [200.0] * 8),
    "a fast decoder": stepscope_json([350.0] * 10, decode_ms=5.0),
}


@pytest.mark.parametrize("name", GOOD)
def test_honest_dumps_are_trusted(name) -> None:
    """Slow first steps, caches, expert switches under device events, fast decoders: no contradiction."""
    assert summary_of(GOOD[name]).trust.reasons == ()


def test_ours_with_a_huge_step_right_after_the_traced_ones_is_untrusted() -> None:
    """A pause that was not taken out of the steps is seen whoever recorded it."""
    document = stepscope_json([350.0] * 4 + [3000.0] + [350.0] * 5)
    for step in document["denoise_steps_ms"][1:4]:
        step["traced"] = True
    assert any("profiler" in reason for reason in summary_of(document).trust.reasons)


def test_guidance_that_begins_late_is_no_enqueue_time() -> None:
    """Without a known clock, fewer forwards explain short first steps."""
    document = stepscope_json([175.0, 175.0, *[350.0] * 18], clock=None)
    for step in document["denoise_steps_ms"][2:]:
        step["forwards"] = step["forwards"] * 2
    summary = summary_of(document)
    assert summary.trust.ok
    assert summary.steps[0].outlier == "1 denoiser forwards, 2 in most steps"


def test_the_step_after_the_profiler_is_no_measure_of_the_others() -> None:
    """It begins on a drained device; it is judged only where too few are left without it."""
    document = stepscope_json([400.0, 500.0, 460.0, 352.0, 351.0, 353.0])
    document["denoise_steps_ms"][0] |= {"traced": True, "profiler_warmup": True}
    document["denoise_steps_ms"][1] |= {"traced": True}
    statistics = summary_of(document).step_statistics
    assert statistics is not None
    assert statistics.basis == "the 3 untraced steps, without the one right after the profiler"
    assert (statistics.slowest, statistics.uniform) == (5, True)
    document["denoise_steps_ms"][2]["duration_ms"] = 700.0
    summary = summary_of(document)
    assert summary.steps[2].outlier == "the first after the profiler had stopped"


def test_statistics_leave_out_cached_and_traced_steps() -> None:
    """Median and spread are those of computed, untraced steps, and the basis says so."""
    document = stepscope_json([400.0, 500.0, 350.0, 352.0, 351.0, 30.0])
    document["denoise_steps_ms"][0] |= {"traced": True, "profiler_warmup": True}
    document["denoise_steps_ms"][1] |= {"traced": True}
    document["denoise_steps_ms"][5] |= {"work": "skipped"}
    summary = summary_of(document)
    assert summary.step_statistics is not None
    assert summary.step_statistics.median_ms == 351.0
    assert summary.step_statistics.basis == "the 3 computed, untraced steps"
    assert summary.step_statistics.uniform
    assert summary.steps[5].outlier == "skipped (cache)"


def test_how_far_a_step_is_from_the_median_is_said_once() -> None:
    """The sentence has the ratio before the cause; the table, which has no other ratio, with it."""
    summary = summary_of(stepscope_json([61.0, 61.0, 173.2, 61.0, 61.0]))
    said = steps_sentence(summary.step_statistics, summary.steps)
    assert said.count("2.84") == 1
    assert said.count("the median") == 1
    assert "slowest is step 2 with 173.2 ms (2.84x the median): cause not recorded" in said
    assert run_steps(summary).rows[2][-1] == "2.84x the median: cause not recorded"


def test_stages_of_one_name_are_kept_and_the_dominant_one_is_by_name() -> None:
    """Two denoising stages stay two rows; dominance sums them."""
    document = stepscope_json([10.0] * 4, encode_ms=30.0, decode_ms=5.0)
    document["stages"] = [
        {"name": name, "stage_index": index, "duration_ms": ms}
        for index, (name, ms) in enumerate(
            [
                ("TextEncodingStage", 30.0),
                ("DenoisingStage", 20.0),
                ("DenoisingStage", 20.0),
                ("DecodingStage", 5.0),
            ]
        )
    ]
    for step, index in zip(document["denoise_steps_ms"], [1, 1, 2, 2], strict=True):
        step["stage_index"] = index
    summary = summary_of(document)
    assert len(summary.stages) == 4
    assert summary.dominant_stage == "DenoisingStage"
    assert summary.trust.ok


def test_environment_and_memory_are_flat_for_tables() -> None:
    """Nested environment becomes dotted keys, memory the highest peak in bytes."""
    summary = summary_of(stepscope_json([350.0] * 10))
    assert ("packages.torch", "2.11.0") in summary.environment
    assert ("clock", "device_events") in summary.environment
    assert ("height", "1024") in summary.workload
    assert summary.peak_memory_bytes == 49152 * 1024**2
    assert flatten({"a": {"b": [1, 2]}, "c": None, "d": True, "e": 4.0}) == (
        ("a.b", "1, 2"), ("d", "yes"), ("e", "4"),
    )  # fmt: skip
