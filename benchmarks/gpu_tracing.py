"""What does tracing cost, what does it leave, and how much of it has a source line? Measured on a GPU.

    python benchmarks/gpu_tracing.py --out results.json --trace-dir traces [--cases qwen,launch_bound,...]

For each case two processes hold the same model: one never starts a profiler, the other traces. Requests are
interleaved A B B A; ratios are those of the same step, traced over untraced. ``full`` is the peer setting.
``--rehearse`` runs every case on tiny models on whatever device there is: to try the script, not for figures.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepscope.capture.tracing import Switching, TraceRequest
from stepscope.model.run import Workload
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.request import CompileKind, LoadFormat, LoadRequest, Offload, OffloadKind

STEPS, TRACED = 9, 5  # the last three are untraced: what they take in the same request is compared too
DETAILS = ("source", "kernels", "ops", "full")
PROMPT = "A Logo With Bold Large Text: SGL Diffusion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model and request to measure."""

    load: LoadRequest
    request: GenerationRequest
    pairs: int = 2
    warmups: int = 2
    graphs: bool = False
    pauses_too: bool = False  # also ``source`` with the profiler started and stopped inside the call
    details: tuple[str, ...] = DETAILS


def dummy(model: str, **options: Any) -> LoadRequest:
    return LoadRequest(model=model, load_format=LoadFormat.DUMMY, **options)


def asked(**options: Any) -> GenerationRequest:
    return GenerationRequest(prompt=PROMPT, seed=0, steps=STEPS, **options)


QWEN = "Qwen/Qwen-Image"
SMALL: dict[str, Any] = {"negative_prompt": "blurry", "true_cfg_scale": 4.0, "height": 256, "width": 256}
LARGE = SMALL | {"height": 1024, "width": 1024}
CASES = {
    "launch_bound": Case(
        load=dummy(QWEN, denoiser_layers=4), request=asked(**SMALL), pairs=12, pauses_too=True
    ),
    "qwen": Case(load=dummy(QWEN), request=asked(**LARGE)),
    "wan": Case(
        load=dummy("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"),
        request=asked(negative_prompt="blurry", height=480, width=832, frames=33),
    ),
    "compile": Case(
        load=dummy(QWEN, denoiser_layers=20, compile=CompileKind.REGIONAL), request=asked(**LARGE), warmups=3
    ),
    "graphs": Case(
        load=dummy(QWEN, denoiser_layers=4), request=asked(**SMALL), warmups=4, graphs=True, pairs=8
    ),
    "offload": Case(
        load=dummy(QWEN, denoiser_layers=20, offload=Offload(kind=OffloadKind.BLOCK)),
        request=asked(**LARGE),
    ),
}


def rehearsal(case: Case) -> Case:
    """The same case on a tiny model; graphs need a GPU, so that case runs without them."""
    model = "tiny/qwen-image" if case.load.model == QWEN else "tiny/wan2.1-t2v-1.3b"
    load = replace(case.load, model=model, denoiser_layers=None, compile=CompileKind.NONE)
    request = replace(case.request, height=None, width=None, frames=None)
    return replace(case, load=load, request=request, pairs=2, warmups=1, graphs=False)


# --- the worker: one process with the model


class Worker:
    """Holds a pipeline and does what its standard input says, one JSON line after another."""

    def __init__(self, case: Case, folder: Path) -> None:
        import torch

        from stepscope.capture.environment import read_environment
        from stepscope.workload.load import load

        self.case, self.folder = case, folder
        begin = time.perf_counter()
        self.loaded = load(case.load)
        self.pipeline = self.loaded.pipeline
        self.pipeline.set_progress_bar_config(disable=True)
        if case.graphs:
            self.pipeline.transformer.compile(mode="reduce-overhead")
        self.environment = read_environment(torch.device(self.loaded.device))
        self.workload = Workload(model=self.loaded.model, pipeline_class=type(self.pipeline).__name__)
        self.mapping: Any = None
        for _ in range(case.warmups):
            self.observe()
        self.ready_s = time.perf_counter() - begin

    def observe(self, trace: TraceRequest | None = None) -> ObservedCall:
        import torch

        arguments = call_arguments(self.pipeline, self.case.request, self.loaded.defaults)
        call = observe_call(
            self.pipeline,
            lambda: self.pipeline(**arguments),
            request_id="bench",
            workload=self.workload,
            environment=self.environment,
            options=ObserveOptions(own_process=True, trace=trace),
        )
        if call.error is not None:
            raise call.error
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return call

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
                call = self.observe(TraceRequest(steps=-1, scratch_dir=Path(folder), mapping=True))
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


def serve(case: Case, folder: Path) -> None:
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
                worker = Worker(case, folder)
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


