"""What a step is made of, and where an odd step's time lies."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dumps import stepscope_json
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.step_parts import MARKED_CODE
from stepscope.analyse.run.summarise import summarise
from stepscope.model.recording import CallKind
from stepscope.model.run import Run, Warmup
from stepscope.record.perf_dump import encode_dump
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.report.answer import steps_sentence
from test_assemble import Script

MS = 1_000_000
TRACE = "; a trace (--profile) shows what ran there"
PLACES = ("before", "forward", "forwards", "scheduler", "stepping")


def loop(extra_ms: dict[tuple[int, str], int], *, device: bool = False) -> Run:
    """Six steps of two forwards and a scheduler, some of them longer at a place; then a decoding."""
    script = Script(device=device).call(CallKind.TEXT_ENCODING, MS)
    for index in range(6):
        before, forward, forwards, scheduler, stepping = (
            (1 + extra_ms.get((index, place), 0)) * MS for place in PLACES
        )
        script.wait(before).call(CallKind.FORWARD, 10 * MS + forward, "unet")
        script.wait(forwards).call(CallKind.HOUSEKEEPING, MS, "pipeline")
        script.call(CallKind.FORWARD, 10 * MS, "unet")
        script.wait(scheduler).call(CallKind.SCHEDULER_STEP, stepping, "scheduler")
    return script.wait(5 * MS).call(CallKind.DECODING, MS).run()


def odd(run: Run) -> dict[int, str]:
    """What is said of the odd steps, read back from the dump as it is written."""
    dump = perf_dump_from_json(json.loads(encode_dump(reconcile(run))), origin="x")
    return {step.index: step.outlier for step in summarise(dump).steps if step.outlier}


def test_a_step_is_its_calls_and_the_gaps_between_them() -> None:
    """By name and place; what the pipeline does between two forwards is between them."""
    assert [(part.name, part.duration_ns // MS, part.known) for part in loop({}).steps[1].parts] == [
        ("before unet", 1, False),
        ("unet", 21, True),
        ("pipeline", 1, True),
        ("between unet and unet", 1, False),
        ("between unet and scheduler", 1, False),
        ("scheduler", 1, True),
    ]


@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.sampled_from(PLACES)), st.integers(0, 500), max_size=6),
    st.booleans(),
)
def test_parts_sum_to_the_step(extra_ms: dict[tuple[int, str], int], device: bool) -> None:
    """Nothing is lost and nothing is counted twice, by either clock."""
    for step in loop(extra_ms, device=device).steps:
        assert sum(part.duration_ns for part in step.parts) == step.span.duration_ns


def test_where_the_time_of_a_slow_step_lies_is_said() -> None:
    """In a known call, in a gap, in both; with what would tell more."""
    own = ", in no known call: the pipeline's own code or a callback" + TRACE
    assert odd(loop({(3, "before"): 100})) == {3: "100.0 ms more before unet" + own}
    assert odd(loop({(3, "scheduler"): 40})) == {3: "40.0 ms more between unet and scheduler" + own}
    assert odd(loop({(3, "forward"): 40})) == {3: "40.0 ms more in unet" + TRACE}
    assert odd(loop({(3, "stepping"): 40})) == {3: "40.0 ms more in scheduler" + TRACE}
    both = odd(loop({(3, "before"): 34, (3, "forwards"): 33, (3, "forward"): 32}))
    assert both == {3: "34.0 ms more before unet and 33.0 ms more between unet and unet" + own}


def test_the_first_step_after_a_steady_warm_up_has_a_place_too() -> None:
    """Without a warm-up its cause is what is done once."""
    run = loop({(0, "forward"): 60})
    assert odd(run) == {0: "the first step (compilation, allocation or autotuning)"}
    warm = replace(run, warmup=Warmup(requests=2, steps_each=6, steady=True))
    assert odd(warm) == {0: "the first step, after a steady warm-up: 60.0 ms more in unet" + TRACE}


def test_a_fast_step_has_less_somewhere() -> None:
    """All steps but one are slow: that one is the odd one."""
    run = loop({(index, "forward"): 60 for index in range(6) if index != 3})
    assert odd(run) == {3: "60.0 ms less in unet" + TRACE}


def test_a_dump_without_parts_says_that_it_has_no_cause() -> None:
    """SGLang's, and those of an older stepscope."""
    summary = summarise(perf_dump_from_json(stepscope_json([61.0, 61.0, 173.2, 61.0, 61.0]), origin="x"))
    assert "cause not recorded" in steps_sentence(summary.step_statistics, summary.steps)


def test_a_marked_step_without_a_known_call_is_marked_code() -> None:
    """All of it; a longer one has its time there."""
    script = Script(device=False)
    for index in range(5):
        script.call(CallKind.STEP, (50 if index == 2 else 10) * MS, "step")
    run = script.run()
    assert [part.name for part in run.steps[0].parts] == [MARKED_CODE]
    assert odd(run) == {2: "40.0 ms more in the marked code" + TRACE}
