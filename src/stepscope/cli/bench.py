"""``stepscope bench``: is a set of flags faster, by repeated and interleaved runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepscope.cli.generate_call import add_call, call_words, generate_flags, split_flags
from stepscope.cli.output import (
    add_output_options,
    chosen_format,
    deliver,
    rendered,
    say,
)
from stepscope.cli.parser import Parser
from stepscope.cli.values import a_path, positive
from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.analyse.comparison.bench_results import BenchReport
    from stepscope.session.bench import Variant

FORMATS = ("terminal", "json", "md", "html")


class BenchCommand:
    """Measure whether flags make a generation faster: repeated runs, interleaved A B B A, one verdict.

    Each variant is loaded once in a process of its own and warmed up; the GPU's clock, temperature and
    throttling are watched. With --vs "" the generation is held against itself.
    """

    name = "bench"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """How often, against what, and where everything is kept."""
        parser.usage = (
            'stepscope bench [--runs N] --vs "FLAGS" [--vs ...] -- generate --prompt "TEXT" [flags]'
        )
        parser.add_argument(
            "--runs", type=positive, default=5, metavar="N", help="of each variant (default: 5)"
        )
        parser.add_argument(
            "--vs", action="append", metavar='"FLAGS"', help="flags added in another variant; may be repeated"
        )
        if isinstance(parser, Parser):
            parser.quoted = ("--vs",)
        parser.add_argument("--no-warmup", action="store_true", help="measure cold runs")
        parser.add_argument(
            "--reload",
            action="store_true",
            help="load anew for every run: slow, but only one variant is in memory at a time",
        )
        parser.add_argument(
            "--dir",
            type=a_path,
            metavar="DIR",
            help="keep dumps and outputs there (default: ./bench-<time>)",
        )
        add_output_options(parser, FORMATS)
        add_call(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run everything, show the verdict."""
        from stepscope.cli.working import working
        from stepscope.session.bench import BenchOptions, bench, untrusted_runs
        from stepscope.session.folders import fresh_folder
        from stepscope.session.interrupts import termination_raises
        from stepscope.session.refusals import refuse_wrong_flags

        if not arguments.vs:
            raise UsageError("there is nothing to measure against.", remedy='Give --vs "FLAGS".')
        variants = _variants(call_words(arguments), arguments.vs)
        refuse_wrong_flags(variant.flags for variant in variants)
        options = BenchOptions(
            variants=variants,
            runs=arguments.runs,
            folder=fresh_folder(arguments.dir, "bench"),
            warm_up=not arguments.no_warmup,
            reload=arguments.reload,
        )
        try:
            with termination_raises(), working() as listener:
                report = bench(options, listener)
        except KeyboardInterrupt:
            say(f"the dumps of the runs so far are in {options.folder.resolve()}")
            raise
        deliver(_rendered(report, chosen_format(arguments, FORMATS)), arguments.output)
        if untrusted := untrusted_runs(report):
            say(f"untrusted, so no verdict: {', '.join(untrusted)}; run it again on a machine of its own")
        say(f"dumps and outputs are in {options.folder.resolve()}")
        return 0


def _variants(words: Sequence[str], flags: Sequence[str]) -> tuple[Variant, ...]:
    """The call as it is, and the call with each set of flags added."""
    from stepscope.session.bench import Variant

    base = Variant(name="base", flags=generate_flags(words, origin="generate"))
    names = [text.strip() or "itself" for text in flags]
    return (
        base,
        *(
            Variant(
                name=name if names.count(name) == 1 else f"{name} ({number})",
                flags=generate_flags([*words, *split_flags(text)], origin="--vs"),
            )
            for number, (name, text) in enumerate(zip(names, flags, strict=True), start=1)
        ),
    )


def _rendered(report: BenchReport, chosen: str) -> str:
    from stepscope.render.comparison import bench_views

    return rendered(
        report,
        chosen,
        terminal=bench_views.render_bench_terminal,
        others={
            "json": bench_views.render_bench_json,
            "md": bench_views.render_bench_markdown,
            "html": bench_views.render_bench_html,
        },
    )
