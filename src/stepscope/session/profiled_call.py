"""One measured call as the library gives it, and writing such calls into a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepscope.analyse.run.reconcile import reconcile
from stepscope.model.dump import PerfDump
from stepscope.model.errors import UsageError
from stepscope.model.run import Run
from stepscope.record.atomic import atomic_path
from stepscope.record.perf_dump import write_dump
from stepscope.record.run_record import RUN_FILE, write_run
from stepscope.session.destinations import free_run_directory
from stepscope.session.held_call import HeldCall
from stepscope.session.keep import DUMP_FILE


class ProfiledCall:
    """One call of a pipeline, or one block of code: what was measured of it, never changed. Milliseconds.

    It is worked out when it is first looked at, so that the call need not wait for it.
    """

    __slots__ = ("_held",)

    def __init__(self, held: HeldCall) -> None:
        self._held = held

    def __repr__(self) -> str:
        return f"<ProfiledCall {self.run.workload.model}: {self.total_ms:.1f} ms, {len(self.steps_ms)} steps>"

    @property
    def run(self) -> Run:
        """Everything that was seen, in integer nanoseconds."""
        return self._held.kept.run

    @property
    def dump(self) -> PerfDump:
        """The same as ``--perf-dump-path`` writes it, in float milliseconds."""
        return self._held.kept.dump

    @property
    def trace_path(self) -> Path | None:
        """The trace, if the call was traced; gone with the session unless it is saved."""
        return Path(self.run.traces[0].path) if self.run.traces else None

    @property
    def run_directory(self) -> Path | None:
        """Where the call was written when it ended (``save_to``)."""
        return self._held.kept.run_directory

    @property
    def total_ms(self) -> float:
        """Wall time of the call between two synchronisations, profiler pauses excluded."""
        return self.dump.total_duration_ms

    @property
    def stages_ms(self) -> dict[str, float]:
        """Time of each stage, occurrences of one name summed, in order."""
        return {stage.name: stage.duration_ms for stage in self.dump.steps}

    @property
    def steps_ms(self) -> tuple[float, ...]:
        """Time of each denoising step, in order."""
        return tuple(step.duration_ms for step in self.dump.denoise_steps_ms)

    @property
    def peak_memory_mb(self) -> float | None:
        """The device allocator's peak in MiB; None where there is no device (``run.memory_reason``)."""
        peaks = [reading.peak_allocated_mb for reading in (self.dump.memory_checkpoints or {}).values()]
        return max(peaks, default=None)

    @property
    def trusted(self) -> bool:
        """Whether the numbers agree with each other; ``dump.trust.reasons`` says why not."""
        return self.dump.trust is not None and self.dump.trust.ok

    @property
    def failed(self) -> str | None:
        """Why the call is incomplete, if it is: the exception and where it came."""
        return self.run.incomplete_reason


def save_calls(calls: Sequence[ProfiledCall], directory: Path) -> Path:
    """Write the calls below ``directory``, or the next free name like it, and return that folder."""
    if not calls:
        raise UsageError("this session has no call to save.", remedy="Call the pipeline inside its block.")
    folder = free_run_directory(directory.absolute(), 0)
    assert folder is not None
    while len(calls) > 1 and any(folder.glob("call-*")):
        folder = folder.with_name(f"{folder.name}-1")
    for call in calls:
        _save(call, folder if len(calls) == 1 else folder / f"call-{call.run.call_id}")
    return folder


def _save(call: ProfiledCall, folder: Path) -> None:
    run = call.run
    if call.trace_path is not None:
        target = folder / call.trace_path.name
        with atomic_path(target) as temporary:
            shutil.copyfile(call.trace_path, temporary)
        run = replace(run, traces=tuple(replace(trace, path=str(target)) for trace in run.traces))
    write_dump(reconcile(run), folder / DUMP_FILE)
    write_run(run, folder / RUN_FILE)
