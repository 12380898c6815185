"""The views of three recorded traces and an engine's dump: what was looked at, kept as golden files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

from html_page import own_markup
from stepscope.analyse.results import Report
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from stepscope.session.report import report_files

TRACES = {
    "real_stack_memory": ("qwen_image_4layer_all_stages_stack_memory.trace.json.gz",),
    "real_group_offload": ("qwen_image_4layer_group_offload.trace.json.gz",),
    "real_two_ranks": ("ulysses2-global-rank0.trace.json.gz", "ulysses2-global-rank1.trace.json.gz"),
    "real_sglang": (
        "engines/sglang_cpu_asked_3.perf.json",
        "engines/sglang_cpu_8_steps_asked_3.trace.json.gz",
    ),
}


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Paths in a report are as given: relative ones are the same on every machine."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@lru_cache(maxsize=len(TRACES))
def read(folder: Path, name: str) -> Report:
    with inside(folder):
        return report_files([Path(path) for path in TRACES[name]]).report


@pytest.mark.parametrize("name", TRACES)
def test_terminal(name: str, shared_traces: Path, golden: Callable[[str, str], None]) -> None:
    """At most 100 columns, the answer first."""
    golden(f"{name}.terminal.txt", render_terminal(read(shared_traces, name)))


@pytest.mark.parametrize("name", TRACES)
def test_markdown(name: str, shared_traces: Path, golden: Callable[[str, str], None]) -> None:
    """Fits into a comment of a pull request, which holds 65,536 characters."""
    text = render_markdown(read(shared_traces, name))
    assert len(text) < 65_536
    golden(f"{name}.md", text)


@pytest.mark.parametrize("name", TRACES)
def test_html(name: str, shared_traces: Path, golden: Callable[[str, str], None]) -> None:
    """A page under 300 kB."""
    page = render_html(read(shared_traces, name))
    assert len(page.encode()) < 300_000
    golden(f"{name}.html", own_markup(page))
