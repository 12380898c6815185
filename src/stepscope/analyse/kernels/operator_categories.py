"""What an operator of PyTorch does, in the words of the kernels' categories, told from its name.

For traces without kernels. Names are ATen's (``native_functions.yaml``); an operator of another library is
judged as a kernel of its name would be.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from stepscope.analyse.kernels.categories import category_of
from stepscope.model.vocabulary import KernelCategory

_C = KernelCategory
_ALTERNATIVES = (
    (_C.ATTENTION, r"scaled_dot_product \w*attention"),
    (_C.CONVOLUTION, r"\w*conv(?:olution|_|\d|$) im2col col2im"),
    (_C.GEMM, r"(?:mkldnn_|sparse_)?(?:linear|addmm|addmv|matmul|mm|mv|bmm|baddbmm|addbmm|einsum|dot)"
              r"(?:_|$) \w*_mm(?:_|$)"),
    (_C.NORMALISATION, r"\w*(?:layer|group|rms|batch|instance)_norm \w*softmax linalg_vector_norm norm"),
    (_C.MEMORY, r"empty new_empty zeros ones full fill zero resize set_data allocate"),
    (_C.REDUCTION, r"(?:sum|mean|prod|max|min|amax|amin|argmax|argmin|std|var|any|all|cumsum|cumprod)"
                   r"(?:_|$) \w*_?pool\d?d? topk sort logsumexp var_mean std_mean"),
    (_C.COPY_LAYOUT, r"copy to(?:_|$) to_copy type_as clone contiguous cat(?:_|$) concat stack transpose"
                     r" permute t(?:_|$) view reshape as_strided slice select narrow expand"
                     r" (?:un)?squeeze flatten unflatten unsafe_(?:view|split) split chunk unbind repeat"
                     r" tile index gather scatter embedding roll flip pad constant_pad movedim detach"
                     r" alias resolve pixel_(?:un)?shuffle lift diagonal unfold"),
    (_C.ELEMENTWISE, r"(?:add|sub|rsub|mul|div|pow|neg|abs|exp|log|sqrt|rsqrt|reciprocal|square|sin|cos"
                     r"|tanh|erf|sigmoid|silu|gelu|relu|clamp|where|lerp|addcmul|addcdiv|floor|ceil|round"
                     r"|remainder|fmod|maximum|minimum|eq|ne|lt|le|gt|ge|sign|mish|softplus|elu"
                     r"|leaky_relu|hardswish|glu|bitwise_\w+|logical_\w+|isnan|isinf|nan_to_num|arange"
                     r"|linspace|rand\w*|normal|uniform|bernoulli|dropout|masked_fill|triu|tril|polar"
                     r"|upsample_\w+|interpolate|grid_sampler\w*|complex|real|imag|atan2)(?:_|$)"),
)  # fmt: skip


@cache
def _rules() -> tuple[tuple[re.Pattern[str], KernelCategory], ...]:
    """Compiled when they are first asked: most traces have kernels."""
    return tuple(
        (re.compile(rf"^(?:{alternatives.replace(' ', '|')})"), category)
        for category, alternatives in _ALTERNATIVES
    )


@lru_cache(maxsize=65_536)
def operator_category(name: str) -> KernelCategory:
    """The category of the operator called ``name``; OTHER where no rule knows it."""
    library, _, bare = name.rpartition("::")
    if library == "aten":
        operator = bare.lstrip("_")
        for pattern, category in _rules():
            if pattern.search(operator):
                return category
    return category_of(name)
