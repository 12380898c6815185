"""Offline tokenizers and processors, made of ``stepscope.workload``'s counting tokenizer."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import transformers

from stepscope.workload.presets.spec import TokenizerSpec
from stepscope.workload.presets.tokenizers import CLIP_L, LLAMA_3, QWEN, T5
from stepscope.workload.tokenizer import CountingTokenizer

_VISION_TOKENS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<think>",
    "</think>",
)
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_ENDS = ("<|eot_id|>", "<|im_end|>", "<eos>", "</s>", "<|endoftext|>")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_LOW = {"<pad>": 0, "</s>": 1, "<unk>": 2, "<s>": 3, "<mask>": 4}

SPECS: dict[str, TokenizerSpec] = {
    "clip": CLIP_L,
    "t5": T5,
    "byt5": replace(T5, word_letters=1),
    "roberta": replace(T5, special=_LOW, first_id=5, prefix=("<s>",)),
    "bert": replace(T5, special={"[PAD]": 0, "[SEP]": 1, "[CLS]": 2}, pad="[PAD]", suffix=("[SEP]",)),
    "gpt2": replace(CLIP_L, prefix=(), suffix=(), max_length=1024),
    "gemma": replace(
        T5, special={"<pad>": 0, "<eos>": 1, "<bos>": 2}, prefix=("<bos>",), suffix=(), max_length=8192
    ),
    "llama": LLAMA_3,
    "glm": replace(QWEN, max_length=8192),
    "chatglm": replace(T5, padding_side="left"),
    "qwen": replace(
        QWEN,
        special={**QWEN.special, **{name: 151646 + at for at, name in enumerate(_VISION_TOKENS)}},
        chat_template=_CHAT,
    ),
}
"""By family. The published vocabularies are larger; only their number of tokens for a text is imitated."""


def _roberta_letters() -> Any:
    letters = transformers.convert_slow_tokenizer.bytes_to_unicode().values()
    vocabulary = {token: at for at, token in enumerate((*_ROBERTA, *letters))}
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def _t5_letters() -> Any:
    pieces = [(token, 0.0) for token in ("<pad>", "</s>", "<unk>")]
    pieces += [(letter, -2.0) for letter in f"\u2581{string.ascii_letters}{string.punctuation}"]
    return transformers.T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=77)


LETTERS: dict[str, Callable[[], Any]] = {"roberta_letters": _roberta_letters, "t5_letters": _t5_letters}
"""Of the real classes, a token a letter: for pipelines that ask what class their tokenizer has."""


def make_tokenizer(family: str, encoder: Any, size: int) -> Any:
    """A tokenizer of this family with ids below ``size``, those that the encoder knows."""
    if family in LETTERS:
        return LETTERS[family]()
    spec = SPECS[family]
    config = getattr(encoder, "config", None)
    if size and size < spec.vocab_size + len(spec.special):
        spec = _fitted(spec, size)
    spec = _with_the_ids_of(spec, config)
    longest = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
    if isinstance(longest, int):
        spec = replace(spec, max_length=min(spec.max_length, longest))
    tokenizer = PositionedTokenizer(spec) if family == "chatglm" else CountingTokenizer(spec)
    if tokenizer.eos_token is None:
        tokenizer.eos_token = next((token for token in _ENDS if token in spec.special), None)
    return tokenizer


def _fitted(spec: TokenizerSpec, size: int) -> TokenizerSpec:
    """The same rules with every id below ``size``; very small vocabularies share ids."""
    low = {token: number % size for token, number in spec.special.items() if number < spec.first_id}
    high = [token for token in spec.special if token not in low]
    ordinary = max(spec.first_id + 1, size - len(high))
    special = low | {token: min(ordinary + at, size - 1) for at, token in enumerate(high)}
    return replace(
        spec, vocab_size=min(ordinary, size), first_id=min(spec.first_id, size - 1), special=special
    )


def _with_the_ids_of(spec: TokenizerSpec, config: Any) -> TokenizerSpec:
    """Image tokens where the model looks for them."""
    wanted = {
        "<|image_pad|>": getattr(config, "image_token_id", None),
        "<|video_pad|>": getattr(config, "video_token_id", None),
        "<|vision_start|>": getattr(config, "vision_start_token_id", None),
        "<|vision_end|>": getattr(config, "vision_end_token_id", None),
    }
    fixed = {
        token: number for token, number in wanted.items() if token in spec.special and number is not None
    }
    return replace(spec, special={**spec.special, **fixed})


class PositionedTokenizer(CountingTokenizer):
    """Gives positions too, as ChatGLM's tokenizer does."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Tokenize, and number the tokens."""
        encoded = super().__call__(*args, **options)
        mask = encoded["attention_mask"]
        encoded["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return encoded


def make_processor(name: str, encoder: Any, size: int, picture: int | None) -> Any:
    """A processor of transformers: token ids below ``size``, pictures ``picture`` wide."""
    if not issubclass(getattr(transformers, name), transformers.ProcessorMixin):
        square = {} if picture is None or "Clap" in name else {"size": {"height": picture, "width": picture}}
        return getattr(transformers, name)(**square)
    if name == "GlmImageProcessor":
        return _glm_image_processor(encoder, size)
    tokenizer = make_tokenizer("clip" if name == "CLIPProcessor" else "qwen", encoder, size)
    if name == "CLIPProcessor":
        return transformers.CLIPProcessor(transformers.CLIPImageProcessor(), tokenizer)
    images = transformers.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56)
    if name == "Qwen3VLProcessor":
        videos = transformers.Qwen3VLVideoProcessor()
        return transformers.Qwen3VLProcessor(images, tokenizer, videos, chat_template=_CHAT)
    return transformers.Qwen2VLProcessor(
        images, tokenizer, transformers.Qwen2VLVideoProcessor(), chat_template=_CHAT
    )


def _glm_image_processor(encoder: Any, size: int) -> Any:
    tokenizer = make_tokenizer("qwen", encoder, size)
    tokenizer.image_token, tokenizer.bos_token = "<|image_pad|>", "<|im_start|>"
    tokenizer.grid_bos_token, tokenizer.grid_eos_token = "<|vision_start|>", "<|vision_end|>"
    images = transformers.GlmImageImageProcessor()
    return transformers.GlmImageProcessor(images, tokenizer, chat_template=_CHAT)
