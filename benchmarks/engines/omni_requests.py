"""One or more requests through vLLM-Omni, in process or in a worker with stepwise execution."""

import argparse
import hashlib
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=["uniproc", "mp"], default="uniproc")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out")
    args = parser.parse_args()
    import numpy
    from vllm_omni import Omni
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams

    more = {"distributed_executor_backend": "mp", "step_execution": True} if args.mode == "mp" else {}
    omni = Omni(model=args.model, enforce_eager=True, **more)
    for _ in range(args.requests):
        begin = time.perf_counter()
        sampling = OmniDiffusionSamplingParams(
            height=64, width=64, num_inference_steps=args.steps, true_cfg_scale=4.0, seed=42
        )
        outputs = omni.generate({"prompt": "a logo", "negative_prompt": "x"}, sampling)
        wall_ms = 1000 * (time.perf_counter() - begin)
        images = outputs[0].images or outputs[0].request_output.images
        picture = hashlib.sha256(numpy.asarray(images[0]).tobytes()).hexdigest()
        print("PICTURE", picture, "wall_ms", round(wall_ms, 1), flush=True)
        print("DURATIONS", getattr(outputs[0], "stage_durations", None))
    omni.close() if hasattr(omni, "close") else None


if __name__ == "__main__":
    main()
