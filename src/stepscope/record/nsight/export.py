"""Turns a Nsight Systems report into SQLite with the user's own nsys: the report's format is proprietary."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.record.scratch import scratch_directory

REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_TIMEOUT_S = 1800  # a report of several gigabytes takes minutes


@contextmanager
def exported(report: Path, nsys: str | None = None) -> Iterator[Path]:
    """The path of a temporary SQLite export of ``report``, removed afterwards. ``nsys`` None: that on PATH.

    Raises:
        UnreadableInputError: nsys is not on PATH, or it wrote no export; the remedy has the exact command.

    """
    nsys = nsys or shutil.which("nsys")
    remedy = f"Run where Nsight Systems is installed: {manual_command(report)}"
    if nsys is None:
        raise UnreadableInputError(
            f"{report} is a Nsight Systems report and nsys is not on PATH.", remedy=remedy
        )
    with scratch_directory() as directory:
        database = directory / "export.sqlite"
        said = _run([nsys, *_arguments(report, database)], report, remedy)
        # nsys exits with 0 when it fails: the file is the proof.
        if not database.is_file():
            raise UnreadableInputError(
                f"nsys could not export {report}: {said or 'no reason given'}.", remedy=remedy
            )
        yield database


def manual_command(report: Path) -> str:
    """The command that a person runs to get the same export beside the report."""
    return shlex.join(["nsys", *_arguments(report, report.with_suffix(".sqlite"))])


def _arguments(report: Path, database: Path) -> list[str]:
    return ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(database), str(report)]


def _run(command: list[str], report: Path, remedy: str) -> str:
    """Run nsys; the last line it printed, which is where it says what went wrong."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableInputError(f"nsys could not export {report}: {error}.", remedy=remedy) from error
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else ""
