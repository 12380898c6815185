"""Encoding and decoding that a run repeats between denoising steps is found, with what it costs."""

from __future__ import annotations

from typing import Any

import pytest

import stepscope
from dumps import sglang_json, stepscope_json
from pipelines import sd, stable_diffusion
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.results import Finding
from stepscope.analyse.run.in_loop import IN_LOOP_IDS
from stepscope.analyse.run.summarise import summarise
from stepscope.model.budget import Budget, Budgets, GateRules
from stepscope.record.perf_dump_reader import perf_dump_from_json

ALONE = ("TextEncodingStage", "TimestepPreparationStage", "DenoisingStage")


def findings(*stages: str, each_ms: float = 10.0, steps: int = 6) -> list[Finding]:
    """Of a run of these stages, denoising of 100 ms each."""
    times = [(name, 100.0 if name == "DenoisingStage" else each_ms) for name in stages]
    document = stepscope_json([20.0] * steps, total_ms=sum(ms for _, ms in times))
    document["stages"] = [
        {"name": name, "stage_index": index, "duration_ms": ms} for index, (name, ms) in enumerate(times)
    ]
    return [
        one
        for one in summarise(perf_dump_from_json(document, origin="x")).findings
        if one.id.startswith("loop.")
    ]


def test_encoding_between_steps_is_told_with_its_cost() -> None:
    """How often, how long each and what share of the call; and what to do."""
    [found] = findings(*ALONE, *("TextEncodingStage", "DenoisingStage") * 3, "DecodingStage")
    assert (found.id, found.cost_ms) == ("loop.encoding", pytest.approx(30.0))
    assert found.title == "TextEncodingStage runs again between denoising steps"
    assert found.evidence == "it ran 3 times between the 6 steps, 10.0 ms each: 6.5 % of the call"
    assert "belongs before the loop" in found.remedy


def test_previews_are_told_with_their_cost() -> None:
    """The last decoding, after the loop, is not among them."""
    [found] = findings(*ALONE, *("DecodingStage", "DenoisingStage") * 4, "DecodingStage")
    assert (found.id, found.cost_ms) == ("loop.decoding", pytest.approx(40.0))


@pytest.mark.parametrize(
    "stages",
    [
        (*ALONE, "DecodingStage"),
        (*ALONE, *ALONE, *ALONE, "DecodingStage"),  # a loop each: several prompts, chunks, cascades
        (*ALONE, "TextEncodingStage", "DenoisingStage", "DecodingStage"),  # once: another prompt half-way
        ("DenoisingStage",),
        (),
    ],
)
def test_what_belongs_before_or_after_a_loop_is_nothing_to_tell(stages: tuple[str, ...]) -> None:
    """Neither several loops nor a change of the prompt half-way is a repetition."""
    assert findings(*stages) == []


def test_what_costs_next_to_nothing_is_not_told() -> None:
    """Below what a run may be off, nobody could measure what it wins."""
    assert findings(*ALONE, *("TextEncodingStage", "DenoisingStage") * 3, each_ms=2.0) == []


def test_a_callback_that_encodes_the_prompt_in_every_step_is_found() -> None:
    """A real pipeline under observation."""
    pipe = stable_diffusion()

    def encode(pipeline: Any, _index: int, _timestep: Any, tensors: Any) -> Any:
        for _ in range(5):  # so that it is a share worth telling on any machine
            pipeline.encode_prompt("a cat", "cpu", 1, True)
        return tensors

    with stepscope.profile(pipe) as session:
        sd(pipe, steps=5, callback_on_step_end=encode)
    [found] = [one for one in summarise(session.calls[0].dump).findings if one.id in IN_LOOP_IDS]
    assert found.id == "loop.encoding"
    assert "it ran 4 times between the 5 steps" in found.evidence


def test_a_gate_can_forbid_it() -> None:
    """By id; and a dump without the order of stages cannot answer."""
    rules = Budgets(default=Budget(), rules=GateRules(forbid_findings=("loop.encoding",)))
    for document, kept in ((stepscope_json([20.0] * 6), "passed"), (sglang_json([20.0] * 6), "failed")):
        summary = summarise(perf_dump_from_json(document, origin="x"))
        checks = {check.name: check.outcome.value for check in gate(summary, rules).checks}
        assert checks["no loop.encoding"] == kept
