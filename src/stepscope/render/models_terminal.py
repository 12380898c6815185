"""The presets as a table."""

from __future__ import annotations

import io
from collections.abc import Sequence

from stepscope.model.preset_info import PresetInfo
from stepscope.render import units
from stepscope.render.report.report_terminal import MAXIMUM_WIDTH, console_for, trimmed
from stepscope.render.tables import Column, Kind, Value, build
from stepscope.render.terminal_grid import Layout, grid

_COLUMNS = (
    Column(key="id", title="preset"),
    Column(key="twin", title="tiny twin"),
    Column(key="parameters", title="parameters", kind=Kind.AMOUNT),
    Column(key="twin_parameters", title="of the twin", kind=Kind.AMOUNT),
    Column(key="shape", title="default"),
    Column(key="source", title="parameters of"),
)
_NEXT = (
    "Without a download: stepscope generate --model-path PRESET --load-format dummy\n"
    "or --model-path TINY TWIN. Any other diffusers pipeline: --model-path with its hub id or folder.\n"
)


def render_models(presets: Sequence[PresetInfo], width: int = MAXIMUM_WIDTH) -> str:
    """The table, and how to run one."""
    counted = any(preset.twin_parameters is not None for preset in presets)
    keys = [column.key for column in _COLUMNS if counted or column.key != "twin_parameters"]
    table = build("models", "Presets", _COLUMNS, map(_row, presets)).pick(*keys)
    stream = io.StringIO()
    console_for(stream, width).print(grid(table, Layout(flexible="source", optional=("shape",)), width))
    return f"{trimmed(stream.getvalue())}\n{_NEXT}"


def _row(preset: PresetInfo) -> tuple[Value, ...]:
    shape = f"{preset.width}x{preset.height}" if preset.width else ""
    parts = [shape, f"{preset.frames} frames" if preset.frames else ""]
    parts.append(f"{preset.steps} steps" if preset.steps else "")
    return (
        preset.id,
        preset.twin,
        _amount(preset.parameters),
        _amount(preset.twin_parameters),
        ", ".join(part for part in parts if part),
        preset.source,
    )


def _amount(parameters: float | None) -> str:
    """2.4 million, 12.0 billion."""
    if parameters is None:
        return units.NOT_KNOWN
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.2f} M"
