"""What does a launch cost the host with a profiler absent, attached, collecting, or gone? Measured on a GPU.

    python benchmarks/gpu_launches.py --out launches.json

Two processes take turns on one core: one never starts a profiler, the other goes from state to state. A
measurement is the median of loops of 2,000 launches of one tiny kernel; each state is measured between two of
the plain process; beside it the time of eight small transformer layers. States named ``without ...`` have one
of CUPTI's activity kinds switched off behind the profiler's back, to tell what each costs.
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

LAUNCHES, LOOPS = 2_000, 9
CUPTI_KINDS = {"driver": 4, "runtime": 5, "kernel": 10, "overhead": 17, "synchronisation": 38, "external": 39}
"""Of CUpti_ActivityKind in cupti_activity.h."""

SEQUENCES = {
    "profiler": (
        ("never profiled", "nothing"),
        ("attached, not yet collecting", "attach"),
        ("collecting", "collect"),
        ("collecting without driver calls", "disable:driver"),
        ("collecting without overhead", "disable:overhead"),
        ("collecting without correlation", "disable:external"),
        ("collecting without runtime calls", "disable:runtime"),
        ("collecting no kernels either", "disable:kernel"),
        ("attached, collected", "rest"),
        ("stopped", "stop_at_rest"),
        ("operators, shapes and stacks", "start:full"),
        ("stopped after those", "stop"),
    ),
    "teardown": (
        ("collecting, started in a pause", "start:kernels"),
        ("stopped, CUPTI torn down", "stop"),
        ("collecting again", "start:kernels"),
        ("torn down again", "stop"),
        ("attached, not yet collecting", "attach"),
        ("collecting", "collect"),
        ("attached, collected", "rest"),
        ("stopped, CUPTI torn down", "stop_at_rest"),
    ),
    "subscribed": (("a CUPTI subscriber without a domain", "subscribe"), ("finalised", "finalise")),
    "kernels only": (
        ("CUPTI's kernel activity and nothing else", "activity:kernel"),
        ("and runtime calls", "enable:runtime"),
        ("runtime calls off", "disable:runtime"),
        ("kernels off", "disable:kernel"),
        ("finalised", "finalise"),
    ),
}
"""Each sequence runs in a process of its own; ``teardown`` with Kineto's TEARDOWN_CUPTI=1."""


