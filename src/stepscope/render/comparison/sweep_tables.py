"""What every view of a sweep shows: the points, the fits, where stages take over, what first uses cost."""

from __future__ import annotations

from stepscope.analyse.comparison.sweep_results import Crossover, FirstUse, Fit, SweepReport
from stepscope.model.sweep import SweepRow
from stepscope.render import units
from stepscope.render.names import shorten, visible
from stepscope.render.tables import Column, Kind, Table, Value, build

_PROMPT_WIDTH = 32
_MOST_ACCIDENTS = 8
_STATUS = {"ok": "ok", "failed": "FAILED", "out_of_memory": "OUT OF MEMORY"}


def headline(report: SweepReport) -> str:
    """The sweep in one sentence."""
    counts = {status: sum(row.status == status for row in report.rows) for status in _STATUS}
    parts = [f"{counts['ok']} of {units.counted(len(report.rows) + report.missing, 'point')} measured"]
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{counts['out_of_memory']} out of memory"] if counts["out_of_memory"] else []
    parts += [f"{report.missing} not run yet"] if report.missing else []
    return ", ".join(parts)


def growth(report: SweepReport, most: int = 6) -> list[str]:
    """The answer in a few lines: how the whole run grows, and where another stage takes over."""
    whole = [fit for fit in report.fits if fit.series == "end to end"]
    said = [
        f"end to end grows with {fit.against} ^ {_exponent(fit)} at {fit.group}"
        + (f" (in doubt: {fit.doubt})" if fit.doubt else "")
        for fit in whole
    ]
    said += [
        f"from {_tokens(each)} tokens on the longest stage is {each.after}, below {each.before}"
        f" ({each.group}; {'measured on both sides' if each.within else 'extrapolated'})"
        for each in report.crossovers
    ]
    said += report.crossovers_withheld
    left = len(said) - most
    return [*said[:most], *([f"and {left} more in the tables below"] if left > 0 else [])]


def points_table(report: SweepReport) -> Table:
    """One row a point, in the grid's order."""
    columns = [
        Column(key="size", title="size"),
        Column(key="frames", title="frames", kind=Kind.INDEX),
        Column(key="steps", title="steps", kind=Kind.INDEX),
        Column(key="variant", title="flags", kind=Kind.CODE),
        Column(key="status", title="status"),
        Column(key="total_ms", title="end to end ms", kind=Kind.MS),
        Column(key="step_ms", title="step ms", kind=Kind.MS),
        Column(key="longest", title="longest stage"),
        Column(key="peak", title="peak memory", kind=Kind.BYTES),
        Column(key="prompt", title="prompt"),
        Column(key="error", title="what happened"),
    ]
    several = len({row.point.prompt for row in report.rows}) > 1
    rows = [_point(row, with_prompt=several) for row in report.rows]
    return build("points", "Points", columns, rows)


def accidents(report: SweepReport) -> list[str]:
    """What happened to points that were not measured, for views without room for it in their tables."""
    by_error: dict[str, list[str]] = {}
    for row in report.rows:
        if row.status != "ok":
            by_error.setdefault(row.error, []).append(row.point.label)
    return [
        f"{shorten(labels[0], 60)}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''}: "
        f"{shorten(visible(error), 240)}"
        for error, labels in list(by_error.items())[:_MOST_ACCIDENTS]
    ]


def fits_table(report: SweepReport) -> Table:
    """Exponents with their errors, and how far the worst point is from its curve."""
    columns = [
        Column(key="series", title="what"),
        Column(key="against", title="grows with"),
        Column(key="exponent", title="exponent (95 %)", kind=Kind.AMOUNT),
        Column(key="residual", title="worst residual", kind=Kind.SHARE),
        Column(key="count", title="points", kind=Kind.COUNT),
        Column(key="group", title="at"),
        Column(key="doubt", title="doubt"),
    ]
    rows = [
        (fit.series, fit.against, _exponent(fit), _residual(fit), len(fit.points), fit.group, fit.doubt)
        for fit in report.fits
    ]
    return build("fits", "Scaling: time = constant x size ^ exponent", columns, rows)


