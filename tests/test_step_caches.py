"""Step caches on a real tiny pipeline: what was computed, by the blocks and by the cache's own word."""

from __future__ import annotations

import pytest

from stepscope.model.run import Environment, Workload
from stepscope.model.vocabulary import StepWork
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call

torch = pytest.importorskip("torch")

STEPS = 6


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
    assert seen.cache is None


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
    assert seen.cache is not None
    assert seen.cache.cached_steps == (1, 2, 3, 4, 5)
    assert seen.cache.theoretical_speedup == pytest.approx(STEPS * 4 / (4 + (STEPS - 1)))
