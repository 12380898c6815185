"""The survey's rows as a page for the documentation."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

GOAL = 0.95
_SHORT = {
    "InputValidationStage": "val",
    "TextEncodingStage": "text",
    "ImageEncodingStage": "img",
    "ImageVAEEncodingStage": "vae",
    "LatentPreparationStage": "lat",
    "TimestepPreparationStage": "time",
    "DenoisingStage": "**denoise**",
    "DecodingStage": "dec",
    "PostprocessingStage": "post",
}
Row = dict[str, Any]


def table(rows: Sequence[Row]) -> str:
    """Markdown: what was seen, the classes that ran, and the others with the reason."""
    ran = [row for row in rows if row["status"] == "ran"]
    parts = [_head(rows, ran), "## Observed\n", _observed(ran), "## Not observed\n", _others(rows)]
    return "\n".join(parts).rstrip() + "\n"


def _head(rows: Sequence[Row], ran: Sequence[Row]) -> str:
    covered = sum((row["coverage"] or 0) >= GOAL for row in ran)
    repeating = [row for row in ran if row["repeats"]]
    identical = sum(bool(row["identical"]) for row in repeating)
    return f"""# Coverage of diffusers

Written by `python benchmarks/survey_diffusers.py` (`make survey`); run it to check a new diffusers release.
Every pipeline class of diffusers {version("diffusers")} is built from tiny components with random weights,
called twice plainly and once observed, on one thread of a CPU (torch {version("torch")}, transformers
{version("transformers")}, {platform.machine()}).

- {len(rows)} classes, {len(ran)} observed.
- {covered} of them with {GOAL:.0%} or more of the wall time in known calls. Components here are so small
  that Python between two calls counts; with real weights the share is higher.
- {len(repeating)} give the same bits in two plain runs; {identical} of these give them observed too.

`steps`: seen / asked, one number a denoising stage or loop. Fewer or more are the pipeline's own doing:
strength shortens, PNDM and second-order schedulers add, combined pipelines have a prior and a decoder.
`fwd`: denoiser forwards in a step. `bits`: observed output identical to the last bit; `-`: two plain runs
differ already. Coverage of calls under two seconds is the middle one of three.
Stages: {", ".join(f"{short} = {name}" for name, short in _SHORT.items())}.
"""


def _observed(rows: Sequence[Row]) -> str:
    lines = ["| class | steps | fwd | coverage | bits | stages |", "| --- | --- | --- | ---: | --- | --- |"]
    lines += [
        f"| {row['name']} | {_numbers(row['steps_seen'])} / {_numbers(row['steps_asked'])} "
        f"| {', '.join(map(str, row['forwards']))} | {row['coverage'] or 0:.1%} "
        f"| {'-' if not row['repeats'] else 'yes' if row['identical'] else '**no**'} "
        f"| {' '.join(_SHORT.get(stage, stage) for stage in row['stages'])} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _numbers(numbers: Sequence[int]) -> str:
    return " + ".join(map(str, numbers)) or "-"


def _others(rows: Sequence[Row]) -> str:
    lines = ["| class | | reason |", "| --- | --- | --- |"]
    lines += [
        f"| {row['name']} | {row['status'].replace('_', ' ')} | {_escaped(row['reason'])} |"
        for row in rows
        if row["status"] != "ran"
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
