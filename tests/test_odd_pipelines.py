"""Pipelines that nobody would write, and somebody has: observed or not, the caller gets what it gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import pipelines
from observing import ENVIRONMENT, WORKLOAD, observe
from stepscope.analyse.run.reconcile import reconcile
from stepscope.capture.active import ACTIVE
from stepscope.capture.observer import CallInProgress, Observer
from stepscope.record.run_record import encode_run
from stepscope.session.observe import Observation, ObserveOptions, observing


def session(pipeline: Any) -> AbstractContextManager[Observation]:
    return observing(
        pipeline,
        request_id=str,
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(),
    )


class MadeUpAttributes(pipelines.ToyPipeline):
    """Has every attribute that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class MadeUpComponent(pipelines.ToyPipeline):
    def __init__(self) -> None:
        super().__init__()
        self.magic = MadeUpAttributes()


class Untouchable:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class HoldsUntouchable(pipelines.ToyPipeline):
    def __init__(self) -> None:
        super().__init__()
        self.untouchable = Untouchable()


class RaisingProperties(pipelines.ToyPipeline):
    @property
    def device(self) -> Any:
        raise RuntimeError("no device yet")

    @property
    def components(self) -> Any:
        raise RuntimeError("no components yet")


class Unhashable(pipelines.ToyPipeline):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


@dataclasses.dataclass(slots=True)
class Slotted:
    scheduler: Any = dataclasses.field(default_factory=pipelines.ToyScheduler)
    transformer: Any = dataclasses.field(default_factory=pipelines.ToyDenoiser)
    vae: Any = dataclasses.field(default_factory=pipelines.ToyDecoder)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.transformer = pipelines.ToyDenoiser()

    def __call__(self) -> Any:
        return pipelines.ToyPipeline.__call__(self)  # type: ignore[arg-type]


class LosesItsParts(pipelines.ToyPipeline):
    def __call__(self) -> Any:
        result = super().__call__()
        del self.vae, self.transformer
        return result


class CallsItself(pipelines.ToyPipeline):
    depth = 0

    def __call__(self) -> Any:
        if self.depth < 2:
            self.depth += 1
            self()
        return super().__call__()


@pytest.mark.parametrize(
    "made",
    [
        MadeUpAttributes,
        MadeUpComponent,
        HoldsUntouchable,
        RaisingProperties,
        Unhashable,
        Slotted,
        LosesItsParts,
        CallsItself,
    ],
)
def test_an_odd_pipeline_is_observed_and_unharmed(made: type) -> None:
    """The same result, the steps seen, nothing left on classes; in a block and as one call."""
    steps = 9 if made is CallsItself else 3
    expected = made()()

    call = observe(pipeline := made(), pipeline)
    with session(pipeline := made()) as seen:
        result = pipeline()

    assert torch.equal(call.result, expected)
    assert torch.equal(result, expected)
    assert seen.problems == ()
    for run in (call.run, seen.calls[0].run):
        assert len(run.steps) == steps
        assert encode_run(run)
        assert reconcile(run).coverage is not None
    assert not hasattr(made.__call__, "__wrapped__")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_be_printed_goes_on_as_it_is() -> None:
    """What it says is not ours to need."""
    pipeline = pipelines.ToyPipeline()

    def fail(*_: object) -> None:
        raise Silent

    pipeline.transformer.register_forward_hook(fail)

    assert isinstance(observe(pipeline, pipeline).error, Silent)
    with session(pipeline) as seen, pytest.raises(Silent):
        pipeline()
    assert seen.calls[0].run.incomplete_reason == "Silent (its text cannot be had)"


class Lazy(pipelines.ToyPipeline):
    def __call__(self) -> Iterator[Any]:
        sample = torch.ones(1, 4)
        for step in range(3):
            sample = self.scheduler.step(self.transformer(sample, step), sample)
            yield sample


class Later(pipelines.ToyPipeline):
    async def __call__(self) -> Any:
        return super().__call__()


@pytest.mark.parametrize(("made", "kind"), [(Lazy, "generator"), (Later, "coroutine")])
def test_work_that_is_done_after_the_call_is_said_to_be_missing(
    made: type[pipelines.ToyPipeline], kind: str
) -> None:
    """The call took no time because it did nothing yet."""
    pipeline = made()

    call = observe(pipeline, pipeline)

    call.result.close()
    assert f"the call returned a {kind}: what it does when it is used is not in these times" in (
        call.run.warnings
    )


@pytest.mark.parametrize("broken", ["begin", "finish"])
def test_a_fault_of_the_observer_is_not_the_callers(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The pipeline's result arrives; the fault is in ``problems``; nothing stays active."""
    finish = CallInProgress.finish

    def begin(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    def end(self: CallInProgress, *arguments: Any) -> None:
        finish(self, *arguments)
        raise RuntimeError("a fault of ours")

    if broken == "begin":
        monkeypatch.setattr(Observer, "begin", begin)
    else:
        monkeypatch.setattr(CallInProgress, "finish", end)
    pipeline = pipelines.ToyPipeline()
    with session(pipeline) as seen:
        assert pipeline() is not None

    assert seen.calls == ()
    assert seen.problems == ("RuntimeError: a fault of ours",)
    assert ACTIVE.get() is None
