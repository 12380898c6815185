"""``stepscope run``: somebody else's program, unchanged, with every pipeline call in it measured."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.command import Outcome
from stepscope.cli.parser import Parser
from stepscope.cli.values import a_path, call_numbers, step_count
from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.session.attach_plan import AttachOptions
    from stepscope.session.attached_run import ObservedProcess
    from stepscope.session.run_script import Program


SHOWN_FILES = 10


class RunCommand:
    """Run a Python program unchanged and measure every diffusers pipeline call in it.

    Flags of stepscope come before the program, what follows it is the program's own. It runs as python would
    run it: same arguments, import path, exit status and traceback. Each pipeline call is a run with its own
    id and files: perf.json, perf-1.json, ... What was measured is shown on standard error at the end.
    After -- comes any command, such as an engine: its Python processes and those they start are observed.
    """

    name = "run"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Our own flags; the parser stops at the first word that is none of them."""
        parser.usage = "stepscope run [flags] (SCRIPT | -m MODULE | -- COMMAND) [arguments of the program]"
        if isinstance(parser, Parser):
            parser.stops_at_program = True
        measure = parser.add_argument_group("what to measure")
        measure.add_argument(
            "--profile", action="store_true", help="trace with torch.profiler: kernels, shapes, stacks"
        )
        measure.add_argument(
            "--num-profiled-timesteps",
            type=step_count,
            metavar="N",
            help="steps to trace after step 0; -1: all of them (default: 5)",
        )
        measure.add_argument(
            "--profile-all-stages", action="store_true", help="trace whole calls, with --profile"
        )
        measure.add_argument(
            "--trace-detail",
            choices=("kernels", "ops", "full"),
            help="device activity and launches; and operators; and shapes and Python frames (default: full)",
        )
        measure.add_argument(
            "--call",
            type=call_numbers,
            metavar="K",
            help="which calls to trace, counted from 0: 2, or 0,3, or 2:5 (default: all)",
        )
        results = parser.add_argument_group("where the results go")
        results.add_argument(
            "--perf-dump-path", type=a_path, metavar="FILE", help="write stage and step times as JSON"
        )
        results.add_argument(
            "--profile-dir",
            type=a_path,
            metavar="DIR",
            help="folder of traces (default: STEPSCOPE_PROFILE_DIR, SGLANG_DIFFUSION_TORCH_PROFILER_DIR, "
            "SGLANG_TORCH_PROFILER_DIR, ./logs)",
        )
        results.add_argument(
            "--run-dir",
            type=a_path,
            metavar="DIR",
            help="keep everything of a call together: run.json, traces",
        )
        results.add_argument(
            "--records",
            type=a_path,
            metavar="DIR",
            help="with -- COMMAND: keep what its processes record here",
        )
        parser.add_argument(
            "--children",
            action="store_true",
            help="record the Python processes that the program starts too: perf-pid123.json, ...",
        )
        parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")

    def run(self, arguments: argparse.Namespace) -> Outcome:
        """Prepare everything, and give back what runs the program outside of our error handling.

        A command is run here, in processes of its own.
        """
        if arguments.is_command:
            from stepscope.cli.observed_command import observe_command

            return observe_command(arguments)
        from stepscope.session.attached_run import ObservedProcess
        from stepscope.session.children import environment_of_children
        from stepscope.session.interrupts import before_ending
        from stepscope.session.run_script import execute

        program = _program(arguments)
        program.check()
        options = _options(arguments)
        if options.trace is not None:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to standard error itself
        process = ObservedProcess(options, _problem)
        if options.children:
            os.environ.update(environment_of_children(process.options, os.environ))
        atexit.register(_finish, process, os.getpid())
        before_ending(lambda error: _cut_off(process, error))

        def run_program() -> int:
            execute(program)
            return 0

        return run_program


def _program(arguments: argparse.Namespace) -> Program:
    from stepscope.session.run_script import Program

    words = arguments.program
    if not words:
        what = "module" if arguments.module else "script"
        raise UsageError(f"there is no {what} to run.", remedy="See stepscope run --help.")
    return Program(name=words[0], arguments=tuple(words[1:]), is_module=arguments.module)


def _options(arguments: argparse.Namespace) -> AttachOptions:
    from stepscope.model.vocabulary import TraceDetail
    from stepscope.session.attach_plan import AttachOptions
    from stepscope.session.generate_options import PROFILED_STEPS, ProfileOptions

    for flag in ("num_profiled_timesteps", "profile_all_stages", "trace_detail", "call", "profile_dir"):
        if getattr(arguments, flag) and not arguments.profile:
            spelt = "--" + flag.replace("_", "-")
            raise UsageError(f"{spelt} traces nothing without --profile.", remedy="Add --profile.")
    if arguments.children and not (arguments.profile or arguments.perf_dump_path or arguments.run_dir):
        raise UsageError(
            "--children records into files, and none is asked for.", remedy="Add --perf-dump-path perf.json."
        )
    trace = ProfileOptions(
        steps=arguments.num_profiled_timesteps or PROFILED_STEPS,
        all_stages=arguments.profile_all_stages,
        detail=TraceDetail(arguments.trace_detail or TraceDetail.FULL),
        directory=arguments.profile_dir,
    )
    return AttachOptions(
        trace=trace if arguments.profile else None,
        traced=arguments.call or (),
        perf_dump_path=arguments.perf_dump_path,
        run_directory=arguments.run_dir,
        children=arguments.children,
    )


def _problem(text: str) -> None:
    """Said at once: a program may run for days."""
    print(f"stepscope: warning: {text}", file=sys.stderr, flush=True)


def _finish(process: ObservedProcess, owner: int) -> None:
    """After the program's last thread and exit function: take ourselves away and show what was seen."""
    if os.getpid() != owner:  # a forked child that ends as Python programs do
        return
    process.close()
    with contextlib.suppress(BrokenPipeError):
        _show(process)
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        _end_as_interrupted()


def _end_as_interrupted() -> None:
    """Let the interpreter end by SIGINT, as it does after an interrupt that nobody caught.

    It remembers that (``pymain_run_python``) until the next source text is evaluated, which making any named
    tuple or dataclass does: what shows the calls is imported here, after the program.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102


def _cut_off(process: ObservedProcess, error: BaseException) -> None:
    """A signal ends the process now: write what its calls have given so far, and show it."""
    if os.getpid() != process.pid:
        return
    process.cut_off(error)
    with contextlib.suppress(BrokenPipeError):
        _show(process)


def _show(process: ObservedProcess) -> None:
    from stepscope.capture.ranks import rank_here

    rank, _ = rank_here()
    if rank:
        return
    written = _files_of_children(process)
    if not process.count and not written:
        print(
            "stepscope: warning: no pipeline call was seen. Code that is no diffusers pipeline is measured "
            "inside: with stepscope.call(name). Calls in a stepscope.profile session are that session's.",
            file=sys.stderr,
        )
        return
    from stepscope.cli.attached import show_calls

    if process.count:
        show_calls(list(process.calls), process.count, sys.stderr)
    for path in written[-SHOWN_FILES:]:
        print(f"Written by a child process: {path}", file=sys.stderr)
    if len(written) > SHOWN_FILES:
        print(f"and {len(written) - SHOWN_FILES} more beside them", file=sys.stderr)


def _files_of_children(process: ObservedProcess) -> list[Path]:
    if not process.options.children:
        return []
    from stepscope.session.children import files_of_children

    return list(files_of_children(process.options, process.began_unix_s))