def recompiles() -> int:
    from torch._dynamo.utils import counters

    return counters["stats"].get("unique_graphs", 0) + sum(counters["recompiles"].values())


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


# --- the orchestrator


class Process:
    """A worker in a process of its own."""

    def __init__(self, name: str, folder: Path, *, rehearse: bool) -> None:
        command = [sys.executable, __file__, "--worker", name, "--trace-dir", str(folder)]
        self._process = subprocess.Popen(
            command + (["--rehearse"] if rehearse else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended: {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def tell(self, do: str, **options: Any) -> None:
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        self.tell(do, **options)
        return self.answer()

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


Times = dict[str, Any]
Pair = tuple[Times, Times]  # of the process that traces, of the one that does not


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def distortion(pairs: list[Pair]) -> dict[str, Any]:
    """Traced over untraced, for the device's time of a step and the host's.

    ``ratio`` compares the medians of all traced steps, of the same indices; ``of_pairs`` step by step within
    each pair of requests; ``of_quiet`` the lower quartiles, which a busy host moves least. ``of_requests``
    compares the traced steps with the untraced last ones of the same request, over the same in the plain
    request: the host's speed, which has been seen to change twofold between requests, cancels out, and so
    does what a profiler leaves behind after it has stopped collecting.
    """
    found: dict[str, Any] = {}
    for which in ("device_ms", "host_ms"):
        ours = [one[0][which][step] for one in pairs for step in range(1, TRACED + 1)]
        theirs = [one[1][which][step] for one in pairs for step in range(1, TRACED + 1)]
        by_pair = [sum(one[0][which][1 : TRACED + 1]) / sum(one[1][which][1 : TRACED + 1]) for one in pairs]
        found[which.removesuffix("_ms")] = {
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "of_pairs": spread(by_pair),
            "of_quiet": quartile(ours) / quartile(theirs),
            "of_requests": spread([early_over_late(a[which]) / early_over_late(b[which]) for a, b in pairs]),
            "traced_ms": statistics.median(ours),
            "plain_ms": statistics.median(theirs),
        }
    return found


def early_over_late(steps_ms: list[float]) -> float:
    """Steps 1 to ``TRACED`` over the last ones, which no request traces; without the step of the stop."""
    late = steps_ms[TRACED + 2 :] or steps_ms[TRACED + 1 :]
    return statistics.median(steps_ms[1 : TRACED + 1]) / statistics.median(late)


def quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def same_work(plain_process: Process, traced_process: Process, pairs: int) -> dict[str, Any]:
    """Both processes untraced: how much two processes differ, before and after one of them has profiled."""
    found: list[Pair] = []
    for index in range(max(1, pairs // 2)):
        order = (traced_process, plain_process) if index % 2 else (plain_process, traced_process)
        times = {id(process): process.ask("plain") for process in order}
        found.append((times[id(traced_process)], times[id(plain_process)]))
    return distortion(found)


def measure(processes: list[Process], case: Case, report: Callable[[Any], None]) -> None:
    """Measure a case detail by detail; ``report`` is given what is known after each."""
    result: dict[str, Any] = {}
    plain_process, traced_process = processes
    try:
        for process in processes:
            process.tell("load")
        result["ready_s"] = [plain_process.answer()["ready_s"], traced_process.answer()["ready_s"]]
        result["before_profiling"] = same_work(plain_process, traced_process, case.pairs)
        result["mapping"] = traced_process.ask("map")
        report(result)
        wanted: list[tuple[str, str | None]] = [(detail, None) for detail in case.details]
        if case.pauses_too:
            wanted += [("source", "PAUSE")]
        for detail, switching in wanted:
            label = detail if switching is None else f"{detail}_{switching.lower()}"
            try:
                result[label] = one_detail(plain_process, traced_process, case, detail, switching, label)
            except Exception as error:  # the other details still count
                result[label] = {"error": str(error)}
            report(result)
        result["after_profiling"] = same_work(plain_process, traced_process, case.pairs)
    finally:
        plain_process.close()
        traced_process.close()
        report(result)


def one_detail(
    plain_process: Process,
    traced_process: Process,
    case: Case,
    detail: str,
    switching: str | None,
    label: str,
) -> dict[str, Any]:
    def traced(*, peer_gzip: bool = False) -> dict[str, Any]:
        return traced_process.ask(
            "trace", detail=detail, switching=switching, name=label, peer_gzip=peer_gzip
        )

    pairs, runs = [], []
    for index in range(case.pairs if detail == "source" else max(1, case.pairs // 2)):
        if index % 2 == 0:
            plain = plain_process.ask("plain")
            runs.append(traced())
        else:
            runs.append(traced(peer_gzip=detail == "full" and index == 1))
            plain = plain_process.ask("plain")
        pairs.append((runs[-1], plain))
    last = runs[-1]
    numbers = ("file_s", "write_s", "after_call_s", "peak_bytes")
    kept = ("raw_export_bytes", "file_raw_bytes", "file_bytes", "events", "kernels", "with_operator",
            "with_line", "with_exact_line", "with_module", "steps_in_file", "resident_bytes",
            "traced")  # fmt: skip
    return {
        **distortion(pairs),
        **{number: spread([run[number] for run in runs]) for number in numbers},
        **{key: last[key] for key in kept if key in last},
        "peer_gzip": {
            key: run[key] for run in runs for key in ("peer_gzip_s", "peer_gzip_bytes") if key in run
        },
        "pauses_ms": [run["pauses_ms"] for run in runs],
        "files_s": [run["file_s"] for run in runs],
        "recompiles": sum(run["recompiles"] for run in runs),
        "said": last["said"],
        "warnings": last["warnings"],
        "clocks": [one["clock"] for pair in pairs for one in pair],
        "plain_ms": pairs[-1][1]["device_ms"],
        "plain_host_ms": pairs[-1][1]["host_ms"],
        "traced_ms": last["device_ms"],
        "traced_host_ms": last["host_ms"],
    }


def summary_lines(name: str, result: dict[str, Any]) -> str:
    """One line a detail, to be read while the rest runs."""
    lines = []
    for label, found in result.items():
        if not isinstance(found, dict) or "device" not in found:
            continue
        line = f"{name:13} {label:16}"
        for which in ("device", "host"):
            one = found[which]
            pairs = f"{one['of_pairs']['median']:.3f}, quiet {one['of_quiet']:.3f}, "
            pairs += f"requests {one['of_requests']['median']:.3f}"
            line += f" {which} {one['ratio']:.3f} ({pairs})"
        if "file_s" in found:
            megabytes = {key: found[key] / 1e6 for key in ("file_bytes", "file_raw_bytes")}
            line += (
                f" file {found['file_s']['median']:6.2f} s {megabytes['file_bytes']:7.2f} MB"
                f" (raw {megabytes['file_raw_bytes']:7.1f})"
                f" peak {found['peak_bytes']['median'] / 1e6:6.0f} MB"
                f" lines {found.get('with_exact_line', 0):.4f}"
            )
        lines.append(line)
    return "\n".join(lines)


def narrowed(case: Case, arguments: argparse.Namespace) -> Case:
    """The case with what the command line leaves of its details and pairs."""
    details = tuple(arguments.details.split(",")) if arguments.details else case.details
    return replace(case, details=details, pairs=arguments.pairs or case.pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out", type=Path, default=Path("gpu_tracing.json"))
    parser.add_argument("--trace-dir", type=Path, default=Path("gpu_tracing_traces"))
    parser.add_argument("--details", default="", help="only these, comma-separated")
    parser.add_argument("--pairs", type=int, default=0, help="of source, instead of the case's own number")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    guard: Callable[[Case], Case] = rehearsal if arguments.rehearse else lambda case: case
    if arguments.worker is not None:
        serve(guard(CASES[arguments.worker]), arguments.trace_dir)
        return 0
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    results: dict[str, Any] = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    names = arguments.cases.split(",")

    def start(name: str) -> list[Process]:
        folder = arguments.trace_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        return [Process(name, folder, rehearse=arguments.rehearse) for _ in range(2)]

    waiting = {name: start(name) for name in names}
    for process in itertools.chain.from_iterable(waiting.values()):
        process.answer()  # it has imported: nothing else runs while a case is measured
    for name in names:
        begin = time.perf_counter()

        def report(result: dict[str, Any], name: str = name, begin: float = begin) -> None:
            results[name] = {**result, "case_s": time.perf_counter() - begin}
            arguments.out.write_text(json.dumps(results, indent=1, default=str))

        folder = arguments.trace_dir / name
        try:
            measure(waiting[name], narrowed(guard(CASES[name]), arguments), report)
            print(summary_lines(name, results[name]), flush=True)
        except Exception as error:  # one case must not cost the others their device time
            traceback.print_exc()
            results[name] = {**results.get(name, {}), "error": f"{type(error).__name__}: {error}"}
            arguments.out.write_text(json.dumps(results, indent=1, default=str))
        thin(folder, name)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


def thin(folder: Path, name: str) -> None:
    """Keep one trace of each detail, and of the large cases only the smallest files."""
    for detail in folder.glob("*/"):
        for extra in sorted(detail.glob("*.gz"))[1:]:
            extra.unlink()
        if name != "launch_bound" and detail.name in {"full", "ops"}:
            shutil.rmtree(detail)
    if name == "launch_bound":  # one file travels better than twenty
        with tarfile.open(folder / "sample.tar", "w") as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name != "sample.tar":
                    archive.add(path, path.relative_to(folder))


if __name__ == "__main__":
    sys.exit(main())
