"""Null experiment: how often does compare call an A/A pair changed, and how often does it find 3 %?

Noise is measured here (a fixed CPU workload, repeated) or taken from perf dumps; pairs of cohorts are drawn
from it and judged by the code that ``stepscope compare`` runs. Wanted: at most 5 % false 'changed', at least
95 % of planted 3 % slowdowns found with 1 % noise and five runs a side.

    python benchmarks/null_experiment.py [--pairs 20000] [--repeats 400] [--noise-from perf.json ...]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from stepscope.analyse.comparison.cohort import Cohort, Observation
from stepscope.analyse.comparison.compare import compare
from stepscope.analyse.comparison.compare_results import Verdict
from stepscope.record.perf_dump_reader import read_perf_dumps

RUNS = 5
Draw = Callable[[], Sequence[float]]


def main() -> int:
    arguments = _parse()
    generator = np.random.default_rng(arguments.seed)
    if arguments.noise_from:
        totals = [dump.total_duration_ms for path in arguments.noise_from for dump in read_perf_dumps(path)]
    else:
        totals = measure(arguments.repeats)
    relative = np.asarray(totals) / np.median(totals)
    if arguments.write_noise:
        arguments.write_noise.write_text(json.dumps([round(float(each), 6) for each in relative]))
    print(f"noise: {len(totals)} runs, median {np.median(totals):.2f} ms, spread {relative.std():.2%}")

    def measured() -> Sequence[float]:
        return list(1000 * generator.choice(relative, RUNS))

    def one_percent(mean_ms: float) -> Draw:
        return lambda: list(mean_ms * generator.normal(1.0, 0.01, RUNS))

    cases: list[tuple[str, Draw, Draw]] = [
        ("A/A, measured noise", measured, measured),
        ("A/A, 1 % normal noise", one_percent(1000.0), one_percent(1000.0)),
        ("3 % slower, 1 % normal noise", one_percent(1000.0), one_percent(1030.0)),
    ]
    for name, base, new in cases:
        verdicts = verdicts_of(base, new, arguments.pairs)
        changed = verdicts[Verdict.BETTER] + verdicts[Verdict.WORSE]
        error = 1.96 * math.sqrt(max(changed * (1 - changed), 1e-9) / arguments.pairs)
        print(f"{name}: {changed:.2%} +- {error:.2%} of {arguments.pairs} pairs changed")
        print("    " + ", ".join(f"{verdict.value} {share:.2%}" for verdict, share in verdicts.items()))
    return 0


def verdicts_of(base: Draw, new: Draw, pairs: int) -> dict[Verdict, float]:
    """The share of pairs that gets each end-to-end verdict."""
    found = Counter(compare(cohort(base()), cohort(new())).total.verdict for _ in range(pairs))
    return {verdict: found[verdict] / pairs for verdict in Verdict}


def cohort(totals_ms: Sequence[float]) -> Cohort:
    runs = (Observation(path="", total_ms=float(ms), stages={}, steps={}, facts={}) for ms in totals_ms)
    return Cohort(label="", runs=tuple(runs))


def measure(repeats: int) -> list[float]:
    """Wall times in ms of a fixed piece of CPU work, after a warm-up."""
    matrix = np.random.default_rng(0).standard_normal((384, 384)).astype(np.float32)
    durations = []
    for index in range(repeats + 20):
        start = time.perf_counter_ns()
        for _ in range(12):
            matrix @ matrix
        if index >= 20:
            durations.append((time.perf_counter_ns() - start) / 1e6)
    return durations


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=400, help="measurements of the noise")
    parser.add_argument("--noise-from", type=Path, nargs="+", help="perf dumps of repeated runs instead")
    parser.add_argument("--write-noise", type=Path, help="keep the relative noise as JSON")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
