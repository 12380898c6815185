"""What every view of a comparison shows: its sentences, and its tables of raw values."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analyse.comparison.compare_results import (
    Basis,
    CompareReport,
    Comparison,
    KernelChange,
    Row,
    Sample,
    Verdict,
)
from stepscope.render import units
from stepscope.render.tables import Column, Kind, Table, build

_WORDS = {
    ("memory", Verdict.BETTER): "less",
    ("memory", Verdict.WORSE): "more",
}
_TIME_WORDS = {Verdict.BETTER: "faster", Verdict.WORSE: "slower"}
_OTHER_WORDS = {
    Verdict.NO_CHANGE: "without change",
    Verdict.CANNOT_TELL: "that cannot be told from noise",
    Verdict.NO_VERDICT: "without verdict",
}


def verdict_word(row: Row) -> str:
    """The verdict as people say it of this row: faster, slower, less, more, or as it is."""
    return _WORDS.get((row.kind, row.verdict)) or _TIME_WORDS.get(row.verdict) or row.verdict.value


def headline(comparison: Comparison) -> str:
    """The answer in one sentence, without the verdict's word before it."""
    total = comparison.total
    if total.verdict is Verdict.NO_VERDICT:
        return total.reason
    parts = [f"{units.signed_share(total.change)} {total.name} ({_from_to(total)})"]
    if total.interval is not None:
        low, high = (units.signed_share(bound) for bound in total.interval)
        parts.append(f"{100 * (1 - comparison.alpha):.0f} % interval {low} to {high}")
    if total.p_value is not None:
        parts.append(units.probability(total.p_value))
    if comparison.basis is Basis.THRESHOLDS:
        parts.append(f"by threshold, {total.reason}: one run on a side cannot tell noise from change")
    elif total.verdict in (Verdict.NO_CHANGE, Verdict.CANNOT_TELL):
        parts.append(total.reason)
    return "; ".join(parts)


def verdict_title(comparison: Comparison) -> str:
    """One or two words in capitals that begin the answer."""
    return verdict_word(comparison.total).upper()


def sides(report: CompareReport, comparison: Comparison) -> str:
    """Which files are compared, and how many runs."""
    base, new = report.base, comparison.new
    name = "" if base.label == "base" else f" {base.label}"  # a bench calls it so
    return (
        f"{new.label} ({units.counted(new.runs, 'run')}) against "
        f"the base{name} ({units.counted(base.runs, 'run')})"
    )


def cautions(report: CompareReport, comparison: Comparison) -> list[str]:
    """What has to be known before any number is believed."""
    said = [
        f"not alike: {difference.name} {difference.base} against {difference.new}"
        for difference in comparison.differences
        if difference.severity.value == "unlike"
    ]
    said += [f"untrusted: {text}" for text in (*report.base.untrusted, *comparison.new.untrusted)]
    if comparison.random_weights:
        said.append(
            "random weights: caches, quality and data-dependent kernels are not those of the real model"
        )
    told = comparison.total.reason  # by the headline
    return [text for text in dict.fromkeys((*said, *comparison.warnings)) if text != told]


def files_table(report: CompareReport) -> Table:
    """One row a side, the base first."""
    base = report.comparisons[0].total.base if report.comparisons else None
    rows = [(report.base.label, report.base.runs, base.median if base else None, "", "base")]
    rows += [
        (
            each.new.label,
            each.new.runs,
            each.total.new.median if each.total.new else None,
            units.signed_share(each.total.change),
            verdict_word(each.total),
        )
        for each in report.comparisons
    ]
    columns = [
        Column(key="file", title="file", kind=Kind.CODE),
        Column(key="runs", title="runs", kind=Kind.COUNT),
        Column(key="total_ms", title="end to end ms", kind=Kind.MS),
        Column(key="change", title="change", kind=Kind.AMOUNT),
        Column(key="verdict", title="verdict"),
    ]
    return build("files", "All files", columns, rows)


def summary_table(comparison: Comparison) -> Table:
    """End to end, throughput, median step and peak memory."""
    rows = (comparison.total, comparison.throughput, comparison.step_median, comparison.memory)
    return _rows_table("summary", "Summary", [row for row in rows if row is not None])


def stages_table(comparison: Comparison) -> Table:
    """Every stage, in the order of the run."""
    return _rows_table("stages", "Stages", comparison.stages)


def steps_table(comparison: Comparison) -> Table:
    """Every step, aligned by index."""
    return _rows_table("steps", "Steps", comparison.steps)


def changed_steps_table(comparison: Comparison) -> Table:
    """The steps with another verdict than 'no change'."""
    rows = [row for row in comparison.steps if row.verdict in (Verdict.BETTER, Verdict.WORSE)]
    return _rows_table("steps", "Steps that changed", rows)


def other_steps(comparison: Comparison) -> str:
    """How many steps are not in ``changed_steps_table``, and why."""
    verdicts = [row.verdict for row in comparison.steps]
    parts = [
        f"{units.counted(verdicts.count(verdict), 'step')} {words}"
        for verdict, words in _OTHER_WORDS.items()
        if verdict in verdicts
    ]
    return ", ".join(parts)


