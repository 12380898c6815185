"""What a kernel does, told from its name by written rules.

Rules are tried in order and the first match wins. A kernel that only serves another counts with it: the
reduction of a split-K GEMM is GEMM, Sage's quantisers and FlashAttention's combine are attention, cuDNN's
workspace initialisation is convolution. Layout changes around convolutions are kept apart on purpose, because
they can be avoided (channels-last). A fused kernel is what its heaviest part is: norm before elementwise.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stepscope.analyse.kernels.category_rules import (
    RULES_AFTER_ATTENTION,
    RULES_BEFORE_ATTENTION,
    CategoryRule,
)
from stepscope.analyse.kernels.families import attention_family, gemm_dtype, is_compiled, readable
from stepscope.model.vocabulary import KernelCategory

__all__ = ["CATEGORY_RULES", "CategoryRule", "attention_family", "category_of", "gemm_dtype", "is_compiled"]

_C = KernelCategory

CATEGORY_RULES = RULES_BEFORE_ATTENTION + RULES_AFTER_ATTENTION
"""All rules in order; attention, which has families of its own, is decided between the two groups."""

_INDUCTOR = re.compile(r"^triton_(poi|red|per|tem|for|spl|unk)_fused_?(\w*?)(?:_\d+)?(?:\.kd)?$")
_INDUCTOR_NORM = re.compile(
    r"(?:layer|group|rms|batch|instance)_norm|softmax|rsqrt|var_mean|cudnn_batch_norm|native_norm"
)
_INDUCTOR_LAYOUT = re.compile(
    r"_scaled_dot_product\w*?_attention(?:_for_cpu)?|_to_copy|_unsafe_view|as_strided|expand|permute|transpose"
    r"|unsqueeze|squeeze|view_as_(?:complex|real)|view|reshape|clone|slice|select|split_with_sizes|split|copy"
    r"|cat|stack|constant_pad_nd|repeat|flip|roll|index_select|gather|embedding|unbind|chunk|lift_fresh|t"
)
_INDUCTOR_MOVES = re.compile(
    r"_to_copy|clone|cat|copy|permute|transpose|split|slice|stack|constant_pad|repeat|embedding"
)


def _inductor_category(kind: str, operators: str) -> KernelCategory:
    """Inductor names a kernel after its kind and, sorted and joined, the operators fused into it."""
    if kind == "tem":  # a template: the one operator that cannot be fused away decides
        if "convolution" in operators:
            return _C.CONVOLUTION
        return _C.GEMM
    if _INDUCTOR_NORM.search(operators):
        return _C.NORMALISATION
    if kind in {"red", "per", "spl"}:
        return _C.REDUCTION
    computes = _INDUCTOR_LAYOUT.sub("", operators).strip("_")
    if not computes and _INDUCTOR_MOVES.search(operators):
        return _C.COPY_LAYOUT
    return _C.ELEMENTWISE


@lru_cache(maxsize=65_536)  # seventy searches a name, asked by several views
def category_of(name: str) -> KernelCategory:
    """The category of the kernel called ``name``; OTHER where no rule knows it."""
    text = readable(name)
    for rule in RULES_BEFORE_ATTENTION:
        if rule.pattern.search(text):
            return rule.category
    if attention_family(name) is not None:
        return _C.ATTENTION
    if inductor := _INDUCTOR.match(text):
        return _inductor_category(inductor.group(1), inductor.group(2))
    for rule in RULES_AFTER_ATTENTION:
        if rule.pattern.search(text):
            return rule.category
    return _C.OTHER
