"""Programs run in processes of their own, as python runs them and under ``stepscope run``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

SOURCE = Path(__file__).parent.parent / "src"


@dataclass(frozen=True)
class Ended:
    """How a process ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def own_err(self) -> str:
        """Standard error without our own lines."""
        return "".join(line for line in self.err.splitlines(True) if not line.startswith("stepscope: "))


def environment(**more: str) -> dict[str, str]:
    """This process's, with stepscope on the import path and one thread."""
    path = os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE")}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", **more}


def python(words: Sequence[str], folder: Path, *, given: str | None = None, **more: str) -> Ended:
    """``python`` with these words, in ``folder``."""
    done = subprocess.run(
        [sys.executable, *words],
        check=False,
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        input=given,
        timeout=280,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def run(words: Sequence[str], folder: Path, *, given: str | None = None, **more: str) -> Ended:
    """``stepscope run`` with these words, as the installed command does it."""
    start = "import sys; from stepscope.cli import main; sys.argv[0] = 'stepscope'; sys.exit(main())"
    entry = folder / ".stepscope-entry"
    entry.write_text(start)
    return python([str(entry), "run", *words], folder, given=given, **more)


TAKEN_MS = 50
"""For so long a busy machine may take the CPU from us, also between two readings of the clock."""


def doubts(dump: Any) -> list[str]:
    """Why a dump (a PerfDump or its JSON) is not trusted, other work on the machine left out."""
    document = dump if isinstance(dump, dict) else msgspec.to_builtins(dump)
    excused = ["other work took the CPU"]
    if (document["unaccounted_ms"] or 0) < TAKEN_MS:
        excused.append("is in no stage")
    return [reason for reason in document["trust"]["reasons"] if not any(text in reason for text in excused)]
