"""``nsys``: run a command under Nsight Systems, capture the right part of it, explain what came back."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.analyse.nsys_diagnosis import NVTX_REMEDY, diagnose
from stepscope.capture.gpus import nvidia_gpus
from stepscope.capture.nsight.command import NsysLine, NsysRequest, build_line, expected_report, run_nsys
from stepscope.capture.nsight.tool import ASSUMED, INSTALL_REMEDY, find_nsys
from stepscope.model.errors import RunFailedError, StepscopeError, UsageError
from stepscope.model.nsight import Capture, Diagnosis, NsysRun, NsysTool, Trigger
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage
from stepscope.record.atomic import check_writable
from stepscope.record.nsight.keep import keep_export
from stepscope.session.nsight.probe import probe_ranges
from stepscope.session.report import ReportOutcome, report_files


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysOptions:
    """What the user asked for. ``command`` starts with one of ``own_commands`` or is any program's."""

    command: tuple[str, ...]
    own_commands: frozenset[str] = frozenset()
    steps: StepRange | None = None
    stage: Stage | None = None
    delay_s: str | None = None
    duration_s: str | None = None
    trace: tuple[str, ...] | None = None  # None: what the machine has
    output: str | None = None
    passed_on: tuple[str, ...] = ()
    nsys: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysPlan:
    """The line that will be run, and what to know about it."""

    line: NsysLine
    request: NsysRequest
    tool: NsysTool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysOutcome:
    """What came back. ``report`` None: there is nothing to explain, and the first diagnosis says why."""

    run: NsysRun
    diagnoses: tuple[Diagnosis, ...]
    database: Path | None = None
    report: ReportOutcome | None = None

    @property
    def exit_status(self) -> int:
        """The command's own status where it failed, 1 where there is no report."""
        return self.run.exit_status or (1 if self.report is None else 0)


def plan_nsys(options: NsysOptions, *, dry: bool = False) -> NsysPlan:
    """Find nsys and build the line. ``dry`` needs no nsys: the usual flags are taken.

    Raises:
        UsageError: options that exclude each other, no command.
        RunFailedError: there is no nsys.

    """
    _check(options)
    tool = find_nsys(options.nsys)
    notes: list[str] = []
    if tool is None:
        if not dry:
            raise RunFailedError("Nsight Systems is not installed: there is no nsys.", remedy=INSTALL_REMEDY)
        tool = ASSUMED
        notes.append("there is no nsys here to be asked: these are the usual flags, for a machine with a GPU")
    cuda = tool is ASSUMED or (bool(nvidia_gpus()) and _device(options.command) != "cpu")
    request = NsysRequest(
        command=_command(options),
        output=options.output or time.strftime("stepscope-nsys-%Y%m%d-%H%M%S"),
        trace=options.trace or (("cuda", "nvtx") if cuda else ("nvtx",)),
        capture=_capture(options, cuda="cuda" in options.trace if options.trace else cuda),
        delay_s=options.delay_s,
        duration_s=options.duration_s,
        passed_on=options.passed_on,
    )
    line = build_line(request, tool)
    notes += [f"nsys {tool.version} has no {flag}: left out" for flag in line.missing]
    return NsysPlan(line=line, request=request, tool=tool, notes=tuple(notes))


def profile_under_nsys(plan: NsysPlan, *, ended: Callable[[NsysRun], None] = lambda _: None) -> NsysOutcome:
    """Run the line, export the report beside itself and explain it.

    Raises:
        RunFailedError: the output folder cannot be written, or nsys cannot be started.

    """
    expected = expected_report(plan.line, plan.request)
    if expected is not None:
        check_writable(expected.parent)
        expected.parent.mkdir(parents=True, exist_ok=True)  # nsys does not make it
    run = run_nsys(plan.line, plan.request)
    ended(run)
    report = run.report or next((path for path in run.elsewhere if path.suffix == ".nsys-rep"), None)
    if report is None:
        return NsysOutcome(run=run, diagnoses=_told_apart(diagnose(run, None), plan))
    database = report.with_suffix(".sqlite")
    try:
        facts = keep_export(report, database, nsys=plan.tool.path)
    except StepscopeError as error:
        failed = Diagnosis(id="not_exported", text=error.message, remedy=error.remedy, fatal=True)
        return NsysOutcome(run=run, diagnoses=(failed, *diagnose(run, None)))
    diagnoses = diagnose(run, facts)
    try:
        return NsysOutcome(run=run, diagnoses=diagnoses, database=database, report=report_files([database]))
    except StepscopeError as error:
        empty = Diagnosis(id="nothing_recorded", text=error.message, remedy=error.remedy, fatal=True)
        return NsysOutcome(run=run, diagnoses=(*diagnoses, empty), database=database)


def _told_apart(found: tuple[Diagnosis, ...], plan: NsysPlan) -> tuple[Diagnosis, ...]:
    """A range that opens nothing and a range that nsys cannot see leave the same words: try it."""
    capture = plan.request.capture
    if not any(one.id == "never_opened" for one in found):
        return found
    if capture is None or capture.trigger is not Trigger.NVTX or plan.tool.path is None:
        return found
    if probe_ranges(plan.tool).recorded is not False:
        return found
    text = f"nsys {plan.tool.version} sees no ranges of this Python's nvtx package, which open the capture."
    return (Diagnosis(id="nvtx_too_new", text=text, remedy=NVTX_REMEDY, fatal=True),)


def _check(options: NsysOptions) -> None:
    if not options.command:
        raise UsageError(
            "there is no command to profile.", remedy='stepscope nsys -- generate --prompt "..."'
        )
    windows = {
        "--steps": options.steps is not None,
        "--stage": options.stage is not None,
        "--delay or --duration": options.delay_s is not None or options.duration_s is not None,
    }
    asked = [flag for flag, given in windows.items() if given]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} exclude each other.", remedy="Give one of them.")
    if options.command[0] in options.own_commands and _has_flag(options.command, "--profile"):
        raise UsageError(
            "--profile and nsys exclude each other: one process has room for one CUDA profiler.",
            remedy="Leave --profile out.",
        )


def _has_flag(command: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in command)


def _command(options: NsysOptions) -> tuple[str, ...]:
    """The command as nsys is to start it: ours in this Python."""
    if options.command[0] not in options.own_commands:
        return options.command
    script = Path(sys.executable).with_name("stepscope")
    if shutil.which("stepscope") == str(script):
        return ("stepscope", *options.command)
    return (sys.executable, "-m", "stepscope", *options.command)


def _capture(options: NsysOptions, *, cuda: bool) -> Capture | None:
    """What is captured: of our own commands never the loading and the warm-up, of others everything."""
    if options.delay_s is not None or options.duration_s is not None:
        return Capture(trigger=Trigger.NONE)
    asked = options.steps is not None or options.stage is not None
    if options.command[0] not in options.own_commands and not asked:
        return None
    trigger = Trigger.CUDA_PROFILER if cuda else Trigger.NVTX
    return Capture(trigger=trigger, steps=options.steps, stage=options.stage)


def _device(command: Sequence[str]) -> str | None:
    """What ``--device`` says in a command of ours."""
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if word == "--device":
            return following
        if word.startswith("--device="):
            return word.partition("=")[2]
    return None
