"""What a preset is: an architecture kept as data, enough to build every component without a download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """One component with weights, as its library builds it from a configuration."""

    library: str  # diffusers | transformers
    class_name: str
    config: Mapping[str, Any]
    config_class: str = ""  # transformers only
    depth_keys: tuple[str, ...] = ()  # configuration keys that count repeated blocks

    def with_config(self, **changes: Any) -> ComponentSpec:
        """The same component with other values in its configuration."""
        return replace(self, config={**self.config, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSpec:
    """A scheduler of diffusers and its published configuration."""

    class_name: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """A tokenizer's counting rules: how text is cut, what surrounds it, how long it may be.

    ``pattern`` is a regular expression whose matches are the words; a word longer than ``word_letters`` is
    cut further, as byte-pair vocabularies do with rare words. ``special`` maps each special token to its id.
    """

    pattern: str
    vocab_size: int  # ordinary ids lie in [first_id, vocab_size)
    special: Mapping[str, int]
    pad: str
    max_length: int
    first_id: int = 0
    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    word_letters: int = 14
    lower_case: bool = False
    padding_side: str = "right"
    chat_template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What a model is called with when nothing else is said. None: the pipeline's own default stands."""

    steps: int | None = None
    guidance_scale: float | None = None
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    fps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCount:
    """A parameter count as somebody published it, for one component or the sum of several (``a+b``)."""

    component: str
    parameters: float
    tolerance: float  # relative; from the digits that were published
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A pipeline that can be built from this description alone."""

    id: str
    pipeline_class: str
    components: Mapping[str, ComponentSpec]
    tokenizers: Mapping[str, TokenizerSpec]
    scheduler: SchedulerSpec
    defaults: GenerationDefaults
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # further arguments of the pipeline's constructor
    precision: Mapping[str, str] = field(
        default_factory=dict
    )  # component -> dtype, where published usage differs
    published: tuple[PublishedCount, ...] = ()
