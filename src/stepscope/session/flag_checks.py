"""What holds for flags however they are given: known names, the right types, values in range.

A command line cannot give a number for a path; a Python call can. Everything else is checked here for both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from stepscope.model.errors import UsageError
from stepscope.model.nearest import nearest
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.one_process import ONLY_ONE
from stepscope.workload.request import CompileKind, LoadFormat, OffloadKind

POSITIVE = frozenset(
    {
        "num_inference_steps",
        "height",
        "width",
        "num_frames",
        "fps",
        "num_outputs_per_prompt",
        "warmup_steps",
        "denoiser_layers",
        *ONLY_ONE,
    }
)
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "load_format": tuple(str(kind.value) for kind in LoadFormat),
        "compile": tuple(str(kind.value) for kind in CompileKind),
        "offload": tuple(str(kind.value) for kind in OffloadKind),
        "trace_detail": tuple(str(kind.value) for kind in TraceDetail),
        "backend": ("auto", "diffusers"),
    }
)

_KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
    Path: (os.PathLike, "a path"),
}


def checked(flags: Mapping[str, Any], known: type) -> dict[str, Any]:
    """The flags that were given; None stands for one that was not.

    Raises:
        UsageError: a name that ``known`` (a TypedDict) has not, a value of another type or out of range.

    """
    kinds = get_type_hints(known)
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        if name not in kinds:
            near = nearest(name, kinds)
            raise UsageError(
                f"there is no flag {name}.",
                remedy=f"Did you mean {near[0]}?" if near else "See stepscope generate --help.",
            )
        if not _fits(value, kinds[name]):
            raise UsageError(
                f"{name} is {value!r}, not {_words(kinds[name])}.", remedy="See stepscope generate --help."
            )
        _check_range(name, value)
    return given


def _check_range(name: str, value: Any) -> None:
    flag = "--" + name.replace("_", "-")
    if name in POSITIVE and value < 1:
        raise UsageError(f"{flag} is {value}.", remedy="Give a whole number above zero.")
    if name in CHOICES and value not in CHOICES[name]:
        near = nearest(value, CHOICES[name])
        remedy = f"Did you mean {near[0]}?" if near else f"Give one of {', '.join(CHOICES[name])}."
        raise UsageError(f"{flag} is {value!r}.", remedy=remedy)


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    origin = get_origin(kind)
    if origin is Sequence:
        one = get_args(kind)[0]
        return isinstance(value, (list, tuple)) and all(_fits(item, one) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping)
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, _KINDS[kind][0])


def _words(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(_words(one) for one in get_args(kind))
    if get_origin(kind) is Sequence:
        return f"a list of {_words(get_args(kind)[0])}"
    if get_origin(kind) is Mapping:
        return "a mapping"
    return _KINDS[kind][1]
