"""What does a launch cost the host with a profiler absent, attached, collecting, or gone? Measured on a GPU.

    python benchmarks/gpu_launches.py --out launches.json

Two processes take turns on one core: one never starts a profiler, the other goes from state to state. A
measurement is the median of loops of 2,000 launches of one tiny kernel; each state is measured between two of
the plain process. States named ``without ...`` have one of CUPTI's activity kinds switched off behind the
profiler's back, to tell what each costs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tracing.processes import Process, on_core, quietest_core

LAUNCHES, LOOPS = 2_000, 15
CUPTI_KINDS = {"driver": 4, "runtime": 5, "kernel": 10, "overhead": 17, "synchronisation": 38, "external": 39}
"""Of CUpti_ActivityKind in cupti_activity.h."""

ROUND = (
    ("never profiled", "nothing"),
    ("attached, not yet collecting", "attach"),
    ("collecting", "collect"),
    ("collecting without driver calls", "drop:driver"),
    ("collecting without overhead", "drop:overhead"),
    ("collecting without correlation", "drop:external"),
    ("collecting without runtime calls", "drop:runtime"),
    ("collecting no kernels either", "drop:kernel"),
    ("attached, collected", "rest"),
    ("stopped", "stop"),
    ("collecting, started in a pause", "start"),
    ("stopped again", "stop_collecting"),
    ("operators, shapes and stacks", "start_full"),
    ("stopped after those", "stop_collecting"),
)


class Launcher:
    """Launches one kernel often, in whichever state it was put."""

    def __init__(self, core: int) -> None:
        import torch

        self._core = core
        self._tensor = torch.zeros(8, device="cuda")
        self._profiler: Any = None
        self._cupti: ctypes.CDLL | None = None

    def measure(self) -> dict[str, Any]:
        import torch

        tensor, loops = self._tensor, []
        with on_core(self._core):
            for _ in range(LOOPS):
                torch.cuda.synchronize()
                begin = time.perf_counter_ns()
                for _ in range(LAUNCHES):
                    tensor.add_(1)
                loops.append((time.perf_counter_ns() - begin) / LAUNCHES)
        torch.cuda.synchronize()
        return {"launch_ns": statistics.median(loops), "lowest_ns": min(loops), "highest_ns": max(loops)}

    def change(self, to: str) -> dict[str, Any]:
        action, _, kind = to.partition(":")
        if action == "drop":
            return {"status": self._drop(CUPTI_KINDS[kind])}
        match action:
            case "attach":
                self._start("kernels", collecting=False)
            case "collect":
                self._profiler.switch_on()
            case "rest":
                self._profiler.switch_off()
            case "stop":
                self._profiler.stop(collecting=False)
            case "start":
                self._start("kernels", collecting=True)
            case "start_full":
                self._start("full", collecting=True)
            case "stop_collecting":
                self._profiler.stop()
        return {}

    def _start(self, detail: str, *, collecting: bool) -> None:
        from stepscope.capture.profiler import Profiler
        from stepscope.capture.tracing import TraceRequest
        from stepscope.model.vocabulary import TraceDetail

        request = TraceRequest(steps=1, scratch_dir=Path(), detail=TraceDetail(detail))
        self._profiler = Profiler(request, "cuda")
        self._profiler.start(collecting=collecting)

    def _drop(self, kind: int) -> int:
        if self._cupti is None:
            maps = Path("/proc/self/maps").read_text().split()
            self._cupti = ctypes.CDLL(next(word for word in maps if "libcupti.so" in word))
        return int(self._cupti.cuptiActivityDisable(kind))


def serve(core: int) -> None:
    """Answer commands until the standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    launcher = Launcher(core)
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        try:
            answer = getattr(launcher, do)(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def one_round(core: int) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--worker", "--core", str(core)]
    plain, profiled = Process(command), Process(command)
    found = []
    try:
        for process in (plain, profiled):
            process.ask("measure")  # the first launches load the kernel
        for state, change in ROUND:
            status = profiled.ask("change", to=change)
            before = plain.ask("measure")
            inside = profiled.ask("measure")
            after = plain.ask("measure")
            reference = (before["launch_ns"] + after["launch_ns"]) / 2
            found.append({"state": state, "plain_ns": reference, **inside, **status})
    finally:
        plain.close()
        profiled.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu_launches.json"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    core = quietest_core() if arguments.core is None else arguments.core
    if arguments.worker:
        serve(core)
        return 0
    rounds = [one_round(core) for _ in range(arguments.rounds)]
    arguments.out.write_text(json.dumps(rounds, indent=1))
    print(f"core {core}, {arguments.rounds} rounds; ns a launch, medians (lowest and highest round)")
    for of_state in zip(*rounds, strict=True):
        added = [one["launch_ns"] - one["plain_ns"] for one in of_state]
        ratios = [one["launch_ns"] / one["plain_ns"] for one in of_state]
        print(
            f"{of_state[0]['state']:34} {statistics.median(one['launch_ns'] for one in of_state):8.0f}"
            f"  plain {statistics.median(one['plain_ns'] for one in of_state):6.0f}"
            f"  added {statistics.median(added):7.0f} ({min(added):.0f} to {max(added):.0f})"
            f"  ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
