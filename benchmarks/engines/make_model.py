"""Save a tiny Qwen-Image with random weights as a folder that every engine loads.

The weights are those of stepscope's preset ``tiny/qwen-image``; the tokenizer is a byte-level one without a
merge, since a real vocabulary cannot be had offline. ``--tiniest``: one block, for a server of many requests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from stepscope.workload.dummy import build_pipeline, with_depth
from stepscope.workload.presets.qwen_image import TINY_QWEN_IMAGE


def main() -> None:
    target = Path(sys.argv[1])
    preset = with_depth(TINY_QWEN_IMAGE, 1) if "--tiniest" in sys.argv else TINY_QWEN_IMAGE
    cpu = torch.device("cpu")
    dtypes = dict.fromkeys(preset.components, torch.bfloat16)
    pipeline = build_pipeline(preset, draw_on=cpu, keep_on=cpu, dtypes=dtypes, seed=0)
    for name in (*preset.components, "scheduler"):
        getattr(pipeline, name).save_pretrained(target / name)
    tokenizer = preset.tokenizers["tokenizer"]
    save_tokenizer(target / "tokenizer", tokenizer.special, tokenizer.chat_template)
    index = {
        "_class_name": preset.pipeline_class,
        "_diffusers_version": "0.36.0",
        "scheduler": ["diffusers", type(pipeline.scheduler).__name__],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        **{name: [spec.library, spec.class_name] for name, spec in preset.components.items()},
    }
    (target / "model_index.json").write_text(json.dumps(index, indent=2))


def save_tokenizer(folder: Path, special: dict[str, int], template: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {symbol: number for number, symbol in enumerate(byte_symbols())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    added = {
        str(number): {
            "content": token,
            "special": True,
            **dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False),
        }
        for token, number in special.items()
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 131072,
        "padding_side": "right",
        "pad_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "added_tokens_decoder": added,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def byte_symbols() -> list[str]:
    """A printable character for each byte, as byte-level vocabularies have."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(spare)) for byte in range(256)]


if __name__ == "__main__":
    main()
