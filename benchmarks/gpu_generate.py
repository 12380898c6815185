"""Does observing change what is observed, and are the times true? Measured on a GPU.

    python benchmarks/gpu_generate.py --out results.json [--cases qwen,flux,wan,launch_bound,...]

``--rehearse`` runs every case on tiny models on whatever device there is: to try the script, not for figures.
Each case builds the full-size model with random weights, warms up, and interleaves observed and plain calls.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from full_size_models import FLUX, QWEN, WAN, asked, dummy, recompiles, tiny_twin
from graphed_forward import GraphedForward
from stepscope.capture.environment import read_environment
from stepscope.model.run import Run, Workload
from stepscope.session.observe import ObserveOptions, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.request import CompileKind, Loaded, LoadRequest, Offload, OffloadKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model and request to measure."""

    load: LoadRequest
    request: GenerationRequest
    pairs: int = 5


CASES = {
    "qwen": Case(
        load=dummy(QWEN),
        request=asked(20, negative_prompt="blurry", true_cfg_scale=4.0, height=1024, width=1024),
    ),
    "flux": Case(load=dummy(FLUX), request=asked(20, height=1024, width=1024)),
    "wan": Case(
        load=dummy(WAN),
        request=asked(10, negative_prompt="blurry", height=480, width=832, frames=33),
    ),
    "launch_bound": Case(
        load=dummy(QWEN, denoiser_layers=4),
        request=asked(10, negative_prompt="blurry", true_cfg_scale=4.0, height=256, width=256),
        pairs=60,
    ),
    "compile": Case(
        load=dummy(QWEN, compile=CompileKind.REGIONAL),
        request=asked(8, negative_prompt="blurry", true_cfg_scale=4.0, height=1024, width=1024),
        pairs=3,
    ),
    "graphs": Case(
        load=dummy(FLUX, denoiser_layers=4),
        request=asked(20, height=512, width=512),
        pairs=10,
    ),
    "offload": Case(
        load=dummy(QWEN, denoiser_layers=20, offload=Offload(kind=OffloadKind.BLOCK)),
        request=asked(4, negative_prompt="blurry", true_cfg_scale=4.0, height=1024, width=1024),
        pairs=3,
    ),
    "offload_pageable": Case(
        load=dummy(QWEN, denoiser_layers=6, offload=Offload(kind=OffloadKind.BLOCK, pin=False)),
        request=asked(3, negative_prompt="blurry", true_cfg_scale=4.0, height=1024, width=1024),
        pairs=2,
    ),
}


def rehearsal(case: Case) -> Case:
    """The same case on a tiny model."""
    request = replace(case.request, height=None, width=None, frames=None, steps=4)
    return replace(case, load=tiny_twin(case.load), request=request, pairs=2)


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def digest(result: Any) -> str:
    """SHA-256 of the first output's raw values."""
    media = getattr(result, "images", None)
    media = result.frames if media is None else media
    return hashlib.sha256(np.ascontiguousarray(np.asarray(media))).hexdigest()[:16]


