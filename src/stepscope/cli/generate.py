"""``stepscope generate``: flags in, a summary of every run out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.cli.config_file import with_config
from stepscope.cli.generate_flags import NOT_HERE, SIZES, add_flags
from stepscope.cli.output import cannot_print, output_is_broken, say
from stepscope.cli.parser import Parser
from stepscope.model.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.session.generate_options import GenerateResult

NOT_FLAGS = frozenset({"command", "entrypoint", "config", "size", "log_level"})
"""Attributes of the parsed arguments that are not flags of the generation itself."""


class GenerateCommand:
    """Run a diffusion pipeline, time its stages and steps, and trace exactly the steps asked for.

    Whoever knows ``sglang generate`` types the same flags. Without --model-path the embedded tiny/qwen-image
    runs, which needs no download. Times are shown after every run; --perf-dump-path keeps them as JSON,
    --profile records a PyTorch Profiler trace of steps 1 to N.
    """

    name = "generate"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags; what is not given is left out, so that a configuration file can fill it."""
        parser.argument_default = argparse.SUPPRESS
        parser.usage = 'stepscope generate --prompt "TEXT" ["TEXT" ...] [flags]'
        if isinstance(parser, Parser):
            parser.elsewhere = NOT_HERE
        add_flags(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run every prompt; 1 if a pipeline failed, after everything recorded was written and shown."""
        from stepscope.cli.failure import show_failure
        from stepscope.cli.progress import quiet_libraries, terminal_listener
        from stepscope.session.generate import generate
        from stepscope.session.generate_flags import GenerateFlags, options_of
        from stepscope.session.interrupts import termination_raises

        arguments = with_config(arguments, add_flags)
        quiet_libraries(getattr(arguments, "log_level", "error"))
        flags: dict[str, Any] = {
            name: value for name, value in vars(arguments).items() if name not in NOT_FLAGS
        }
        if (size := getattr(arguments, "size", None)) is not None:
            width, height = SIZES[size]
            flags = {"width": width, "height": height} | flags
        typed: GenerateFlags = flags  # type: ignore[assignment]  # the parser made them
        options = options_of(typed, show_progress=sys.stderr.isatty())
        results: list[GenerateResult] = []

        def finished(result: GenerateResult) -> None:
            results.append(result)
            _print(result, number=len(results), count=len(options.requests))

        try:
            with termination_raises(), terminal_listener() as listener:
                error = generate(options, listener, finished=finished)[-1].error
            _print_together(results)
        except (StepscopeError, BrokenPipeError, KeyboardInterrupt):
            raise
        except BaseException as raised:  # of the warm-up, nothing to write yet; SystemExit; or of printing
            if isinstance(raised, OSError) and output_is_broken():
                raise cannot_print(raised) from raised
            error = raised
        if error is not None and results and (left := len(options.requests) - len(results)):
            say(f"warning: of {len(options.requests)} prompts the last {left} were not run.")
        return show_failure(error, recorded=bool(results) and results[-1].has_files)


def _print(result: GenerateResult, *, number: int, count: int) -> None:
    """One run on standard output; of several prompts, with a line that says which."""
    from stepscope.analyse.run.summarise import summarise
    from stepscope.render.report.report_terminal import in_encoding
    from stepscope.render.report.run_summary import RunFiles, run_header, write_run_summary

    if count > 1:
        header = run_header(result.run, number=number, count=count)
        sys.stdout.write(in_encoding(header, sys.stdout.encoding))
    files = RunFiles(perf_dump=result.dump_path, run_directory=result.run_directory)
    shown = tuple(text for text in result.run.warnings if text != str(result.error))  # main prints that one
    run = replace(result.run, warnings=shown)
    write_run_summary(summarise(result.dump), run, files, sys.stdout)


def _print_together(results: Sequence[GenerateResult]) -> None:
    """Several runs side by side, after the last."""
    from stepscope.analyse.run.summarise import summarise
    from stepscope.render.report.run_summary import write_runs_together

    if len(results) > 1:
        write_runs_together([(summarise(result.dump), result.run) for result in results], sys.stdout)
