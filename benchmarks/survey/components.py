"""Components built from their classes: random weights, tiny configurations, nothing downloaded."""

from __future__ import annotations

import importlib
import inspect
import zlib
from collections.abc import Mapping
from typing import Any

import torch
import transformers

from survey.stand_ins import STAND_INS
from survey.tables import ComponentEntry, component_entries
from survey.tokenizers import make_processor, make_tokenizer


class NoConfigurationError(Exception):
    """The tables know no tiny configuration for a class."""


def build_components(references: Mapping[str, Any]) -> dict[str, Any]:
    """Each role's component. Those with weights come first: a tokenizer's ids must fit its encoder.

    Raises NoConfigurationError for a class that is not in the tables.
    """
    built: dict[str, Any] = {role: build(ref, role) for role, ref in references.items() if not _is_text(ref)}
    for role, reference in references.items():
        if _is_text(reference):
            built[role] = _build_text(reference, role, built)
    return {role: built[role] for role in references}


def build(reference: Any, role: str) -> Any:
    """One component: ``Class`` or ``Class#variant``, a list of such, ``{"value": plain}`` or None."""
    if reference is None:
        return None
    if isinstance(reference, list):
        return [build(item, f"{role}.{index}") for index, item in enumerate(reference)]
    if isinstance(reference, Mapping):
        return _value(reference)
    kind, _, name = reference.rpartition(":")
    if kind == "stub":
        return STAND_INS[name]()
    class_name, _, variant = name.partition("#")
    entry = component_entries().get(class_name)
    if entry is None:
        raise NoConfigurationError(f"no tiny configuration is known for {class_name}")
    torch.manual_seed(zlib.crc32(role.encode()))
    component = _instance(class_name, entry, dict(entry.variants[int(variant or 0)]))
    return component.eval() if isinstance(component, torch.nn.Module) else component


def _instance(class_name: str, entry: ComponentEntry, config: dict[str, Any]) -> Any:
    component_class = find_class(class_name, entry)
    config = {key: _value(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    if not entry.config_class:
        # Published configurations have keys that their class no longer takes, and pipelines read them there.
        more = set(config) - set(inspect.signature(component_class.__init__).parameters)
        by_config = bool(more) and hasattr(component_class, "from_config")
        return component_class.from_config(config) if by_config else component_class(**config)
    config_class = getattr(transformers, entry.config_class, None) or component_class.config_class
    return component_class(config_class(**config))


def find_class(class_name: str, entry: ComponentEntry) -> Any:
    """A class by name, from its library or the module that the table gives."""
    library = importlib.import_module(entry.library)
    found = getattr(library, class_name, None)
    return found if found is not None else getattr(importlib.import_module(entry.module), class_name)


def _value(value: Mapping[str, Any]) -> Any:
    """A plain value; nested configurations stay mappings."""
    return value["value"] if set(value) == {"value"} else value


def _is_text(reference: Any) -> bool:
    return isinstance(reference, str) and reference.startswith(("tokenizer:", "processor:"))


def _build_text(reference: str, role: str, built: Mapping[str, Any]) -> Any:
    kind, _, name = reference.partition(":")
    encoder = encoder_of(role, built)
    if kind == "tokenizer":
        return make_tokenizer(name, encoder, vocab_size(encoder))
    return make_processor(name, encoder, vocab_size(encoder), _picture_size(built))


def _picture_size(built: Mapping[str, Any]) -> int | None:
    """How large a picture the pipeline's vision model takes."""
    sizes = (getattr(getattr(part, "config", None), "image_size", None) for part in built.values())
    return next((size for size in sizes if isinstance(size, int)), None)


def encoder_of(role: str, built: Mapping[str, Any]) -> Any:
    """The model that reads a tokenizer's ids: the one of the same number, else the first that reads ids."""
    prefix, _, rest = role.partition("tokenizer")
    for name in (f"{prefix}text_encoder{rest}", "text_encoder", "language_model", "transformer"):
        if vocab_size(built.get(name)):
            return built[name]
    return next((part for part in built.values() if vocab_size(part)), None)


def vocab_size(model: Any) -> int:
    """How many ids a model takes; 0 if it takes none."""
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        embeddings = None
    size = getattr(embeddings, "num_embeddings", None)
    if isinstance(size, int):
        return size
    config = getattr(model, "config", None)
    sizes = (
        getattr(part, name, None)
        for part in (config, getattr(config, "text_config", None))
        for name in ("vocab_size", "padded_vocab_size")
    )
    return next((size for size in sizes if isinstance(size, int)), 0)