class Subject:
    """A loaded pipeline that can be called plainly, observed, or with a synchronisation around every step."""

    def __init__(self, loaded: Loaded, case: Case) -> None:
        self.loaded, self.case = loaded, case
        self.pipeline = loaded.pipeline
        self.pipeline.set_progress_bar_config(disable=True)
        self.environment = read_environment(torch.device(loaded.device))
        self.workload = Workload(model=loaded.model, pipeline_class=type(loaded.pipeline).__name__)

    def arguments(self) -> dict[str, Any]:
        return call_arguments(self.pipeline, self.case.request, self.loaded.defaults)

    def plain(self) -> tuple[float, Any]:
        arguments = self.arguments()
        synchronise()
        start = time.perf_counter()
        result = self.pipeline(**arguments)
        synchronise()
        return time.perf_counter() - start, result

    def observed(self, **options: Any) -> tuple[float, Any, Run]:
        """Seconds from outside, everything observation adds included; the result; the run."""
        arguments = self.arguments()
        synchronise()
        start = time.perf_counter()
        call = observe_call(
            self.pipeline,
            lambda: self.pipeline(**arguments),
            request_id="bench",
            workload=self.workload,
            environment=self.environment,
            options=ObserveOptions(own_process=True, **options),
        )
        synchronise()
        seconds = time.perf_counter() - start
        if call.error is not None:
            raise call.error
        return seconds, call.result, call.run

    def synchronised_reference(self) -> tuple[list[float], float]:
        """Step times and decode time with a synchronisation around each: independent of what is tested."""
        arguments = self.arguments()
        ends: list[float] = []

        def step_end(_pipe: Any, _index: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            synchronise()
            ends.append(time.perf_counter())
            return tensors

        vae = self.pipeline.vae
        decode, decoded = vae.decode, []

        def timed_decode(*args: Any, **kwargs: Any) -> Any:
            result = decode(*args, **kwargs)
            synchronise()
            decoded.append(time.perf_counter())
            return result

        vae.decode = timed_decode
        try:
            self.pipeline(**arguments, callback_on_step_end=step_end)
        finally:
            del vae.decode
        steps = [after - before for before, after in itertools.pairwise(ends)]
        return steps, decoded[-1] - ends[-1]


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def step_ms(run: Run) -> list[float]:
    return [step.span.duration_ns / 1e6 for step in run.steps]


def stage_ms(run: Run, name: str) -> float:
    return sum(stage.span.duration_ns for stage in run.stages if stage.span.name == name) / 1e6


def interleaved(subject: Subject, pairs: int) -> dict[str, Any]:
    """Observed (A) against plain (B), A B B A; ratios pair by pair."""
    ratios, call_ratios, plain_s, observed_s, hashes, runs = [], [], [], [], set(), []
    for index in range(pairs):
        order = ("observed", "plain") if index % 2 == 0 else ("plain", "observed")
        seconds: dict[str, float] = {}
        for which in order:
            if which == "plain":
                seconds[which], result = subject.plain()
            else:
                seconds[which], result, run = subject.observed()
                runs.append(run)
            hashes.add(digest(result))
        ratios.append(seconds["observed"] / seconds["plain"])
        call_ratios.append(runs[-1].total_ns / 1e9 / seconds["plain"])
        plain_s.append(seconds["plain"])
        observed_s.append(seconds["observed"])
    return {
        "call_ratio": spread(call_ratios),
        "outer_ratio": spread(ratios),
        "plain_s": spread(plain_s),
        "observed_s": spread(observed_s),
        "same_output": len(hashes) == 1,
        "runs": runs,
    }


def against_reference(subject: Subject, runs: int = 5) -> dict[str, Any]:
    """Our steps and decode against a reference that synchronises around every step, in turn."""
    ours, theirs, our_decode, their_decode = [], [], [], []
    for _ in range(runs):
        _, _, run = subject.observed()
        ours.append(step_ms(run)[1:])
        our_decode.append(stage_ms(run, "DecodingStage"))
        steps, decode = subject.synchronised_reference()
        theirs.append([1e3 * seconds for seconds in steps])
        their_decode.append(1e3 * decode)
    by_step = [
        statistics.median(mine) / statistics.median(reference)
        for mine, reference in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)
    ]
    return {
        "step_ratio": spread(by_step),
        "step_ms": spread([value for run in ours for value in run]),
        "reference_step_ms": spread([value for run in theirs for value in run]),
        "decode_ratio": statistics.median(our_decode) / statistics.median(their_decode),
        "decode_ms": spread(our_decode),
        "reference_decode_ms": spread(their_decode),
    }


