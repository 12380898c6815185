"""The request before the measured one: same shapes, few steps, every stage, until nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from stepscope.capture.state import preserved_state
from stepscope.model.run import Environment, Run, Warmup
from stepscope.session.observe import ObserveOptions, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.describe import describe
from stepscope.workload.request import Loaded


def warm_up(
    loaded: Loaded,
    request: GenerationRequest,
    environment: Environment,
    *,
    steps: int,
    at_most: int,
    about_to_run: Callable[[int, int], None],
    seen: Callable[[Run], None] = lambda _: None,
) -> Warmup:
    """Run ``request`` with ``steps`` steps, again while compilation, tuning or allocator growth is seen.

    The generators are the warm-up's own, and the global random state is put back, so that the measured call
    gives the bits it would have given without. An exception of the pipeline goes on. ``seen`` is given each
    of the runs.

    """
    short = replace(request, steps=steps)
    durations: list[int] = []
    unsteady: tuple[str, ...] = ()
    with preserved_state(loaded.pipeline):
        while True:
            about_to_run(len(durations), at_most)
            arguments = call_arguments(loaded.pipeline, short, loaded.defaults)
            begin = time.perf_counter_ns()
            observed = observe_call(
                loaded.pipeline,
                lambda arguments=arguments: loaded.pipeline(**arguments),  # type: ignore[misc]
                request_id="warm-up",
                workload=describe(loaded, short, arguments),
                environment=environment,
                options=ObserveOptions(own_process=True),
            )
            durations.append(time.perf_counter_ns() - begin)
            if observed.error is not None:
                raise observed.error
            seen(observed.run)
            unsteady = observed.unsteady
            if not unsteady or len(durations) >= at_most:
                break
    last = observed.run.steps[-1] if observed.run.steps else None
    return Warmup(
        requests=len(durations),
        steps_each=steps,
        steady=not unsteady,
        reason="; ".join(unsteady) if unsteady else "nothing that a call does once was seen in the last",
        durations_ns=tuple(durations),
        last_step_ns=None if last is None else last.span.duration_ns,
        last_step_forwards=0 if last is None else len(last.forwards),
    )


def not_warmed_up(reason: str) -> Warmup:
    """What is recorded where there was no warm-up."""
    return Warmup(requests=0, steps_each=0, steady=None, reason=reason)
