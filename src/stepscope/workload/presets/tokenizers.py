r"""Counting rules of the tokenizers that the presets use.

Patterns follow the pre-tokenizer of each published ``tokenizer.json`` (the regular expressions of OpenAI's
CLIP, Qwen2 and Llama 3), written for ``re``: ``[^\W\d_]`` is a letter.
"""

from __future__ import annotations

from dataclasses import replace

from stepscope.workload.presets.spec import TokenizerSpec

_CONTRACTION = r"'(?:[sdmtSDMT]|re|ve|ll|RE|VE|LL)"

CLIP_L = TokenizerSpec(
    pattern=_CONTRACTION + r"|[^\W\d_]+|\d|(?:[^\s\w]|_)+",
    vocab_size=49406,  # openai/clip-vit-large-patch14: vocab.json, the two markers come last
    special={"<|startoftext|>": 49406, "<|endoftext|>": 49407},
    pad="<|endoftext|>",
    prefix=("<|startoftext|>",),
    suffix=("<|endoftext|>",),
    max_length=77,
    word_letters=13,
    lower_case=True,
)

OPENCLIP_BIG_G = replace(CLIP_L, special={**CLIP_L.special, "!": 0}, pad="!", first_id=1)
"""laion/CLIP-ViT-bigG-14: as CLIP-L, padded with ``!``, id 0 (tokenizer_2 of SDXL and SD3)."""

T5 = TokenizerSpec(
    # SentencePiece: a space belongs to the word after it; line breaks count as spaces.
    pattern=r"[^\W\d_]+|\d{1,2}|[^\s\w]|_",
    vocab_size=32000,  # google/t5-v1_1-xxl: 32000 pieces, then 100 sentinels
    special={"<pad>": 0, "</s>": 1, "<unk>": 2},
    first_id=3,
    pad="<pad>",
    suffix=("</s>",),
    max_length=512,
    word_letters=10,
)

UMT5 = replace(T5, vocab_size=256000)
"""google/umt5-xxl: 256000 pieces, then 300 sentinels."""

_QWEN_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN = TokenizerSpec(
    pattern=_CONTRACTION + r"|(?: ?[^\W\d_]+)|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    vocab_size=151643,  # Qwen/Qwen2.5-VL-7B-Instruct: tokenizer.json
    special={"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
    pad="<|endoftext|>",
    max_length=131072,
    chat_template=_QWEN_CHAT_TEMPLATE,
)

LLAMA_3 = TokenizerSpec(
    pattern=_CONTRACTION + r"|(?: ?[^\W\d_]+)|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    vocab_size=128000,  # meta-llama/Meta-Llama-3-8B: tokenizer.json
    special={
        "<|begin_of_text|>": 128000,
        "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007,
        "<|eot_id|>": 128009,
        "<pad>": 128258,  # xtuner/llava-llama-3-8b-v1_1-transformers: pad_token_id
    },
    pad="<pad>",
    prefix=("<|begin_of_text|>",),
    max_length=8192,
)


def shrunk(spec: TokenizerSpec, vocab_size: int = 1000) -> TokenizerSpec:
    """The same counting rules over a small vocabulary, its special tokens moved below ``vocab_size``."""
    low = {token: number for token, number in spec.special.items() if number < spec.first_id}
    high = [token for token in spec.special if token not in low]
    first_high = vocab_size - len(high)
    special = low | {token: first_high + position for position, token in enumerate(high)}
    return replace(spec, vocab_size=first_high, special=special)
