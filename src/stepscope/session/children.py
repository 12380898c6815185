"""Child processes of a program under ``stepscope run --children``, however they are started.

Spawned and executed ones are reached by the environment: ``sitecustomize`` on the import path calls
``start_in_child``. Forked ones carry the parent's observation with them and begin one of their own at their
first call (``attached_run``). Nothing but an import hook is there until a child imports diffusers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.capture.inject.post_import import PostImport
from stepscope.capture.inject.settings import CHILDREN_VARIABLE, on_path
from stepscope.capture.pipeline_classes import BASES

if TYPE_CHECKING:
    from stepscope.session.attach_plan import AttachOptions
    from stepscope.session.attached_run import ObservedProcess

MARKS = "stepscope.capture.marks"
_observed: list[ObservedProcess] = []
"""This process's observation, kept until it ends."""


def environment_of_children(options: AttachOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which the Python processes below this one are observed with the same options."""
    return {**on_path(environ), CHILDREN_VARIABLE: to_text(options)}


def start_in_child(environ: Mapping[str, str] = os.environ) -> None:
    """Observe this process as soon as it imports diffusers, or marks code of its own."""
    text = environ.get(CHILDREN_VARIABLE)
    if text:
        PostImport(frozenset({*BASES, MARKS}), lambda _: _begin(text, environ)).install()


def _begin(text: str, environ: Mapping[str, str]) -> None:
    if _observed:
        return
    try:
        from stepscope.session.attach_plan import process_name
        from stepscope.session.attached_run import ObservedProcess
        from stepscope.session.interrupts import before_ending

        options = replace(from_text(text), process=process_name(environ), children=True)
        process = ObservedProcess(options, complain)
        _observed.append(process)
        before_ending(process.cut_off)
    except Exception as error:  # the child goes on without us
        complain(f"a child process is not observed: {error}")


def complain(text: str) -> None:
    """One line at once: a child has no end of its own that shows it."""
    sys.stderr.write(f"stepscope: warning: {text}\n")
    sys.stderr.flush()


def to_text(options: AttachOptions) -> str:
    """The options as JSON; paths are absolute."""
    trace = options.trace
    return json.dumps(
        {
            "trace": None
            if trace is None
            else {
                "steps": trace.steps,
                "all_stages": trace.all_stages,
                "detail": trace.detail.value,
                "directory": _text(trace.directory),
            },
            "traced": [[chosen.start, chosen.stop] for chosen in options.traced],
            "perf_dump_path": _text(options.perf_dump_path),
            "run_directory": _text(options.run_directory),
        }
    )


def from_text(text: str) -> AttachOptions:
    """What ``to_text`` wrote. Raises ValueError, KeyError or TypeError for anything else."""
    from stepscope.model.vocabulary import TraceDetail
    from stepscope.session.attach_plan import AttachOptions
    from stepscope.session.generate_options import ProfileOptions

    told: dict[str, Any] = json.loads(text)
    trace = told["trace"]
    return AttachOptions(
        trace=None
        if trace is None
        else ProfileOptions(
            steps=trace["steps"],
            all_stages=trace["all_stages"],
            detail=TraceDetail(trace["detail"]),
            directory=_path(trace["directory"]),
        ),
        traced=tuple(range(start, stop) for start, stop in told["traced"]),
        perf_dump_path=_path(told["perf_dump_path"]),
        run_directory=_path(told["run_directory"]),
    )


def files_of_children(options: AttachOptions, since_unix_s: float) -> Iterator[Path]:
    """The dumps and run folders that children have written since then."""
    for asked in (options.perf_dump_path, options.run_directory):
        if asked is not None and asked.parent.is_dir():
            pattern = f"{glob_escape(asked.stem)}-pid*{asked.suffix}"
            yield from sorted(
                path for path in asked.parent.glob(pattern) if path.stat().st_mtime >= since_unix_s
            )


def glob_escape(name: str) -> str:
    """A name in which nothing is a pattern."""
    import glob

    return glob.escape(name)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
