"""Step caches on a real tiny pipeline: what was computed, by the blocks and by the cache's own word."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.step_cache import use_of
from stepscope.model.recording import CachedForward
from stepscope.model.run import Environment, Segment, Span, StepCacheUse, StepRun, Workload
from stepscope.model.vocabulary import StepWork
from stepscope.record.perf_dump import write_dump
from stepscope.record.run_record import write_run
from stepscope.render.report.answer import answer, cache_sentence
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call
from stepscope.session.report import report_files

torch = pytest.importorskip("torch")

STEPS = 6
FULL, PART = StepWork.COMPUTED, StepWork.PARTLY_COMPUTED


@pytest.fixture
def pipeline():
    from stepscope.workload.dummy import build_pipeline
    from stepscope.workload.presets.qwen_image import TINY_QWEN_IMAGE

    cpu = torch.device("cpu")
    dtypes = dict.fromkeys(TINY_QWEN_IMAGE.components, torch.float32)
    built = build_pipeline(TINY_QWEN_IMAGE, draw_on=cpu, keep_on=cpu, dtypes=dtypes, seed=0)
    built.set_progress_bar_config(disable=True)
    return built


def observed(pipeline) -> ObservedCall:
    def call():
        return pipeline(
            prompt="a logo",
            negative_prompt="x",
            true_cfg_scale=4.0,
            height=32,
            width=32,
            num_inference_steps=STEPS,
            generator=torch.Generator().manual_seed(0),
            output_type="latent",
        )

    return observe_call(
        pipeline,
        call,
        request_id="cached",
        workload=Workload(model="tiny", pipeline_class="QwenImagePipeline"),
        environment=Environment(stepscope="", python="", platform="", host=""),
        options=ObserveOptions(own_process=True),
    )


def test_without_a_cache_nothing_is_said(pipeline) -> None:
    """No cache mounted: every step computed, no count of cached steps."""
    seen = observed(pipeline)
    assert {step.work for step in seen.run.steps} == {StepWork.COMPUTED}
    assert seen.run.engaged.cached_steps is None
    assert seen.run.step_cache is None
    assert reconcile(seen.run).step_cache is None


def test_first_block_cache_skips_all_but_the_first_block(pipeline) -> None:
    """A threshold that all pass: step 0 is computed, the others in part, as the cache's state says."""
    from diffusers.hooks import FirstBlockCacheConfig, apply_first_block_cache

    apply_first_block_cache(pipeline.transformer, FirstBlockCacheConfig(threshold=1e9))
    seen = observed(pipeline)
    assert seen.error is None
    work = [step.work for step in seen.run.steps]
    assert work == [StepWork.COMPUTED, *[StepWork.PARTLY_COMPUTED] * (STEPS - 1)]
    assert seen.run.engaged.cached_steps == STEPS - 1
    assert not [line for line in seen.run.warnings if "step cache's own word" in line]
    assert seen.run.step_cache == StepCacheUse(
        name="FirstBlockCache",
        cached_steps=(1, 2, 3, 4, 5),
        theoretical_speedup=pytest.approx(STEPS * 4 / (4 + (STEPS - 1))),
        effective_speedup=None,  # no step after step 0 was computed: nothing to compare with
    )


def test_the_dump_and_the_report_tell_what_a_cache_was_worth(pipeline, tmp_path) -> None:
    """Both speed-ups stand in the written dump, and ``report`` says them of dump and run record."""
    from diffusers.hooks import FirstBlockCacheConfig, apply_first_block_cache

    apply_first_block_cache(pipeline.transformer, FirstBlockCacheConfig(threshold=1e9))
    run = observed(pipeline).run
    expected = (
        "FirstBlockCache, 5 of 6 steps from it; effective speed-up unknown (no step after step 0 was fully"
        " computed), theoretical 2.67 by blocks"
    )
    paths = (write_dump(reconcile(run), tmp_path / "perf.json"), write_run(run, tmp_path / "run.json"))
    written = json.loads(paths[0].read_text())["step_cache"]
    assert (written["name"], written["effective_speedup"]) == ("FirstBlockCache", None)
    for path in paths:
        report = report_files([path]).report
        assert [line.text for line in answer(report).lines if line.label == "Cache"] == [expected]
        for shown in (render_terminal(report, 80), render_markdown(report), render_html(report)):
            assert "theoretical 2.67 by blocks" in " ".join(shown.split())


def test_the_effective_speedup_is_of_untraced_steps_after_the_first() -> None:
    """A computed step takes 100 ms; step 0, which warms up, and a traced one do not count."""
    times = ((900, FULL), (100, FULL), (40, PART), (100, FULL), (40, PART), (20, PART))
    steps = [step(index, ms, work) for index, (ms, work) in enumerate(times)]
    steps.append(replace(step(6, 5000, FULL), traced=True))
    use = use_of("cache-dit", steps, [CachedForward(blocks=1, of_blocks=2, cached=True)])
    assert use is not None
    assert use.effective_speedup == pytest.approx(5 * 100 / 300)
    assert cache_sentence(use, 7) == (
        "cache-dit, 3 of 7 steps from it; effective speed-up 1.67, theoretical 2.00 by blocks"
    )


def step(index: int, duration_ms: int, work: StepWork) -> StepRun:
    segment = Segment(host_start_ns=0, host_end_ns=duration_ms * 1_000_000)
    span = Span(name=f"step {index}", segments=(segment,))
    return StepRun(index=index, stage_index=0, span=span, work=work)
