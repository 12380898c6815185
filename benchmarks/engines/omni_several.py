"""Several requests at once through vLLM-Omni's asynchronous client, one of them cancelled, and one more.

python omni_several.py MODEL      (in the engines' environment)
"""

import asyncio
import sys

STEPS, LONG = 8, 400


def main():
    asyncio.run(several(sys.argv[1]))


async def several(model):
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    engine = AsyncOmni(
        model=model, enforce_eager=True, distributed_executor_backend="mp", step_execution=True
    )
    await request(engine, "alone", STEPS)
    long = asyncio.create_task(request(engine, "cancelled", LONG))
    together = [asyncio.create_task(request(engine, f"together-{number}", STEPS)) for number in range(2)]
    await asyncio.sleep(0.7)  # it takes some seconds
    long.cancel()
    try:
        await long
    except asyncio.CancelledError:
        print("CANCELLED", flush=True)
    await asyncio.gather(*together)
    await request(engine, "afterwards", STEPS)
    engine.shutdown()


async def request(engine, name, steps):
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams

    sampling = OmniDiffusionSamplingParams(
        height=64, width=64, num_inference_steps=steps, true_cfg_scale=4.0, seed=42
    )
    prompt = {"prompt": "a logo", "negative_prompt": "x"}
    async for _ in engine.generate(prompt, request_id=name, sampling_params_list=[sampling]):
        pass
    print("ANSWERED", name, flush=True)


if __name__ == "__main__":
    main()
