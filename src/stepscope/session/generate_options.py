"""What ``generate`` is asked to do, what it tells while it works and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stepscope.model.dump import PerfDump
from stepscope.model.run import Run
from stepscope.model.vocabulary import TraceDetail
from stepscope.workload.arguments import GenerationRequest
from stepscope.workload.request import LoadRequest

PROFILED_STEPS = 5
"""SGLang's default of --num-profiled-timesteps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to trace with torch.profiler."""

    steps: int = PROFILED_STEPS  # after step 0; -1: all
    all_stages: bool = False
    detail: TraceDetail = TraceDetail.SOURCE
    max_bytes: int | None = None  # of each trace file: fewer steps where they would not fit
    directory: Path | None = None  # None: in the run directory, else from the environment, else ./logs


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupOptions:
    """Whether and how to warm up. ``enabled`` None: where something is timed or traced."""

    enabled: bool | None = None
    steps: int = 2
    at_most: int = 3  # requests, while the process is not in a steady state


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Whether and where pictures and videos are saved."""

    save: bool = True
    directory: Path | None = None  # None: in the run directory, else ./outputs
    file_name: str | None = None  # None: from the prompt, the time and the run's id


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """One model load and one run for each request."""

    load: LoadRequest
    requests: tuple[GenerationRequest, ...]
    profile: ProfileOptions | None = None
    perf_dump_path: Path | None = None
    run_directory: Path | None = None
    warmup: WarmupOptions = WarmupOptions()
    output: OutputOptions = OutputOptions()
    show_progress: bool = False  # the pipeline's own bars
    nvtx: bool = False  # NVTX ranges; implied where Nsight Systems watches
    layerwise_nvtx: bool = False  # a range for each module too

    @property
    def measures(self) -> bool:
        """Whether anything is timed or traced for keeping."""
        return self.profile is not None or self.perf_dump_path is not None or self.run_directory is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResult:
    """One run: what the pipeline gave, what was measured and where it was written."""

    run: Run
    dump: PerfDump
    output: Any = field(repr=False)  # the pipeline's own; None where it failed
    dump_path: Path | None = None
    run_directory: Path | None = None
    error: BaseException | None = None  # the pipeline's own exception, or what could not be written

    @property
    def has_files(self) -> bool:
        """Whether anything of the run is on disk."""
        return bool(self.dump_path or self.run_directory or self.run.traces or self.output_paths)

    @property
    def trace_path(self) -> Path | None:
        """The trace of this run, if one was written."""
        return Path(self.run.traces[0].path) if self.run.traces else None

    @property
    def output_paths(self) -> tuple[Path, ...]:
        """Saved pictures and videos."""
        return tuple(Path(output.path) for output in self.run.outputs if output.path is not None)


class Listener(Protocol):
    """Told what ``generate`` is busy with."""

    def loading(self, what: str, done: int, total: int) -> None:
        """Loading a component."""

    def warming_up(self, number: int, at_most: int) -> None:
        """About to run a warm-up request."""

    def mapping(self) -> None:
        """About to run the request that finds out which line makes which call."""

    def running(self, request_id: str, number: int, total: int) -> None:
        """About to run a request."""

    def forecast(self, text: str) -> None:
        """What a trace will take, before it is recorded."""

    def warning(self, text: str) -> None:
        """Something to know before the work is done."""


class SilentListener:
    """Says nothing."""

    def loading(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def warming_up(self, number: int, at_most: int) -> None:
        """Say nothing."""

    def mapping(self) -> None:
        """Say nothing."""

    def running(self, request_id: str, number: int, total: int) -> None:
        """Say nothing."""

    def forecast(self, text: str) -> None:
        """Say nothing."""

    def warning(self, text: str) -> None:
        """Say nothing."""
