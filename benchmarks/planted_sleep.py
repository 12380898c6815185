"""Is time found where it was spent? Real sleeps of 50 ms are planted in a real pipeline on the CPU.

    python benchmarks/planted_sleep.py [--rounds 7]

tiny/qwen-image, 12 steps; plain calls and calls with one sleep take turns. For each place: by how much the
medians of all stages and steps differ from the plain ones'. Ends with 1 if the sleep is not where it was
planted, to a fifth of it, or if anything else has moved by more than that (other work on the machine does).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from stepscope.capture.environment import read_environment
from stepscope.model.run import Workload
from stepscope.session.observe import ObserveOptions, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.request import Loaded, LoadFormat, LoadRequest

SLEEP_MS, STEPS, STEP = 50.0, 12, 7
TOLERANCE_MS = SLEEP_MS / 5

Times = dict[str, float]  # milliseconds by stage or step


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sleep is put, and the rows that must show it, with how much."""

    name: str
    plant: Callable[[Any], contextlib.AbstractContextManager[Any]]
    expected: dict[str, float]


def sleeping_before(function: Callable[..., Any], calls: Callable[[int], bool]) -> Callable[..., Any]:
    """``function``, with a sleep before those of its calls for which ``calls`` is true."""
    count = iter(range(1_000_000))

    @functools.wraps(function)
    def sleeping(*args: Any, **kwargs: Any) -> Any:
        if calls(next(count)):
            time.sleep(SLEEP_MS / 1e3)
        return function(*args, **kwargs)

    return sleeping


def in_method(component: str, method: str, calls: Callable[[int], bool]) -> Callable[[Any], Any]:
    """A sleep in a method of a component's class."""

    def plant(pipeline: Any) -> Any:
        owner = type(getattr(pipeline, component))
        return mock.patch.object(owner, method, sleeping_before(getattr(owner, method), calls))

    return plant


def between_stages(pipeline: Any) -> Any:
    """A sleep in the pipeline's own code, after encoding and before the timesteps are set."""
    module = sys.modules[type(pipeline).__module__]
    return mock.patch.object(module, "calculate_shift", sleeping_before(module.calculate_shift, once))


def in_callback(pipeline: Any) -> Any:
    """A sleep in the user's callback at the end of iteration 2."""
    call = type(pipeline).__call__

    def with_callback(*args: Any, **kwargs: Any) -> Any:
        def callback(_pipeline: Any, index: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
            if index == 2:
                time.sleep(SLEEP_MS / 1e3)
            return values

        return call(*args, **{**kwargs, "callback_on_step_end": callback})

    return mock.patch.object(type(pipeline), "__call__", functools.wraps(call)(with_callback))


def once(index: int) -> bool:
    return index == 0


DENOISING = "DenoisingStage"
PLACES = (
    Place(
        name="every scheduler.step",
        plant=in_method("scheduler", "step", lambda _: True),
        expected={DENOISING: SLEEP_MS * STEPS, **{f"step {step}": SLEEP_MS for step in range(STEPS)}},
    ),
    Place(
        name="text encoding",
        plant=in_method("text_encoder", "forward", once),
        expected={"TextEncodingStage": SLEEP_MS},
    ),
    Place(name="between stages", plant=between_stages, expected={"TimestepPreparationStage": SLEEP_MS}),
    Place(
        name=f"one forward of step {STEP}",
        plant=in_method("transformer", "forward", lambda index: index == 2 * STEP),
        expected={DENOISING: SLEEP_MS, f"step {STEP}": SLEEP_MS},
    ),
    Place(name="vae.decode", plant=in_method("vae", "decode", once), expected={"DecodingStage": SLEEP_MS}),
    Place(
        name="callback after step 2",
        plant=in_callback,
        expected={DENOISING: SLEEP_MS, "step 2": SLEEP_MS},
    ),
)


def times(loaded: Loaded) -> Times:
    """Every stage's and step's milliseconds of one observed call."""
    request = GenerationRequest(
        prompt="a red cube", negative_prompt="blurry", true_cfg_scale=4.0, seed=0, steps=STEPS
    )
    arguments = call_arguments(loaded.pipeline, request, loaded.defaults)
    call = observe_call(
        loaded.pipeline,
        lambda: loaded.pipeline(**arguments),
        request_id="planted",
        workload=Workload(model=loaded.model, pipeline_class=type(loaded.pipeline).__name__),
        environment=read_environment(None),
        options=ObserveOptions(own_process=True),
    )
    if call.error is not None:
        raise call.error
    steps = {f"step {step.index}": step.span.duration_ns / 1e6 for step in call.run.steps}
    return {stage.span.name: stage.span.duration_ns / 1e6 for stage in call.run.stages} | steps


def measured(loaded: Loaded, rounds: int) -> Iterator[tuple[Place, Times]]:
    """For each place the median differences to the plain calls, everything having taken turns."""
    plain: list[Times] = []
    planted: dict[str, list[Times]] = {place.name: [] for place in PLACES}
    for _ in range(rounds):
        plain.append(times(loaded))
        for place in PLACES:
            with place.plant(loaded.pipeline):
                planted[place.name].append(times(loaded))
    for place in PLACES:
        yield (
            place,
            {
                row: statistics.median(one[row] for one in planted[place.name])
                - statistics.median(one[row] for one in plain)
                for row in plain[0]
            },
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    loaded = load(LoadRequest(model="tiny/qwen-image", load_format=LoadFormat.DUMMY))
    loaded.pipeline.set_progress_bar_config(disable=True)
    times(loaded)
    wrong = 0
    for place, differences in measured(loaded, arguments.rounds):
        planted = {row: differences[row] for row in place.expected}
        others = {row: value for row, value in differences.items() if row not in place.expected}
        row, most = max(others.items(), key=lambda one: abs(one[1]))
        missed = [
            row for row, ms in planted.items() if abs(ms - place.expected[row]) > place.expected[row] / 5
        ]
        wrong += bool(missed) or abs(most) > TOLERANCE_MS
        shown = ", ".join(f"{row} {ms:+.1f}" for row, ms in list(planted.items())[:3])
        print(
            f"{place.name:24} {shown}{' ...' if len(planted) > 3 else ''}; most elsewhere: {row} {most:+.1f}"
        )
        if missed:
            print(f"  not as planted: {', '.join(f'{row} {planted[row]:+.1f}' for row in missed)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
