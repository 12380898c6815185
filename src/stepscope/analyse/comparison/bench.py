"""Whether the machine held still during a bench: drift over the runs, clocks, temperature, throttling."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy import stats

from stepscope.analyse.comparison.bench_results import BenchRun, Drift

DRIFT_P_VALUE = 0.01
DRIFT_CHANGE = 0.01
"""A drift is told where the slope is this unlikely by chance and makes 1 % from the first run to the last."""

CLOCK_DIFFERENCE = 0.02
"""Variants whose median clocks are further apart did not run on the same machine, so to speak."""

THROTTLED_SHARE = 0.05
"""Throttling in fewer samples than this is the odd reading."""


def order_of(variants: int, runs: int) -> tuple[int, ...]:
    """The variant of each run: A B, B A, A B, ...; what drifts evenly then falls on all alike."""
    forward = list(range(variants))
    return tuple(
        variant for repeat in range(runs) for variant in (forward if repeat % 2 == 0 else forward[::-1])
    )


def drift(runs: Sequence[BenchRun]) -> Drift | None:
    """The slope of the totals over the order, each relative to its variant's median; None below six runs."""
    if len(runs) < 6:
        return None
    usual = {
        name: median(run.total_ms for run in runs if run.variant == name)
        for name in {run.variant for run in runs}
    }
    if min(usual.values()) <= 0:
        return None
    relative = np.array([run.total_ms / usual[run.variant] for run in runs])
    if np.ptp(relative) == 0:
        return Drift(change=0.0, p_value=1.0, found=False)
    fit = stats.linregress(np.array([run.order for run in runs]), relative)
    change = float(fit.slope) * (len(runs) - 1)
    p_value = float(fit.pvalue)
    return Drift(change=change, p_value=p_value, found=p_value < DRIFT_P_VALUE and abs(change) > DRIFT_CHANGE)


def notes(runs: Sequence[BenchRun], drifted: Drift | None) -> tuple[str, ...]:
    """What a reader of the verdict has to know of the machine; the gravest first."""
    said = [*_throttling(runs), *_clocks(runs)]
    if drifted is not None and drifted.found:
        said.append(
            f"the runs drifted by {100 * drifted.change:+.1f} % from first to last "
            f"(p = {drifted.p_value:.2g}); interleaving spread it over all variants, "
            "and it widens their intervals"
        )
    if all(run.gpu is None for run in runs):
        said.append("no GPU was watched: clocks and throttling are not known")
    return tuple(said)


def _throttling(runs: Sequence[BenchRun]) -> list[str]:
    said = []
    for name in dict.fromkeys(run.variant for run in runs):
        states = [run.gpu for run in runs if run.variant == name and run.gpu is not None]
        samples = sum(state.samples for state in states)
        for reason in dict.fromkeys(reason for state in states for reason, _ in state.throttled):
            hits = sum(dict(state.throttled).get(reason, 0.0) * state.samples for state in states)
            if samples and hits / samples >= THROTTLED_SHARE:
                said.append(
                    f"{name}: the GPU was held back by {reason} "
                    f"in {100 * hits / samples:.0f} % of the samples"
                )
    return said


def _clocks(runs: Sequence[BenchRun]) -> list[str]:
    clocks = {
        name: [
            run.gpu.sm_mhz for run in runs if run.variant == name and run.gpu and run.gpu.sm_mhz is not None
        ]
        for name in dict.fromkeys(run.variant for run in runs)
    }
    medians = {name: median(values) for name, values in clocks.items() if values}
    if len(medians) < 2 or max(medians.values()) <= min(medians.values()) * (1 + CLOCK_DIFFERENCE):
        return []
    listed = ", ".join(f"{name} {value:,.0f} MHz" for name, value in medians.items())
    return [f"the GPU's clock differed between variants: {listed}"]
