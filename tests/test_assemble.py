"""Assembling runs: nothing lost, every gap owned, steps that tile their stages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.run.assemble import assemble
from stepscope.model.recording import STAGE_OF, CallKind, Edge, Moment, Move, Recording
from stepscope.model.run import Clock, Environment, Pause, Run, ThreeEnds, Workload
from stepscope.model.vocabulary import ClockKind, CopyKind


@dataclass
class Script:
    """Writes a recording by hand: the device is always as far as the host, at a tenth of its speed."""

    at: int = 1000
    edges: list[Edge] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    device: bool = True

    def moment(self) -> Moment:
        return Moment(self.at, self.at * 10 if self.device else None)

    def wait(self, ns: int) -> Script:
        self.at += ns
        return self

    def enter(self, kind: CallKind, component: str = "part") -> Script:
        stage = STAGE_OF.get(kind)
        edge = Edge(
            kind=kind,
            entering=True,
            at=self.moment(),
            component=component,
            stage=stage.value if stage else None,
        )
        self.edges.append(edge)
        return self

    def leave(self, kind: CallKind, component: str = "part", move: Move | None = None) -> Script:
        stage = STAGE_OF.get(kind)
        edge = Edge(
            kind=kind,
            entering=False,
            at=self.moment(),
            component=component,
            stage=stage.value if stage else None,
            move=move,
        )
        self.edges.append(edge)
        return self

    def call(self, kind: CallKind, ns: int, component: str = "part") -> Script:
        return self.enter(kind, component).wait(ns).leave(kind, component)

    def pause(self, ns: int) -> Script:
        self.pauses.append(Pause(reason="test", host_start_ns=self.at, host_end_ns=self.at + ns))
        return self.call(CallKind.PAUSE, ns)

    def recording(self) -> Recording:
        return Recording(
            clock=Clock(kind=ClockKind.DEVICE_EVENTS if self.device else ClockKind.HOST, self_test="none"),
            start=Moment(1000, 10000 if self.device else None),
            end=self.moment(),
            ends=ThreeEnds(start_ns=1000, returned_ns=self.at, device_done_ns=self.at),
            edges=tuple(self.edges),
            pauses=tuple(self.pauses),
        )

    def run(self) -> Run:
        return assemble(
            self.recording(),
            request_id="test",
            workload=Workload(model="m", pipeline_class="c"),
            environment=Environment(stepscope="0", python="3", platform="p", host="h"),
        )


def loop(script: Script, steps: int, forwards: int = 1, scheduler_steps: int = 1) -> Script:
    for _ in range(steps):
        for _ in range(forwards):
            script.call(CallKind.FORWARD, 10).wait(1)
        for _ in range(scheduler_steps):
            script.call(CallKind.SCHEDULER_STEP, 2).wait(1)
    return script


def shape(run: Run) -> list[tuple[str, int, int]]:
    return [(stage.span.name, stage.span.host_ns, stage.inferred_ns) for stage in run.stages]


def test_gaps_belong_to_the_next_known_call() -> None:
    """Before the first call InputValidation, after the last Postprocessing, between the next one's stage."""
    script = Script(device=False).wait(5).call(CallKind.TEXT_ENCODING, 100).wait(7)
    script = script.call(CallKind.LATENTS, 10).wait(3)

    assert shape(script.run()) == [
        ("InputValidationStage", 5, 5),
        ("TextEncodingStage", 100, 0),
        ("LatentPreparationStage", 17, 7),
        ("PostprocessingStage", 3, 3),
    ]


def test_nested_time_belongs_to_the_innermost_stage() -> None:
    """An encode inside the preparation of latents is its own stage, and the preparation goes on after it."""
    script = Script(device=False).enter(CallKind.LATENTS).wait(4)
    script = script.call(CallKind.VAE_ENCODING, 50).wait(6).leave(CallKind.LATENTS)

    assert shape(script.run()) == [
        ("LatentPreparationStage", 4, 0),
        ("ImageVAEEncodingStage", 50, 0),
        ("LatentPreparationStage", 6, 0),
    ]


