"""Outputs of both sides, paired by position and held against each other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.analyse.comparison.compare_results import QualityRow
from stepscope.analyse.comparison.quality import Likeness, likeness
from stepscope.model.errors import UnreadableInputError
from stepscope.record.picture_reader import read_pixels

_SAME_PICTURE = ("seed", "prompt", "negative_prompt", "height", "width", "frames", "steps", "model")
"""What has to be equal for two outputs to show the same picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOutput:
    """One output that a dump names."""

    path: Path | None
    sha256: str
    finite: bool


def saved_outputs(entries: Sequence[Mapping[str, Any]], *, near: Path) -> tuple[SavedOutput, ...]:
    """A dump's outputs; a relative path that does not exist here is looked for beside the dump."""
    return tuple(
        SavedOutput(
            path=_place(entry.get("path"), near),
            sha256=str(entry.get("sha256") or ""),
            finite=entry.get("finite") is not False,
        )
        for entry in entries
    )


def quality_rows(
    base: Sequence[Sequence[SavedOutput]],
    new: Sequence[Sequence[SavedOutput]],
    facts: tuple[Mapping[str, str], Mapping[str, str]],
) -> tuple[QualityRow, ...]:
    """The outputs of the first run of each side, by position; empty where either side has none."""
    left, right = (next((outputs for outputs in side if outputs), ()) for side in (base, new))
    different = [key for key in _SAME_PICTURE if facts[0].get(key) != facts[1].get(key)]
    unsteady = _differ_among_themselves(base)
    return tuple(
        _row(position, one, other, different, unsteady)
        for position, (one, other) in enumerate(zip(left, right, strict=False))
    )


def _row(
    position: int, base: SavedOutput, new: SavedOutput, different: Sequence[str], unsteady: bool
) -> QualityRow:
    verdict, alike, note = _judge(base, new, different)
    if unsteady and verdict != "identical":
        note = "; ".join(part for part in (note, "the base's own runs differ among themselves") if part)
    return QualityRow(
        position=position,
        base_path=str(base.path) if base.path else None,
        new_path=str(new.path) if new.path else None,
        identical=base.sha256 == new.sha256 if base.sha256 and new.sha256 else None,
        psnr_db=alike.psnr_db if alike else None,
        ssim=alike.ssim if alike else None,
        verdict=verdict,
        note=note,
    )


def _judge(base: SavedOutput, new: SavedOutput, different: Sequence[str]) -> tuple[str, Likeness | None, str]:
    if not new.finite:
        return "broken", None, "the new output holds NaN or infinity"
    if base.sha256 and base.sha256 == new.sha256:
        return "identical", None, ""
    if different:
        return "not compared", None, f"not the same picture: {', '.join(different)} differ"
    if base.path is None or new.path is None:
        return "different", None, "by hash; how different is not known: the files are not here"
    try:
        alike = likeness(read_pixels(base.path), read_pixels(new.path))
    except UnreadableInputError as error:
        return "different", None, f"by hash; how different is not known: {error}"
    if alike is None:
        return "different", None, "the sizes differ"
    return ("close" if alike.close else "different"), alike, "equal as saved" if alike.identical else ""


def _place(path: object, near: Path) -> Path | None:
    if not isinstance(path, str) or not path:
        return None
    candidates = (Path(path), near / path, near / Path(path).name, near / "outputs" / Path(path).name)
    # Not pathlib's, which raises for what no path can be: a dump may say anything.
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)  # noqa: PTH113


def _differ_among_themselves(runs: Sequence[Sequence[SavedOutput]]) -> bool:
    return len({tuple(output.sha256 for output in outputs) for outputs in runs if outputs}) > 1
