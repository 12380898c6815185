"""A comparison as one HTML page that opens offline and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analyse.comparison.compare_results import CompareReport, Comparison, Row, Sample, Verdict
from stepscope.render import units
from stepscope.render.comparison import compare_tables as tables
from stepscope.render.names import sentence
from stepscope.render.page import PageKind, PageTable, page_table, render_page
from stepscope.render.tables import Table

_PAGE = PageKind(template="compare.html.jinja")
_TONES = {
    Verdict.BETTER: "good",
    Verdict.WORSE: "bad",
    Verdict.CANNOT_TELL: "open",
    Verdict.NO_VERDICT: "bad",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A stage on both sides; widths relative to the longest."""

    name: str
    base: str
    new: str
    base_percent: str
    new_percent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    title: str
    headline: str
    tone: str
    sides: str
    cautions: tuple[str, ...]
    bars: tuple[_Bar, ...]
    tables: tuple[PageTable, ...]
    kernels_sentence: str
    kernel_tables: tuple[PageTable, ...]


def render_compare_html(
    report: CompareReport,
    *,
    command: str = "stepscope compare",
    further: Sequence[Table] = (),
    note: str = "",
) -> str:
    """The comparison as a page, ``further`` tables at its end; everything from a file is escaped."""
    several = len(report.comparisons) > 1
    return render_page(
        _PAGE,
        command=command,
        title=f"{command}: {_answer(report)}",
        overview=[page_table(tables.files_table(report))] if several else [],
        sections=[_section(report, each, index) for index, each in enumerate(report.comparisons)],
        further=[page_table(table) for table in further],
        note=note,
    )


def _answer(report: CompareReport) -> str:
    """What a browser's tab says: the first answer, and how many there are."""
    first = report.comparisons[0]
    more = f" and {len(report.comparisons) - 1} more" if len(report.comparisons) > 1 else ""
    said = sentence(tables.headline(first), 120)
    return f"{tables.verdict_title(first).lower()}, {said}{more}"


def _section(report: CompareReport, comparison: Comparison, index: int) -> _Section:
    shown = (
        tables.summary_table(comparison),
        tables.stages_table(comparison),
        tables.quality_table(comparison),
        tables.steps_table(comparison),
        tables.differences_table(comparison),
    )
    kernels = (tables.categories_table(comparison), tables.kernels_table(comparison))
    return _Section(
        title=tables.verdict_title(comparison),
        headline=tables.headline(comparison),
        tone=_TONES.get(comparison.total.verdict, "same"),
        sides=tables.sides(report, comparison),
        cautions=tuple(tables.cautions(report, comparison)),
        bars=_bars(comparison.stages),
        tables=tuple(page_table(table, f"{table.name}-{index}") for table in shown if table.rows),
        kernels_sentence=tables.kernels_sentence(comparison),
        kernel_tables=tuple(page_table(table, f"{table.name}-{index}") for table in kernels if table.rows),
    )


def _bars(stages: tuple[Row, ...]) -> tuple[_Bar, ...]:
    pairs = [(row.name, _median(row.base), _median(row.new)) for row in stages]
    longest = max((value or 0.0 for _, *both in pairs for value in both), default=0.0)
    return tuple(
        _Bar(
            name=name,
            base=units.duration(base),
            new=units.duration(new),
            base_percent=_percent(base, longest),
            new_percent=_percent(new, longest),
        )
        for name, base, new in pairs
    )


def _median(sample: Sample | None) -> float | None:
    return sample.median if sample is not None else None


def _percent(value: float | None, longest: float) -> str:
    """What a bar takes of its row, the value beside it; empty where there is nothing to draw."""
    return f"{70 * value / longest:.2f}" if value and longest > 0 else ""
