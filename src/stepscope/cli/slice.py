"""``stepscope slice``: a part of a trace as a trace of its own."""

from __future__ import annotations

import argparse

from stepscope.cli.values import a_path
from stepscope.model.errors import UsageError
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage


class SliceCommand:
    """Cut a trace to the steps, the stage or the time that matter, with links and metadata kept.

    For traces that are too large for a browser, a mail or an issue. PyTorch Profiler traces stay what they
    are; a Nsight Systems export becomes a smaller .sqlite, or a trace for Perfetto where -o ends in .json.gz.
    """

    name = "slice"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """One trace, one window, one output."""
        parser.add_argument("trace", type=a_path, metavar="TRACE", help="trace of any recorder")
        window = parser.add_mutually_exclusive_group(required=True)
        window.add_argument("--steps", type=StepRange.parse, metavar="FIRST:END", help="END not included")
        window.add_argument("--stage", choices=[str(stage) for stage in Stage], metavar="STAGE")
        window.add_argument(
            "--time", metavar="START:END", help="milliseconds from the start, as in the report; by host time"
        )
        parser.add_argument(
            "-o", "--output", type=a_path, required=True, metavar="FILE", help="where to write it"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Cut, and say what is in the file."""
        from stepscope.analyse.trace.slice_window import Wanted
        from stepscope.session.viewing.slice import slice_trace

        time_ms = None if arguments.time is None else _times(arguments.time)
        wanted = Wanted(steps=arguments.steps, stage=arguments.stage, time_ms=time_ms)
        outcome = slice_trace(arguments.trace, arguments.output, wanted)
        size = outcome.path.stat().st_size / 1e6
        held = f"steps {', '.join(map(str, outcome.steps))}" if outcome.steps else "no step"
        print(f"{outcome.path.resolve()} ({size:.1f} MB): {outcome.what}; holds {held}")
        return 0


def _times(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        pair = float(low), float(high)
    except ValueError:
        pair = 0.0, 0.0
    if not 0 <= pair[0] < pair[1]:
        raise UsageError(f"{text!r} is no span of time.", remedy="Write START:END in ms, as 120:250.5.")
    return pair
