"""What goes wrong around an engine, live on a CPU: the engine is unharmed and what was recorded is kept.

    python benchmarks/engines/mishaps.py [ENGINES] [--only NAME] [--keep FOLDER]       (default: .engines)

``served``: SGLang's server with stepscope installed beside it and ``STEPSCOPE`` alone (its plugin group):
several requests at once, one whose client hangs up half-way, one whose worker is killed. ``filtered``: plugin
filters that leave stepscope out. ``aborted``: vLLM-Omni with several requests at once, of which one is
cancelled. Run by ``make engines``; some five minutes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serving import HERE, ROOT, STAND_INS, Server, start, stepscope

AT_ONCE = 4
LONG = 300
"""Steps of a request that is cancelled half-way."""
ENDLESS = 2000
"""Steps of a request whose worker is killed."""
OMNI = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", type=Path, nargs="?", default=ROOT / ".engines")
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--keep", type=Path, help="leave logs and records here")
    arguments = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        for part, work in PARTS.items():
            if arguments.only in (None, part):
                folder = (arguments.keep or Path(name)).absolute() / part
                folder.mkdir(parents=True, exist_ok=True)
                print(f"\n## {part}\n", flush=True)
                failures += [
                    f"{part}: {text}"
                    for text, holds in work(arguments.engines.absolute(), folder)
                    if not holds
                ]
    print("\n".join(f"FAILED: {failure}" for failure in failures) or "\nEverything that must hold holds.")
    sys.exit(bool(failures))


Checks = list[tuple[str, bool]]
"""What must hold, and whether it does."""


def served(engines: Path, work: Path) -> Checks:
    """``STEPSCOPE=records sglang serve``, stepscope being installed where the engine finds its plugins."""
    beside = installed(engines, work)
    records = work / "records"
    path = os.pathsep.join((str(beside), str(STAND_INS / "sglang_cpu")))
    server = start((), engines, work / "server.log", PYTHONPATH=path, STEPSCOPE=str(records))
    try:
        server.wait_until_ready()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            together = list(pool.map(server.answered, (f"together {number}" for number in range(AT_ONCE))))
        server.hang_up("hung up", LONG, after_s=0.5)
        afterwards = server.answered("after the one that was cancelled")
        before = shown(records)
        killed = kill_the_worker(server, records)
    finally:
        server.stop()
    after = shown(records)
    print(
        "while it served:",
        *before.splitlines(),
        "after the worker was killed:",
        *after.splitlines(),
        sep="\n",
    )
    return [
        ("a request of several at once failed", all(together)),
        ("the request after the cancelled one failed", afterwards),
        ("the records of the requests before", before.count("sglang ") == AT_ONCE + 3),
        (
            f"the cancelled request's {LONG} steps or why there are fewer",
            f"{LONG} steps" in before or "incomplete" in before,
        ),
        ("a record was lost with the killed worker", after.count("sglang ") == AT_ONCE + 3),
        (
            "the killed worker's request was not named",
            f"process {killed} ended in the middle of request" in after,
        ),
    ]


def installed(engines: Path, work: Path) -> Path:
    """Stepscope beside the engine: by pip into a folder on the engine's path, nothing else with it."""
    folder = work / "site"
    command = [engines / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", folder, ROOT]
    subprocess.run(command, check=True)
    return folder


def kill_the_worker(server: Server, records: Path) -> int:
    """In the middle of a request; its process id is the name of the file that says which one it is at."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.answered, "killed", ENDLESS)
        end = time.monotonic() + 60
        while not (running := list((records / "running").iterdir())) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        pid = int(running[0].name)
        os.kill(pid, signal.SIGKILL)
        server.stop()
        answer.result()
    return pid


def shown(records: Path) -> str:
    """What ``stepscope requests`` says of them."""
    done = subprocess.run(stepscope("requests", records), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def filtered(engines: Path, work: Path) -> Checks:
    """A filter that lets other plugins in and not us: that way is shut, ``stepscope run``'s not."""
    beside = installed(engines, work)
    checks: Checks = []
    (work / "cases.json").write_text('[{"name": "one"}]')
    model = engines / "models" / "Qwen" / "Qwen-Image"
    sglang = [HERE / "sglang_requests.py", model, "cases.json", "done.json"]
    omni = [HERE / "omni_requests.py", "--model", model]
    for engine, command, path, variables in (
        ("sglang", sglang, "sglang_cpu", {"SGLANG_PLUGINS": "cpu_ops"}),
        ("vllm_omni", omni, "vllm_omni_cpu", {"VLLM_PLUGINS": "cpu,patch", **OMNI}),
    ):
        full = [engines / "env" / "bin" / "python", *command]
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(STAND_INS / path)}
        with_us = f"{beside}{os.pathsep}{STAND_INS / path}"
        alone = {**environment, "PYTHONPATH": with_us, "STEPSCOPE": str(work / f"{engine}-alone")}
        run(full, work, alone)
        said = shown(work / f"{engine}-alone")
        below = run(stepscope("run", "--records", work / f"{engine}-run", "--", *full), work, environment)
        lines = [line for line in below.splitlines() if line.startswith("stepscope: ")]
        print(f"{engine}, {' '.join(f'{key}={value}' for key, value in variables.items())}")
        print("by the plugin group:", said.strip(), "below stepscope run:", *lines, sep="\n")
        checks += [
            (f"{engine}: nothing says that a filter may have left us out", "leaves stepscope out" in said),
            (f"{engine}: not observed below stepscope run", f"stepscope: {engine} " in below),
        ]
    return checks


def run(command: list, work: Path, environment: dict[str, str]) -> str:
    """The command's output; its failure is ours."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def aborted(engines: Path, work: Path) -> Checks:
    """vLLM-Omni step by step in a worker, three requests at once of which one is cancelled."""
    script = [
        engines / "env" / "bin" / "python",
        HERE / "omni_several.py",
        engines / "models" / "tiny" / "Qwen-Image",
    ]
    path = {"PYTHONPATH": str(STAND_INS / "vllm_omni_cpu"), "OMP_NUM_THREADS": "1"}
    said = run(
        stepscope("run", "--records", work / "records", "--", *script), work, {**os.environ, **OMNI, **path}
    )
    lines = [line for line in said.splitlines() if line.startswith(("stepscope: ", "ANSWERED ", "CANCELLED"))]
    print(*lines, sep="\n")
    answered = [line for line in lines if line.startswith("ANSWERED ")]
    return [
        ("a request that was not cancelled got no answer", len(answered) == 4),
        ("no request was cancelled", any(line.startswith("CANCELLED") for line in lines)),
        ("the cancelled request's record", "the engine ended it before its last step" in said),
        ("a fault of ours", "own fault" not in said),
    ]


PARTS = {"served": served, "filtered": filtered, "aborted": aborted}

if __name__ == "__main__":
    main()
