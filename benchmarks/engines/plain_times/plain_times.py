"""A plugin that only takes times, with nothing of stepscope in it: the third opinion in the tables.

It wraps the same methods of the engines as anybody would, reads ``time.perf_counter`` before and after, and
writes a list at the end of each request into the folder PLAIN_TIMES.
"""

import functools
import json
import os
import time
from pathlib import Path

from tqdm.auto import tqdm

TIMES = []
WRAPPED = set()


def sglang():
    """SGLang calls this in the parent and in the spawned worker."""
    if "PLAIN_TIMES" not in os.environ:
        return
    import torch
    from sglang.multimodal_gen.runtime.platforms.plugins import HookRegistry, HookType

    base = "sglang.multimodal_gen.runtime.pipelines_core"
    HookRegistry.register(f"{base}.stages.base.PipelineStage.__call__", stage, HookType.AROUND)
    HookRegistry.register(
        f"{base}.stages.denoising.DenoisingStage._run_denoising_step", step, HookType.AROUND
    )
    HookRegistry.register(
        f"{base}.executors.pipeline_executor.PipelineExecutor.execute_with_profiling",
        request,
        HookType.AROUND,
    )
    own = base.replace("pipelines_core", "utils.profiler.SGLDiffusionProfiler")
    for name in ("__init__", "_step", "stop"):
        HookRegistry.register(f"{own}.{name}", profiler, HookType.AROUND)
    for name in ("start", "step", "stop", "export_chrome_trace"):
        wrap(torch.profiler.profile, name, "profiler")


def stage(original, self, *args, **kwargs):
    return timed("stage", self._active_profile_stage_name(), original, self, *args, **kwargs)


def step(original, self, ctx, step_state, *args, **kwargs):
    wrap(tqdm, "update", "progress")
    wrap(type(ctx.scheduler), "step", "scheduler")
    return timed("step", step_state.step_index, original, self, ctx, step_state, *args, **kwargs)


def profiler(original, self, *args, **kwargs):
    return timed("profiler", None, original, self, *args, **kwargs)


def request(original, self, stages, batch, *args, **kwargs):
    TIMES.clear()
    result = timed("request", batch.request_id, original, self, stages, batch, *args, **kwargs)
    write(batch.request_id)
    return result


def vllm_omni():
    """vLLM-Omni calls this in every process."""
    if "PLAIN_TIMES" not in os.environ:
        return
    from vllm_omni.diffusion.distributed.cfg_parallel import CFGParallelMixin
    from vllm_omni.diffusion.worker.diffusion_model_runner import DiffusionModelRunner

    wrap(CFGParallelMixin, "predict_noise_maybe_with_cfg", "predict")
    wrap(CFGParallelMixin, "scheduler_step_maybe_with_cfg", "scheduler")
    for name in ("execute_model", "execute_stepwise"):
        wrap(DiffusionModelRunner, name, "call", before=wrap_parts, after=lambda: write("vllm_omni"))


def wrap_parts(runner):
    """What lies before and behind the denoising loop is a matter of the model's own parts."""
    wrap(tqdm, "update", "progress")
    wrap(type(runner.pipeline.scheduler), "set_timesteps", "timesteps")
    wrap(type(runner.pipeline.vae), "decode", "decode")


def wrap(owner, name, kind, *, before=lambda _: None, after=lambda: None):
    """Once for each method."""
    if (owner, name) in WRAPPED:
        return
    WRAPPED.add((owner, name))
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self, *args, **kwargs):
        before(self)
        result = timed(kind, None, original, self, *args, **kwargs)
        after()
        return result

    setattr(owner, name, wrapper)


def timed(kind, name, original, *args, **kwargs):
    begin = time.perf_counter()
    try:
        return original(*args, **kwargs)
    finally:
        TIMES.append((kind, name, begin, time.perf_counter()))


def write(name):
    folder = Path(os.environ["PLAIN_TIMES"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{time.time_ns()}-{name}-{os.getpid()}.json").write_text(json.dumps(TIMES))
