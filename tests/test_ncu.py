"""The ready ncu command: finds the kernel in ncu's own spelling, and is safe to paste."""

import re
import shlex
import string
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepscope.analyse.kernels.ncu import PLACEHOLDER, kernel_pattern, ncu_command

# The same kernels as Kineto and as Nsight Systems (whose demangler ncu shares) recorded them on an H200.
KINETO_FILL = "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul>)"  # noqa: E501
NSIGHT_FILL = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::FillFunctor<c10::BFloat16>, std::array<char *, (unsigned long)1>>(int, T2, T3)"  # noqa: E501
NSIGHT_FILL_FLOAT = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)"  # noqa: E501
KINETO_MUL = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1})"  # noqa: E501
NSIGHT_MUL = "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float>>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"  # noqa: E501
NSIGHT_DIV = NSIGHT_MUL.replace("MulFunctor<float>", "DivFunctor<c10::BFloat16>")
KINETO_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"  # noqa: E501
NSIGHT_NORM = "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2, const T1 *, const T1 *, const T1 *, T2 *, T2 *, T1 *)"  # noqa: E501
KINETO_CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"  # noqa: E501
NSIGHT_CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>, (int)4, TrivialOffsetCalculator<(int)1, unsigned int>, TrivialOffsetCalculator<(int)1, unsigned int>, at::native::memory::LoadWithCast<(int)1>, at::native::memory::StoreWithCast<(int)1>>(int)"  # noqa: E501
FMHA = "fmha_cutlassF_bf16_aligned_32x128_gmem_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)"  # noqa: E501


@pytest.mark.parametrize(
    ("traced", "in_ncu"),
    [
        (KINETO_FILL, NSIGHT_FILL),
        (NSIGHT_FILL, NSIGHT_FILL),
        (KINETO_MUL, NSIGHT_MUL),
        (NSIGHT_MUL, NSIGHT_MUL),
        (KINETO_NORM, NSIGHT_NORM),
        (NSIGHT_NORM, NSIGHT_NORM),
        (KINETO_CAST, NSIGHT_CAST),
        (FMHA, FMHA),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"),
    ],
)
def test_the_pattern_finds_the_kernel_in_ncus_spelling(traced: str, in_ncu: str) -> None:
    """Whoever recorded the trace, the pattern matches what ncu calls the kernel."""
    pattern = kernel_pattern(traced)

    assert pattern is not None
    assert re.search(pattern, in_ncu)


@pytest.mark.parametrize(
    ("traced", "another"),
    [
        (KINETO_FILL, NSIGHT_FILL_FLOAT),
        (KINETO_MUL, NSIGHT_DIV),
        (KINETO_MUL, NSIGHT_MUL.replace("elementwise_kernel", "vectorized_elementwise_kernel")),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT_2"),
    ],
)
def test_the_pattern_does_not_find_a_sibling(traced: str, another: str) -> None:
    """Kernels of one template differ in their functors and types."""
    pattern = kernel_pattern(traced)

    assert pattern is not None
    assert not re.search(pattern, another)


def test_the_command_profiles_one_launch_from_the_middle() -> None:
    """Nothing to fill in but the program."""
    command = ncu_command("triton_poi_fused_gelu_view_11", launches=9)

    assert command == (
        "ncu --set full --target-processes all --kernel-name-base demangled "
        "--kernel-name 'regex:^triton_poi_fused_gelu_view_11$' "
        f"--launch-skip 4 --launch-count 1 {PLACEHOLDER}"
    )


def test_a_known_program_is_quoted_into_the_command() -> None:
    """Arguments with spaces and quotes stay what they are."""
    target = ["python", "run.py", "--prompt", "it's a 'logo' $HOME"]
    command = ncu_command("nvjet_x", target=target)

    assert command is not None
    assert shlex.split(command)[-4:] == target


HOSTILE = [
    "x'; touch /tmp/owned; '",
    "$(touch owned)`touch owned`",
    "kernel<a>(int) && rm -rf / #",
    'k"\n; reboot\n"',
    "a|b>c<d&e",
    "--kernel-name\x00-o/etc/passwd",
    "核函数<int>(float)",
    "\u202ekernel\u202e",
    "(" * 3000,
    "f" + "(" * 2000 + ")" * 2000,
    "a" * 100_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_one_harmless_argument(name: str) -> None:
    """Only word characters of a name reach the command, and the pattern is one quoted argument."""
    command = ncu_command(name)
    if command is None:
        return
    words = shlex.split(command)
    pattern = words[words.index("--kernel-name") + 1]

    assert len(words) == 14
    assert set(pattern) <= set(string.ascii_letters + string.digits + r"_^$\.*:")
    assert re.compile(pattern.removeprefix("regex:"))


@example("᠐")  # a digit, but not of ASCII
@given(st.text(max_size=200))
def test_any_name_gives_a_command_a_shell_reads_as_written(name: str) -> None:
    """Quoting survives a round trip for every text."""
    command = ncu_command(name)

    if command is not None:
        assert len(shlex.split(command)) == 14
        assert command.isascii()
        assert command.isprintable()


def test_a_real_shell_passes_the_pattern_on_unchanged() -> None:
    """``sh`` hands ncu exactly the pattern."""
    command = ncu_command(KINETO_MUL, target=("true",))
    assert command is not None
    script = command.replace("ncu ", "printf '%s\\n' ", 1)
    printed = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert f"regex:{kernel_pattern(KINETO_MUL)}" in printed


@pytest.mark.parametrize("name", ["", "   ", "<>", "()", "核"])
def test_a_name_without_words_gives_no_command(name: str) -> None:
    """There is nothing to search for."""
    assert ncu_command(name) is None
