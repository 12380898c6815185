"""A worker process without a pipeline: the real protocol, made-up times, and accidents on demand.

Times follow the flags: a step costs 1 ms and 1 us a token squared; height 13 runs out of memory, 17 kills the
process every time, 19 the first time only, 23 raises, 29 leaves an untrusted dump. Argument 1 is what a run
lasts, in seconds; with a file and a number as arguments 2 and 3, no run ends any more once the file has so
many lines.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from dumps import stepscope_json

PARENT = os.getppid()


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        failure = serve(command["do"], command["flags"])
        print(json.dumps({"gpu_uuid": None, "failure": failure}), flush=True)


def is_held(path=None, count="0"):
    """Whether there are as many rows as said; an orphan is held no longer, and nobody reads its answer."""
    if path is None or os.getppid() != PARENT or not Path(path).exists():
        return False
    return len(Path(path).read_bytes().splitlines()) >= int(count)


def serve(do, flags):
    if do == "check" and flags.get("num_frames"):
        return {"message": "the pipeline has no --num-frames.", "refused": True, "usable_after": True}
    if do != "run":
        return None
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
    while is_held(*sys.argv[2:]):
        time.sleep(0.01)
    height, dump = flags.get("height", 256), Path(flags["perf_dump_path"])
    if height == 13:
        return {"message": "OutOfMemoryError: no room", "out_of_memory": True, "usable_after": True}
    if height == 23:
        return {"message": "ValueError: no such size", "usable_after": False}
    died_before = dump.parent / f"died-{height}"
    if height == 17 or (height == 19 and not died_before.exists()):
        dump.parent.mkdir(parents=True, exist_ok=True)
        died_before.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    tokens = flags.get("width", 256) * height / 256
    step_ms = flags.get("slow", 1.0) * (1 + 1e-3 * tokens**2)
    steps_ms = [step_ms] * flags.get("num_inference_steps", 4)
    document = stepscope_json(steps_ms, decode_ms=10 + 2 * tokens, encode_ms=5.0)
    if height == 29:
        document["total_duration_ms"] = 1.0  # less than its stages
    document["workload"] |= {"height": height, "width": flags.get("width", 256), "frames": None}
    dump.parent.mkdir(parents=True, exist_ok=True)
    dump.write_text(json.dumps(document))
    return None


if __name__ == "__main__":
    main()