def test_a_stage_that_occurs_twice_is_two_occurrences() -> None:
    """A prior and a decoder denoise; step numbers run on and ``stage_index`` tells them apart."""
    script = loop(Script().call(CallKind.TIMESTEPS, 1), 3).call(CallKind.TIMESTEPS, 1)
    run = loop(script, 2).call(CallKind.DECODING, 9).run()

    assert [step.index for step in run.steps] == [0, 1, 2, 3, 4]
    assert [run.stages[step.stage_index].span.name for step in run.steps] == ["DenoisingStage"] * 5
    assert len({step.stage_index for step in run.steps}) == 2


def test_one_iteration_with_two_schedulers_is_one_step() -> None:
    """Audio and video step in turn: two scheduler calls, one step."""
    run = loop(Script(), 3, forwards=2, scheduler_steps=2).call(CallKind.DECODING, 1).run()

    assert [(len(step.forwards), step.scheduler_calls) for step in run.steps] == [(2, 2)] * 3


def test_a_preview_decoded_in_the_loop_ends_the_step_before_it() -> None:
    """A decode between two steps is DecodingStage, not part of either step."""
    script = loop(Script(device=False), 1).call(CallKind.DECODING, 500)
    run = loop(script, 1).run()

    assert len(run.steps) == 2
    assert all(step.span.duration_ns < 50 for step in run.steps)
    assert sum(s.span.duration_ns for s in run.stages if s.span.name == "DecodingStage") == 501


def test_an_encode_inside_an_iteration_does_not_end_the_step() -> None:
    """Without a scheduler step before it, another stage inside an iteration only interrupts the step."""
    script = Script(device=False).call(CallKind.FORWARD, 10).call(CallKind.VAE_ENCODING, 100)
    run = script.call(CallKind.FORWARD, 10).call(CallKind.SCHEDULER_STEP, 2).run()

    assert [(step.span.duration_ns, len(step.forwards)) for step in run.steps] == [(22, 2)]


def test_a_controlnet_begins_the_step_it_conditions() -> None:
    """A conditioner after a scheduler step belongs to the next step."""
    script = Script(device=False)
    for _ in range(2):
        script.call(CallKind.CONDITIONER, 5).call(CallKind.FORWARD, 10).call(CallKind.SCHEDULER_STEP, 1)

    assert [step.span.duration_ns for step in script.run().steps] == [16, 16]


def test_a_transfer_is_no_part_of_the_stage_its_hook_ran_in() -> None:
    """Its time is cut out of forward, step and stage, and summed by component and direction."""
    move = Move(kind=CopyKind.HOST_TO_DEVICE, bytes=64, pinned=False)
    script = Script(device=False)
    for _ in range(2):
        script.enter(CallKind.FORWARD, "transformer").wait(3)
        script.enter(CallKind.TRANSFER).wait(100).leave(CallKind.TRANSFER, "transformer", move)
        script.wait(4).leave(CallKind.FORWARD, "transformer").call(CallKind.SCHEDULER_STEP, 1)
    run = script.run()

    assert [step.span.duration_ns for step in run.steps] == [8, 8]
    assert [forward.span.duration_ns for step in run.steps for forward in step.forwards] == [7, 7]
    assert run.stages[0].span.duration_ns == 16
    (transfer,) = run.transfers
    assert (transfer.component, transfer.count, transfer.bytes) == ("transformer", 2, 128)
    assert (transfer.duration_ns, transfer.exposed_ns, transfer.stage_index) == (200, 200, 0)


def test_a_transfer_on_its_own_stream_is_exposed_only_where_the_computing_stream_waited() -> None:
    """The hook's stream gives the duration, the computing stream what of it was exposed."""
    move = Move(kind=CopyKind.HOST_TO_DEVICE, bytes=64, pinned=True, stream_ns=5000)
    script = Script(device=False).enter(CallKind.FORWARD).enter(CallKind.TRANSFER).wait(7)
    run = script.leave(CallKind.TRANSFER, "part", move).leave(CallKind.FORWARD).run()

    assert (run.transfers[0].duration_ns, run.transfers[0].exposed_ns) == (5000, 7)


