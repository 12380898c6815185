"""``stepscope compare``: two or more runs held against the first."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.output import (
    add_output_options,
    chosen_format,
    deliver,
    rendered,
    say,
)
from stepscope.cli.values import a_path
from stepscope.model.errors import UsageError
from stepscope.model.file_names import possible_path

if TYPE_CHECKING:
    from stepscope.analyse.comparison.compare_results import CompareReport

FORMATS = ("terminal", "json", "md", "html")


class CompareCommand:
    """Compare runs: what got faster or slower, by how much, and whether that is more than noise.

    Give perf dumps (ours or SGLang's), performance.log files, run folders or traces; the first is the base.
    Several runs of one side, for a verdict by test instead of by threshold: join them with commas, or use
    --base and --new.
    """

    name = "compare"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Files, how alike they must be, and when to fail."""
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="the base, then what is compared with it"
        )
        parser.add_argument(
            "--base", nargs="+", type=a_path, metavar="FILE", help="repeated runs of the base"
        )
        parser.add_argument(
            "--new", nargs="+", type=a_path, metavar="FILE", help="repeated runs of the new side"
        )
        parser.add_argument(
            "--anyway", action="store_true", help="compare runs that are unlike, and judge untrusted ones"
        )
        parser.add_argument(
            "--fail-above",
            type=percentage,
            metavar="PCT",
            help="exit with status 1 if the end-to-end time grew by more than PCT percent or has no verdict",
        )
        add_output_options(parser, FORMATS)

    def run(self, arguments: argparse.Namespace) -> int:
        """Compare, show, and say by the exit status whether the limit was kept."""
        from stepscope.session.compare import compare_files, limit_doubts, limit_reasons

        base, news = _sides(arguments)
        report = compare_files(base, news, anyway=arguments.anyway)
        deliver(_rendered(report, chosen_format(arguments, FORMATS)), arguments.output)
        if arguments.fail_above is None:
            return 0
        reasons = limit_reasons(report, arguments.fail_above)
        for said in (*reasons, *limit_doubts(report, arguments.fail_above)):
            say(said)
        return 1 if reasons else 0


def _rendered(report: CompareReport, chosen: str) -> str:
    from stepscope.render.comparison import compare_html, compare_json, compare_markdown, compare_terminal

    return rendered(
        report,
        chosen,
        terminal=compare_terminal.render_compare_terminal,
        others={
            "json": compare_json.render_compare_json,
            "md": compare_markdown.render_compare_markdown,
            "html": compare_html.render_compare_html,
        },
    )


def _sides(arguments: argparse.Namespace) -> tuple[list[Path], list[list[Path]]]:
    """The base's paths, and those of every side compared with it."""
    if arguments.base or arguments.new:
        if arguments.files or not (arguments.base and arguments.new):
            raise UsageError(
                "--base and --new belong together and take no further files.",
                remedy="Example: stepscope compare --base a1.json a2.json --new b1.json b2.json",
            )
        return arguments.base, [arguments.new]
    if len(arguments.files) < 2:
        raise UsageError(
            "comparing takes at least two files.", remedy="Example: stepscope compare base.json new.json"
        )
    base, *news = [_joined(text) for text in arguments.files]
    return base, news


def _joined(text: str) -> list[Path]:
    """One path, or several joined by commas (a path that exists as it is written stays one)."""
    names = [text] if _exists(text) else text.split(",")
    if not all(name.strip() for name in names):
        raise UsageError(
            f"there is an empty name among the files ({text!r}).", remedy="Is a variable of the script empty?"
        )
    try:
        return [possible_path(name) for name in names]
    except ValueError as error:
        raise UsageError(f"{text[:80]!r} cannot be a path: {error}.", remedy="Check the names.") from error


def _exists(text: str) -> bool:
    """Whether there is such a path; many names joined by commas are longer than any name may be."""
    try:
        return bool(text) and Path(text).exists()
    except OSError:
        return False


def percentage(text: str) -> float:
    """``5`` or ``5%`` as 0.05."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage (example: 5)")
    return abs(value) / 100  # -0 is 0
