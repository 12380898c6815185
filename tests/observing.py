"""A call observed as the session does it, with a made-up environment and workload."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from stepscope.model.run import Environment, Run, Workload
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call

ENVIRONMENT = Environment(stepscope="0", python="3", platform="test", host="test")
WORKLOAD = Workload(model="tiny", pipeline_class="test")


def observe(pipeline: Any, call: Callable[[], Any], **options: Any) -> ObservedCall:
    return observe_call(
        pipeline,
        call,
        request_id="test",
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(**options),
    )


def stage_names(run: Run) -> list[str]:
    return [stage.span.name for stage in run.stages]


def slow(function: Callable[..., Any], nap: Callable[[], None]) -> Callable[..., Any]:
    """``function`` with a nap before its first call."""
    once = iter([nap])

    def napping(*args: Any, **kwargs: Any) -> Any:
        next(once, lambda: None)()
        return function(*args, **kwargs)

    return functools.wraps(function)(napping)


def gaps(run: Run) -> list[tuple[int, int]]:
    """Host times (from, to) in ns that are in no stage, between the first stage's start and the last's end.

    A share of the total would say the same until the machine is busy: it may be taken from us anywhere.
    """
    parts = [part for stage in run.stages for part in stage.span.segments]
    between = [(one.host_end_ns, after.host_start_ns) for one, after in itertools.pairwise(parts)]
    return [(start, end) for start, end in between if start != end]
