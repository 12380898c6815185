"""Every kind of step cache of diffusers: the work of each step against what attention really computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    FasterCacheConfig,
    FirstBlockCacheConfig,
    MagCacheConfig,
    PyramidAttentionBroadcastConfig,
    TaylorSeerCacheConfig,
)
from diffusers.models.transformers import transformer_flux

import pipelines
from observing import observe
from stepscope.analyse.run.step_cache import use_of, work_of
from stepscope.capture.wrapping import installed_count
from stepscope.model.recording import CachedForward
from stepscope.model.run import Run
from stepscope.model.vocabulary import StepWork

COMPUTED, PARTLY, SKIPPED = StepWork.COMPUTED, StepWork.PARTLY_COMPUTED, StepWork.SKIPPED
BLOCKS = 5
STEPS = 6


@pytest.fixture(scope="module")
def flux() -> Any:
    """FluxPipeline with three double and two single blocks."""
    pipeline = pipelines.flux()
    torch.manual_seed(0)
    config = {**pipeline.transformer.config, "num_layers": 3, "num_single_layers": 2}
    pipeline.transformer = transformer_flux.FluxTransformer2DModel.from_config(config).eval()
    return pipeline


@contextmanager
def cached(pipeline: Any, config: Any) -> Iterator[None]:
    pipeline.transformer.enable_cache(config)
    try:
        yield
    finally:
        pipeline.transformer.disable_cache()


def call(pipeline: Any) -> Any:
    return pipelines.flux_call(pipeline, STEPS)


def attention_calls(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]
) -> tuple[list[int], Any]:
    """How many attention layers really computed in each step, counted where they compute."""
    counts: list[int] = []
    attend, step = transformer_flux.FluxAttnProcessor.__call__, type(pipeline.scheduler).step
    count = [0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return attend(*args, **kwargs)

    def stepped(*args: Any, **kwargs: Any) -> Any:
        counts.append(count[0])
        count[0] = 0
        return step(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(transformer_flux.FluxAttnProcessor, "__call__", counted)
        patched.setattr(type(pipeline.scheduler), "step", stepped)
        result = work()
    return counts, result


def works(run: Run) -> list[StepWork]:
    assert [[forward.work for forward in step.forwards] for step in run.steps] == [
        [step.work] for step in run.steps
    ]
    return [step.work for step in run.steps]


def told_by(counts: list[int], *, blocks: bool) -> list[StepWork]:
    """What the truth of the attention layers means, where a cache skips whole blocks or attention only."""
    none = SKIPPED if blocks else PARTLY
    return [COMPUTED if count == BLOCKS else PARTLY if count else none for count in counts]


CACHES = {
    "first block": (lambda _: FirstBlockCacheConfig(threshold=1e9), True, [COMPUTED] + [PARTLY] * 5),
    "first block, never": (lambda _: FirstBlockCacheConfig(threshold=-1.0), True, [COMPUTED] * 6),
    "magnitude": (
        lambda _: MagCacheConfig(
            threshold=1e9,
            max_skip_steps=2,
            retention_ratio=0.0,
            num_inference_steps=STEPS,
            mag_ratios=[1.0] * STEPS,
        ),
        True,
        [COMPUTED, SKIPPED, SKIPPED, COMPUTED, SKIPPED, SKIPPED],
    ),
    "Taylor, whole blocks": (
        lambda _: TaylorSeerCacheConfig(cache_interval=2, disable_cache_before_step=2, use_lite_mode=True),
        True,
        None,
    ),
    "Taylor, attention": (
        lambda _: TaylorSeerCacheConfig(
            cache_interval=3,
            disable_cache_before_step=1,
            cache_identifiers=[r"transformer_blocks\.\d+\.attn", r"single_transformer_blocks\.\d+\.attn"],
        ),
        False,
        None,
    ),
    "attention broadcast": (
        lambda pipeline: PyramidAttentionBroadcastConfig(
            spatial_attention_block_skip_range=2,
            spatial_attention_timestep_skip_range=(0, 1000),
            current_timestep_callback=lambda: pipeline._current_timestep,
        ),
        False,
        None,
    ),
    "faster": (
        lambda pipeline: FasterCacheConfig(
            spatial_attention_block_skip_range=2,
            spatial_attention_timestep_skip_range=(-1, 901),
            attention_weight_callback=lambda _: 0.5,
            is_guidance_distilled=True,
            current_timestep_callback=lambda: pipeline._current_timestep,
            tensor_format="BCHW",
        ),
        False,
        None,
    ),
}


@pytest.mark.parametrize("name", list(CACHES))
def test_steps_say_what_the_cache_did(flux: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each step's work is what its attention layers did, the picture is the cache's, nothing stays."""
    make, blocks, expected = CACHES[name]
    with cached(flux, make(flux)):
        counts, plain = attention_calls(flux, monkeypatch, lambda: call(flux))
        observed = observe(flux, lambda: call(flux))
        again = call(flux)

    assert np.array_equal(observed.result, plain)
    assert np.array_equal(again, plain)
    assert works(observed.run) == told_by(counts, blocks=blocks)
    if expected is not None:
        assert works(observed.run) == expected
    assert observed.run.engaged.cached_steps == sum(count != BLOCKS for count in counts)
    assert len(set(counts)) > 1 or name == "first block, never"
    assert installed_count() == 0


