"""A tokenizer made in code: real token counts without a vocabulary file.

A real vocabulary cannot be had offline, but profiling needs only how many tokens a text has and that
different texts give different ids. So words are cut by the published pre-tokenizer's rules and each piece
gets a fixed id from its own bytes.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from transformers import AddedToken, PreTrainedTokenizer

from stepscope.workload.presets.spec import TokenizerSpec


class CountingTokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """Cuts text as ``spec`` says; about as many tokens as the real tokenizer, stable ids."""

    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 (transformers reads it as a class attribute)

    def __init__(self, spec: TokenizerSpec, **options: Any) -> None:
        self._spec = spec
        self._words = re.compile(spec.pattern)
        self._seen: dict[int, str] = {}  # so that decode() can show what was encoded
        ends = {"bos_token": spec.prefix[0]} if spec.prefix else {}
        ends |= {"eos_token": spec.suffix[0]} if spec.suffix else {}
        super().__init__(
            added_tokens_decoder={
                number: AddedToken(token, special=True, normalized=False)
                for token, number in spec.special.items()
                if token.startswith("<")  # a pad token such as "!" is also ordinary text
            },
            pad_token=spec.pad,
            model_max_length=spec.max_length,
            padding_side=spec.padding_side,
            chat_template=spec.chat_template,
            **ends,
            **options,
        )

    @property
    def vocab_size(self) -> int:
        return self._spec.vocab_size

    def get_vocab(self) -> dict[str, int]:
        """The special tokens and what has been seen: there is no list of all words."""
        seen = {token: number for number, token in self._seen.items()}
        return seen | dict(self._spec.special)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        text = text.lower() if self._spec.lower_case else text
        return [piece for word in self._words.findall(text) for piece in self._pieces(word)]

    def _pieces(self, word: str) -> list[str]:
        if not word.isascii():  # bytes of other scripts: about one token a character
            return list(word.strip()) or [word]
        if not word.strip().isalpha():
            return [word]
        lead = len(word) - len(word.lstrip())
        length = self._spec.word_letters
        return [word[: lead + length]] + [
            word[i : i + length] for i in range(lead + length, len(word), length)
        ]

    def _convert_token_to_id(self, token: str) -> int:
        special = self._spec.special.get(token)
        if special is not None:
            return special
        span = self._spec.vocab_size - self._spec.first_id
        number = self._spec.first_id + zlib.crc32(token.encode(errors="backslashreplace")) % span
        self._seen.setdefault(number, token)
        return number

    def _convert_id_to_token(self, index: int) -> str:
        return self._seen.get(index, f"[{index}]")

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Put the prefix before and the suffix after, as the real tokenizer does."""
        prefix = [self._spec.special[token] for token in self._spec.prefix]
        suffix = [self._spec.special[token] for token in self._spec.suffix]
        return prefix + list(token_ids_0) + list(token_ids_1 or []) + suffix

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:  # noqa: ARG002
        """Nothing to save: the rules are code."""
        return ()