def compositions_table(report: SweepReport) -> Table:
    """What of a step is fixed, linear and quadratic in tokens."""
    columns = [
        Column(key="group", title="at"),
        Column(key="fixed_ms", title="fixed ms", kind=Kind.MS),
        Column(key="linear", title="linear µs/token", kind=Kind.NUMBER),
        Column(key="quadratic", title="quadratic ns/token^2", kind=Kind.NUMBER),
        Column(key="share", title="quadratic share at the largest", kind=Kind.SHARE),
        Column(key="worst_residual", title="worst residual", kind=Kind.SHARE),
    ]
    rows = [
        (
            each.group,
            each.fixed_ms,
            each.linear_ms_per_token * 1e3,
            each.quadratic_ms_per_token2 * 1e6,
            each.quadratic_share,
            each.worst_residual,
        )
        for each in report.compositions
    ]
    return build("compositions", "A step, split by how it grows with tokens", columns, rows)


def crossovers_table(report: SweepReport) -> Table:
    """Where another stage becomes the longest."""
    columns = [
        Column(key="tokens", title="tokens (95 %)", kind=Kind.AMOUNT),
        Column(key="before", title="longest below"),
        Column(key="after", title="longest above"),
        Column(key="within", title="known by"),
        Column(key="group", title="at"),
    ]
    rows = [
        (
            _tokens(each),
            each.before,
            each.after,
            "measurement" if each.within else "extrapolation",
            each.group,
        )
        for each in report.crossovers
    ]
    return build("crossovers", "Where another stage takes over", columns, rows)


def first_uses_table(report: SweepReport) -> Table:
    """What the first call of a shape cost, kept apart from the measured runs."""
    columns = [
        Column(key="shape", title="first call of"),
        Column(key="variant", title="flags", kind=Kind.CODE),
        Column(key="extra_ms", title="beyond a usual call, ms", kind=Kind.AMOUNT),
        Column(key="note", title="note"),
    ]
    rows = [
        (
            each.shape,
            each.variant,
            units.signed_milliseconds(each.extra_ms) if each.extra_ms > 0 else "",
            _first_use_note(each),
        )
        for each in report.first_uses
    ]
    return build("first_uses", "First use of a shape", columns, rows)


def _first_use_note(each: FirstUse) -> str:
    """A first call that was faster than the later ones cost nothing that can be told from noise."""
    notes = ["not distinguishable from a usual call"] if each.extra_ms <= 0 else []
    return "; ".join([*notes, *(["also the first call of its process"] if each.first_in_process else [])])


def _point(row: SweepRow, *, with_prompt: bool) -> tuple[Value, ...]:
    width, height = row.width or row.point.width, row.height or row.point.height
    longest = max(row.stages_ms, key=row.stages_ms.__getitem__, default="")
    untrusted = f"untrusted: {row.untrusted[0]}" if row.untrusted else ""
    return (
        f"{width}x{height}" if width else "",
        row.frames or row.point.frames,
        row.steps or row.point.steps,
        row.point.variant,
        _STATUS.get(row.status, row.status),
        row.total_ms,
        row.step_ms,
        longest,
        row.peak_memory_bytes,
        shorten(visible(row.point.prompt or ""), _PROMPT_WIDTH) if with_prompt else "",
        row.error or untrusted,
    )


def _exponent(fit: Fit) -> str:
    low, high = fit.exponent_interval
    return f"{fit.exponent:.2f} ({low:.2f} to {high:.2f})"


def _tokens(crossover: Crossover) -> str:
    low, high = crossover.interval
    return f"{crossover.tokens:,.0f} ({low:,.0f} to {high:,.0f})"


def _residual(fit: Fit) -> float | None:
    """Two points have none."""
    return fit.worst_residual if len(fit.points) > 2 else None
