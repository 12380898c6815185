"""One process with a model: it answers what its standard input asks, traced or not."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from full_size_models import recompiles
from graphed_forward import GraphedForward
from stepscope.capture.tracing import Switching, TraceRequest
from stepscope.model.run import Workload
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call
from stepscope.workload.arguments import call_arguments
from tracing.cases import TRACED, Case
from tracing.processes import on_core


class Worker:
    """Holds a pipeline and does what its standard input says, one JSON line after another."""

    def __init__(self, case: Case, folder: Path, core: int | None) -> None:
        import torch

        from stepscope.capture.environment import read_environment
        from stepscope.workload.load import load

        self.case, self.folder, self.core = case, folder, core
        begin = time.perf_counter()
        self.loaded = load(case.load)
        self.pipeline = self.loaded.pipeline
        self.pipeline.set_progress_bar_config(disable=True)
        if case.graphs:
            self.pipeline.transformer.forward = GraphedForward(self.pipeline.transformer)
        self.environment = read_environment(torch.device(self.loaded.device))
        self.workload = Workload(model=self.loaded.model, pipeline_class=type(self.pipeline).__name__)
        self.mapping: Any = None
        for _ in range(case.warmups):
            self.observe(pinned=False)  # threads that it starts may run anywhere
        self.ready_s = time.perf_counter() - begin

    def observe(self, trace: TraceRequest | None = None, *, pinned: bool = True) -> ObservedCall:
        import torch

        arguments = call_arguments(self.pipeline, self.case.request, self.loaded.defaults)
        with on_core(self.core if pinned else None):
            call = self._observed_call(arguments, trace)
        if call.error is not None:
            raise call.error
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return call

    def _observed_call(self, arguments: dict[str, Any], trace: TraceRequest | None) -> ObservedCall:
        return observe_call(
            self.pipeline,
            lambda: self.pipeline(**arguments),
            request_id="bench",
            workload=self.workload,
            environment=self.environment,
            options=ObserveOptions(own_process=True, trace=trace),
        )

    def plain(self) -> dict[str, Any]:
        return {"clock": gpu_clock(), **times_of(self.observe())}

    def map(self) -> dict[str, Any]:
        from stepscope.session.mapping import MAPPING_STEPS, mapping_of

        before = recompiles()
        begin = time.perf_counter()
        kept = self.case
        self.case = replace(kept, request=replace(kept.request, steps=MAPPING_STEPS))
        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                call = self.observe(
                    TraceRequest(steps=-1, scratch_dir=Path(folder), mapping=True), pinned=False
                )
                recorded_s = time.perf_counter() - begin
                self.mapping = mapping_of(call)
                raw = call.raw_trace
                if raw is not None:
                    self.keep_raw("mapping", raw.path, call)
        finally:
            self.case = kept
        sources = self.mapping.sources
        return {
            "recorded_s": recorded_s,
            "total_s": time.perf_counter() - begin,
            "step_ms": [step.span.duration_ns / 1e6 for step in call.run.steps],
            "reason": self.mapping.reason,
            "calls": 0 if sources is None else len(sources.token),
            "with_line": 0 if sources is None else float((sources.source >= 0).mean()),
            "recompiles": recompiles() - before,
            "warnings": list(call.run.warnings),
        }

    def trace(self, detail: str, switching: str | None, name: str, *, peer_gzip: bool) -> dict[str, Any]:
        from stepscope.session.keep_trace import TraceToKeep, keep_trace

        before, clock = recompiles(), gpu_clock()
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            request = TraceRequest(
                steps=TRACED,
                scratch_dir=Path(folder),
                detail=TraceDetail(detail),
                switching=None if switching is None else Switching[switching],
            )
            resident = resident_bytes()
            forget_peak()
            call = self.observe(request)
            raw = call.raw_trace
            if raw is None:
                raise RuntimeError(f"no trace: {call.run.warnings}")
            mapping = self.mapping if detail == "source" else None
            written_from = time.perf_counter_ns()
            window, said = keep_trace(
                TraceToKeep(observed=call, run=call.run, directory=self.folder / name, mapping=mapping)
            )
            end = time.perf_counter_ns()
            peak = peak_bytes()
            result = {
                "clock": clock,
                **times_of(call),
                **self.sizes(raw.path, Path(window.path), peer_gzip=peer_gzip),
                "pauses_ms": [(one.host_end_ns - one.host_start_ns) / 1e6 for one in call.run.pauses],
                "write_s": (end - written_from) / 1e9,
                "after_call_s": (end - call.run.ends.device_done_ns) / 1e9,
                "peak_bytes": max(peak - resident, 0),
                "resident_bytes": resident,
                "recompiles": recompiles() - before,
                "said": said,
                "warnings": list(call.run.warnings),
                "steps_in_file": list(window.steps),
            }
            result["file_s"] = result["after_call_s"] + sum(result["pauses_ms"][1:]) / 1e3
            if detail == "source":
                self.keep_raw(f"lean_{switching or 'default'}", raw.path, call)
        return {**result, **(lines_in(Path(window.path)) if detail == "source" else {})}

    def sizes(self, raw: Path, written: Path, *, peer_gzip: bool) -> dict[str, Any]:
        """Bytes raw and packed; for the peer setting also the seconds that torch's own gzip would take."""
        found = {
            "raw_export_bytes": raw.stat().st_size,
            "file_raw_bytes": int.from_bytes(written.read_bytes()[-4:], "little"),  # gzip's own count
            "file_bytes": written.stat().st_size,
        }
        if peer_gzip:
            begin = time.perf_counter()
            packed = self.folder / "peer.json.gz"
            with raw.open("rb") as source, gzip.open(packed, "wb") as target:  # torch: level 9, as here
                shutil.copyfileobj(source, target, 1 << 20)
            found |= {"peer_gzip_s": time.perf_counter() - begin, "peer_gzip_bytes": packed.stat().st_size}
            packed.unlink()
        return found

    def keep_raw(self, name: str, raw: Path, call: ObservedCall) -> None:
        """Raw exports of the small case are test data: with the run and the lines that belong to them."""
        if self.case.load.denoiser_layers != 4 or self.case.graphs:
            return
        import msgspec
        import numpy as np

        with raw.open("rb") as source, gzip.open(self.folder / f"{name}.json.gz", "wb", 6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        (self.folder / f"{name}.run.json").write_bytes(msgspec.json.encode(call.run))
        found = call.raw_trace
        if found is not None:
            (self.folder / f"{name}.anchors.json").write_text(json.dumps(found.anchors))
            if found.lines is not None:
                lines = found.lines
                np.savez_compressed(
                    self.folder / f"{name}.lines.npz",
                    thread=lines.thread,
                    at_ns=lines.at_ns,
                    source=lines.source,
                    sources=json.dumps([msgspec.to_builtins(one) for one in lines.sources]),
                )


def serve(case: Case, folder: Path, core: int | None) -> None:
    """Answer commands until the standard input ends; what the libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value, default=str) + "\n")
        answers.flush()

    import diffusers  # slow to import, so before any measurement
    import torch  # noqa: F401

    answer({"imported": diffusers.__version__})
    worker: Worker | None = None
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        try:
            if do == "load":
                worker = Worker(case, folder, core)
                answer({"ready_s": worker.ready_s})
            else:
                answer(getattr(worker, do)(**command))
        except Exception as error:
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"})


def times_of(call: ObservedCall) -> dict[str, Any]:
    """Each step's device and host time, and the call's."""
    run = call.run
    return {
        "total_ms": (run.total_ns or 0) / 1e6,
        "host_ms": [step.span.host_ns / 1e6 for step in run.steps],
        "device_ms": [step.span.duration_ns / 1e6 for step in run.steps],
        "traced": [step.index for step in run.steps if step.traced],
    }


def lines_in(path: Path) -> dict[str, Any]:
    """Kernels in a written trace and how many have an operator, a line, an exact line, a module."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [event["args"] for event in events if event.get("cat") == "kernel"]
    if not kernels:
        kernels = [event["args"] for event in events if event.get("cat") == "cpu_op"]
    count = max(len(kernels), 1)
    return {
        "events": len(events),
        "kernels": len(kernels),
        "with_operator": sum("operator" in one for one in kernels) / count,
        "with_line": sum("source" in one for one in kernels) / count,
        "with_exact_line": sum("source" in one and one.get("exact", True) for one in kernels) / count,
        "with_module": sum("module" in one for one in kernels) / count,
    }


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> None:
    """Let the kernel's peak of the resident size begin anew; no thread of ours watches it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def gpu_clock() -> str:
    """The SM clock and what holds it back, read before a request."""
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active",
             "--format=csv,noheader", "-i", "0"],
            capture_output=True, text=True, timeout=5, check=False,
        ).stdout.strip()  # fmt: skip
    except OSError:
        return ""
