"""The engines for real on a CPU, observed: what must hold is checked, the figures are printed as Markdown.

    python benchmarks/engines/demonstrate.py [ENGINES] [--only sglang|vllm_omni|cache_dit]

Run by ``make engines`` after setup_engines.py; about 8 minutes on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from third_clock import CLOSE_MS, Interval, Third, apart, of_sglang, of_vllm_omni, within

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STEPSCOPE = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from stepscope.cli import main
sys.exit(main())
"""
CASES = [
    {"name": "first request"},
    {"name": "untraced"},
    {"name": "SGLang traces 3", "own": {"profile": True, "num_profiled_timesteps": 3}},
    {"name": "SGLang traces -1", "own": {"profile": True, "num_profiled_timesteps": -1}},
    {"name": "SGLang traces all stages", "own": {"profile": True, "profile_all_stages": True}},
    {"name": "we trace 3", "control": {"every": True, "steps": 3}},
    {"name": "we trace -1", "control": {"every": True, "steps": -1}},
    {"name": "we trace all stages", "control": {"every": True, "all_stages": True}},
    {"name": "not observed", "control": {"observe": False}},
]
TRACED = {  # which steps are in the trace, whoever made it
    "SGLang traces 3": [1, 2, 3, 4],
    "SGLang traces -1": [1, 2, 3, 4, 5, 6, 7],
    "SGLang traces all stages": [*range(8)],
    "we trace 3": [1, 2, 3],
    "we trace -1": [*range(8)],
    "we trace all stages": [*range(8)],
}
MARKED = {**TRACED, "we trace 3": [0, 1, 2, 3]}  # in our dump: our profiler warms up in step 0, which it says
CACHE_DIT = {  # two steps of warm-up, at most two cached in a row, a threshold that all pass
    "SGLANG_CACHE_DIT_ENABLED": "true",
    "SGLANG_CACHE_DIT_RDT": "10",
    "SGLANG_CACHE_DIT_WARMUP": "2",
    "SGLANG_CACHE_DIT_MC": "2",
}
SLACK = 0.25
"""How much longer a pause of ours may be than a profiler's work in it: letting go of its events is in ours
and in none of the methods that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", type=Path, nargs="?", default=ROOT / ".engines")
    parser.add_argument("--only", choices=["sglang", "vllm_omni", "cache_dit"])
    parser.add_argument("--keep", type=Path, help="leave dumps, records and traces here")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # minutes lie between two tables
    engines, wanted = arguments.engines.absolute(), arguments.only
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        work = (arguments.keep or Path(name)).absolute()
        if wanted in (None, "sglang"):
            failures += sglang(engines, work / "sglang")
            failures += sglang_otherwise(engines, work, "diffusers", BACKEND="diffusers")
            failures += sglang_otherwise(engines, work, "cache_dit", **CACHE_DIT)
        for mode in ("uniproc", "mp"):
            if wanted in (None, "vllm_omni"):
                failures += vllm_omni(engines, work / mode, mode)
        if wanted in (None, "cache_dit"):
            failures += cache_dit(engines, work / "cache_dit")
    print("\n".join(f"FAILED: {failure}" for failure in failures) or "\nEverything that must hold holds.")
    sys.exit(bool(failures))


def run(
    engines: Path,
    work: Path,
    paths: list[str],
    command: list,
    *,
    observed: bool = True,
    **variables: str,
) -> str:
    """The command in the engines' environment, below ``stepscope run`` or plainly; its output."""
    work.mkdir(parents=True, exist_ok=True)
    python = engines / "env" / "bin" / "python"
    ours = ["run", "--perf-dump-path", "ours.json", "--run-dir", "runs"]
    ours += ["--records", "records", "--profile-dir", "traces", "--"]
    full = [*([sys.executable, "-c", STEPSCOPE, *ours] if observed else []), python, *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables, "PLAIN_TIMES": str(work / "plain")}
    environment["PYTHONPATH"] = os.pathsep.join(str(HERE / path) for path in paths)
    done = subprocess.run(
        [str(part) for part in full],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    (work / f"{'observed' if observed else 'plain'}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def sglang(engines: Path, work: Path) -> list[str]:
    """One generator, nine requests: SGLang's own profiling, ours, none."""
    work.mkdir(parents=True, exist_ok=True)
    cases = [with_dump(case, f"own-{number}.json") for number, case in enumerate(CASES)]
    (work / "cases.json").write_text(json.dumps(cases))
    paths = ["stand_ins/sglang_cpu", "plain_times"]
    script = [HERE / "sglang_requests.py", engines / "models" / "Qwen" / "Qwen-Image", "cases.json"]
    run(engines, work, paths, [*script, "done.json"])
    (work / "one.json").write_text(json.dumps(CASES[:2]))
    run(engines, work, paths[:1], [*script[:2], "one.json", "alone.json"], observed=False)
    done, alone = (json.loads((work / name).read_text()) for name in ("done.json", "alone.json"))
    plain = [json.loads(path.read_text()) for path in sorted((work / "plain").glob("*.json"))]
    failures = []
    pictures = {case["picture"] for case in [*done, *alone]}
    if len(pictures) != 1 or None in pictures:
        failures.append(f"sglang: the pictures differ: {pictures}")
    print("## SGLang 0.5.23, tiny Qwen-Image, 8 steps: milliseconds of each step\n")
    print("| request | who | " + " | ".join(f"{step}" for step in range(8)) + " | DenoisingStage |")
    print("|---" * 11 + "|")
    for number, case in enumerate(CASES[:-1]):
        ours = dump(work / ("ours.json" if number == 0 else f"ours-{number}.json"))
        theirs = dump(work / f"own-{number}.json")
        third = of_sglang(plain[number])
        failures += check(case["name"], ours, third, pauses_of(work, ours))
        row(case["name"], "stepscope", steps_of(ours), stage_of(ours))
        row("", "SGLang's dump", steps_of(theirs), stage_of(theirs))
        row("", "times only", third.own_ms, sum(third.own_ms))
    print()
    return failures


def sglang_otherwise(engines: Path, work: Path, kind: str, **variables: str) -> list[str]:
    """Its diffusers backend, or its native one with cache-dit: one request with us and without."""
    work = work / f"sglang_{kind}"
    work.mkdir(parents=True, exist_ok=True)
    (work / "cases.json").write_text(json.dumps(CASES[:1]))
    script = [HERE / "sglang_requests.py", engines / "models" / "Qwen" / "Qwen-Image", "cases.json"]
    run(engines, work, ["stand_ins/sglang_cpu"], [*script, "done.json"], **variables)
    run(engines, work, ["stand_ins/sglang_cpu"], [*script, "alone.json"], observed=False, **variables)
    ours, told = dump(work / "ours.json"), reported(work / "ours.json")["step_cache"]
    cached = [step["step"] for step in ours["denoise_steps_ms"] if step["work"] != "computed"]
    print(f"## SGLang 0.5.23, {kind}: {len(steps_of(ours))} steps; report: step_cache {told}\n")
    pictures = [json.loads((work / name).read_text())[0]["picture"] for name in ("done.json", "alone.json")]
    checks = {
        f"steps {steps_of(ours)}": len(steps_of(ours)) == 8,
        f"steps sum to {sum(steps_of(ours))}": abs(sum(steps_of(ours)) - stage_of(ours)) < 0.01,
        f"unaccounted {ours['unaccounted_ms']} ms": abs(ours["unaccounted_ms"]) < 1,
        f"the pictures differ: {pictures}": pictures[0] == pictures[1] is not None,
        f"warnings: {ours['warnings']}": "own word" not in str(ours["warnings"]),  # where the cache says else
        f"cached steps {cached}, the report says {told}": (
            (told or {}).get("cached_steps", []) == cached == ([2, 3, 5, 6] if kind == "cache_dit" else [])
        ),
    }
    return [f"sglang, {kind}: {text}" for text, holds in checks.items() if not holds]


def reported(path: Path) -> dict:
    """The run in what ``stepscope report`` says of a dump."""
    command = [sys.executable, "-c", STEPSCOPE, "report", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["runs"][0]


def with_dump(case: dict, path: str) -> dict:
    return {**case, "own": {**case.get("own", {}), "perf_dump_path": path}}


def pauses_of(work: Path, ours: dict) -> list[Interval]:
    """The pauses in our record of the request, in milliseconds of the third clock's own clock."""
    run = json.loads((work / "runs" / f"{ours['request_id']}-rank{ours['rank']}" / "run.json").read_text())
    return [(pause["host_start_ns"] / 1e6, pause["host_end_ns"] / 1e6) for pause in run["pauses"]]


def check(name: str, ours: dict, third: Third, pauses: list[Interval]) -> list[str]:
    """What must hold of one request."""
    steps = steps_of(ours)
    failed = []
    traced = [step["step"] for step in ours["denoise_steps_ms"] if step["traced"]]
    if len(steps) != 8:
        failed.append(f"{len(steps)} steps")
    if abs(sum(steps) - stage_of(ours)) > 0.01:
        failed.append(f"steps sum to {sum(steps)}, the stage is {stage_of(ours)}")
    if traced != MARKED.get(name, []):
        failed.append(f"traced steps {traced}")
    if abs(ours["unaccounted_ms"]) > 1:
        failed.append(f"unaccounted {ours['unaccounted_ms']} ms")
    failed += apart(steps, pauses, third)
    failed += unexplained(pauses, third)
    for trace in ours["traces"]:
        held = sorted(steps_in(Path(trace["path"])))
        if held != TRACED[name]:
            failed.append(f"the trace holds steps {held}")
    if name.startswith("we trace") and not ours["traces"]:
        failed.append("no trace")
    return [f"sglang, {name}: {failure}" for failure in failed]


def unexplained(pauses: list[Interval], third: Third) -> list[str]:
    """Pauses of ours in the denoising stage that are not a profiler's work by the third clock."""
    paused = [within(pauses, step) for step in third.steps]
    profiler = [within(third.profiler, step) for step in third.steps]
    return [
        f"step {number}: a pause of {ours:.1f} ms, a profiler was at work for {theirs:.1f}"
        for number, (ours, theirs) in enumerate(zip(paused, profiler, strict=True))
        if not theirs - CLOSE_MS <= ours <= (1 + SLACK) * theirs + CLOSE_MS
    ]


def steps_in(path: Path) -> set[int]:
    """The steps that a trace of ours marks."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    named = (re.fullmatch(r"denoising_step_(\d+)", str(event.get("name", ""))) for event in events)
    return {int(match[1]) for match in named if match}


def vllm_omni(engines: Path, work: Path, mode: str) -> list[str]:
    """Two requests, observed and not."""
    command = [HERE / "omni_requests.py", "--model", engines / "models" / "Qwen" / "Qwen-Image"]
    command += ["--mode", mode, "--requests", "2"]
    variables = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1"}
    paths = ["stand_ins/vllm_omni_cpu", "plain_times"]
    observed = run(engines, work, paths, command, **variables)
    plain = run(engines, work, paths[:1], command, observed=False, **variables)
    failures = []
    pictures = {*re.findall(r"PICTURE (\w+)", observed), *re.findall(r"PICTURE (\w+)", plain)}
    if len(pictures) != 1:
        failures.append(f"vllm_omni {mode}: the pictures differ: {pictures}")
    took = re.findall(r"'stage_0_gen_ms': ([\d.]+)", observed)
    print(f"## vLLM-Omni 0.30.0, {mode}: milliseconds\n")
    third = of_vllm_omni(json.loads(max((work / "plain").glob("*.json")).read_text()), steps=8)
    if len(third) != 2:
        return [*failures, f"vllm_omni {mode}: the third clock saw {len(third)} requests"]
    print("| request | its own stage_0_gen_ms | pipeline | outside | steps |\n|---|---|---|---|---|")
    for number in range(2):
        ours = dump(work / ("ours.json" if number == 0 else "ours-1.json"))
        steps, outside = steps_of(ours), sum(item["duration_ms"] for item in ours["outside_stages"])
        print(
            f"| {number} | {float(took[number]):.1f} | {ours['total_duration_ms']:.1f} | {outside:.1f} |"
            f" {' '.join(f'{step:.1f}' for step in steps)} |"
        )
        print(f"| | times only | | | {' '.join(f'{ms:.1f}' for ms in third[number].own_ms)} |")
        failures += [f"vllm_omni {mode}, {failure}" for failure in apart(steps, [], third[number])]
        if len(steps) != 8 or abs(sum(steps) - stage_of(ours)) > 0.01 or abs(ours["unaccounted_ms"]) > 1:
            failures.append(f"vllm_omni {mode}: steps {steps}, unaccounted {ours['unaccounted_ms']}")
        if "0.0 ms of it unknown" not in observed:
            failures.append(f"vllm_omni {mode}: the client's wall time is not accounted for")
    print()
    return failures


def cache_dit(engines: Path, work: Path) -> list[str]:
    """On diffusers: the cached steps by the cache's own context and by the blocks we saw."""
    work.mkdir(parents=True, exist_ok=True)
    script = [HERE / "cache_dit_requests.py", engines / "models" / "Qwen" / "Qwen-Image", "out.json"]
    run(engines, work, ["../../src"], script, observed=False)
    found = json.loads((work / "out.json").read_text())
    print("## cache-dit 1.5.1 on diffusers, 12 steps\n")
    print("| threshold | the cache says | seen | theoretical | effective |\n|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one['threshold']} | {one['cache_says']} | {one['seen']} |"
            f" {one['theoretical_speedup']:.2f} | {one['effective_speedup']:.2f} |"
        )
    right = [
        one["cache_says"] == one["seen"] and one["same_picture"] and not one["warnings"] for one in found
    ]
    return [f"cache-dit: {one}" for one, fine in zip(found, right, strict=True) if not fine]


def dump(path: Path) -> dict:
    return json.loads(path.read_text())


def steps_of(content: dict) -> list[float]:
    return [step["duration_ms"] for step in content["denoise_steps_ms"]]


def stage_of(content: dict) -> float:
    return sum(stage["duration_ms"] for stage in content["steps"] if stage["name"] == "DenoisingStage")


def row(name: str, who: str, steps: list[float], stage: float | None) -> None:
    shown = " | ".join(f"{step:.1f}" for step in steps)
    print(f"| {name} | {who} | {shown} | {'' if stage is None else f'{stage:.1f}'} |")


if __name__ == "__main__":
    main()
