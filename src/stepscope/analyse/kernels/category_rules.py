"""The written rules of ``categories``: one regular expression each, in the order in which they are tried.

The order is the point: what is unmistakable comes first, words that several libraries use come last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.model.vocabulary import KernelCategory

__all__ = ["RULES_AFTER_ATTENTION", "RULES_BEFORE_ATTENTION", "CategoryRule"]

C = KernelCategory


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """One rule: names that ``pattern`` is found in belong to ``category``; ``example`` is one such name."""

    pattern: re.Pattern[str]
    category: KernelCategory
    example: str


def _rule(category: KernelCategory, example: str, alternatives: str) -> CategoryRule:
    """A rule over the whole name; ``alternatives`` are patterns separated by spaces."""
    return CategoryRule(re.compile(alternatives.replace(" ", "|")), category, example)


def _anycase(category: KernelCategory, example: str, alternatives: str) -> CategoryRule:
    """As ``_rule``, in upper or lower case."""
    return CategoryRule(re.compile(alternatives.replace(" ", "|"), re.IGNORECASE), category, example)


def _head(category: KernelCategory, example: str, alternatives: str) -> CategoryRule:
    """A rule over the function's own name only: what stands before its template or call arguments."""
    return _anycase(category, example, f"^[^<(]*(?:{alternatives.replace(' ', '|')})")


RULES_BEFORE_ATTENTION = (
    _anycase(C.GRAPH_CAPTURED, "CUDA Graph 12", r"^\W*(?:cuda|hip)[\s_]?graph"),
    _anycase(C.MEMORY, "Memcpy HtoD (Pinned -> Device)", r"^\W*(?:cuda\s|hip\s)?mem(?:cpy|set|ory\sfill)"),
    _rule(C.MEMORY, "__amd_rocclr_fillBufferAligned", r"__amd_rocclr_(?:copy|fill|init)"),
    _rule(C.MEMORY, "at::native::FillFunctor<c10::BFloat16>", r"\bFillFunctor< \bSubTensorOpWithScalar"),
    _rule(C.MEMORY, "zeCommandListAppendMemoryCopy(M2D)", r"zeCommandListAppendMemory"),
    # NCCL, RCCL, MSCCL++, NVSHMEM; then the one-kernel collectives of vLLM, aiter, TensorRT-LLM, PyTorch
    _rule(
        C.COMMUNICATION,
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)",
        r"\b(?:nccl|rccl|mscclpp?|nvshmem|rocshmem)",
    ),
    _rule(
        C.COMMUNICATION,
        "vllm::cross_device_reduce_1stage",
        r"\bcross_device_reduce_ \buserbuffers_ \bdeep_ep:: \bquickreduce",
    ),
    _rule(
        C.COMMUNICATION,
        "two_shot_all_reduce_kernel_inplace",
        r"\bmultimem_ \b(?:one|two)_shot_ lamport",
    ),
    _anycase(
        C.COMMUNICATION,
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<half>",
        r"^(?!triton_)[^<(]*(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|\ba2a\b)",
    ),
)

