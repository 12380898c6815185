"""The tables of the terminal report: which columns, and what is left out of long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from stepscope.analyse.results import (
    KernelRow,
    PlaceRow,
    RankReport,
    Report,
    RunSummary,
    StepRow,
    StepStatistics,
    StepTime,
)
from stepscope.render import units
from stepscope.render.names import shorten, shorten_apart, shorten_kernels, shorten_path, visible
from stepscope.render.report import operator_tables, rank_tables, report_tables, run_tables
from stepscope.render.report.rank_names import numbers_suffice
from stepscope.render.report.stage_sums import summed_times
from stepscope.render.tables import Kind, Table, cell_text
from stepscope.render.terminal_grid import Layout, empty_grid, grid, spark

_TOP_KERNELS = 12
_TOP_TRANSFERS = 8
_TOP_PLACES = 8
_NARROWEST_MODULE = 8
_ALL_STEPS_UP_TO = 20
_MOST_STEPS = 20
_LONGEST_SPARK = 60


def runs(report: Report, width: int) -> Grid:
    """The runs side by side."""
    keys = (
        "call",
        "run",
        "rank",
        "trusted",
        "total_ms",
        "dominant_stage",
        "step_count",
        "step_median_ms",
        "slowest_ratio",
    )
    layout = Layout(flexible="run", optional=("rank", "step_count", "slowest_ratio"))
    return grid(report_tables.runs_table(report).pick(*keys), layout, width)


def gpus(report: Report, width: int) -> Grid:
    """The ranks side by side."""
    named_by = "rank" if numbers_suffice(report.ranks) else "trace"
    keys = (named_by, "name", "busy_ratio", "span_ms", "idle_ms", "exposed_communication_ms",
            "exposed_copy_ms", "kernel_count")  # fmt: skip
    layout = Layout(flexible="name", optional=("kernel_count", "exposed_copy_ms"))
    return grid(report_tables.gpus_table(report).pick(*keys), layout, width)


def run_stages(run: RunSummary, width: int) -> Grid:
    """Stages of a run with a bar for the share."""
    keys = ("name", "times", "duration_ms", "share", "host_ms", "inferred_ms")
    table = run_tables.run_stages_by_name(run).pick(*keys)
    layout = Layout(flexible="name", optional=("inferred_ms", "host_ms"))
    others = run_tables.not_in_stages(run)
    rows = tuple((other.name, None, other.duration_ms, other.share, None, None) for other in others)
    shares = [*(row.stage.share for row in summed_times(run.stages)), *(other.share for other in others)]
    return grid(replace(table, rows=(*table.rows, *rows)), layout, width, shares)


def rank_stages(rank: RankReport, width: int) -> Grid:
    """Stages of a trace: where they are bound, and memory and TFLOP/s where known."""
    keys = ("name", "times", "duration_ms", "share", "gpu_busy_ms", "idle_ms", "bound_by", "kernel_count",
            "tflop_per_s", "peak_share", "peak_memory_bytes")  # fmt: skip
    layout = Layout(flexible="name", optional=("idle_ms", "kernel_count", "peak_memory_bytes", "tflop_per_s"))
    return grid(rank_tables.rank_stages_by_name(rank).pick(*keys), layout, width)


def run_steps(run: RunSummary, width: int) -> list[RenderableType]:
    """Steps of a run, collapsed where they are alike."""
    marks = ["traced", *(["profiler_warmup"] if any(step.profiler_warmup for step in run.steps) else [])]
    keys = ("index", "duration_ms", "host_ms", "forwards", "work", *marks, "outlier")
    steps = tuple(replace(step, traced=step.traced and not step.profiler_warmup) for step in run.steps)
    table = run_tables.run_steps(replace(run, steps=steps))  # a step is marked as the one or the other
    return _steps(run.steps, run.step_statistics, table.pick(*keys), width)


def rank_steps(rank: RankReport, width: int) -> list[RenderableType]:
    """Steps of a trace, collapsed where they are alike."""
    moved = ["transfer_ms"] if any(step.transfer_ms is not None for step in rank.steps) else []
    keys = ("index", "duration_ms", *moved, "gpu_busy_ms", "kernel_count", "forwards", "outlier")
    return _steps(rank.steps, rank.step_statistics, rank_tables.rank_steps(rank).pick(*keys), width)


Steps = Sequence[StepTime | StepRow]


def _steps(steps: Steps, statistics: StepStatistics | None, table: Table, width: int) -> list[RenderableType]:
    if not steps:
        return [Text("no denoising steps were found")]
    parts: list[RenderableType] = []
    if statistics is not None:
        parts.append(Text(_spread(statistics)))
    if 3 <= len(steps) <= min(_LONGEST_SPARK, width - 40):
        drawn = spark([step.duration_ms for step in steps])
        parts.append(Text(f"{drawn}  steps {steps[0].index} to {steps[-1].index}, from zero up"))
    chosen = _worth_a_row(steps, statistics)
    if chosen:
        layout = Layout(flexible="outlier", optional=("profiler_warmup", "traced", "work", "host_ms"))
        parts.append(grid(table.rows_at(chosen), layout, width))
    left = len(steps) - len(chosen)
    if left:
        noun = "more step" if chosen else "step"
        parts.append(Text(f"{units.counted(left, noun)} with --format csv --table {table.name}", style="dim"))
    return parts


def _spread(statistics: StepStatistics) -> str:
    return (
        f"{'uniform' if statistics.uniform else 'NOT uniform'}: "
        f"minimum {units.duration(statistics.minimum_ms)}, median {units.duration(statistics.median_ms)}, "
        f"maximum {units.duration(statistics.maximum_ms)}, spread {units.share(statistics.spread)}"
    )


def _worth_a_row(steps: Steps, statistics: StepStatistics | None) -> list[int]:
    """Everything where they are few; else what differs."""
    odd = (statistics.slowest, statistics.odd) if statistics is not None and not statistics.uniform else ()
    notable = [at for at, step in enumerate(steps) if step.outlier or step.index in odd]
    return list(range(len(steps))) if len(steps) <= _ALL_STEPS_UP_TO else notable[:_MOST_STEPS]


def rank_idle(rank: RankReport, width: int) -> Grid:
    """Idle time by cause."""
    return grid(rank_tables.rank_idle(rank), Layout(flexible="cause"), width)


def rank_categories(rank: RankReport, width: int) -> Grid:
    """Kernel categories with a bar for the share."""
    layout = Layout(flexible="name", optional=("copy_count", "count"))
    return grid(rank_tables.rank_categories(rank), layout, width, [row.share for row in rank.categories])


def kernel_title(rank: RankReport) -> str:
    """How many kernels are shown of how many."""
    total = len(rank.kernels)
    title = f"Kernels (top {_TOP_KERNELS} of {units.count(total)})" if total > _TOP_KERNELS else "Kernels"
    if rank.attributed_share is None:
        return title
    return f"{title}; {units.share(rank.attributed_share)} have a source line"


def rank_kernels(rank: RankReport, width: int) -> Grid:
    """The top kernels, each with its category and source line below its name."""
    table = rank_tables.rank_kernels(rank).pick("total_ms", "share", "count", "mean_us")
    return _rows_of_work("kernel", rank.kernels[:_TOP_KERNELS], table, width)


def operator_title(rank: RankReport) -> str:
    """How many operators are shown of how many."""
    total = len(rank.operators.rows) if rank.operators else 0
    return f"Operators (top {_TOP_KERNELS} of {units.count(total)})" if total > _TOP_KERNELS else "Operators"


def rank_operators(rank: RankReport, width: int) -> Grid:
    """The top operators as kernels are shown."""
    rows = rank.operators.rows[:_TOP_KERNELS] if rank.operators else ()
    table = operator_tables.rank_operators(rank).pick("self_ms", "share", "count", "mean_us")
    return _rows_of_work("operator", rows, table, width)


def rank_operator_categories(rank: RankReport, width: int) -> Grid:
    """Operator categories, and the Python between, with a bar for the share."""
    table = operator_tables.rank_operator_categories(rank)
    shares = [row[2] if isinstance(row[2], float) else 0.0 for row in table.rows]
    return grid(table, Layout(flexible="name", optional=("count",)), width, shares)


def rank_lines(rank: RankReport, width: int) -> Grid:
    """The lines of Python whose operators take most time, each with its module below."""
    places = rank.operators.lines[:_TOP_PLACES] if rank.operators else ()
    heads = [cell_text(Kind.SOURCE, row.source) for row in places]
    return _places("line of Python", heads, places, operator_tables.rank_lines(rank), width)


def rank_modules(rank: RankReport, width: int) -> Grid:
    """The modules whose own operators take most time."""
    places = rank.operators.modules[:_TOP_PLACES] if rank.operators else ()
    heads = [visible(row.module or "") for row in places]
    return _places("module", heads, places, operator_tables.rank_modules(rank), width)


def _places(title: str, heads: Sequence[str], places: Sequence[PlaceRow], table: Table, width: int) -> Grid:
    numbers = table.pick("self_ms", "share", "count").head(len(heads))
    room = _room(numbers, width)
    texts = [
        (shorten_path(head, room), _place_detail(row, room)) for head, row in zip(heads, places, strict=True)
    ]
    return _two_lines(title, texts, numbers, room)


def _place_detail(row: PlaceRow, room: int) -> str:
    """What a line's operators do; its module keeps its end, which is the part that tells."""
    detail = f"  {operator_tables.place_detail(row)}"
    left = room - cell_len(detail) - 3
    if row.source is None or row.module is None or left < _NARROWEST_MODULE:
        return shorten(detail, room)
    return f"{detail} · {shorten_path(operator_tables.module_text(row), left)}"


