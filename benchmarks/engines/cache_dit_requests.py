"""cache-dit on diffusers: each run's cached steps as the cache reports them and as stepscope saw them.

python cache_dit_requests.py MODEL OUT.json      (in the engines' environment, stepscope on PYTHONPATH)
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

from stepscope.model.run import Environment, Workload
from stepscope.session.observe import ObserveOptions, observe_call

STEPS = 12
ARGUMENTS = {"prompt": "a logo", "negative_prompt": "x", "true_cfg_scale": 4.0, "height": 64, "width": 64}
ENVIRONMENT = Environment(stepscope="", python="", platform="", host="")


def main():
    import cache_dit
    import numpy
    from diffusers import QwenImagePipeline

    pipeline = QwenImagePipeline.from_pretrained(sys.argv[1], torch_dtype=torch.bfloat16)
    pipeline.set_progress_bar_config(disable=True)
    done = []
    for threshold in (0.05, 0.3, 10.0):
        cache_dit.enable_cache(
            pipeline,
            cache_config=cache_dit.DBCacheConfig(
                Fn_compute_blocks=1,
                Bn_compute_blocks=0,
                residual_diff_threshold=threshold,
                max_warmup_steps=2,
                max_continuous_cached_steps=2,
                enable_separate_cfg=True,
            ),
        )
        plain = picture(numpy, call(pipeline))
        observed = observe_call(
            pipeline,
            lambda: call(pipeline),
            request_id=f"threshold {threshold}",
            workload=Workload(model="tiny", pipeline_class=type(pipeline).__name__),
            environment=ENVIRONMENT,
            options=ObserveOptions(own_process=True),
        )
        contexts = pipeline.transformer._context_manager._cached_context_manager.values()
        said = sorted(
            {step for context in contexts for step in (*context.cached_steps, *context.cfg_cached_steps)}
        )
        seen = [step.index for step in observed.run.steps if step.work != "computed"]
        worth = observed.run.step_cache
        done.append(
            {
                "threshold": threshold,
                "cache_says": said,
                "seen": seen,
                "work": [str(step.work) for step in observed.run.steps],
                "engaged": observed.run.engaged.cached_steps,
                "warnings": observed.run.warnings,
                "same_picture": plain == picture(numpy, observed.result),
                "theoretical_speedup": worth.theoretical_speedup,
                "effective_speedup": worth.effective_speedup,
            }
        )
        print(done[-1], flush=True)
        cache_dit.disable_cache(pipeline)
    Path(sys.argv[2]).write_text(json.dumps(done))


def call(pipeline):
    generator = torch.Generator().manual_seed(0)
    return pipeline(**ARGUMENTS, num_inference_steps=STEPS, generator=generator, output_type="np")


def picture(numpy, output):
    return hashlib.sha256(numpy.ascontiguousarray(output.images).tobytes()).hexdigest()


if __name__ == "__main__":
    main()
