"""Traces of a CPU whose steps pass in Python: loops of small operators, and steps of little else."""

from __future__ import annotations

import pytest

from stepscope.analyse.findings.operators import LOOP_FROM
from stepscope.analyse.report import analyse_trace
from stepscope.analyse.results import Finding
from stepscope.model.trace import SourceLine
from traces import TraceBuilder


def found(made: TraceBuilder) -> dict[str, Finding]:
    return {one.id: one for one in analyse_trace(made.build()).rank.findings if one.id.startswith("host.")}


def step(made: TraceBuilder, index: int, count: int, *, duration: float, gap: float) -> None:
    """One step: an attention that calls so many operators in one line, each after some Python."""
    source = SourceLine(
        file="mine.py", line=12, function="__call__", line_exact=True, module_path="unet.blocks.0.attn"
    )
    each = duration + gap
    start = index * count * each
    made.annotate(f"denoising_step_{index}", start, count * each, ours=True)
    for at in range(count):
        made.operator("aten::mul", start + at * each + gap, duration, source=source)


def test_a_loop_in_a_module_is_found_with_its_line() -> None:
    """How many operators a call, of what length, and what they and the Python before them take."""
    made = TraceBuilder()
    for index in range(2):
        step(made, index, 2 * LOOP_FROM, duration=2, gap=1)
    loop = found(made)["host.python_loop"]
    assert loop.title == "attn calls 1,000 small operators in one call"
    assert loop.cost_ms == pytest.approx(6.0)
    assert "unet.blocks.*.attn: 2,000 operators of 2.0 µs (mean) in the 2 traced steps" in loop.evidence
    assert "100.0 % of the time" in loop.evidence
    assert loop.source is not None
    assert (loop.source.file, loop.source.line) == ("mine.py", 12)
    assert "host.python_bound" not in found(made)


@pytest.mark.parametrize(("count", "duration"), [(LOOP_FROM // 2, 2.0), (2 * LOOP_FROM, 40.0)])
def test_few_or_long_operators_are_no_loop(count: int, duration: float) -> None:
    """A module of a published model calls a hundred; and nothing is won where each does much."""
    made = TraceBuilder()
    for index in range(2):
        step(made, index, count, duration=duration, gap=1)
    assert found(made) == {}


def test_a_loop_is_found_in_frames_too() -> None:
    """Calls of the module are its frames."""
    made = TraceBuilder()
    made.annotate("denoising_step_0", 0, 10_000, ours=True)
    made.frame("nn.Module: Attention_0", 0, 9_000)
    made.frame("mine.py(10): __call__", 1, 8_998)
    for at in range(2 * LOOP_FROM):
        made.operator("aten::mul", 2 + 3 * at, 2)
    assert found(made)["host.python_loop"].title == "Attention calls 1,000 small operators in one call"


def test_steps_of_python_between_small_operators_are_python_bound() -> None:
    """More than half of the time is in no operator, and operators are small."""
    made = TraceBuilder()
    for index in range(2):
        step(made, index, 100, duration=2, gap=6)
    bound = found(made)["host.python_bound"]
    assert bound.cost_ms == pytest.approx(1.2)
    assert "200 operators, not counting those inside, of 2.0 µs (mean)" in bound.evidence
    assert "75.0 % passes in Python between them" in bound.evidence


def test_recorded_frames_make_no_steps_python_bound() -> None:
    """They slow the Python that they record."""
    made = TraceBuilder()
    for index in range(2):
        step(made, index, 100, duration=2, gap=6)
    made.frame("mine.py(1): f", 0, 700)
    assert found(made) == {}
