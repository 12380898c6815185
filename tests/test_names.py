"""Text from traces: harmless, and short without two kernels looking the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hostile_report import HOSTILE
from report_parts import ADD, MULTIPLY
from stepscope.render.names import (
    sentence,
    shorten,
    shorten_kernels,
    shorten_path,
    simplify_kernel,
    visible,
)


def test_control_and_bidirectional_characters_become_escapes() -> None:
    """Nothing that moves the cursor, reorders a line or hides survives."""
    assert visible("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert visible("\u202egnp") == "\\u202egnp"
    assert visible("\u200b\U000e0041") == "\\u200b\\U000e0041"
    assert visible("\ud800") == "\\ud800"
    assert visible("a\tb\nc") == "a b c"
    assert visible("漢字 é µ") == "漢字 é µ"


@given(st.text())
def test_visible_text_has_only_harmless_categories(text: str) -> None:
    """Every character left is one that prints."""
    assert not {unicodedata.category(character) for character in visible(text)} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }


def test_a_pytorch_kernel_loses_what_says_nothing() -> None:
    """Return type, parameters, lambdas and namespaces go; what it computes stays."""
    assert simplify_kernel(ADD) == "elementwise_kernel<128, 4, gpu_kernel_impl_nocast<CUDAFunctor_add<bf16>>>"
    assert simplify_kernel("void (anonymous namespace)::softmax<float>(float*)") == "softmax<float>"
    assert simplify_kernel("triton_poi_fused_add_0") == "triton_poi_fused_add_0"


@pytest.mark.parametrize("name", ["kernel<", "a>b", "f(", ")", "operator<<(int)", "a->b<int>(x->y)", ""])
def test_unbalanced_names_stay_readable(name: str) -> None:
    """What cannot be parsed is shown as it is."""
    assert simplify_kernel(name) in {name, "a->b<int>"}


def test_the_same_template_shows_what_differs() -> None:
    """Two rows of one template are told apart by their functor, in a narrow column too."""
    for width in (70, 46, 30):
        multiply, add = shorten_kernels([MULTIPLY, ADD], width)
        assert multiply != add
        assert max(cell_len(multiply), cell_len(add)) <= width
    assert "CUDAFunctor_add bf16" in shorten_kernels([MULTIPLY, ADD], 46)[1]


def test_long_names_are_told_apart_where_they_differ() -> None:
    """A long common beginning is left out rather than the difference."""
    names = [
        f"sm90_xmma_fprop_implicit_gemm_bf16_tilesize{size}_warpgroup_execute_kernel" for size in ("64", "96")
    ]
    one, two = shorten_kernels(names, 40)
    assert one != two
    assert "96" in two


@given(
    st.lists(st.one_of(st.text(max_size=60), st.text(alphabet="ab<>(), :漢…", max_size=60)), max_size=30),
    st.integers(min_value=12, max_value=80),
)
def test_different_names_never_look_the_same(names: list[str], width: int) -> None:
    """Whatever a trace holds: as many texts as names, all within the width."""
    short = shorten_kernels(names, width)
    assert len(set(short)) == len(set(names))
    assert all(cell_len(text) <= width for text in short)


def test_hostile_names_are_told_apart() -> None:
    """Ten thousand characters that differ in the last still give two texts."""
    short = shorten_kernels(HOSTILE, 46)
    assert len(set(short)) == len(HOSTILE)
    assert all(cell_len(text) <= 46 for text in short)


def test_shortening_keeps_both_ends_and_paths_keep_theirs() -> None:
    """The middle of a text goes, the beginning of a path goes."""
    assert shorten("abcdefghij", 7) == "abcd…ij"
    assert shorten("short", 7) == "short"
    assert shorten_path("/very/long/path/file.py", 10) == "…/file.py"
    assert shorten_path("/very/long/path/file.py", 12) == "…/file.py"
    assert len(sentence("x" * 10_000)) == 500
