"""Finds Nsight Systems and asks it what it can do: flags differ by version and are never guessed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from stepscope.model.errors import UsageError
from stepscope.model.nsight import NsysTool

USUAL_PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-x64/nsys",
)
"""Where installers put it without adding it to PATH, as patterns; the last match of the first is taken."""
INSTALL_REMEDY = (
    "Install Nsight Systems: on Debian `apt-get install nsight-systems` (component non-free), on Ubuntu and "
    "RHEL `nsight-systems-cli` from NVIDIA's CUDA repository, or the CUDA toolkit; or give --nsys PATH."
)
_FLAG = re.compile(r"^\s*(?:(-\w), )?(--[a-z][\w-]*)(\[[\w|]+\])?", re.MULTILINE)
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")
_TIMEOUT_S = 60

USUAL_FLAGS = frozenset(
    {
        "--capture-range", "--capture-range-end", "--cpuctxsw", "--cuda-graph-trace", "--delay", "--duration",
        "--env-var", "--force-overwrite", "--kill", "--nvtx-capture", "--output", "--sample", "--trace",
        "--trace-fork-before-exec",
    }
)  # fmt: skip
"""What a line is made of where no nsys is installed to be asked (2022.4 and 2023.4 have them all)."""
USUAL_ALIASES = {
    "-c": "--capture-range",
    "-d": "--duration",
    "-e": "--env-var",
    "-f": "--force-overwrite",
    "-o": "--output",
    "-p": "--nvtx-capture",
    "-s": "--sample",
    "-t": "--trace",
    "-y": "--delay",
}
ASSUMED = NsysTool(path=None, version="", flags=USUAL_FLAGS, aliases=USUAL_ALIASES)


def find_nsys(asked: Path | None = None) -> NsysTool | None:
    """The nsys to use and what it can do; None where there is none.

    Raises:
        UsageError: ``asked`` is no nsys.

    """
    if asked is not None:
        found = shutil.which(str(asked))
        tool = None if found is None else _ask(found)
        if tool is None:
            raise UsageError(f"{asked} is no nsys that runs here.", remedy=INSTALL_REMEDY)
        return tool
    candidates = [shutil.which("nsys"), *_installed()]
    return next((tool for path in candidates if path and (tool := _ask(path)) is not None), None)


def parse_help(text: str) -> tuple[frozenset[str], dict[str, str]]:
    """Long flags of ``nsys profile --help``, and their short forms."""
    flags: set[str] = set()
    aliases: dict[str, str] = {}
    for short, long, choice in _FLAG.findall(text):
        names = [long + part for part in choice.strip("[]").split("|")] if choice else [long]
        flags.update(names)
        if short:
            aliases[short] = names[0]
    return frozenset(flags), aliases


def _installed() -> list[str]:
    root = Path("/")
    return [str(path) for pattern in USUAL_PLACES for path in sorted(root.glob(pattern[1:]), reverse=True)]


def _ask(path: str) -> NsysTool | None:
    version = _VERSION.search(_output([path, "--version"]))
    if version is None:
        return None
    flags, aliases = parse_help(_output([path, "profile", "--help"]))
    return NsysTool(
        path=path, version=version[1], flags=flags, aliases=aliases, importer=_has_importer(Path(path))
    )


def _has_importer(path: Path) -> bool:
    """Whether the host part lies where nsys looks for it: beside its target folder."""
    beside = path.resolve().parent.parent
    return any(beside.glob("host-linux-*/QdstrmImporter"))


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