RULES_AFTER_ATTENTION = (
    # --- layout changes that cuDNN and MIOpen make around convolutions, before the word "conv" decides
    _anycase(
        C.COPY_LAYOUT,
        "cudnn::engines_precompiled::nchwToNhwcKernel",
        r"nchw(?:to|2)nhwc nhwc(?:to|2)nchw",
    ),
    _rule(
        C.COPY_LAYOUT,
        "tensorTransformGeneric",
        r"\btensorTransformGeneric \bconvertTensor_kernel \bbatched_transpose_",
    ),
    # --- convolution
    _rule(
        C.CONVOLUTION,
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_",
        r"implicit_gemm _(?:fprop|dgrad|wgrad)_ \d(?:fprop|dgrad|wgrad)",
    ),
    _rule(
        C.CONVOLUTION,
        "cutlass::device_kernel<cutlass::conv::kernel::ConvUniversal>",
        r"cutlass\w*::.*(?:Conv2d|Conv3d|conv::kernel)",
    ),
    _rule(
        C.CONVOLUTION,
        "igemm_fwd_gtcx3_nhwc_bf16_",
        r"\bigemm_(?:fwd|bwd|wrw)_ \bmlir_gen_igemm \bmlopen_ miopenSp3AsmConv MIOpenConv \bMIOpenCv",
    ),
    _anycase(
        C.CONVOLUTION,
        "cudnn_infer_volta_scudnn_winograd_128x128",
        r"winograd convolve col2im im2col vol2col col2vol \bfft2d_[rc]2[rc]",
    ),
    _rule(
        C.CONVOLUTION,
        "kernel_batched_gemm_xdlops_bwd_weight",
        r"xdlops_bwd_weight xdlops_bwd_data \bscudnn _scudnn_ _cudnn::gemm::kernel",
    ),
    _anycase(
        C.CONVOLUTION,
        "conv_depthwise2d_forward_kernel_generic",
        r"conv(?:_?\d?d|olution|_?transpose|_?depthwise|_fwd|_bwd|_forward|_direct)",
    ),
    _anycase(
        C.CONVOLUTION,
        "naive_conv_fwd_nchw",
        r"(?:^|[_:])(?:naive|grouped|deformable|causal|dw)_?conv",
    ),
    # --- GEMM whose name cannot mean anything else
    _rule(C.GEMM, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", r"\bnvjet_"),
    _rule(C.GEMM, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_", r"_xmma_gemm_ \bCijk_[A-Z]"),
    _rule(
        C.GEMM,
        "cublasLt::splitKreduce_kernel<32, 16, int>",
        r"\bsplitK_?[rR]educe \bReduceSplitK\b \bcublasLt:: PostGSU",
    ),
    _rule(
        C.GEMM,
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>",
        r"cutlass\w*::.*(?:gemm::|[a-z]\d+gemm|sgemm|Gemm)",
    ),
    # --- PyTorch's reductions, before the words in their functors (NormTwoOps, MeanOps) decide
    _rule(
        C.REDUCTION,
        "at::native::reduce_kernel<512, 1, MeanOps>",
        r"\bat::native::reduce_kernel< \breduce_kernel\b",
    ),
    # --- normalisation; softmax is one over a row. "norm" but not "normal" (the distribution)
    _anycase(
        C.NORMALISATION,
        "at::native::anon::vectorized_layer_norm_kernel",
        r"(?:layer|group|rms|batch|instance|weight|qk|l2|add|ada)_?norm(?!al)",
    ),
    _rule(
        C.NORMALISATION,
        "at::native::anon::RowwiseMomentsCUDAKernel",
        r"RowwiseMoments ComputeFusedParams GammaBeta WelfordNorm \bbn_fw_ \bbn_bw_ BatchNorm",
    ),
    _anycase(
        C.NORMALISATION,
        "anon::softmax_warp_forward<float, float, float, 7, false, false>",
        r"soft_?max",
    ),
    _anycase(C.NORMALISATION, "_norm_infer_kernel", r"^[^<(]*norm(?!al|_?two)"),
    # --- the other GEMMs: legacy cuBLAS, GEMV, DeepGEMM, Marlin, CK, Triton matmuls, bitsandbytes
    _anycase(
        C.GEMM,
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        r"^[^<(]*gemm (?i:[shdc]gemm)\w*_ ::gemm\b Gemm",
    ),
    _anycase(
        C.GEMM,
        "void gemv2T_kernel_val<int, int, float>",
        r"gemv \bgemvx:: \bdot_kernel<.*cublas \breduce_1Block_kernel wvSplitK",
    ),
    _head(
        C.GEMM,
        "matmul_kernel_persistent",
        r"mat_?mul marlin \bbmm_ _mm_kernel scaled_mm \bmm_kernel fused_moe w4a\d+ w8a8 fp8_linear",
    ),
    _rule(C.GEMM, "triton_tem_fused_addmm_0", r"^triton_(?:mm|bmm|tem_fused_\w*(?:mm|bmm|baddbmm|linear))"),
    # --- reductions, scans, windows
    _rule(
        C.REDUCTION,
        "cub::DeviceReduceSingleTileKernel",
        r"\bDevice(?:Segmented)?(?:Reduce|Scan|Histogram|ReduceByKey) \bscan:: \breduce:: "
        r"rocprim::.*(?:reduce|scan)",
    ),
    _head(
        C.REDUCTION,
        "at::native::anon::max_pool_forward_nchw",
        r"cumsum cumprod _scan scan_ argmax argmin amax top_?k histogram bincount reduce _sum_ pool",
    ),
    # --- activations and rotary embedding, before the "cat" and "embedding" in their names
    _head(
        C.ELEMENTWISE,
        "sgl_kernel::act_and_mul_kernel",
        r"silu gelu relu sigmoid swish swiglu glu_ act_and_mul activation dropout \bexp_ tanh",
    ),
    _head(
        C.ELEMENTWISE,
        "_rotary_embedding_kernel",
        r"rotary \brope _rope rope_ modulat scale_shift shift_scale residual",
    ),
    # --- copies, casts and rearrangement: nothing is computed
    _rule(
        C.COPY_LAYOUT,
        "at::native::direct_copy_kernel_cuda",
        r"copy_kernel_cuda \bCatArray \bSplitWithSizes \bcopy_device_to_device",
    ),
    _rule(
        C.COPY_LAYOUT,
        "at::native::index_elementwise_kernel<128, 4>",
        r"\bindex_(?:elementwise|kernel|put|copy|fill) \bindexSelect \bindex_select \bwrite_indices "
        r"\bDeviceSelect \bselect::",
    ),
    _head(
        C.COPY_LAYOUT,
        "at::native::vectorized_gather_kernel<16, long>",
        r"gather scatter transpose permute embedding _copy copy_ \bcopy concat _cat_ \bcat_ \bflip "
        r"\broll pixel_?(?:un)?shuffle _pad\d?d?_ unpack repack \bpack_ radixsort \bsort onesweep "
        r"upsample_nearest",
    ),
    _rule(
        C.COPY_LAYOUT,
        "cub::DeviceRadixSortOnesweepKernel",
        r"\bDeviceRadixSort \bDeviceMergeSort \bbitonicSort "
        r"(?:flip|roll|triu_tril|nearest_neighbor)\w*_(?:cuda|kernel)",
    ),
    # --- elementwise: PyTorch's iterators, modulation, quantisers, random numbers, interpolation
    _rule(
        C.ELEMENTWISE,
        "at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add>",
        r"elementwise pointwise \bop_tensor OpTensor multi_tensor_apply for_each",
    ),
    _head(C.ELEMENTWISE, "_indexed_gate_bf16_kernel", r"gate \badd_ _add_ _mul_ \bmul_ bias"),
    _head(
        C.ELEMENTWISE,
        "per_token_quant_fp8_kernel",
        r"quant \bcast _cast convert random philox distribution arange linspace timestep sinusoid",
    ),
    _anycase(
        C.ELEMENTWISE,
        "at::native::anon::upsample_bilinear2d_out_frame",
        r"^[^<(]*(?:upsample|interpolat|grid_sampl|resize) Philox curand",
    ),
)
