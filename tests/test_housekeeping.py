"""Known calls without a stage of their own: device look-ups, hooks let go, latents packed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pipelines
from observing import ENVIRONMENT, WORKLOAD, observe, slow, stage_names
from stepscope.analyse.run.assemble import assemble
from stepscope.analyse.run.timeline import cut
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.capture.wrapping import Wrappers, installed_count
from stepscope.model.recording import CallKind, Edge, Moment, Recording
from stepscope.model.run import Clock, ThreeEnds
from stepscope.model.vocabulary import ClockKind


def recording(*edges: tuple[int, CallKind, bool, str | None]) -> Recording:
    return Recording(
        clock=Clock(kind=ClockKind.HOST, self_test=""),
        start=Moment(0),
        end=Moment(100),
        ends=ThreeEnds(start_ns=0, returned_ns=100, device_done_ns=100),
        edges=tuple(
            Edge(kind=kind, entering=entering, at=Moment(at), component="x", stage=stage)
            for at, kind, entering, stage in edges
        ),
    )


HOUSEKEEPING = CallKind.HOUSEKEEPING


def test_between_two_calls_it_belongs_to_the_next_stage_and_is_not_inferred() -> None:
    """Time in it is known; the rest of the gap around it is inferred."""
    pieces = cut(
        recording(
            (0, CallKind.TEXT_ENCODING, True, "TextEncodingStage"),
            (10, CallKind.TEXT_ENCODING, False, "TextEncodingStage"),
            (20, HOUSEKEEPING, True, None),
            (50, HOUSEKEEPING, False, None),
            (60, CallKind.FORWARD, True, "DenoisingStage"),
            (100, CallKind.FORWARD, False, "DenoisingStage"),
        )
    )

    assert [(piece.stage, piece.duration_ns, piece.inferred) for piece in pieces] == [
        ("TextEncodingStage", 10, False),
        ("DenoisingStage", 10, True),
        ("DenoisingStage", 30, False),
        ("DenoisingStage", 10, True),
        ("DenoisingStage", 40, False),
    ]


def test_inside_a_call_it_belongs_to_that_call() -> None:
    """Looking up the device while a prompt is encoded is part of text encoding."""
    pieces = cut(
        recording(
            (0, CallKind.TEXT_ENCODING, True, "TextEncodingStage"),
            (20, HOUSEKEEPING, True, None),
            (50, HOUSEKEEPING, False, None),
            (100, CallKind.TEXT_ENCODING, False, "TextEncodingStage"),
        )
    )

    assert {piece.stage for piece in pieces} == {"TextEncodingStage"}
    assert not any(piece.inferred for piece in pieces)


def test_spans_carry_the_stream_of_the_call() -> None:
    """The stream that was current when the call began; None on the host."""
    seen = recording(
        (0, CallKind.FORWARD, True, "DenoisingStage"), (100, CallKind.FORWARD, False, "DenoisingStage")
    )

    for stream in (3, None):
        run = assemble(
            replace(seen, stream=stream), request_id="x", workload=WORKLOAD, environment=ENVIRONMENT
        )
        spans = [run.stages[0].span, run.steps[0].span, run.steps[0].forwards[0].span]
        assert [span.stream for span in spans] == [stream] * 3


def test_a_slow_device_look_up_is_known_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property of the pipeline is watched too; its time is in the stage that follows, not inferred."""
    sd = pipelines.stable_diffusion()
    device = FakeDevice()
    plain = type(sd)._execution_device
    monkeypatch.setattr(type(sd), "_execution_device", property(slow(plain.fget, lambda: device.work(50))))

    def call() -> Any:
        sd.scheduler.set_timesteps(2)  # something is known before the look-up
        return sd._execution_device

    run = observe(sd, call, clock=FakeDeviceClock(device)).run

    (stage,) = [stage for stage in run.stages if stage.span.duration_ns]
    assert stage.span.duration_ns == 50_000_000
    assert stage.inferred_ns == 0


def test_it_makes_no_stage_of_its_own() -> None:
    """Stages are the same whether or not helpers are called between them."""
    flux = pipelines.flux()

    names = stage_names(observe(flux, lambda: pipelines.flux_call(flux)).run)

    assert len(names) == len(set(names)) == 7


def test_a_property_is_wrapped_and_restored() -> None:
    """Its getter is seen, setting still works, and the class gets the same object back."""

    class Base:
        @property
        def device(self) -> str:
            """Where."""
            return "cpu"

    class Own(Base):
        kept = 0

        @property
        def value(self) -> int:
            return self.kept

        @value.setter
        def value(self, value: int) -> None:
            self.kept = value

    before = vars(Own)["value"]
    seen: list[str] = []

    def make(original: Any, name: str) -> Any:
        def getter(self: Any) -> Any:
            seen.append(name)
            return original(self)

        return getter

    wrappers = Wrappers()
    wrappers.wrap(Own, "value", make)
    wrappers.wrap(Own, "device", make)
    own = Own()
    own.value = 3

    assert (own.value, own.device, Own.device.__doc__) == (3, "cpu", "Where.")
    assert seen == ["value", "device"]
    wrappers.remove()
    assert vars(Own)["value"] is before
    assert "device" not in vars(Own)
    assert installed_count() == 0
