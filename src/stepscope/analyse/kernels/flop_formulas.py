"""FLOPs of one operator from its recorded input shapes, dtypes and constants.

One multiply-add is two FLOPs. Only matrix multiplications, convolutions and attention count, as in
``torch.utils.flop_counter`` (against which these formulas are tested): their bias, scaling and softmax are
left out, a causal mask is not subtracted and padding of a convolution is multiplied like any value.
Every formula takes ``Inputs`` and gives None where the shapes do not fit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import msgspec

__all__ = ["FLOP_FORMULAS", "Inputs", "dtype_of", "flops_of", "parse_inputs"]


class Inputs(msgspec.Struct, frozen=True):
    """An operator's inputs as ``Trace.shapes`` holds them: one entry for each argument in schema order.

    ``dims`` are sizes (a list of lists for a tensor list, empty for what is no tensor), ``types`` C++ type
    names, ``concrete`` the text of scalars and lists of scalars (empty where the recorder wrote none).
    """

    dims: tuple[tuple[int | tuple[int, ...], ...], ...] = ()
    types: tuple[str, ...] = ()
    concrete: tuple[str, ...] = ()

    def shape(self, index: int) -> tuple[int, ...]:
        """Sizes of argument ``index``; empty where it is missing, a scalar or a list of tensors."""
        if index >= len(self.dims):
            return ()
        sizes = self.dims[index]
        return tuple(size for size in sizes if isinstance(size, int)) if not _any_nested(sizes) else ()

    def integers(self, index: int) -> tuple[int, ...] | None:
        """The list of whole numbers recorded for argument ``index``, or None where there is none."""
        text = self.concrete[index] if index < len(self.concrete) else ""
        if not re.fullmatch(r"\[?\s*-?\d+(?:\s*,\s*-?\d+)*\s*\]?", text):
            return None
        return tuple(int(number) for number in re.findall(r"-?\d+", text))

    def is_true(self, index: int) -> bool:
        return index < len(self.concrete) and self.concrete[index] == "True"


def _any_nested(sizes: tuple[int | tuple[int, ...], ...]) -> bool:
    return any(not isinstance(size, int) for size in sizes)


def parse_inputs(text: str) -> Inputs | None:
    """``text`` is one entry of ``Trace.shapes``; None where it is not JSON of that form."""
    try:
        return msgspec.json.decode(text, type=Inputs)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


Formula = Callable[[Inputs], int | None]

_DTYPES = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "signed char": "int8",
    "unsigned char": "int8",
}  # fmt: skip


def dtype_of(inputs: Inputs) -> str | None:
    """The dtype of an operator's first floating-point or 8-bit tensor: what its multiplications take.

    float32 is fp32 here; whether the device was allowed TF32 for it is not recorded.
    """
    for type_name, sizes in zip(inputs.types, inputs.dims, strict=False):
        if "Float4" in type_name:
            return "fp4"
        if "Float8" in type_name:
            return "fp8"
        if sizes and type_name in _DTYPES:
            return _DTYPES[type_name]
    return None


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    """``torch.matmul`` of these shapes, broadcast over batch dimensions: 2 * batch * m * k * n."""
    if not left or not right:
        return None
    k, k_right = left[-1], right[-2] if len(right) > 1 else right[-1]
    if k != k_right:
        return None
    m = left[-2] if len(left) > 1 else 1
    n = right[-1] if len(right) > 1 else 1
    return 2 * prod(_broadcast(left[:-2], right[:-2])) * m * k * n


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    width = max(len(left), len(right))
    padded = ((1,) * (width - len(left)) + left, (1,) * (width - len(right)) + right)
    return tuple(max(a, b) for a, b in zip(*padded, strict=True))


def _matmul_at(left: int, right: int) -> Formula:
    def flops(inputs: Inputs) -> int | None:
        packed = 2 if dtype_of(inputs) == "fp4" else 1  # two FP4 numbers in each recorded element of K
        product = _product(inputs.shape(left), inputs.shape(right))
        return None if product is None else packed * product

    return flops


def _linear(inputs: Inputs) -> int | None:
    """``x @ weight.T``: 2 * (elements of x) * (rows of weight)."""
    x, weight = inputs.shape(0), inputs.shape(1)
    if not x or not weight or x[-1] != weight[-1]:
        return None
    return 2 * prod(x) * (weight[0] if len(weight) > 1 else 1)


def _grouped(inputs: Inputs) -> int | None:
    """``_grouped_mm``: where one side is two-dimensional, its groups share out m, k or n without overlap."""
    left, right = inputs.shape(0), inputs.shape(1)
    if len(left) == len(right):
        return _product(left, right)
    if len(left) == 2 and len(right) == 3:
        return 2 * left[0] * left[1] * right[2] if left[1] == right[1] else None
    if len(left) == 3 and len(right) == 2:
        return 2 * left[1] * left[2] * right[1] if left[2] == right[0] else None
    return None


def _attention(heads_axis: int, length_axis: int, first: int = 0) -> Formula:
    """Two products for each query head: 2 * b * h * s_q * s_k * (d_qk + d_v)."""

    def flops(inputs: Inputs) -> int | None:
        query, key, value = (inputs.shape(first + n) for n in range(3))
        if not len(query) == len(key) == len(value) == 4 or query[3] != key[3]:
            return None
        lengths = query[length_axis] * key[length_axis]
        return 2 * query[0] * query[heads_axis] * lengths * (query[3] + value[3])

    return flops


_heads_first = _attention(heads_axis=1, length_axis=2)  # (batch, heads, length, width)
_length_first = _attention(heads_axis=2, length_axis=1)  # (batch, length, heads, width)


@dataclass(frozen=True, slots=True)
class _ConvolutionArguments:
    """Positions of a convolution's arguments; None where an operator has no such argument."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None


