"""What a kernel's name tells beyond its category: attention family, GEMM dtype, compiled or not.

Names are demangled C++ (as CUPTI, ``c++filt`` and Nsight Systems spell them), plain symbols (Triton, nvjet,
Tensile) or still mangled (hipBLASLt's and aiter's assembly). Every pattern is matched anywhere in the first
``NAME_LIMIT`` characters: what identifies a kernel stands in front, its parameter list behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["NAME_LIMIT", "attention_family", "gemm_dtype", "is_compiled", "readable"]

NAME_LIMIT = 4096
"""Characters of a name that are looked at; CUTLASS names run to 10 kB, a hostile one to anything."""

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>")


def readable(name: str) -> str:
    """``name`` cut to ``NAME_LIMIT``, every compiler's spelling of an anonymous namespace made ``anon``."""
    return _ANONYMOUS.sub("anon", name[:NAME_LIMIT])


@dataclass(frozen=True, slots=True)
class _Family:
    pattern: re.Pattern[str]
    family: str


def _family(family: str, alternatives: str) -> _Family:
    """``alternatives`` are patterns separated by spaces."""
    return _Family(re.compile(alternatives.replace(" ", "|")), family)


# First match wins, so a family that is built from another's parts (sage in CK, flash in aiter) comes first.
_ATTENTION_FAMILIES = (
    # thu-ml/SageAttention: csrc/qattn, csrc/fused (its quantisers) and the Triton twins. V3's main kernel is
    # flash::compute_attn_ws with NVFP4 traits; a plain compute_attn_ws is an early FlashAttention 3.
    _family("sage", r"SageAttn sageattn qk_int\d*_sv_f\d+ \bquant_per_(?:block|thread|warp)_int(?:4|8)"),
    _family("sage", r"\b(?:QuantInt8Kernel|MeanScaleKernel|SubMeanKernel|TransposePadPermuteKernel)\b"),
    _family("sage", r"compute_attn_ws<.*(?:nv_float4|float_e2m1)"),
    # AMD's assembly kernels: aiter::fmha_fwd_hd128_bf16_..., _ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE
    _family("aiter", r"aiter(?:::|\d+)(?:fmha_|fwd_\w*hd\d|fwd_fp8|pa_|mla_)"),
    # Composable Kernel: ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<...>>
    _family(
        "ck", r"\bck_tile\b.*Fmha\w*Kernel \bFmhaFwd\w*Kernel \bck::.*(?:[Aa]ttention|Fmha|Softmax_Gemm)"
    ),
    # cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_...
    _family("cudnn", r"cudnn\w*_sdpa_ cudnn::(?:\w+::)*\w*(?:sdpa|mha|attention|compute_dot_do_o)"),
    # CuTe DSL: kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at_...
    _family("flash4", r"flash_attn_?cute FlashAttention(?:Forward|Backward)\w*Sm\d+ flash_fwd_sm1\d\d"),
    # void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...>>> and its helpers
    _family("flash3", r"FlashAttn(?:Fwd|Bwd)\w* flash::(?:prepare_varlen|compute_attn_ws|enable_sm[89]\d)"),
    # PyTorch's generated instances, xFormers' and PyTorch's own class; then operators
    _family(
        "memory_efficient", r"\bfmha_cutlass[FB]_ PyTorchMemEffAttention attention_kernel_backward_batched"
    ),
    _family("memory_efficient", r"_efficient_attention"),
    # void pytorch_flash::flash_fwd_kernel<...>, void flash_fwd_kernel<Flash_fwd_kernel_traits<...>>
    _family("flash2", r"\bflash_(?:fwd|bwd)_\w*kernel Flash_(?:fwd|bwd)_kernel_traits"),
    _family("flash2", r"_flash_attention_(?:forward|backward) _dot_product_flash_attention\b"),
    _family("flashinfer", r"flashinfer::\w*(?:Prefill|Decode|Attention) \bBatch(?:Prefill|Decode)With\w+"),
    _family(
        "trtllm", r"\bfmhaSm\d+ \bfmha_v2_ tensorrt_llm::\w*(?:mha|attention) masked_multihead_attention"
    ),
    # Inductor's flex_attention template, before Triton's others
    _family("flex", r"^triton_tem_fused_\w*flex_(?:attention|decoding)"),
    # AOTriton (PyTorch on ROCm) exports attn_fwd; Triton's tutorial and its children _attn_fwd, _fwd_kernel
    _family("triton", r"^_?attn_fwd\w* ^_fwd_kernel(?:_stage\d)?$ ^_fwd_grouped_kernel ^\w+_attn_fwd\w*$"),
    _family("triton", r"^(?!triton_(?:poi|red|per|tem)_)_?[a-z]\w*attention\w*$"),
    # Operators, so that a trace of a CPU or without CUDA activity can tell too
    _family("cudnn", r"_scaled_dot_product_cudnn_attention\b"),
    _family("math", r"_scaled_dot_product_attention_math"),
    _family("cpu_flash", r"_scaled_dot_product_flash_attention_for_cpu"),
    _family("overrideable", r"_scaled_dot_product_fused_attention_overrideable"),
)

