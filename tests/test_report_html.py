"""The HTML page as text: whole, self-contained, small, and harmless whatever a trace holds."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from hostile_report import HOSTILE, hostile
from html_page import Page, own_markup
from report_parts import ADD
from reports import EVERY, normal, two_ranks, video
from stepscope.analyse.results import BusyPoint, MemoryPoint, Report, Source
from stepscope.render.report.html_charts import rank_timeline, step_bars
from stepscope.render.report.html_tables import file_link
from stepscope.render.report.report_html import render_html
from stepscope.render.report.stage_charts import run_waterfall

ALL = [*EVERY.values(), hostile]


@pytest.mark.parametrize("name", EVERY)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """The page's own markup is what was looked at; style and script are in their own files."""
    golden(f"{name}.html", own_markup(render_html(EVERY[name]())))


@pytest.mark.parametrize("make", ALL)
def test_nothing_is_fetched(make: Callable[[], Report]) -> None:
    """No address but fragments, files and data; no inline style or handler, which the policy would block."""
    for tag, attributes, _ in Page(render_html(make())).tags:
        assert tag not in {"iframe", "object", "embed", "img", "base", "form", "use", "image"}
        for name, value in attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in {"href", "src", "srcset", "action", "data", "xlink:href"}:
                assert str(value).startswith(("#", "file:///", "data:,")), value


@pytest.mark.parametrize("make", ALL)
def test_the_policy_allows_only_our_own_style_and_script(make: Callable[[], Report]) -> None:
    """Their hashes stand in the policy, which starts from nothing."""
    page = render_html(make())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    text = policy[1].replace("&#39;", "'")
    assert text.startswith("default-src 'none'")
    assert "unsafe" not in text
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert len(bodies) == 1
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in text


def test_nothing_hostile_becomes_markup() -> None:
    """Every text from a trace is escaped, and what hides or reorders is visible."""
    page = render_html(hostile())
    assert "<script>alert" not in page
    assert "<svg onload" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
    assert "\\u202egnp" in page
    assert "\x1b" not in page
    assert "{{ 7*7 }}" in page
    page.encode("utf-8")


def test_a_name_of_ten_thousand_characters_does_not_swell_the_page() -> None:
    """Two names of ten thousand characters and one of twenty-one thousand: cut, and the page stays small."""
    assert max(map(len, HOSTILE)) > 10_000
    page = render_html(hostile())
    assert len(page) < 300_000
    assert "k" * 2_000 not in page


@pytest.mark.parametrize("make", [normal, two_ranks, video])
def test_an_ordinary_page_is_small(make: Callable[[], Report]) -> None:
    """Under 100 kB for reports with few kernels."""
    assert len(render_html(make()).encode()) < 100_000


def test_a_large_report_stays_under_300_kilobytes() -> None:
    """Eight ranks with 400 kernels each of 600 characters, hundreds of points and steps."""
    rank = normal().ranks[0]
    kernels = tuple(replace(rank.kernels[0], name=f"{ADD}<{at}>") for at in range(400))
    busy = tuple(BusyPoint(at_ms=float(at), busy_ratio=at % 10 / 10) for at in range(400))
    memory = tuple(MemoryPoint(at_ms=float(at), allocated_bytes=at * 10**8) for at in range(400))
    large = replace(rank, kernels=kernels, busy_over_time=busy, memory=memory)
    assert len(render_html(replace(normal(), ranks=(large,))).encode()) < 300_000
    assert len(render_html(replace(normal(), ranks=(large,) * 8)).encode()) < 1_000_000


@pytest.mark.parametrize(
    ("file", "link"),
    [
        ("/opt/a b/c#1.py", "file:///opt/a%20b/c%231.py"),
        ("C:\\code\\x.py", "file:///C:/code/x.py"),
        ("diffusers/models/attention.py", None),
        ("javascript:alert(1)", None),
        ("//evil.example/share", None),
        ("\\\\evil\\share\\x.py", None),
        ("https://evil.example/x.py", None),
        ("/a\nb.py", None),
        ("/" + "a" * 5_000, None),
    ],
)
def test_only_absolute_paths_become_links(file: str, link: str | None) -> None:
    """A file: address or none: no other scheme, no network share."""
    assert file_link(Source(file=file, line=1, line_exact=True, function="f")) == link


def test_bars_stand_where_their_times_are() -> None:
    """Places are per cent of the axis; the longest step is full height, outliers have their class."""
    run = video().runs[0]
    chart = step_bars(run.steps, run.step_statistics, "run0")
    assert chart is not None
    marks = chart.lanes[0].marks
    assert len(marks) == 40
    assert marks[13].height == 100.0
    assert marks[13].css == "bar outlier"
    assert marks[30].css == "bar skipped"
    assert "step 13: 9,240.0 ms, transformer_2 runs" in chart.readings[13].text
    assert chart.lanes[0].level == pytest.approx(1982 / 9240 * 100, abs=0.01)