def test_the_first_block_cache_agrees_with_its_own_state(flux: Any) -> None:
    """A threshold that some steps pass: the decisions that its shared state holds are those in the run."""
    decisions = []

    def callback(pipeline: Any, _index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        registry = pipeline.transformer.transformer_blocks[0]._diffusers_hook
        (hook,) = registry.hooks.values()
        decisions.append(hook.state_manager._state_cache["cond"].should_compute)
        return {}

    generator = torch.Generator().manual_seed(0)
    with cached(flux, FirstBlockCacheConfig(threshold=0.05)):
        run = observe(
            flux,
            lambda: flux(
                "a cat",
                height=8,
                width=8,
                num_inference_steps=12,
                generator=generator,
                max_sequence_length=16,
                callback_on_step_end=callback,
                output_type="np",
            ),
        ).run

    assert works(run) == [COMPUTED if computed else PARTLY for computed in decisions]


def test_without_a_cache_nothing_is_said(flux: Any) -> None:
    """Every step is computed; how many steps were cached is not known."""
    run = observe(flux, lambda: call(flux)).run

    assert works(run) == [COMPUTED] * STEPS
    assert run.engaged.cached_steps is None


def test_forwards_carry_the_name_that_the_pipeline_gives_them(flux: Any) -> None:
    """True CFG makes two forwards a step; diffusers tells its caches which is which."""
    generator = torch.Generator().manual_seed(0)
    run = observe(
        flux,
        lambda: flux(
            "a cat",
            negative_prompt="a dog",
            true_cfg_scale=2.0,
            height=8,
            width=8,
            num_inference_steps=2,
            generator=generator,
            max_sequence_length=16,
            output_type="np",
        ),
    ).run

    assert [[forward.label for forward in step.forwards] for step in run.steps] == [["cond", "uncond"]] * 2


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (CachedForward(blocks=4, of_blocks=4, cached=None, parts=4, of_parts=4), COMPUTED),
        (CachedForward(blocks=4, of_blocks=4, cached=None, parts=0, of_parts=4), PARTLY),
        (CachedForward(blocks=1, of_blocks=4, cached=True, parts=1, of_parts=4), PARTLY),
        (CachedForward(blocks=0, of_blocks=4, cached=True, parts=0, of_parts=4), SKIPPED),
        (CachedForward(blocks=4, of_blocks=4, cached=None, reduced=True), PARTLY),
        (CachedForward(blocks=0, of_blocks=0, cached=None, parts=1, of_parts=2), PARTLY),
        (CachedForward(blocks=0, of_blocks=0, cached=True), PARTLY),
        (CachedForward(blocks=0, of_blocks=0, cached=None), COMPUTED),
    ],
)
def test_work_of_a_forward(seen: CachedForward, expected: StepWork) -> None:
    """All blocks with all their parts for the whole batch are computed; no block at all is skipped."""
    assert work_of(seen) is expected


def test_a_cache_inside_blocks_has_no_theoretical_speedup(flux: Any) -> None:
    """All blocks ran: what their attention would have cost is not known from counting blocks."""
    seen = [CachedForward(blocks=5, of_blocks=5, cached=None, parts=parts, of_parts=5) for parts in (5, 0, 5)]
    run = observe(flux, lambda: call(flux)).run

    told = use_of("PyramidAttentionBroadcast", run.steps, seen)

    assert told is not None
    assert told.theoretical_speedup is None
