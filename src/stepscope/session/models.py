"""``models``: the presets with their small twins."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.model.preset_info import PresetInfo
from stepscope.workload.presets import PRESETS
from stepscope.workload.presets.spec import Preset

TINY = "tiny/"


def preset_infos(*, count: bool = False) -> tuple[PresetInfo, ...]:
    """Every full-size preset beside its twin, by id. ``count``: build each without memory and count.

    Counting imports torch and diffusers; without it, full-size counts are those that were published.
    """
    twins = {_twin_of(name): preset for name, preset in PRESETS.items() if name.startswith(TINY)}
    full = [preset for name, preset in sorted(PRESETS.items()) if not name.startswith(TINY)]
    return tuple(_info(preset, twins.get(preset.id), count=count) for preset in full)


def _twin_of(tiny: str) -> str:
    """The full-size preset that a small one is the twin of."""
    stem = tiny.removeprefix(TINY)
    names = (str(name) for name in PRESETS)
    return next(name for name in names if name.lower().partition("/")[2].startswith(stem))


def _info(preset: Preset, twin: Preset | None, *, count: bool) -> PresetInfo:
    parameters, source = _counted(preset) if count else _published(preset)
    return PresetInfo(
        id=preset.id,
        twin=twin.id if twin is not None else "",
        pipeline_class=preset.pipeline_class,
        parameters=parameters,
        twin_parameters=_counted(twin)[0] if count and twin is not None else None,
        source=source,
        steps=preset.defaults.steps,
        width=preset.defaults.width,
        height=preset.defaults.height,
        frames=preset.defaults.frames,
    )


def _published(preset: Preset) -> tuple[float | None, str]:
    counts: Mapping[str, float] = {one.component: one.parameters for one in preset.published}
    if not counts:
        return None, ""
    return sum(counts.values()), ", ".join(counts).replace("+", ", ")


def _counted(preset: Preset) -> tuple[float | None, str]:
    import torch

    from stepscope.workload.dummy import empty_component

    sizes = {
        name: sum(parameter.numel() for parameter in empty_component(spec, torch.bfloat16).parameters())
        for name, spec in preset.components.items()
    }
    return float(sum(sizes.values())), ", ".join(sizes)
