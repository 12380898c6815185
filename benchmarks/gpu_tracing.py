"""What does tracing cost, what does it leave, and how much of it has a source line? Measured on a GPU.

    python benchmarks/gpu_tracing.py --out results.json --trace-dir traces [--cases qwen,launch_bound,...]

For each case two processes hold the same model: one never starts a profiler, the other traces. Requests are
interleaved A B B A, on one core, as the cores of a shared host differ twofold; ratios are those of the same
step, traced over untraced. ``full`` is the peer setting.
``--rehearse`` runs every case on tiny models on whatever device there is: to try the script, not for figures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import shutil
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracing.cases import CASES, Case, rehearsal
from tracing.distortion import Pair, distortion, spread, summary_lines
from tracing.processes import Process, quietest_core
from tracing.worker import serve


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
    parser.add_argument("--core", type=int, help="that requests run on; the quietest if not given")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    guard: Callable[[Case], Case] = rehearsal if arguments.rehearse else lambda case: case
    if arguments.worker is not None:
        serve(guard(CASES[arguments.worker]), arguments.trace_dir, arguments.core)
        return 0
    import torch

    core = quietest_core() if arguments.core is None else arguments.core
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    results: dict[str, Any] = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "core": core,
    }
    names = arguments.cases.split(",")

    def start(name: str) -> list[Process]:
        folder = arguments.trace_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            __file__,
            "--worker",
            name,
            "--trace-dir",
            str(folder),
            "--core",
            str(core),
        ]
        return [Process(command + ["--rehearse"] * arguments.rehearse) for _ in range(2)]

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
