"""What went wrong with a capture by Nsight Systems, told from its own words and from what it exported.

Its exit status proves nothing: 0 where the capture never opened, where the report went elsewhere and where
the disk was full. The words are those of versions 2022.4 and 2023.4 (recorded in tests/data/nsys).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from stepscope.model.nsight import Diagnosis, ExportFacts, NsysRun, Trigger

Rule = Callable[[NsysRun, "ExportFacts | None"], "Diagnosis | None"]

_UNKNOWN_FLAG = re.compile(r"unrecogni[sz]ed option '([^']*)'|unknown option[: ]+'?([^'\n]*)", re.I)
_NOT_STARTED = re.compile(
    r"Executable not found|Connection to the Agent lost|Failed to (?:launch|start)", re.I
)
_LOST_START = re.compile(r"ProcessWaiter.*sem_open", re.DOTALL)
_NOT_CREATED = re.compile(r"Failed to create '([^']*)': ([^.\n]*)")
_DISK_FULL = re.compile(r"No space left on device|disk quota exceeded", re.I)
_NO_IMPORTER = re.compile(r"importer binary.*not found|skipping importation", re.I)
_OPENED = re.compile(r"Capture range started", re.I)
_NVTX_TOO_NEW = re.compile(r"NVTX binary payload extension is incompatible", re.I)
_NO_SAMPLING = re.compile(
    r"perf_event_paranoid|CAP_SYS_ADMIN|ERR_NVGPUCTRPERM"
    r"|(?:CPU|IP)[^\n]{0,40}sampl[^\n]{0,80}(?:not supported|not available|disabled|permission|privilege)",
    re.I,
)
_DRIVER = re.compile(
    r"[^\n]*driver version[^\n]*(?:not supported|unsupported|newer|older|too old|mismatch)[^\n]*"
    r"|[^\n]*(?:unsupported|incompatible)[^\n]*driver[^\n]*",
    re.I,
)
_OTHER_CLIENT = re.compile(
    r"MULTIPLE_SUBSCRIBERS|another (?:CUPTI|profiler|profiling)[^\n]*|CUPTI[^\n]{0,60}(?:in use|already)",
    re.I,
)

NVTX_REMEDY = 'Install one that it understands, pip install "nvtx==0.2.11", or a newer Nsight Systems.'


def diagnose(run: NsysRun, facts: ExportFacts | None) -> tuple[Diagnosis, ...]:
    """Everything recognised, the gravest first. ``facts`` None: there is no export."""
    found = [diagnosis for rule in RULES if (diagnosis := rule(run, facts)) is not None]
    if facts is None and not found:
        found.append(_unknown(run))
    return tuple(sorted(found, key=lambda one: not one.fatal))


def unknown_flag(run: NsysRun, _facts: ExportFacts | None) -> Diagnosis | None:
    """A flag passed on that this nsys does not have."""
    match = _UNKNOWN_FLAG.search(run.said)
    if match is None:
        return None
    return Diagnosis(
        id="unknown_flag",
        text=f"nsys does not know {match[1] or match[2]}.",
        remedy="Leave it out; see nsys profile --help.",
        fatal=True,
    )


def lost_start(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """Nsys 2022.4 on a busy machine: its parts miss each other when it starts (4 of some 100 starts)."""
    if facts is not None or not _LOST_START.search(run.said):
        return None
    return Diagnosis(
        id="nsys_start_failed",
        text="nsys itself failed at its start; its parts missed each other on a busy machine.",
        remedy="Run the command again.",
        fatal=True,
    )


def not_started(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """The application could not be started, or died at once."""
    if facts is not None or run.report is not None or not _NOT_STARTED.search(run.said):
        return None
    return Diagnosis(
        id="not_started",
        text="nsys could not start the command, or it ended at once.",
        remedy="Run the command without nsys first.",
        fatal=True,
    )


def report_elsewhere(run: NsysRun, _facts: ExportFacts | None) -> Diagnosis | None:
    """Nsys exits with 0 and puts the report into the temporary folder."""
    if _DISK_FULL.search(run.said):
        return _disk_full(run)
    match = _NOT_CREATED.search(run.said)
    if match is None:
        return None
    where = f" The report is at {_named(run.elsewhere)}." if run.elsewhere else ""
    remedies = {
        "File exists": "Give another -o, or --force-overwrite=true.",
        "No such file or directory": "Create the folder first.",
    }
    return Diagnosis(
        id="output_not_writable",
        text=f"nsys could not write {match[1]}: {match[2]}.{where}",
        remedy=remedies.get(match[2], "Give an -o that can be written."),
        fatal=not run.elsewhere,
    )


def _disk_full(run: NsysRun) -> Diagnosis:
    left = f" The raw capture is at {_named(run.elsewhere)}." if run.elsewhere else ""
    return Diagnosis(
        id="disk_full",
        text=f"The disk was full, so nsys made no report.{left}",
        remedy="Free some space, or give an -o on another disk, and fewer steps.",
        fatal=True,
    )


def importer_missing(run: NsysRun, _facts: ExportFacts | None) -> Diagnosis | None:
    """A .qdstrm is left: the raw capture, which only the host part of nsys turns into a report."""
    raw = [path for path in run.elsewhere if path.suffix == ".qdstrm"]
    if _DISK_FULL.search(run.said) or not (_NO_IMPORTER.search(run.said) or (raw and run.report is None)):
        return None
    name = str(raw[0]) if raw else "NAME.qdstrm"
    folder = Path(run.command[0]).parent.parent if run.command else Path()
    return Diagnosis(
        id="importer_missing",
        text=f"nsys found no importer and left the raw capture{f' at {name}' if raw else ''}.",
        remedy=f"Where the whole of Nsight Systems is installed: QdstrmImporter -i {name}. On Debian, once: "
        f"ln -s /usr/lib/nsight-systems/host-linux-x64 {folder}/",
        fatal=run.report is None,
    )


def never_opened(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """The capture range never opened: nsys prints 'Generated:' with nothing below and exits with 0."""
    capture = run.capture
    triggered = capture is not None and capture.trigger is not Trigger.NONE
    if capture is None or not triggered or run.report is not None or _OPENED.search(run.said):
        return None
    if facts is not None or run.elsewhere or "Generated:" not in run.said:
        return None
    if run.exit_status:
        why, remedy = f"the command ended with status {run.exit_status} before", "See its own error above."
    else:
        why = f"the command never came to {capture.what}"
        remedy = (
            "Ask for steps or a stage that the run has (stepscope generate shows them). A command that "
            "stepscope does not observe opens none: use stepscope run, or --delay and --duration."
        )
    return Diagnosis(id="never_opened", text=f"Nothing was captured: {why}.", remedy=remedy, fatal=True)


def nvtx_too_new(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """Our domain was created and holds no range, or the export says so itself."""
    if facts is None or "nvtx" not in run.traced:
        return None
    said = any(_NVTX_TOO_NEW.search(text) for text in facts.diagnostics)
    if not said and not (facts.our_domain and not facts.our_ranges):
        return None
    return Diagnosis(
        id="nvtx_too_new",
        text="The command's nvtx package is newer than this nsys understands: no range was recorded.",
        remedy=NVTX_REMEDY,
    )


def no_kernels(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """A report with no kernel in it, and the likeliest of the known reasons."""
    if facts is None or facts.kernels:
        return None
    text, remedy = _why_no_kernels(run, facts)
    return Diagnosis(id="no_kernels", text=text, remedy=remedy) if text else None


def _why_no_kernels(run: NsysRun, facts: ExportFacts) -> tuple[str, str]:
    words = "\n".join((run.said, *facts.diagnostics))
    if "cuda" not in run.traced:
        if not facts.gpus:
            return "", ""  # a machine without a GPU: nothing is missing
        return "There are no kernels: cuda was not traced.", "Give --trace cuda,nvtx."
    if facts.whole_graphs:
        return (
            f"The kernels are inside {facts.whole_graphs} CUDA graph replays, which were traced as a whole.",
            "Give --cuda-graph-trace=node.",
        )
    if other := _OTHER_CLIENT.search(words):
        return (
            f"There are no kernels: another CUPTI client was at work ({other[0].strip()}).",
            "Leave out --profile and other torch profilers, and stop DCGM's profiling while nsys runs.",
        )
    if driver := _DRIVER.search(words):
        return (
            f"There are no kernels: {driver[0].strip().rstrip('.')}.",
            "Install the Nsight Systems that fits the driver: as new as the CUDA version in nvidia-smi.",
        )
    if facts.launches:
        return (
            "CUDA calls were recorded but no kernel: the process ended before its buffers were flushed, or "
            "the driver is newer than this nsys supports.",
            "Let the command end by itself (no kill, no os._exit), or install a newer Nsight Systems.",
        )
    return (
        "There are no kernels and no CUDA calls: the traced process did not use CUDA.",
        "Did it run on the CPU? If a child process does the work, give --trace-fork-before-exec=true and "
        "let it live until the capture ends.",
    )


def driver_mismatch(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """A driver that this nsys was not made for, while something was recorded."""
    match = _DRIVER.search("\n".join((run.said, *(facts.diagnostics if facts else ()))))
    if match is None or (facts is not None and not facts.kernels):
        return None
    return Diagnosis(
        id="driver_mismatch",
        text=match[0].strip(),
        remedy="Install the Nsight Systems that fits the driver if something is missing.",
    )


def no_sampling(run: NsysRun, facts: ExportFacts | None) -> Diagnosis | None:
    """CPU samples or GPU metrics were asked for and not allowed."""
    match = _NO_SAMPLING.search("\n".join((run.said, *(facts.diagnostics if facts else ()))))
    if match is None:
        return None
    return Diagnosis(
        id="no_sampling_permission",
        text="CPU sampling or GPU metrics were not allowed; kernels and ranges do not need them.",
        remedy="Leave out --sample and --gpu-metrics-device, or: sudo sysctl kernel.perf_event_paranoid=2; a "
        "container needs --cap-add=SYS_ADMIN.",
    )


def _unknown(run: NsysRun) -> Diagnosis:
    lines = [line.strip() for line in run.said.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    return Diagnosis(
        id="no_report",
        text=f"nsys made no report (exit status {run.exit_status}): {last}",
        remedy="Run stepscope doctor.",
        fatal=True,
    )


def _named(paths: tuple[Path, ...]) -> str:
    return " and ".join(str(path) for path in paths)


RULES: tuple[Rule, ...] = (
    unknown_flag,
    lost_start,
    not_started,
    report_elsewhere,
    importer_missing,
    never_opened,
    nvtx_too_new,
    no_kernels,
    driver_mismatch,
    no_sampling,
)
