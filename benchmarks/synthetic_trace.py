"""Writes a Kineto trace of any size, shaped like a recorded one: operators, launches, kernels, flows, frames.

    python benchmarks/synthetic_trace.py 5000000 /tmp/five_million.trace.json.gz

Seven events a kernel: three operators, a launch, the kernel and its two flow events; with shapes on every
third operator and kernel names of the usual length. The layout is libkineto's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from isal import igzip

HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}],
    "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
}
KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<{n}, at::native::CUDAFunctor_add<c10::BFloat16>, "
    f"std::array<char*, {n}ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, {n}ul>)"
    for n in range(120)
]
EVENTS_A_KERNEL = 7
FIRST_US = 5173846345846.579
SHAPES = '"Input Dims": [[1, 4096, 3072], [{0}, 3072]], "Input type": ["c10::BFloat16", "c10::BFloat16"], '


def main() -> int:
    """Write the trace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("events", type=int)
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    write_trace(arguments.path, arguments.events)
    return 0


def write_trace(path: Path, events: int) -> None:
    """Write about ``events`` events, gzip-compressed."""
    with igzip.open(path, "wb", compresslevel=2) as file:
        file.write(json.dumps(HEADER, indent=2)[:-2].encode() + b',\n  "traceEvents": [\n')
        separator = ""
        for first in range(0, events // EVENTS_A_KERNEL, 1000):
            last = min(first + 1000, events // EVENTS_A_KERNEL)
            block = ",\n".join(group(index) for index in range(first, last))
            file.write((separator + block).encode())
            separator = ",\n"
        file.write(b'\n  ],\n  "traceName": "synthetic.json"\n}\n')


def group(index: int) -> str:
    """One kernel with the operators above it, its launch and flows."""
    start = FIRST_US + index * 31.25
    common = f'"External id": {index + 9},"Record function id": 0, '
    operators = [
        slice_event(
            "cpu_op", name, 682, 682, start + depth, 24.5 - 2 * depth, f'{common}{shapes}"Ev Idx": {index}'
        )
        for depth, (name, shapes) in enumerate(
            (("aten::linear", ""), ("aten::addmm", SHAPES.format(index % 400)), ("aten::mm", ""))
        )
    ]
    launch = f'"External id": {index + 9}, "cbid": 211, "correlation": {index + 5}'
    kernel = (
        f'"External id": {index + 9}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {index + 5}, "registers per thread": 32, "shared memory": 0, '
        f'"blocks per SM": 2.106061, "warps per SM": 16.848484, "grid": [{index % 500 + 1}, 2, 1], '
        '"block": [256, 1, 1], "est. achieved occupancy %": 26'
    )
    flow = f'"id": {index + 5}, "pid": 682, "tid": 682, "ts": {start + 5:.3f}, "cat": "ac2g", "name": "ac2g"'
    return ",\n".join(
        [
            *operators,
            slice_event("cuda_runtime", "cudaLaunchKernel", 682, 682, start + 5, 4.25, launch),
            slice_event("kernel", KERNELS[index % len(KERNELS)], 0, 7, start + 40, 28.125, kernel),
            f'  {{\n    "ph": "s", {flow}\n  }}',
            f'  {{\n    "ph": "f", {flow}, "bp": "e"\n  }}',
        ]
    )


def slice_event(
    category: str, name: str, process: int, thread: int, start: float, length: float, args: str
) -> str:
    """A complete event in libkineto's layout."""
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread},\n'
        f'    "ts": {start:.3f}, "dur": {length:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


if __name__ == "__main__":
    raise SystemExit(main())
