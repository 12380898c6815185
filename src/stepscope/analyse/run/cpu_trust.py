"""Was the CPU taken away from a run? Then its host times are also those of whatever else ran."""

from __future__ import annotations

from stepscope.model.run import Run
from stepscope.model.vocabulary import ClockKind

WAITED_SHARE = 0.05
"""Share of the call in which a working thread was ready to run and had no CPU. A wait of w makes what waited
longer by w / (1 - w): at 5 % more than the 2 % in which clocks may disagree, even where only half of the
work was held up, and as much as a regression test is made to find."""

HELD_UP_SHARE = 0.02
"""Share of the call that another call's profiler may take without a word (design, rules of truth 2)."""

OWN_SHARE = 0.9
"""A process that used this share of all CPUs it may use waited for itself: more threads than CPUs. That is
how it was set up, and it would be as slow on an idle machine."""


def cpu_taken_away(run: Run) -> str | None:
    """The share of the call in which the process waited for a CPU, in words; None where that is little."""
    use = run.cpu
    if use is None or use.waited_ns is None or use.wall_ns <= 0:
        return None
    share = use.waited_ns / use.wall_ns
    if share <= WAITED_SHARE or use.cpu_ns >= OWN_SHARE * use.cpus * use.wall_ns:
        return None
    return (
        f"other work took the CPU: for {100 * share:.0f} % of the call a thread was ready and had none "
        f"({use.cpu_ns / 1e6:.0f} ms of CPU time in {use.wall_ns / 1e6:.0f} ms)"
    )


def starved_host(run: Run) -> tuple[str, ...]:
    """Why the numbers of a run on the host's clock cannot be trusted."""
    said = cpu_taken_away(run)
    return (said,) if said is not None and run.clock.kind is ClockKind.HOST else ()


def held_up_by_another_call(run: Run) -> tuple[str, ...]:
    """A profiler that another thread starts or stops stops this one too, on whatever device it works."""
    use = run.cpu
    if use is None or use.wall_ns <= 0 or use.held_up_ns <= HELD_UP_SHARE * use.wall_ns:
        return ()
    return (
        f"another call of this process was at its profiler for {use.held_up_ns / 1e6:,.1f} ms of this one: "
        "what it held up is in these times",
    )


def with_cpu_warning(run: Run) -> tuple[str, ...]:
    """What to know of a run on a device: its own times are right, but a starved host issues work late."""
    said = cpu_taken_away(run)
    if said is None or run.clock.kind is ClockKind.HOST:
        return ()
    return (f"{said}: where the host sets the pace, the device waited with it",)
