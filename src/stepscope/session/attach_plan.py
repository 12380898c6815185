"""What a user wants of the calls of an attached program: which are traced, and where their files go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.capture.ranks import rank_here
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.perf_dump import numbered
from stepscope.session.destinations import (
    Destinations,
    check_current_folder,
    free_run_directory,
    profile_directory,
)
from stepscope.session.generate_options import ProfileOptions

NO_FILES = Destinations(traces=None, outputs=None, perf_dump=None, run=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What is to be done about one call: traced or not, and where its files go."""

    trace: ProfileOptions | None = None
    places: Destinations = NO_FILES

    @property
    def writes(self) -> bool:
        """Whether anything of the call goes to a disk."""
        return self.places != NO_FILES


ATTACHED_DETAILS = (TraceDetail.KERNELS, TraceDetail.OPS, TraceDetail.FULL)
"""``source`` needs a slow request beforehand, and the requests are somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """``traced`` holds call numbers, 0-based and half-open; empty: every call."""

    trace: ProfileOptions | None = None
    traced: tuple[range, ...] = ()
    perf_dump_path: Path | None = None
    run_directory: Path | None = None
    process: str = ""  # sets the files of this process apart from another's, as in "pid123"
    children: bool = False  # processes that it forks are observed too


def settled(options: AttachOptions) -> AttachOptions:
    """The same with absolute paths: the program may change its working directory."""
    check_current_folder()
    trace = options.trace
    if trace is not None and (trace.directory or not options.run_directory):
        trace = replace(trace, directory=(trace.directory or profile_directory()).absolute())
    return replace(
        options,
        trace=trace,
        perf_dump_path=options.perf_dump_path and options.perf_dump_path.absolute(),
        run_directory=options.run_directory and options.run_directory.absolute(),
    )


def plan_of(options: AttachOptions, number: int) -> CallPlan:
    """The plan for call ``number`` of this process."""
    wanted = not options.traced or _among(options.traced, number)
    trace = options.trace if wanted else None
    run = free_run_directory(_apart(options.run_directory, options.process), number)
    dump = _apart(options.perf_dump_path, options.process)
    return CallPlan(
        trace=trace,
        places=Destinations(
            traces=None if trace is None else trace.directory or run,
            outputs=None,
            perf_dump=None if dump is None else numbered(dump, number),
            run=run,
        ),
    )


def _among(chosen: Sequence[range], number: int) -> bool:
    return any(number in some for some in chosen)


def _apart(path: Path | None, process: str) -> Path | None:
    """``perf.json`` of another rank or process: ``perf-rank1.json``, ``perf-pid123.json``."""
    rank, _ = rank_here()
    parts = [part for part in (f"rank{rank}" if rank else "", process) if part]
    if path is None or not parts:
        return path
    return path.with_name("-".join([path.stem, *parts]) + path.suffix)


def process_name(environ: Mapping[str, str] = os.environ) -> str:
    """What sets a child's files apart: its process id; nothing for a rank, which has its own name."""
    return "" if "RANK" in environ else f"pid{os.getpid()}"