_POINTWISE_COMPILED = re.compile(r"^triton_(?:poi|red|per|for|spl|unk)_")


def attention_family(name: str) -> str | None:
    """The implementation an attention kernel (or attention operator) belongs to, or None for any other.

    One of sage, aiter, ck, cudnn, flash2, flash3, flash4, memory_efficient, flashinfer, trtllm, flex, triton,
    and from operator names also math, cpu_flash, overrideable. The maths path has no kernel of its own: it is
    GEMMs and a softmax, which nothing in their names ties to attention.
    """
    text = readable(name)
    if _POINTWISE_COMPILED.match(text):
        # Inductor names a fused kernel after every operator it touches: this one only prepares the inputs.
        return None
    for rule in _ATTENTION_FAMILIES:
        if rule.pattern.search(text):
            return rule.family
    return None


_COMPILED = re.compile(
    r"^(?:triton_(?:poi|red|per|tem|for|spl|unk|mm|bmm|fused|convolution|flex)|cpp_fused_|cuda_fused_)"
)


def is_compiled(name: str) -> bool:
    """Whether ``torch.compile`` (inductor) generated the kernel.

    Inductor names its kernels ``triton_<kind>_fused_<operators>_<n>``. A hand-written Triton kernel keeps its
    function's name and says nothing about compilation.
    """
    return _COMPILED.match(name) is not None


_NVJET = re.compile(r"\bnvjet_(?:sm\d+_)?([a-z]{3,6})_")
# cuBLASLt's one letter a type: A, B, C, compute, D where five, A = B, compute, C = D where three. Read off
# workloads of known dtype: tst bf16 (shared traces), hsh fp16, qqtst fp8, ootst NVFP4 (public profiles).
_NVJET_DTYPES = {"t": "bf16", "h": "fp16", "q": "fp8", "r": "fp8", "o": "fp4", "s": "tf32", "d": "fp64"}

_TENSILE = re.compile(r"\bCijk_A\w{3}_B\w{3}_(F8|B8|F4|I8|[A-Z])")
_TENSILE_DTYPES = {
    "F8": "fp8", "B8": "fp8", "F4": "fp4", "I8": "int8", "H": "fp16", "B": "bf16", "S": "fp32", "D": "fp64",
}  # fmt: skip

# What the operands are, most particular first: block-scaled FP4 carries FP8 scales, mixed kernels carry the
# accumulator's and the output's type behind the operands'.
_SPELT_DTYPES = (
    (re.compile(r"float_e2m1|nv_float4|mxf4|nvf4|f4gemm|e2m1|\bf4_|Fp4Gemm|xf4_|_fp4_", re.I), "fp4"),
    (re.compile(r"e4m3|e5m2|f8_fnuz|fp8|float8|f8f8|_f8_|ck::f8_t", re.I), "fp8"),
    (re.compile(r"i8i8|_s8_|int8|\bi8gemm|_i16832gemm|s8s8|i8816gemm|_i8_", re.I), "int8"),
    (re.compile(r"tf32|xf32", re.I), "tf32"),
    (re.compile(r"gemm_bf16bf16|bf16|bfloat16|__nv_bfloat16|_ushort_(?:double|float)_", re.I), "bf16"),
    (re.compile(r"f16f16|fp16|half_t|__half|half\b|_f16_|h884|h1688|h16816|(?:\b|_)hgemm|f16_s\d"), "fp16"),
    (re.compile(r"_half_(?:double|float)_"), "fp16"),
    (re.compile(r"f64f64|dgemm|double"), "fp64"),
    # Tensor-core kernels with fp32 operands and no other type named convert to TF32 (sm80 on).
    (re.compile(r"cutlass_\d*_?tensorop_s1688(?:gemm|fprop|dgrad|wgrad)|ampere_s1688gemm"), "tf32"),
    (re.compile(r"sgemm|f32f32|scudnn|\bfloat\b|fp32"), "fp32"),
)


def gemm_dtype(name: str) -> str | None:
    """The operands' dtype of a matrix multiplication or convolution kernel, as far as its name tells.

    One of fp64, fp32, tf32, bf16, fp16, fp8, int8, fp4; None where the name does not say (Triton). Ask only
    of kernels whose category is GEMM or CONVOLUTION: other names mention types too.
    """
    text = readable(name)
    if nvjet := _NVJET.search(text):
        return _NVJET_DTYPES.get(nvjet.group(1)[0])
    if tensile := _TENSILE.search(text):
        return _TENSILE_DTYPES.get(tensile.group(1))
    return next((dtype for pattern, dtype in _SPELT_DTYPES if pattern.search(text)), None)
