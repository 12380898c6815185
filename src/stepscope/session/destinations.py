"""Where the files of a run go, decided and tried out before the work begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepscope.model.errors import RunFailedError, UsageError
from stepscope.record.atomic import check_writable, is_special
from stepscope.record.perf_dump import numbered
from stepscope.record.run_record import RUN_FILE
from stepscope.session.generate_options import GenerateOptions

PROFILE_DIRECTORY_VARIABLES = (
    "STEPSCOPE_PROFILE_DIR",
    "SGLANG_DIFFUSION_TORCH_PROFILER_DIR",
    "SGLANG_TORCH_PROFILER_DIR",
)
"""In order of precedence; the last two are SGLang's."""
DEFAULT_PROFILE_DIRECTORY = Path("logs")
DEFAULT_OUTPUT_DIRECTORY = Path("outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The places of one run. None: nothing of that kind is written."""

    traces: Path | None
    outputs: Path | None
    perf_dump: Path | None
    run: Path | None

    def check(self) -> None:
        """Raise RunFailedError if any of them cannot be written, UsageError if the dump's is a folder."""
        if self.perf_dump is not None and self.perf_dump.is_dir():
            raise UsageError(
                f"--perf-dump-path {self.perf_dump} is a folder.",
                remedy=f"Try {self.perf_dump / 'perf.json'}.",
            )
        self._check_apart()
        to_file = self.perf_dump is not None and not is_special(self.perf_dump)
        dump_directory = self.perf_dump.parent if self.perf_dump is not None and to_file else None
        for directory in (self.run, self.traces, self.outputs, dump_directory):
            if directory is not None:
                check_writable(directory)

    def _check_apart(self) -> None:
        """The dump is a file of its own: not a folder of this run, nor the run record."""
        folders = [folder for folder in (self.run, self.traces, self.outputs) if folder is not None]
        taken = [*folders, *([self.run / RUN_FILE] if self.run is not None else [])]
        if self.perf_dump is not None and self.perf_dump.absolute() in [path.absolute() for path in taken]:
            raise UsageError(
                f"--perf-dump-path {self.perf_dump} is where something else of the run goes.",
                remedy="Give it a name of its own; --run-dir keeps a dump anyway.",
            )


def check_current_folder() -> None:
    """Raise RunFailedError where it has been removed: neither relative paths nor torch work there."""
    try:
        Path.cwd()
    except OSError as error:
        raise RunFailedError(
            f"the current folder cannot be used: {error.strerror}.", remedy="Change to one that is there."
        ) from error


def destinations(
    options: GenerateOptions, number: int, environ: Mapping[str, str] = os.environ
) -> Destinations:
    """The places of the run of prompt ``number``; a run directory that holds a run is left alone."""
    check_current_folder()
    run = free_run_directory(options.run_directory, number)
    traces = outputs = None
    if options.profile is not None:
        traces = options.profile.directory or run or profile_directory(environ)
    if options.output.save:
        outputs = options.output.directory or run or DEFAULT_OUTPUT_DIRECTORY
    dump = options.perf_dump_path
    return Destinations(
        traces=traces,
        outputs=None if outputs is None else outputs.absolute(),
        perf_dump=None if dump is None else numbered(dump, number),
        run=run,
    )


def profile_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The first of the variables that is set and not empty, else ``./logs``."""
    named = (environ.get(name) for name in PROFILE_DIRECTORY_VARIABLES)
    chosen = next((value for value in named if value), None)
    return DEFAULT_PROFILE_DIRECTORY if chosen is None else Path(chosen).expanduser()


def free_run_directory(asked: Path | None, number: int) -> Path | None:
    """``DIR``, ``DIR-1``, ...: the first from ``number`` on that holds no run yet."""
    if asked is None:
        return None
    candidate = numbered(asked, number)
    while (candidate / RUN_FILE).exists():
        number += 1
        candidate = numbered(asked, number)
    return candidate
