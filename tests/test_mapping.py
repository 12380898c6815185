"""From a mapping pass to a lean recording: which operator, module and line made each call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from runs import make_run, stage, step
from stepscope.analyse.trace.mapping import SourceMap, apply_map, map_sources
from stepscope.analyse.trace.segments import Boundary, boundaries
from stepscope.model.run import Run
from stepscope.model.source_map import LineLog, MappedCalls, MappingSummary
from stepscope.model.trace import SourceLine, Trace
from traces import TraceBuilder

US = 1000
LINES = tuple(
    SourceLine(file="model.py", line=10 + at, function="forward", line_exact=True, module_path=f"t.{at}")
    for at in range(8)
)


def marks(*parts: tuple[float, str, int]) -> list[Boundary]:
    return [Boundary(at_ns=round(at * US), label=label, step=step) for at, label, step in parts]


def mapping_pass() -> SourceMap:
    """Two steps of three launches each, and one of two in the scheduler; a line for every call."""
    trace = TraceBuilder()
    log: list[tuple[int, int]] = []
    for index in range(2):
        at = 100.0 * index
        for number, (operator, kernel, grid) in enumerate(
            (
                ("aten::addmm", "gemm", 8),
                ("aten::addmm", "splitk_reduce", 8),
                ("aten::mul", "elementwise", 4),
            )
        ):
            start = at + 10 * number
            if operator != "aten::addmm" or kernel == "gemm":
                trace.operator(operator, start, 19 if kernel == "gemm" else 9, shapes=f'"{operator}"')
            trace.launch(kernel, start + 2, start + 5, 3, grid=(grid, 1, 1))
            log.append((round((start - 1) * US), min(number, 1) if number < 2 else 2))
        trace.operator("aten::add", at + 60, 9)
        trace.launch("elementwise", at + 62, at + 65, 3, grid=(2, 1, 1))
        log.append((round((at + 59) * US), 3))
    at_ns, source = np.array(log, np.int64).T
    lines = LineLog(thread=1, at_ns=at_ns, source=source.astype(np.int32), sources=LINES)
    parts = [
        (100.0 * i + at, label, i) for i in range(2) for at, label in ((0, "forward t 0"), (55, "after"))
    ]
    return map_sources(trace.build(), marks(*parts), lines)


def lean(*calls: tuple[str, float, int]) -> Trace:
    """A recording without operators: (kernel, moment of the launch, grid)."""
    trace = TraceBuilder(thread=1)
    for kernel, at, grid in calls:
        trace.launch(kernel, at, at + 2, 2, grid=(grid, 1, 1))
    return trace.build()


def summary(mapped: MappedCalls) -> MappingSummary:
    return mapped.summary(np.arange(len(mapped.match)))


def lines_of(mapped: MappedCalls) -> list[int | None]:
    return [mapped.sources[at].line if at >= 0 else None for at in mapped.source.tolist()]


def test_the_same_step_is_mapped_call_by_call() -> None:
    """Operators, shapes, lines and modules come from the pass; two launches of one operator stay one call."""
    trace = lean(("gemm", 10, 8), ("splitk_reduce", 12, 8), ("elementwise", 14, 4), ("elementwise", 50, 2))
    mapped = apply_map(trace, marks((0, "forward t 0", 5), (40, "after", 5)), mapping_pass())

    assert lines_of(mapped) == [10, 11, 12, 13]
    assert [mapped.operators[at] for at in mapped.operator] == [
        "aten::addmm", "aten::addmm", "aten::mul", "aten::add",
    ]  # fmt: skip
    assert mapped.continues.tolist() == [False, True, False, False]
    assert [mapped.shape_texts[at] if at >= 0 else None for at in mapped.shapes] == [
        '"aten::addmm"', '"aten::addmm"', '"aten::mul"', None,
    ]  # fmt: skip
    assert summary(mapped).checked == summary(mapped).calls == summary(mapped).exact_lines == 4
    assert summary(mapped).unmapped == {}


def test_skipped_calls_leave_the_others_their_lines() -> None:
    """A cache that skips the first operator: what is left finds itself by name and size."""
    trace = lean(("elementwise", 14, 4), ("elementwise", 50, 2))
    mapped = apply_map(trace, marks((0, "forward t 0", 5), (40, "after", 5)), mapping_pass())

    assert lines_of(mapped) == [12, 13]
    assert summary(mapped).checked == 2


def test_another_kernel_of_the_same_call_is_mapped_by_place_and_not_exact() -> None:
    """A longer prompt chooses another GEMM kernel: the line is likely, and marked as not checked."""
    trace = lean(("other_gemm", 10, 9), ("splitk_reduce", 12, 8), ("elementwise", 14, 4))
    mapped = apply_map(trace, marks((0, "forward t 0", 1)), mapping_pass())
    exact = [mapped.sources[at].line_exact for at in mapped.source.tolist()]

    assert lines_of(mapped) == [10, 11, 12]
    assert exact == [False, True, True]
    assert (summary(mapped).checked, summary(mapped).by_place, summary(mapped).exact_lines) == (2, 1, 2)


def test_a_denoiser_that_never_ran_in_the_pass_is_unmapped_and_said() -> None:
    """Wan 2.2 switches experts after the steps that the pass has seen."""
    trace = lean(("gemm", 10, 8), ("splitk_reduce", 12, 8))
    mapped = apply_map(trace, marks((0, "forward transformer_2 0", 5)), mapping_pass())

    assert lines_of(mapped) == [None, None]
    assert summary(mapped).unmapped == {"'forward transformer_2 0' was not in the mapping pass": 2}


def test_calls_that_match_nothing_are_unmapped_and_said() -> None:
    """More calls than the pass had, of other names: no line is invented."""
    trace = lean(*(("unheard_of", 10.0 + at, 1) for at in range(9)))
    mapped = apply_map(trace, marks((0, "forward t 0", 1)), mapping_pass())

    assert lines_of(mapped) == [None] * 9
    assert summary(mapped).unmapped == {"'forward t 0' issued other calls than in the mapping pass": 9}


def test_queries_are_no_part_of_the_sequence() -> None:
    """How often the allocator asks for an event's state depends on time, so it must not shift anything."""
    trace = TraceBuilder(thread=1)
    for at, name in ((9, "cudaEventQuery"), (13, "cudaStreamIsCapturing")):
        trace.call(name, at)
    for kernel, at, grid in (("gemm", 10, 8), ("splitk_reduce", 12, 8), ("elementwise", 14, 4)):
        trace.launch(kernel, at, at + 2, 2, grid=(grid, 1, 1))
    mapped = apply_map(trace.build(), marks((0, "forward t 0", 1)), mapping_pass())

    assert [line for line in lines_of(mapped) if line] == [10, 11, 12]
    assert summary(mapped).calls == 3


