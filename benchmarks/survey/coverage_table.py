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
_GAPS = """Gaps are Python of the pipeline's own between two calls: latents denormalised before decoding,
masks and positions made in Python loops (Kandinsky's inpainting), gradients (Attend-and-Excite,
Pix2Pix-Zero), editing terms added to the noise (LEDITS++, Semantic), parts of a model called directly
(DiffusionGemma's encoder), a modular pipeline looking for its blocks' inputs before the first; and in
calls of some 50 ms also other work on the machine, 4 ms at a time.
"""
Row = dict[str, Any]


def table(rows: Sequence[Row]) -> str:
    """Markdown: what was seen, the classes that ran, and the others with the reason."""
    classic = [row for row in rows if not _is_modular(row)]
    modular = [row for row in rows if _is_modular(row)]
    parts = [_head(classic, modular), "## Observed\n", _observed(_ran(classic))]
    if modular:
        parts += ["## Modular pipelines observed\n", _observed(_ran(modular))]
    parts += [f"## Coverage below {GOAL:.0%}\n", _uncovered(_ran(rows))]
    parts += ["## Not observed\n", _others(rows)]
    return "\n".join(parts).rstrip() + "\n"


def _is_modular(row: Row) -> bool:
    return str(row["name"]).endswith("ModularPipeline")


def _ran(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ran"]


def _head(classic: Sequence[Row], modular: Sequence[Row]) -> str:
    ran = _ran([*classic, *modular])
    covered = sum((row["coverage"] or 0) >= GOAL for row in ran)
    repeating = [row for row in ran if row["repeats"]]
    identical = sum(bool(row["identical"]) for row in repeating)
    shares = sorted(row["coverage"] or 0 for row in ran)
    counted = [row for row in ran if row["steps_seen"] and row.get("scheduler_steps")]
    others = [row["name"] for row in counted if not _agrees(row)]
    return f"""# Coverage of diffusers

Written by `python benchmarks/survey_diffusers.py` (`make survey`); run it to check a new diffusers release.
Every pipeline class of diffusers {version("diffusers")} is built from tiny components with random weights,
called twice plainly and then observed, on one thread of a CPU (torch {version("torch")}, transformers
{version("transformers")}, {platform.machine()}).

- {len(classic)} classes, {len(_ran(classic))} observed.
- {len(modular)} classes of modular pipelines, {len(_ran(modular))} observed.
- {covered} of the {len(ran)} with {GOAL:.0%} or more of the wall time in known calls; the median is
  {_median(shares):.1%}. Components here are so small that Python between two calls counts; with real
  weights the share is higher.
- {len(repeating)} give the same bits in two plain runs; {identical} of these give them observed too.
- {len(counted)} step a scheduler. In a plain run its calls were counted by other means: for
  {len(counted) - len(others)} that is the number of steps seen, or so often in each (Cosmos steps twice,
  audio and video have one each). Not for: {", ".join(others) or "none"}.

`steps`: seen / asked, one number a denoising stage or loop; where they differ, `why`. "strength": that
share of the steps is made. A scheduler's name: it was stepped that often. "chunks": the pipeline has a
loop for each part of its video or text. `fwd`: denoiser forwards in a step; 1 also where guidance is a
batch of two. `bits`: observed output identical to the last bit; `-`: two plain runs differ already.
Coverage is the middle one of up to 15 observed calls.
Stages: {", ".join(f"{short} = {name}" for name, short in _SHORT.items())}.
"""


def _median(values: Sequence[float]) -> float:
    return values[len(values) // 2] if values else 0.0


def _agrees(row: Row) -> bool:
    """Each step calls ``step`` once, of one or of several schedulers, or a fixed number of times."""
    seen, calls = sum(row["steps_seen"]), row["scheduler_steps"]
    return seen == sum(calls) or all(count % seen == 0 for count in calls)


def _observed(rows: Sequence[Row]) -> str:
    lines = [
        "| class | steps | why | fwd | coverage | bits | stages |",
        "| --- | --- | --- | --- | ---: | --- | --- |",
    ]
    lines += [
        f"| {row['name']} | {_numbers(row['steps_seen'])} / {_numbers(row['steps_asked'])} | {_why(row)} "
        f"| {', '.join(map(str, row['forwards']))} | {row['coverage'] or 0:.1%} "
        f"| {'-' if not row['repeats'] else 'yes' if row['identical'] else '**no**'} "
        f"| {' '.join(_SHORT.get(stage, stage) for stage in row['stages'])} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _numbers(numbers: Sequence[int]) -> str:
    return " + ".join(map(str, numbers)) or "-"


def _why(row: Row) -> str:
    """Why the steps seen are not those asked for; nothing where they are."""
    seen, asked = row["steps_seen"], row["steps_asked"]
    if tuple(seen) == tuple(asked):
        return ""
    if not seen:
        return "has no loop" if not row.get("scheduler_steps") else "**not seen**"
    if not asked:
        return "steps are not asked for"
    notes = []
    strength = row.get("strength")
    if strength is not None and strength < 1 and sum(seen) < sum(asked):
        notes.append(f"strength {strength:g}")
    elif len(seen) > len(asked):
        notes.append("chunks")
    if not notes or sum(seen) > sum(asked):
        calls = zip(row.get("schedulers", ()), row.get("scheduler_steps", ()), strict=True)
        notes += [f"{name} {count}" for name, count in calls]
    return ", ".join(notes)


def _uncovered(rows: Sequence[Row]) -> str:
    """What took the time that is in no known call, between which calls."""
    low = sorted((row for row in rows if (row["coverage"] or 0) < GOAL), key=lambda row: row["coverage"] or 0)
    lines = [
        "| class | coverage | ms a call | largest gaps between known calls |",
        "| --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {row['name']} | {row['coverage'] or 0:.1%} | {row['observed_ms'] or 0:.0f} | {_gaps(row)} |"
        for row in low
    ]
    return "\n".join(lines) + "\n"


def _gaps(row: Row) -> str:
    largest = sorted(row.get("gaps", ()), key=lambda gap: gap["share"], reverse=True)[:3]
    return (
        "; ".join(f"{gap['after']} to {gap['before']} {gap['share']:.1%}" for gap in largest)
        or "many small ones"
    )


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
