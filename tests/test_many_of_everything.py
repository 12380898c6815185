"""Traces with very many of something: what a view needs of it must not grow with the square of its number."""

from __future__ import annotations

import tracemalloc

import pytest

from stepscope.analyse.kernels.categories import category_of
from stepscope.analyse.report import AnalysedTrace, analyse_trace
from stepscope.analyse.trace.gpu_time import window_times
from stepscope.analyse.trace.gpu_work import gpu_work
from stepscope.analyse.trace.stages_and_steps import find_marks
from stepscope.analyse.trace.step_marks import count_within
from traces import TraceBuilder

STEPS = 3000


def many_steps(count: int) -> TraceBuilder:
    """Profiler steps of three kernels each; every step's annotation is a name of its own."""
    made = TraceBuilder()
    for index in range(count):
        at = index * 100.0
        made.annotate(f"ProfilerStep#{index}", at, 100)
        for offset in range(3):
            made.launch(f"kernel_{offset}", at + 30 * offset, at + 30 * offset + 5, 20)
    return made


@pytest.fixture(scope="module")
def analysed() -> AnalysedTrace:
    return analyse_trace(many_steps(STEPS).build())


def test_memory_does_not_grow_with_the_square_of_the_steps() -> None:
    """A table of steps by names would take 72 MB here, and 80 GB for 100,000 steps."""
    trace = many_steps(STEPS).build()
    work = gpu_work(trace, category_of)
    tracemalloc.start()
    marks = find_marks(trace, work)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(marks.steps) == STEPS
    assert peak < 20e6


def test_every_step_is_still_told(analysed: AnalysedTrace) -> None:
    """Each of many steps has its own kernels, busy time and place."""
    steps = analysed.rank.steps
    assert [step.index for step in steps] == list(range(STEPS))
    assert {step.kernel_count for step in steps} == {3}
    assert {round(step.gpu_busy_ms, 6) for step in steps} == {0.06}


def test_a_long_list_of_slow_steps_is_cut() -> None:
    """A title names the first few slow steps and counts the rest."""
    made = TraceBuilder()
    at = 0.0
    for index in range(60):
        length = 1000.0 if index % 3 == 0 else 100.0
        made.annotate(f"ProfilerStep#{index}", at, length)
        for offset in range(3):
            made.launch(f"kernel_{offset}", at + 20 * offset, at + 20 * offset + 5, 15)
        made.launch("kernel_3", at + 80, at + 81, length - 90)
        at += length
    (slow,) = [one for one in analyse_trace(made.build()).rank.findings if one.id == "steps.slow"]
    assert slow.title == "Steps 0, 3, 6, 9, 12, 15, 18, 21 and 12 more are slower than the others"


def test_windows_and_counts_of_nothing() -> None:
    """No windows, no devices and no ranges are answered with nothing."""
    assert window_times([], []) == []
    assert [one.length_ns for one in window_times([], [(0, 10)])] == [0]
    assert count_within([], []) == []
