"""``stepscope sweep``: how time grows over sizes, steps, frames and flags."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.generate_call import add_call, call_words, generate_flags, split_flags
from stepscope.cli.output import (
    add_output_options,
    chosen_format,
    deliver,
    rendered,
    say,
)
from stepscope.cli.values import a_path, positive
from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.analyse.comparison.sweep_results import SweepReport
    from stepscope.model.sweep import SweepPoint
    from stepscope.session.sweeping.point_runner import RunnerOptions
    from stepscope.session.sweeping.sweep import Executor, Grid

FORMATS = ("terminal", "json", "md", "html")
EXECUTORS = ("local", "ray")
AGAIN = ("failed", "untrusted", "fewer")
PAGE_FILE = "sweep.html"


class SweepCommand:
    """Measure a grid of prompts, sizes, steps, frames and flags, and fit how time grows over it.

    The grid's points share a loaded pipeline wherever they can. A killed sweep goes on where it stopped when
    it is started again with the same --dir; a point that fails or runs out of memory is a row.
    """

    name = "sweep"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """The axes, where the rows are, and who runs them."""
        parser.usage = "stepscope sweep [axes] [--dir DIR] -- generate [flags]"
        axes = parser.add_argument_group("axes of the grid")
        axes.add_argument("--prompts", type=a_path, metavar="FILE", help="one prompt a line")
        axes.add_argument("--resolutions", type=_resolutions, default=(), metavar="WxH,...")
        axes.add_argument("--steps", type=_numbers, default=(), metavar="N,...")
        axes.add_argument("--frames", type=_numbers, default=(), metavar="N,...")
        axes.add_argument(
            "--vs", action="append", default=[], metavar='"FLAGS"', help="flags added in another variant"
        )
        parser.add_argument(
            "--repeats", type=positive, default=2, metavar="N", help="measured runs a point (2)"
        )
        parser.add_argument(
            "--dir", type=a_path, metavar="DIR", help="where rows and dumps are (default: ./sweep-<time>)"
        )
        parser.add_argument(
            "--again",
            type=_again,
            default=frozenset(),
            metavar="WHAT,...",
            help="measure finished points again that failed, are untrusted, or have fewer runs than "
            f"--repeats: {', '.join(AGAIN)}",
        )
        parser.add_argument("--retry-failed", action="store_true", help="the same as --again failed")
        parser.add_argument("--executor", choices=EXECUTORS, default="local", help="local, or a Ray cluster")
        parser.add_argument("--ray-address", metavar="ADDRESS", help="of the cluster (default: a local one)")
        parser.add_argument("--workers", type=positive, metavar="N", help="with Ray (default: one a GPU)")
        add_output_options(parser, FORMATS)
        add_call(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run what is left of the grid; show the whole; 1 where no point could be measured."""
        from stepscope.analyse.comparison.scaling import sweep_report
        from stepscope.cli.working import working
        from stepscope.session.interrupts import termination_raises
        from stepscope.session.refusals import refuse_wrong_flags
        from stepscope.session.sweeping.point_runner import RunnerOptions
        from stepscope.session.sweeping.sweep import Again, SweepOptions, planned, sweep

        folder = arguments.dir or Path(f"sweep-{time.strftime('%Y%m%d-%H%M%S')}")
        runner = RunnerOptions(folder=folder)
        words = call_words(arguments)
        grid = _grid(arguments, words)
        options = SweepOptions(
            grid=grid,
            flags=lambda point: _flags(point, words),
            runner=runner,
            repeats=arguments.repeats,
            again=frozenset(
                Again(word) for word in arguments.again | ({"failed"} if arguments.retry_failed else set())
            ),
        )
        refuse_wrong_flags(task.flags for task in planned(options))
        try:
            with termination_raises(), working() as listener:
                rows = sweep(options, _executor(arguments, runner), listener)
        except KeyboardInterrupt:
            say(f"the points measured so far are in {folder}; give --dir {folder} to go on")
            raise
        report = sweep_report(rows, missing=len(planned(options)) - len(rows))
        deliver(_rendered(report, chosen_format(arguments, FORMATS)), arguments.output)
        _keep_page(_rendered(report, "html"), folder / PAGE_FILE)
        return 0 if any(row.status == "ok" for row in rows) else 1


def _keep_page(text: str, path: Path) -> None:
    """Write the page; one of another sweep in the same folder, or of fewer points, is kept beside it."""
    from stepscope.record.atomic import keep_existing

    if path.is_file() and path.read_bytes() == text.encode("utf-8", "backslashreplace"):
        say(f"{path.resolve()} is as it was")
        return
    if (kept := keep_existing(path)) is not None:
        say(f"the earlier page is kept: {kept.resolve()}")
    deliver(text, path)


def _grid(arguments: argparse.Namespace, words: list[str]) -> Grid:
    from stepscope.session.sweeping.sweep import Grid

    prompts = _prompts(arguments.prompts)
    if not prompts and "prompt" not in generate_flags(words, origin="generate"):
        raise UsageError("there is no prompt.", remedy="Give --prompts FILE, or --prompt after generate.")
    for text in arguments.vs:  # a wrong flag is found before the first point
        generate_flags([*words, *split_flags(text)], origin="--vs")
    return Grid(
        prompts=prompts,
        resolutions=arguments.resolutions,
        steps=arguments.steps,
        frames=arguments.frames,
        variants=("", *(text.strip() for text in arguments.vs)),
    )


def _flags(point: SweepPoint, words: list[str]) -> Mapping[str, Any]:
    """The call's flags with the point's own in their place."""
    flags = generate_flags([*words, *split_flags(point.variant)], origin="generate")
    own = {
        "prompt": point.prompt,
        "width": point.width,
        "height": point.height,
        "num_inference_steps": point.steps,
        "num_frames": point.frames,
    }
    return flags | {name: value for name, value in own.items() if value is not None}


def _executor(arguments: argparse.Namespace, runner: RunnerOptions) -> Executor:
    from stepscope.session.sweeping.ray_executor import RayExecutor
    from stepscope.session.sweeping.sweep import LocalExecutor

    if arguments.executor == "local":
        return LocalExecutor(runner)
    return RayExecutor(runner, address=arguments.ray_address, workers=arguments.workers)


def _rendered(report: SweepReport, chosen: str) -> str:
    from stepscope.render.comparison import sweep_views

    return rendered(
        report,
        chosen,
        terminal=sweep_views.render_sweep_terminal,
        others={
            "json": sweep_views.render_sweep_json,
            "md": sweep_views.render_sweep_markdown,
            "html": sweep_views.render_sweep_html,
        },
    )


def _prompts(path: Path | None) -> tuple[str, ...]:
    from stepscope.record.prompt_file import read_prompts

    return read_prompts(path) if path is not None else ()


def _again(text: str) -> frozenset[str]:
    words = frozenset(part.strip() for part in text.split(","))
    if unknown := sorted(words - set(AGAIN)):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(AGAIN)}")
    return words


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(positive(part) for part in text.split(","))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"in {text!r} {error} (example: 20,50)") from error


def _resolutions(text: str) -> tuple[tuple[int, int], ...]:
    found = [part.lower().split("x") for part in text.split(",")]
    if any(len(parts) != 2 for parts in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes (example: 512x512,1024x768)")
    try:
        return tuple((positive(width), positive(height)) for width, height in found)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"in {text!r} {error} (example: 512x512,1024x768)") from error