def _rows_of_work(noun: str, rows: Sequence[KernelRow], table: Table, width: int) -> Grid:
    numbers = table.head(len(rows))
    room = _room(numbers, width)
    shortened = shorten_kernels if noun == "kernel" else shorten_apart
    names = shortened([visible(row.name) for row in rows], room)
    texts = [(name, _kernel_detail(row, room)) for name, row in zip(names, rows, strict=True)]
    return _two_lines(f"{noun}, category and source", texts, numbers, room)


def _room(numbers: Table, width: int) -> int:
    """The cells that the numbers leave."""
    widths = _number_widths(numbers)
    return max(width - sum(widths) - 2 * len(widths), 20)


def _number_widths(numbers: Table) -> list[int]:
    texts = _number_texts(numbers)
    titles = [column.title for column in numbers.columns]
    return [max([len(title), *(len(row[at]) for row in texts)]) for at, title in enumerate(titles)]


def _number_texts(numbers: Table) -> list[list[str]]:
    return [
        [cell_text(column.kind, value) for column, value in zip(numbers.columns, row, strict=True)]
        for row in numbers.rows
    ]


def _two_lines(title: str, texts: Sequence[tuple[str, str]], numbers: Table, room: int) -> Grid:
    """Rows of a name with more below it, and numbers beside it."""
    result = empty_grid()
    result.add_column(Text(title), no_wrap=True, overflow="ellipsis", width=room)
    for column, least in zip(numbers.columns, _number_widths(numbers), strict=True):
        result.add_column(Text(column.title), justify="right", no_wrap=True, min_width=least)
    for (name, detail), cells in zip(texts, _number_texts(numbers), strict=True):
        result.add_row(Text.assemble(name, "\n", (detail, "dim")), *map(Text, cells))
    return result


def _kernel_detail(row: KernelRow, room: int) -> str:
    category = shorten(f"  {visible(row.category)} · ", room // 2)
    left = room - cell_len(category)
    if row.source is None:
        return category + shorten(visible(row.operator) if row.operator else "source not known", left)
    mark = "" if row.source.line_exact else " (def)"
    place = shorten(f":{row.source.line}{mark} {visible(row.source.function)}", left // 2)
    return category + shorten_path(row.source.file, left - cell_len(place)) + place


def rank_annotations(rank: RankReport, width: int) -> Grid:
    """The first of the named ranges in the trace."""
    return grid(rank_tables.rank_annotations(rank).head(_TOP_TRANSFERS), Layout(flexible="name"), width)


def rank_transfers(rank: RankReport, width: int) -> Grid:
    """The largest rows of the ledger of copies."""
    keys = ("kind", "pinned", "bytes", "count", "total_ms", "gb_per_s", "exposed_ms", "stage", "source")
    table = rank_tables.rank_transfers(rank).pick(*keys).head(_TOP_TRANSFERS)
    return grid(table, Layout(flexible="source", optional=("count", "stage")), width)
