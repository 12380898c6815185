"""Numbers that no healthy run has must not keep any view from being made."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from html_page import Page
from reports import normal
from stepscope.analyse.results import Report
from stepscope.render.report.report_csv import CSV_TABLES, render_csv
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_json import render_json
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal

odd = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")]),
    st.floats(),
)


@st.composite
def odd_reports(draw: st.DrawFn) -> Report:
    """The ordinary report with odd numbers in every place that something is drawn from."""
    report = normal()
    run, rank = report.runs[0], report.ranks[0]
    assert run.step_statistics is not None and rank.gpu is not None
    run = replace(
        run,
        total_ms=draw(odd),
        unaccounted_ms=draw(odd),
        stages=tuple(replace(stage, duration_ms=draw(odd), share=draw(odd)) for stage in run.stages[:3]),
        steps=tuple(replace(step, duration_ms=draw(odd)) for step in run.steps[:3]),
        step_statistics=replace(
            run.step_statistics, median_ms=draw(odd), maximum_ms=draw(odd), spread=draw(odd)
        ),
    )
    rank = replace(
        rank,
        gpu=replace(rank.gpu, busy_ratio=draw(odd), span_ms=draw(odd), idle_ms=draw(odd)),
        stages=tuple(
            replace(stage, start_ms=draw(odd), duration_ms=draw(odd), share=draw(odd))
            for stage in rank.stages
        ),
        steps=tuple(replace(step, start_ms=draw(odd), duration_ms=draw(odd)) for step in rank.steps[:2]),
        busy_over_time=tuple(
            replace(point, at_ms=draw(odd), busy_ratio=draw(odd)) for point in rank.busy_over_time[:3]
        ),
        memory=tuple(replace(point, at_ms=draw(odd)) for point in rank.memory[:3]),
        categories=tuple(replace(row, share=draw(odd)) for row in rank.categories[:2]),
    )
    return replace(report, runs=(run,), ranks=(rank,))


@settings(max_examples=60, deadline=None)
@given(odd_reports())
def test_every_view_is_made(report: Report) -> None:
    """No exception, no line too wide, no broken page, JSON that parses."""
    for line in render_terminal(report).splitlines():
        assert cell_len(line) <= 100 or line.lstrip().startswith(("stepscope", "ncu"))
    assert render_markdown(report)
    assert all(render_csv(report, table) for table in CSV_TABLES)
    json.loads(render_json(report))
    page = render_html(report)
    assert Page(page).unbalanced == []
    assert '="nan' not in page
    assert "inf%" not in page