def against_kernels(subject: Subject) -> dict[str, Any]:
    """Our steps against the kernels' own times in a trace of the same call, last kernel to last kernel."""
    if not torch.cuda.is_available():
        return {"skipped": "no CUDA device"}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]):
        subject.plain()  # CUPTI starts up here, not in what is measured
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        _, _, run = subject.observed()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        document = json.loads(path.read_text())
    base = document["baseTimeNanoseconds"]
    events = document["traceEvents"]
    launched = {
        event["args"]["correlation"]: base + event["ts"] * 1e3
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event.get("args", {})
    }
    kernels = sorted(
        (launched[event["args"]["correlation"]], base + (event["ts"] + event["dur"]) * 1e3)
        for event in events
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}
        and event["args"]["correlation"] in launched
    )
    anchor = run.anchors[0]
    to_unix = anchor.unix_ns - anchor.host_ns
    ends = [step.span.segments[-1].host_end_ns + to_unix for step in run.steps]
    launches = np.array([launch for launch, _ in kernels])
    finished = np.maximum.accumulate(np.array([end for _, end in kernels]))
    last = finished[np.searchsorted(launches, np.array(ends)) - 1]
    reference = np.diff(last) / 1e6
    ours = np.array(step_ms(run)[1:])
    ratios = ours / reference
    return {
        "step_ratio": spread(list(ratios)),
        "step_ms": spread(list(ours)),
        "kernel_step_ms": spread(list(reference)),
    }


def measure(name: str, case: Case) -> dict[str, Any]:
    begin = time.perf_counter()
    loaded = load(case.load)
    synchronise()
    loading_s = time.perf_counter() - begin
    subject = Subject(loaded, case)
    begin = time.perf_counter()
    captured_while_observed = None
    if name == "graphs" and torch.cuda.is_available():
        _, eager = subject.plain()
        transformer = subject.pipeline.transformer
        transformer.forward = GraphedForward(transformer)
        _, result, _ = subject.observed()  # the capture itself happens inside an observed call
        captured_while_observed = digest(result) == digest(eager)
    subject.plain()
    subject.plain()
    warmup_s = time.perf_counter() - begin
    graphs_before = recompiles()
    pairs = interleaved(subject, case.pairs)
    runs = pairs.pop("runs")
    last = runs[-1]
    result = {
        "loading_s": loading_s,
        "warmup_s": warmup_s,
        **pairs,
        "compilations_added": recompiles() - graphs_before,
        "same_output_as_eager_captured_while_observed": captured_while_observed,
        "steps": len(last.steps),
        "stages_ms": {stage.span.name: stage.span.duration_ns / 1e6 for stage in last.stages},
        "total_ms": (last.total_ns or 0) / 1e6,
        "transfers": [
            [
                t.component,
                str(t.kind),
                t.count,
                t.bytes,
                t.pinned,
                t.duration_ns / 1e6,
                (t.exposed_ns or 0) / 1e6,
            ]
            for t in last.transfers
        ],
        "graph_replays": last.engaged.graph_replays,
        "clock": [str(last.clock.kind), last.clock.self_test],
        "warnings": list(last.warnings),
        "step_ms_last_run": step_ms(last),
    }
    if name in {"qwen", "wan", "flux"}:
        result["reference"] = against_reference(subject, 5 if name == "qwen" else 2)
    if name in {"launch_bound", "qwen"}:
        result["kernels"] = against_kernels(subject)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out", type=Path, default=Path("gpu_generate.json"))
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    results: dict[str, Any] = {
        "device": device,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
    guard: Callable[[Case], Case] = rehearsal if arguments.rehearse else lambda case: case
    for name in arguments.cases.split(","):
        begin = time.perf_counter()
        try:
            results[name] = measure(name, guard(CASES[name]))
        except Exception as error:  # one case must not cost the others their device time
            results[name] = {"error": f"{type(error).__name__}: {error}"}
            import traceback

            traceback.print_exc()
        results[name]["case_s"] = time.perf_counter() - begin
        print(name, json.dumps(results[name], default=str), flush=True)
        arguments.out.write_text(json.dumps(results, indent=1, default=str))
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