def _convolution(at: _ConvolutionArguments) -> Formula:
    """2 * batch * (points of the output) * (elements of the weight), whatever the groups.

    A transposed one multiplies every input point with the weight instead.
    """

    def flops(inputs: Inputs) -> int | None:
        x, weight = inputs.shape(0), inputs.shape(1)
        if at.transposed is not None and inputs.is_true(at.transposed):
            return _transposed_convolution(inputs)
        spatial = _spatial(x, weight)
        stride, padding = inputs.integers(at.stride), inputs.integers(at.padding)
        dilation = (1,) if at.dilation is None else inputs.integers(at.dilation)
        if spatial is None or stride is None or padding is None or dilation is None:
            return None
        kernel = weight[2:]
        points = [
            (size + 2 * _each(padding, n) - _each(dilation, n) * (kernel[n] - 1) - 1)
            // max(_each(stride, n), 1)
            + 1
            for n, size in enumerate(spatial)
        ]
        return 2 * _batch(x, weight) * prod(max(count, 0) for count in points) * prod(weight)

    return flops


def _transposed_convolution(inputs: Inputs) -> int | None:
    x, weight = inputs.shape(0), inputs.shape(1)
    spatial = _spatial(x, weight)
    return None if spatial is None else 2 * _batch(x, weight) * prod(spatial) * prod(weight)


def _spatial(x: tuple[int, ...], weight: tuple[int, ...]) -> tuple[int, ...] | None:
    """The input's sizes behind batch and channel, or None where its rank does not fit the weight's."""
    if len(weight) < 3 or len(x) not in {len(weight), len(weight) - 1}:
        return None
    return x[-(len(weight) - 2) :]


def _batch(x: tuple[int, ...], weight: tuple[int, ...]) -> int:
    return x[0] if len(x) == len(weight) else 1


def _each(values: tuple[int, ...], index: int) -> int:
    """Convolutions take one number for all dimensions or one for each."""
    return values[index] if index < len(values) else values[0]


_ATEN_CONVOLUTION = _convolution(_ConvolutionArguments(stride=3, padding=4, dilation=5, transposed=6))
_CONV_ND = _convolution(_ConvolutionArguments(stride=3, padding=4, dilation=5))
_CUDNN = _convolution(_ConvolutionArguments(stride=3, padding=2, dilation=4))
_PADDING_FIRST = _convolution(_ConvolutionArguments(stride=4, padding=3, dilation=5))
_KERNEL_SIZE_GIVEN = _convolution(_ConvolutionArguments(stride=4, padding=5, dilation=6))
_UNDILATED = _convolution(_ConvolutionArguments(stride=4, padding=5, dilation=None))
_ADD_RELU = _convolution(_ConvolutionArguments(stride=5, padding=6, dilation=7))

# Argument positions are those of the schemas in aten/src/ATen/native/native_functions.yaml (torch 2.13).
_FORMULA_OF = (
    (_matmul_at(0, 1), "mm bmm matmul mv dot vdot _int_mm _scaled_mm _scaled_mm_v2"),
    (_matmul_at(1, 2), "addmm addmm_ baddbmm baddbmm_ addbmm addbmm_ addmv addmv_ _addmm_activation"),
    (_linear, "linear mkldnn_linear _linear_pointwise"),
    (_grouped, "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2"),
    (_ATEN_CONVOLUTION, "convolution _convolution convolution_overrideable"),
    (_CONV_ND, "conv1d conv2d conv3d _convolution_mode cudnn_convolution_relu"),
    (_PADDING_FIRST, "mkldnn_convolution miopen_convolution miopen_depthwise_convolution"),
    (_CUDNN, "cudnn_convolution"),
    (_ADD_RELU, "cudnn_convolution_add_relu"),
    (_UNDILATED, "thnn_conv2d _slow_conv2d_forward slow_conv3d slow_conv3d_forward"),
    (_KERNEL_SIZE_GIVEN, "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d"),
    (
        _transposed_convolution,
        "conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose "
        "miopen_convolution_transpose slow_conv_transpose2d slow_conv_transpose3d",
    ),
    (
        _heads_first,
        "scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable "
        "_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps "
        "_cudnn_attention_forward",
    ),
    # FlashAttention 2 and 3, xFormers: the length before the heads. Packed (varlen) calls are 3-d: None.
    (
        _length_first,
        "_flash_attention_forward _efficient_attention_forward _flash_attn_forward fwd flash_fwd "
        "efficient_attention_forward_cutlass",
    ),
)

FLOP_FORMULAS: dict[str, Formula] = {
    name: formula for formula, names in _FORMULA_OF for name in names.split()
}
"""Formula of each counted operator, by its name without namespace (``aten::mm`` is ``mm``)."""

_NAMESPACES = re.compile(
    r"^(?:aten|mkldnn|flash_attn|flash_attn_3|_\w*flash_attn\w*|sgl_kernel|xformers\w*)::"
)


def flops_of(operator: str, inputs: Inputs) -> int | None:
    """FLOPs of one call of ``operator`` (as ``aten::addmm``); None where it is not counted or not known."""
    namespace = _NAMESPACES.match(operator)
    if namespace is None:
        return None
    formula = FLOP_FORMULAS.get(operator[namespace.end() :].partition(".")[0])
    return None if formula is None else formula(inputs)