def test_a_pause_is_in_nothing() -> None:
    """A profiler's start in the middle of a stage cuts its span and is left out of the total."""
    script = Script(device=False).wait(5).call(CallKind.TIMESTEPS, 1).wait(3).pause(1000)
    run = loop(script, 2).run()

    stage = run.stages[-2]
    assert stage.span.name == "DenoisingStage"
    assert len(stage.span.segments) == 2
    assert run.total_ns == sum(stage.span.duration_ns for stage in run.stages)
    assert [step.span.duration_ns for step in run.steps] == [16, 14]


def test_device_times_out_of_order_never_make_a_negative_span() -> None:
    """A mark taken on a side stream may lie before its neighbour: it is held at it."""
    script = Script().call(CallKind.FORWARD, 10)
    script.edges.append(Edge(kind=CallKind.DECODING, entering=True, at=Moment(1011, 0), component="vae"))
    script.edges.append(Edge(kind=CallKind.DECODING, entering=False, at=Moment(1012, 5), component="vae"))
    script.at = 1012

    assert all(segment.duration_ns >= 0 for stage in script.run().stages for segment in stage.span.segments)


NESTED = [
    CallKind.TEXT_ENCODING,
    CallKind.LATENTS,
    CallKind.VAE_ENCODING,
    CallKind.FORWARD,
    CallKind.SCHEDULER_STEP,
    CallKind.DECODING,
    CallKind.PIPELINE,
    CallKind.CONDITIONER,
    CallKind.TRANSFER,
    CallKind.POSTPROCESSING,
    CallKind.PAUSE,
]


@dataclass
class Node:
    kind: CallKind
    before: int
    after: int
    inner: list[Node]


nodes = st.recursive(
    st.builds(Node, st.sampled_from(NESTED), st.integers(0, 9), st.integers(0, 9), st.just([])),
    lambda inner: st.builds(
        Node,
        st.sampled_from(NESTED[:-1]),
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(inner, max_size=4),
    ),
    max_leaves=25,
)


def play(script: Script, node: Node) -> None:
    script.wait(node.before)
    begin = script.at
    script.enter(node.kind)
    for inner in node.inner:
        play(script, inner)
    script.wait(node.after)
    script.leave(node.kind, move=Move(kind=CopyKind.HOST_TO_DEVICE, bytes=1, pinned=None))
    if node.kind is CallKind.PAUSE:
        script.pauses.append(Pause(reason="test", host_start_ns=begin, host_end_ns=script.at))


@given(st.lists(nodes, max_size=12), st.integers(0, 9), st.booleans())
def test_nothing_is_lost(tree: list[Node], tail: int, device: bool) -> None:
    """Stages, transfers and pauses sum to the whole, on both clocks; steps tile the denoising stages."""
    script = Script(device=device)
    for node in tree:
        play(script, node)
    run = script.wait(tail).run()

    whole = script.at - 1000
    exposed = sum(transfer.exposed_ns or 0 for transfer in run.transfers) // (10 if device else 1)
    pauses = sum(pause.duration_ns for pause in run.pauses)
    stages = sum(stage.span.host_ns for stage in run.stages)
    assert stages + exposed + pauses == whole
    assert run.total_ns == whole - pauses
    if device:
        assert sum(stage.span.duration_ns for stage in run.stages) == 10 * stages
    assert [step.index for step in run.steps] == list(range(len(run.steps)))
    assert [stage.stage_index for stage in run.stages] == list(range(len(run.stages)))
    denoising = sum(s.span.duration_ns for s in run.stages if s.span.name == "DenoisingStage")
    assert sum(step.span.duration_ns for step in run.steps) == denoising
    for stage in run.stages:
        assert 0 <= stage.inferred_ns <= stage.span.duration_ns
        assert sum(call.duration_ns for call in stage.calls) == stage.span.duration_ns - stage.inferred_ns


@given(st.lists(nodes, max_size=12))
def test_steps_never_overlap(tree: list[Node]) -> None:
    """The segments of all steps, in order, follow each other; each forward lies inside its step."""
    script = Script()
    for node in tree:
        play(script, node)
    run = script.run()

    segments = [segment for step in run.steps for segment in step.span.segments]
    for earlier, later in itertools.pairwise(segments):
        assert earlier.host_end_ns <= later.host_start_ns
    for step in run.steps:
        inside = sum(forward.span.duration_ns for forward in step.forwards)
        assert inside <= step.span.duration_ns