def test_the_waterfall_goes_on_where_the_last_stage_ended() -> None:
    """Stages follow each other and fill no more than the total."""
    chart = run_waterfall(normal().runs[0], "run0")
    assert chart is not None
    bars = [lane.marks[0] for lane in chart.lanes]
    for before, after in pairwise(bars):
        assert after.left == pytest.approx(before.left + before.width, abs=0.01)
    assert bars[-1].left + bars[-1].width <= 100.01


def test_the_timeline_shares_one_axis() -> None:
    """Stages, steps, busy and memory in that order; readings say what is there."""
    chart = rank_timeline(normal().ranks[0], "rank0")
    assert chart is not None
    assert [lane.label for lane in chart.lanes] == [
        "DenoisingStage",
        "DecodingStage",
        "steps",
        "GPU busy",
        "memory",
    ]
    assert "GPU busy" in chart.readings[10].text
    assert "DenoisingStage" in chart.readings[10].text
    assert "step 0" in chart.readings[10].text
    assert "allocated" in chart.readings[10].text
    assert all(0 <= tick.at <= 100 for tick in chart.ticks)


def test_charts_need_something_to_draw() -> None:
    """No stages, no steps, no time: no empty axes."""
    rank = EVERY["cpu_only"]().ranks[0]
    assert rank_timeline(rank, "x") is None
    assert step_bars((), None, "x") is None
    assert run_waterfall(replace(normal().runs[0], stages=()), "x") is None


def _chunked(chunks: int, *, names: int = 1) -> Report:
    """A pipeline that denoises and decodes in chunks, each decoded by one of so many named stages."""
    run = normal().runs[0]
    each = run.total_ms / (2 * chunks)
    stages = [
        replace(run.stages[0], name=name, stage_index=at, duration_ms=each, share=each / run.total_ms)
        for at, name in enumerate(
            name for chunk in range(chunks) for name in ("DenoisingStage", f"Decode{chunk % names}")
        )
    ]
    return replace(normal(), runs=(replace(run, stages=tuple(stages)),), ranks=())


def test_a_stage_that_comes_back_is_one_lane() -> None:
    """As it is one row of the tables: sum, share, how many times; a bar for each where they are few."""
    report = _chunked(20)
    chart = run_waterfall(report.runs[0], "run0")
    assert chart is not None
    assert [lane.label for lane in chart.lanes] == ["DenoisingStage", "Decode0"]
    assert [len(lane.marks) for lane in chart.lanes] == [20, 20]
    assert chart.lanes[1].marks[0].left == pytest.approx(2.5)
    assert chart.lanes[0].note.endswith(", 50.0 %, 20 times")
    assert chart.summary.startswith("2 stages in 40 occurrences of ")
    assert len(chart.readings) == 40


@pytest.mark.parametrize(("chunks", "names"), [(3000, 1), (700, 30), (1000, 1000)])
def test_what_is_drawn_is_bounded(chunks: int, names: int) -> None:
    """Thousands of occurrences and hundreds of names stay a small page; no time is left undrawn."""
    report = _chunked(chunks, names=names)
    chart = run_waterfall(report.runs[0], "run0")
    assert chart is not None
    assert len(chart.lanes) <= 40
    assert sum(len(lane.marks) for lane in chart.lanes) <= 3000
    assert len(chart.readings) <= 150
    ends = [mark.left + mark.width for lane in chart.lanes for mark in lane.marks]
    assert max(ends) == pytest.approx(100, abs=0.2)
    if names > 40:
        assert chart.lanes[-1].label == "962 more stages"
    assert len(render_html(report)) < 400_000


def test_stages_of_a_trace_are_bounded_too() -> None:
    """The chart over time has one lane a stage; what it reads out does not grow with occurrences."""
    rank = normal().ranks[0]
    stages = tuple(
        replace(rank.stages[0], name=name, stage_index=at, start_ms=float(at), duration_ms=1.0, share=0.0005)
        for at, name in enumerate(["DenoisingStage", "DecodingStage"] * 1000)
    )
    chart = rank_timeline(replace(rank, stages=stages, busy_over_time=(), memory=()), "rank0")
    assert chart is not None
    lanes = {lane.label: lane for lane in chart.lanes}
    assert lanes["DecodingStage"].note.startswith("1,000.0 ms, 50.0 %, 1,000 times")
    assert len(lanes["DecodingStage"].marks) <= 501
    assert len(chart.readings) <= 150
