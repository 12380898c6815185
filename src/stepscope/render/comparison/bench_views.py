"""A bench in a terminal, as Markdown, HTML and JSON: its comparison first, then the runs it rests on."""

from __future__ import annotations

from typing import Any

from stepscope.analyse.comparison.bench_results import BENCH_SCHEMA_VERSION, BenchReport
from stepscope.render.comparison.bench_tables import drift_sentence, runs_table
from stepscope.render.comparison.compare_html import render_compare_html
from stepscope.render.comparison.compare_markdown import markdown_table, render_compare_markdown
from stepscope.render.comparison.compare_terminal import render_compare_terminal, render_table
from stepscope.render.json_text import json_schema, json_text


def render_bench_terminal(report: BenchReport, *, width: int = 100, colour: bool = False) -> str:
    """The bench as text of at most ``width`` columns."""
    compared = render_compare_terminal(report.comparison, width=width, colour=colour)
    runs = render_table(runs_table(report), width=width, colour=colour)
    return f"{compared}\n{runs}\n{drift_sentence(report)}\n"


def render_bench_markdown(report: BenchReport) -> str:
    """The bench as GitHub-flavoured Markdown."""
    runs = "\n".join(markdown_table(runs_table(report)))
    folded = f"<details><summary>Runs in their order</summary>\n\n{runs}\n\n</details>\n"
    return f"{render_compare_markdown(report.comparison)}\n{folded}\n{drift_sentence(report)}\n"


def render_bench_html(report: BenchReport) -> str:
    """The bench as a page that opens offline."""
    return render_compare_html(
        report.comparison,
        command="stepscope bench",
        further=(runs_table(report),),
        note=drift_sentence(report),
    )


def render_bench_json(report: BenchReport) -> str:
    """The bench as JSON with the names of ``bench_schema``, ending in a line feed."""
    return json_text(report)


def bench_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_bench_json``'s output, made from the types themselves."""
    return json_schema(BenchReport, f"stepscope bench, schema version {BENCH_SCHEMA_VERSION}")
