"""The workload of a marked block of code: that of the pipelines called in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from stepscope.model.run import Workload

MOST_INSIDE = 32
"""Calls inside one block that are described; a block that makes more repeats itself."""


def workload_of_block(block: Workload, inside: Sequence[Workload]) -> Workload:
    """The block under its own name, with all that the calls in it have in common."""
    if not inside:
        return block
    first = inside[0]
    blank = Workload(model="", pipeline_class="")
    differ = {
        field.name: getattr(blank, field.name)
        for field in fields(Workload)
        if any(getattr(one, field.name) != getattr(first, field.name) for one in inside)
    }
    classes = ", ".join(dict.fromkeys(one.pipeline_class for one in inside))
    common = replace(first, **differ)
    return replace(common, model=block.model, block=block.block, pipeline_class=classes)