class Launcher:
    """Launches one kernel often, in whichever state it was put."""

    def __init__(self, core: int) -> None:
        import torch

        self._core = core
        self._tensor = torch.zeros(8, device="cuda")
        self._profiler: Any = None
        self._loaded: ctypes.CDLL | None = None
        self._kept: list[Any] = []  # what CUPTI has pointers to
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device="cuda").train()
        self._block = torch.nn.Sequential(*[layer] * 8)  # in training mode: no fused path
        self._input = torch.zeros(1, 16, 64, device="cuda")

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
            blocks = []
            with torch.no_grad():
                for _ in range(LOOPS):
                    torch.cuda.synchronize()
                    begin = time.perf_counter_ns()
                    self._block(self._input)
                    blocks.append(time.perf_counter_ns() - begin)
        torch.cuda.synchronize()
        return {"launch_ns": statistics.median(loops), "block_ns": statistics.median(blocks)}

    def change(self, to: str) -> dict[str, Any]:
        """Into another state; the status is CUPTI's, 0 where all is well or CUPTI was not asked."""
        action, _, kind = to.partition(":")
        return {"status": getattr(self, f"_{action}")(*filter(None, [kind])) or 0}

    def _nothing(self) -> None:
        pass

    def _attach(self) -> None:
        self._start("kernels", collecting=False)

    def _start(self, detail: str, *, collecting: bool = True) -> None:
        from stepscope.capture.profiler import Profiler
        from stepscope.capture.tracing import TraceRequest
        from stepscope.model.vocabulary import TraceDetail

        request = TraceRequest(steps=1, scratch_dir=Path(), detail=TraceDetail(detail))
        self._profiler = Profiler(request, "cuda")
        self._profiler.start(collecting=collecting)

    def _collect(self) -> None:
        self._profiler.switch_on()

    def _rest(self) -> None:
        self._profiler.switch_off()

    def _stop_at_rest(self) -> None:
        self._profiler.stop(collecting=False)

    def _stop(self) -> None:
        self._profiler.stop()

    def _enable(self, kind: str) -> int:
        return int(self._cupti.cuptiActivityEnable(CUPTI_KINDS[kind]))

    def _disable(self, kind: str) -> int:
        return int(self._cupti.cuptiActivityDisable(CUPTI_KINDS[kind]))

    def _finalise(self) -> int:
        return int(self._cupti.cuptiFinalize())

    @property
    def _cupti(self) -> ctypes.CDLL:
        """The CUPTI that torch has loaded."""
        if self._loaded is None:
            maps = Path("/proc/self/maps").read_text().split()
            self._loaded = ctypes.CDLL(next(word for word in maps if "libcupti.so" in word))
        return self._loaded

    def _subscribe(self) -> int:
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(
            lambda *_: None
        )
        subscriber = ctypes.c_void_p()
        self._kept += [callback, subscriber]
        return int(self._cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None))

    def _activity(self, kind: str) -> int:
        """Collect one kind into buffers that nobody reads."""
        size = 8 << 20
        pool = [ctypes.create_string_buffer(size) for _ in range(4)]

        def requested(buffer: Any, length: Any, records: Any) -> None:
            pool.append(pool.pop(0))
            buffer[0], length[0], records[0] = ctypes.addressof(pool[-1]), size, 0

        give = ctypes.CFUNCTYPE(
            None,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.POINTER(ctypes.c_size_t),
        )(requested)
        take = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
        )(lambda *_: None)
        self._kept += [pool, give, take]
        status = int(self._cupti.cuptiActivityRegisterCallbacks(give, take))
        return status or self._enable(kind)


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


def one_round(sequence: str, core: int) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--worker", "--core", str(core)]
    torn = {"TEARDOWN_CUPTI": "1"} if sequence == "teardown" else {}
    plain, profiled = Process(command), Process(command, torn)
    found: list[dict[str, Any]] = []
    try:
        for process in (plain, profiled):
            process.ask("measure")  # the first launches load the kernels
        for state, change in SEQUENCES[sequence]:
            status = profiled.ask("change", to=change)
            profiled.ask("measure")  # what follows a change at once is not the state
            before = plain.ask("measure")
            inside = profiled.ask("measure")
            after = plain.ask("measure")
            reference = {key: (before[key] + after[key]) / 2 for key in before}
            found.append({"state": state, "plain": reference, "profiled": inside, **status})
    except RuntimeError as error:
        print(f"{sequence}: {error}", file=sys.stderr)
    finally:
        plain.close()
        profiled.close()
    return found


def summary(rounds: list[list[dict[str, Any]]]) -> str:
    lines = []
    for of_state in zip(*rounds, strict=False):
        line = f"  {of_state[0]['state']:42}"
        for key in ("launch_ns", "block_ns"):
            ratios = [one["profiled"][key] / one["plain"][key] for one in of_state]
            added = [one["profiled"][key] - one["plain"][key] for one in of_state]
            line += f" {key} +{statistics.median(added):6.0f} ({min(added):.0f} to {max(added):.0f})"
            line += f" ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append(f"{line} {[one['status'] for one in of_state if one.get('status')] or ''}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu_launches.json"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", default=",".join(SEQUENCES))
    parser.add_argument("--core", type=int)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    core = quietest_core() if arguments.core is None else arguments.core
    if arguments.worker:
        serve(core)
        return 0
    found: dict[str, Any] = {"core": core}
    print(f"core {core}; medians of {arguments.rounds} rounds, with the lowest and highest")
    for sequence in arguments.sequences.split(","):
        found[sequence] = [one_round(sequence, core) for _ in range(arguments.rounds)]
        arguments.out.write_text(json.dumps(found, indent=1))
        print(f"{sequence}\n{summary(found[sequence])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
