"""Several requests to one SGLang generator, with its own profiling switches and ours set for each.

    python sglang_requests.py MODEL CASES.json OUT.json

A case is ``{"name": ..., "own": {SGLang's request fields}, "control": {our control file} or null}``; the
control file of an observed process lies in the folder that the variable STEPSCOPE names.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

SIZE = {"height": 64, "width": 64}


def main():
    model, cases, out = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    from sglang.multimodal_gen import DiffGenerator

    backend = os.environ.get("BACKEND", "sglang")
    done = []
    with DiffGenerator.from_pretrained(model_path=model, model_id="Qwen-Image", backend=backend) as generator:
        for case in cases:
            set_control(case.get("control"))
            begin = time.perf_counter()
            result = generator.generate(sampling_params_kwargs=request(case))
            wall_ms = 1000 * (time.perf_counter() - begin)
            done.append({"name": case["name"], "wall_ms": wall_ms, "picture": picture(result)})
            print("DONE", done[-1], flush=True)
    out.write_text(json.dumps(done))


def request(case):
    asked = {
        "prompt": "a logo",
        "negative_prompt": "x",
        "guidance_scale": 4.0,
        "num_inference_steps": 8,
        "seed": 42,
    }
    return {**asked, **SIZE, "save_output": False, "return_frames": True, **case.get("own", {})}


def set_control(control):
    folder = os.environ.get("STEPSCOPE")
    if folder is None:
        return
    path = Path(folder) / "control.json"
    if control is None:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(control))
    temporary.replace(path)


def picture(result):
    """A hash of the pixels, or of the saved file where no pixels come back."""
    import numpy

    for name in ("samples", "frames"):
        pixels = getattr(result, name, None)
        if pixels is not None:
            return hashlib.sha256(numpy.ascontiguousarray(numpy.asarray(pixels)).tobytes()).hexdigest()
    return None


if __name__ == "__main__":
    main()
