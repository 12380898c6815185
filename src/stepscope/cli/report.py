"""``stepscope report``: where the time of a run goes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from stepscope.cli.output import add_output_options, chosen_format, deliver, say
from stepscope.cli.values import a_path

if TYPE_CHECKING:
    from stepscope.analyse.results import Report

FORMATS = ("terminal", "json", "md", "csv", "html")


class ReportCommand:
    """Explain where the time of a run goes, from traces and perf dumps of any recorder.

    Give PyTorch Profiler traces, Nsight Systems exports (.sqlite, or .nsys-rep where nsys is installed), perf
    dumps (ours or SGLang's), or directories of them; several ranks of one request together. What a file is
    is told from its content. The first line says whether the numbers may be trusted.
    """

    name = "report"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Files, and what to make of them."""
        parser.add_argument(
            "paths", nargs="+", type=a_path, metavar="PATH", help="trace, perf dump, directory"
        )
        parser.add_argument(
            "--table",
            default="kernels",
            metavar="NAME",
            help="which table with --format csv (default: kernels)",
        )
        add_output_options(parser, FORMATS)

    def run(self, arguments: argparse.Namespace) -> int:
        """Read, analyse, show. Status 2 where part of the input could not be read."""
        from stepscope.session.report import report_files

        outcome = report_files(arguments.paths)
        chosen = chosen_format(arguments, FORMATS)
        if chosen == "terminal" and arguments.output is None:
            from stepscope.render.report.report_terminal import write_terminal

            write_terminal(outcome.report, sys.stdout)
        else:
            deliver(_rendered(outcome.report, chosen, arguments.table), arguments.output)
        for problem in outcome.problems:
            say(f"warning: {problem}")
        return 2 if outcome.problems else 0


def _rendered(report: Report, chosen: str, table: str) -> str:
    """The report in a format; each renderer is imported only when it is asked for."""
    match chosen:
        case "json":
            from stepscope.render.report.report_json import render_json

            return render_json(report).decode("utf-8")
        case "md":
            from stepscope.render.report.report_markdown import render_markdown

            return render_markdown(report)
        case "csv":
            from stepscope.render.report.report_csv import render_csv

            return render_csv(report, table)
        case "html":
            from stepscope.render.report.report_html import render_html

            return render_html(report)
        case _:
            from stepscope.render.report.report_terminal import render_terminal

            return render_terminal(report)