def categories_table(comparison: Comparison) -> Table:
    """GPU time by what kernels do; the differences sum to the difference."""
    found = comparison.kernels.categories if comparison.kernels else ()
    return _kernels_table("categories", "Kernel categories", found, "category")


def kernels_table(comparison: Comparison) -> Table:
    """GPU time by kernel, the largest difference first."""
    found = comparison.kernels.kernels if comparison.kernels else ()
    return _kernels_table("kernels", "Kernels", found, "kernel")


def kernels_sentence(comparison: Comparison) -> str:
    """What the kernel tables sum to."""
    kernels = comparison.kernels
    if kernels is None:
        return ""
    of = "a step" if kernels.per == "step" else "the trace"
    return (
        f"Kernel time of {of}: {units.duration(kernels.base_ms)} to {units.duration(kernels.new_ms)} "
        f"({units.signed_milliseconds(kernels.difference_ms)} ms, to which either table sums)"
    )


def quality_table(comparison: Comparison) -> Table:
    """Outputs of both sides, pair by pair."""
    columns = [
        Column(key="position", title="output", kind=Kind.INDEX),
        Column(key="verdict", title="verdict"),
        Column(key="identical", title="same bits", kind=Kind.FLAG),
        Column(key="psnr_db", title="PSNR dB", kind=Kind.NUMBER),
        Column(key="ssim", title="SSIM", kind=Kind.NUMBER),
        Column(key="note", title="note"),
    ]
    rows = [
        (row.position, row.verdict, row.identical, row.psnr_db, row.ssim, row.note)
        for row in comparison.quality
    ]
    return build("quality", "Outputs", columns, rows)


def differences_table(comparison: Comparison) -> Table:
    """What differs in environment and workload, the gravest first."""
    columns = [
        Column(key="severity", title="weight"),
        Column(key="name", title="what differs"),
        Column(key="base", title="base", kind=Kind.CODE, always=True),
        Column(key="new", title="new", kind=Kind.CODE, always=True),
    ]
    rows = [
        (row.severity.value, row.name, row.base or units.NOT_KNOWN, row.new or units.NOT_KNOWN)
        for row in comparison.differences
    ]
    return build("differences", "What differs in environment and workload", columns, rows)


_ROW_COLUMNS = (
    Column(key="name", title="", kind=Kind.TEXT),
    Column(key="base", title="base", kind=Kind.AMOUNT, always=True),
    Column(key="new", title="new", kind=Kind.AMOUNT, always=True),
    Column(key="difference", title="difference", kind=Kind.AMOUNT),
    Column(key="change", title="change", kind=Kind.AMOUNT),
    Column(key="interval", title="interval", kind=Kind.AMOUNT),
    Column(key="verdict", title="verdict"),
    Column(key="reason", title="why"),
)


def _rows_table(name: str, caption: str, rows: Sequence[Row]) -> Table:
    return build(name, caption, _ROW_COLUMNS, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    low_high = (
        f"{units.signed_share(row.interval[0])} to {units.signed_share(row.interval[1])}"
        if row.interval
        else ""
    )
    return (
        row.name,
        _quantity(row.base, row.unit),
        _quantity(row.new, row.unit),
        _difference(row),
        units.signed_share(row.change) if row.change is not None else "",
        low_high,
        verdict_word(row),
        "untrusted numbers" if row.reason.startswith("untrusted:") else row.reason,  # the headline says why
    )


def _from_to(row: Row) -> str:
    return f"{_quantity(row.base, row.unit)} to {_quantity(row.new, row.unit)}"


def _quantity(sample: Sample | None, unit: str) -> str:
    """The median with its unit."""
    if sample is None:
        return units.NOT_KNOWN
    if unit == "bytes":
        return units.size(sample.median)
    return units.duration(sample.median) if unit == "ms" else f"{units.number(sample.median)} /s"


def _difference(row: Row) -> str:
    if row.difference is None:
        return ""
    if row.unit == "bytes":
        return f"{'+' if row.difference > 0 else ''}{units.size(row.difference)}"
    if row.unit == "ms":
        longer = max(side.median for side in (row.base, row.new) if side is not None)
        return units.signed_duration(row.difference, beside_ms=longer)
    return f"{'+' if row.difference > 0 else ''}{units.number(row.difference)} /s"


def _kernels_table(name: str, caption: str, rows: Sequence[KernelChange], title: str) -> Table:
    columns = [
        Column(key="name", title=title, kind=Kind.CODE),
        Column(key="state", title="state"),
        Column(key="base_count", title="base count", kind=Kind.COUNT),
        Column(key="new_count", title="new count", kind=Kind.COUNT),
        Column(key="base_ms", title="base ms", kind=Kind.MS),
        Column(key="new_ms", title="new ms", kind=Kind.MS),
        Column(key="difference_ms", title="difference ms", kind=Kind.AMOUNT),
    ]
    cells = [
        (
            row.name,
            row.state,
            row.base_count,
            row.new_count,
            row.base_ms,
            row.new_ms,
            units.signed_milliseconds(row.difference_ms),
        )
        for row in rows
    ]
    return build(name, caption, columns, cells)