def test_waiting_calls_are_mapped_too() -> None:
    """A synchronisation launches nothing, and its line is what a user looks for."""

    def recording() -> TraceBuilder:
        trace = TraceBuilder(thread=1)
        trace.launch("gemm", 10, 12, 2)
        trace.call("cudaStreamSynchronize", 20)
        return trace

    lines = LineLog(thread=1, at_ns=np.array([0, 15 * US]), source=np.array([0, 1], np.int32), sources=LINES)
    known = map_sources(recording().build(), marks((0, "after", 0)), lines)
    mapped = apply_map(recording().build(), marks((0, "after", 3)), known)

    assert lines_of(mapped) == [10, 11]


def test_on_a_cpu_operators_are_the_calls() -> None:
    """Where nothing is launched, each operator is matched with itself."""
    trace = TraceBuilder(thread=1)
    trace.operator("aten::mm", 10, 5)
    trace.operator("aten::relu", 20, 5)
    lines = LineLog(thread=1, at_ns=np.array([0, 15 * US]), source=np.array([4, 5], np.int32), sources=LINES)
    known = map_sources(trace.build(), marks((0, "forward t 0", 0)), lines)
    mapped = apply_map(trace.build(), marks((0, "forward t 0", 2)), known)

    assert not known.of_launches
    assert lines_of(mapped) == [14, 15]
    assert known.calls_by_step == {0: 2}


def test_another_name_of_the_thread_costs_nothing() -> None:
    """Recorders that number threads in their own way: the busiest thread is taken."""
    trace = replace(lean(("gemm", 10, 8), ("splitk_reduce", 12, 8), ("elementwise", 14, 4)))
    mapped = apply_map(trace, marks((0, "forward t 0", 1)), replace(mapping_pass(), thread=77))

    assert lines_of(mapped) == [10, 11, 12]


def run_of_two_steps() -> Run:
    return make_run(
        [
            stage("TextEncodingStage", 0, 0, 5),
            stage("TextEncodingStage", 1, 5, 9),
            stage("DenoisingStage", 2, 10, 50),
        ],
        [step(0, 10, 30, stage_index=2), step(1, 30, 50, stage_index=2)],
    )


def test_the_parts_of_a_run_are_named_alike_in_every_step() -> None:
    """Stages are numbered by occurrence, denoiser calls by component and place in the step."""
    found = [(mark.at_ns, mark.label, mark.step) for mark in boundaries(run_of_two_steps())]

    assert found == sorted(found, key=lambda mark: mark[0])
    assert (0, "TextEncodingStage 0", -1) in found
    assert (5, "TextEncodingStage 1", -1) in found
    for index, start in ((0, 10), (1, 30)):
        assert (start, "forward transformer 0", index) in found
        assert (start + 10, "after transformer 0", index) in found


def test_the_last_boundary_at_a_moment_is_the_innermost() -> None:
    """At a step's first forward the part is the forward, not the step or its stage."""
    marks_at_start = [mark.label for mark in boundaries(run_of_two_steps()) if mark.at_ns == 10]

    assert marks_at_start[-1] == "forward transformer 0"
