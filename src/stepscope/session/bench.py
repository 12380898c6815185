"""Repeated, interleaved runs of variants: every pipeline loaded in a process of its own, one verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from stepscope.analyse.comparison.bench import drift, notes, order_of
from stepscope.analyse.comparison.bench_results import BENCH_SCHEMA_VERSION, BenchReport, BenchRun, GpuState
from stepscope.capture.gpu_watch import GpuSample, GpuWatch, Sampler, nvml_sampler
from stepscope.model.errors import RunFailedError
from stepscope.record.perf_dump_reader import read_perf_dump
from stepscope.session.compare import compare_sides, load_side, without_untrusted_verdicts
from stepscope.session.sweeping.worker_client import WORKER_COMMAND, WorkerClient
from stepscope.session.sweeping.worker_messages import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run the pipeline: its name in results, and the flags of ``generate``."""

    name: str
    flags: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The first variant is the base."""

    variants: tuple[Variant, ...]
    runs: int  # of each variant
    folder: Path  # dumps, outputs and logs
    warm_up: bool = True
    reload: bool = False  # a process for every run: one pipeline in memory at a time
    worker_command: Sequence[str] = WORKER_COMMAND


class BenchListener(Protocol):
    """Told what the bench is busy with."""

    def doing(self, text: str) -> None:
        """One line, replaced by the next."""


def bench(options: BenchOptions, listener: BenchListener, *, sampler: Sampler | None = None) -> BenchReport:
    """Load every variant, run them interleaved, each run warmed up, and compare them with the first.

    ``sampler`` reads the GPU's state; without one NVML is asked about the GPU that the base is on.

    Raises:
        RunFailedError: a variant cannot be loaded or a run failed; what was measured stays in the folder.

    """
    with _Bench(options, listener, sampler) as work:
        if not options.reload:
            work.load_all()
        runs = [work.run(order, *place) for order, place in enumerate(_places(options))]
    return _report(options, runs)


class _Bench:
    """A bench at work: its worker processes and the watch on the GPU."""

    def __init__(self, options: BenchOptions, listener: BenchListener, sampler: Sampler | None) -> None:
        self._options = options
        self._listener = listener
        self._sampler = sampler
        self._watch: GpuWatch | None = None
        self._stack = ExitStack()
        self._resident: dict[int, WorkerClient] = {}

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load_all(self) -> None:
        """Load every variant and keep it loaded."""
        for number in range(len(self._options.variants)):
            self._resident[number] = self._stack.enter_context(self._ready(number))

    def run(self, order: int, number: int, repeat: int) -> BenchRun:
        """One run of a variant, in the process that has it loaded or in a new one."""
        with ExitStack() as stack:
            worker = self._resident.get(number) or stack.enter_context(self._ready(number))
            self._start_watch(worker)
            return self._measured(worker, order, number, repeat)

    @contextmanager
    def _ready(self, number: int) -> Iterator[WorkerClient]:
        """A process with the variant loaded."""
        options, variant = self._options, self._options.variants[number]
        log = options.folder / f"variant-{number}.log"
        with WorkerClient(log, command=options.worker_command) as worker:
            self._listener.doing(f"loading {variant.name}")
            _check(variant, worker.ask("load", variant.flags))
            yield worker

    def _measured(self, worker: WorkerClient, order: int, number: int, repeat: int) -> BenchRun:
        variant, dump = self._options.variants[number], _dump_path(self._options, number, repeat)
        ours = {
            "warmup": self._options.warm_up,  # before every run: all are equally warm, and their dumps say so
            "perf_dump_path": str(dump),
            "output_path": str(self._options.folder / "outputs"),
            "output_file_name": dump.stem,
        }
        count = self._options.runs * len(self._options.variants)
        self._listener.doing(f"run {order + 1} of {count}: {variant.name}")
        start_ns = time.perf_counter_ns()
        _check(variant, worker.ask("run", {**variant.flags, **ours}))
        samples = self._watch.between(start_ns, time.perf_counter_ns()) if self._watch else ()
        return BenchRun(
            order=order,
            variant=variant.name,
            total_ms=read_perf_dump(dump).total_duration_ms,
            path=str(dump),
            gpu=gpu_state(samples),
        )

    def _start_watch(self, worker: WorkerClient) -> None:
        if self._watch is None and self._sampler is None and worker.gpu_uuid is not None:
            self._sampler = nvml_sampler(worker.gpu_uuid)
        if self._watch is None and self._sampler is not None:
            self._watch = self._stack.enter_context(GpuWatch(self._sampler))


def _places(options: BenchOptions) -> Iterator[tuple[int, int]]:
    """Each run's variant, and the how manieth of that variant it is."""
    seen: Counter[int] = Counter()
    for variant in order_of(len(options.variants), options.runs):
        yield variant, seen[variant]
        seen[variant] += 1


def gpu_state(samples: Sequence[GpuSample]) -> GpuState | None:
    """The samples of one run in numbers; None without samples."""
    if not samples:
        return None
    clocks = [sample.sm_mhz for sample in samples if sample.sm_mhz is not None]
    degrees = [sample.temperature_c for sample in samples if sample.temperature_c is not None]
    watts = [sample.power_w for sample in samples if sample.power_w is not None]
    reasons = Counter(reason for sample in samples for reason in sample.throttled_by)
    return GpuState(
        samples=len(samples),
        sm_mhz=median(clocks) if clocks else None,
        temperature_c=max(degrees, default=None),
        power_w=median(watts) if watts else None,
        throttled=tuple((reason, count / len(samples)) for reason, count in reasons.items()),
    )


def _report(options: BenchOptions, runs: Sequence[BenchRun]) -> BenchReport:
    sides = [
        load_side(variant.name, [_dump_path(options, number, repeat) for repeat in range(options.runs)])
        for number, variant in enumerate(options.variants)
    ]
    drifted = drift(runs)
    said = notes(runs, drifted)
    compared = without_untrusted_verdicts(compare_sides(sides[0], sides[1:]))
    comparisons = (replace(each, warnings=(*said, *each.warnings)) for each in compared.comparisons)
    return BenchReport(
        schema_version=BENCH_SCHEMA_VERSION,
        comparison=replace(compared, comparisons=tuple(comparisons)),
        runs=tuple(runs),
        drift=drifted,
        notes=said,
    )


def untrusted_runs(report: BenchReport) -> tuple[str, ...]:
    """The dumps whose numbers kept a variant from its verdict, by name."""
    sides = (report.comparison.base, *(each.new for each in report.comparison.comparisons))
    return tuple(name for side in sides for name in side.untrusted_runs)


def _dump_path(options: BenchOptions, variant: int, repeat: int) -> Path:
    return options.folder / f"variant-{variant}-run-{repeat}.json"


def _check(variant: Variant, failure: Failure | None) -> None:
    if failure is not None:
        remedy = "With --reload only one variant is in memory at a time." if failure.out_of_memory else ""
        raise RunFailedError(f"{variant.name} failed: {failure.message}", remedy=remedy)
