"""Nsight Systems: what is to be captured, what nsys can do, what a run of it left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stepscope.model.errors import UsageError
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage, Word

NVTX_DOMAIN = "stepscope"
"""The NVTX domain of all our ranges; readers take its ranges for authoritative."""
CAPTURE_RANGE = "stepscope_capture"
"""The range that opens and closes a capture where cudaProfilerStart cannot."""
CAPTURE_VARIABLE = "STEPSCOPE_NSYS_CAPTURE"
"""Tells an observed process what to capture: ``Capture.to_text``."""


class Trigger(Word):
    """What tells nsys where the capture begins and ends."""

    CUDA_PROFILER = "cuda"  # cudaProfilerStart and cudaProfilerStop
    NVTX = "nvtx"  # CAPTURE_RANGE
    NONE = "none"  # nothing: nsys records throughout, or by its own clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Which part of the first observed call is captured; neither steps nor stage: the whole call."""

    trigger: Trigger
    steps: StepRange | None = None
    stage: Stage | None = None

    def to_text(self) -> str:
        """As ``CAPTURE_VARIABLE`` has it: ``nvtx``, ``cuda:steps:5:10``, ``nvtx:stage:DecodingStage``."""
        if self.steps is not None:
            return f"{self.trigger}:steps:{self.steps}"
        return f"{self.trigger}:stage:{self.stage}" if self.stage is not None else str(self.trigger)

    @staticmethod
    def from_text(text: str) -> Capture:
        """Raises UsageError for what ``to_text`` does not write."""
        trigger, _, rest = text.partition(":")
        kind, _, value = rest.partition(":")
        try:
            return Capture(
                trigger=Trigger(trigger),
                steps=StepRange.parse(value) if kind == "steps" else None,
                stage=Stage(value) if kind == "stage" else None,
            )
        except ValueError as error:
            raise UsageError(
                f"{CAPTURE_VARIABLE} is {text!r}.", remedy="It is set by stepscope nsys: unset it."
            ) from error

    @property
    def what(self) -> str:
        """In words, for messages."""
        if self.steps is not None:
            return f"steps {self.steps}"
        return str(self.stage) if self.stage is not None else "the pipeline call"


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysTool:
    """A Nsight Systems command line: where it is and which flags it has. ``path`` None: not installed."""

    path: str | None
    version: str
    flags: frozenset[str]  # long ones without their value, as --trace
    aliases: dict[str, str] = field(default_factory=dict)  # short to long: -t to --trace
    importer: bool = True  # it finds the importer that makes .nsys-rep of .qdstrm


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysRun:
    """What a finished ``nsys profile`` left: its words, its files, its exit status (0 proves nothing)."""

    command: tuple[str, ...]
    exit_status: int
    said: str  # what nsys printed, the application's own output possibly among it
    capture: Capture | None
    traced: frozenset[str]  # values of --trace
    report: Path | None  # the .nsys-rep
    expected: Path | None  # where it was to be
    elsewhere: tuple[Path, ...] = ()  # reports and .qdstrm that landed somewhere else
    output_problem: str = ""  # why the output folder could not be written, found beforehand or after


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFacts:
    """What an SQLite export holds, as far as diagnosis needs it."""

    kernels: int
    launches: int
    ranges: int
    our_ranges: int
    our_domain: bool  # our NVTX domain was created, whether or not a range of it was recorded
    whole_graphs: int  # CUDA graphs traced as one row each
    gpus: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()  # the profiler's own complaints


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Something that went wrong with a capture, and what to do."""

    id: str
    text: str
    remedy: str
    fatal: bool = False  # there is nothing to report
