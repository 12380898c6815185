"""What ``pytest --stepscope`` does around each test. Imported only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepscope.integrations.limits import (
    Limit,
    Verdict,
    memory_limit,
    no_sync_in_loop,
    stage_limit,
    step_limit,
)
from stepscope.model.errors import UsageError
from stepscope.render.units import counted
from stepscope.session.profile import ProfileSession, profile
from stepscope.session.profiled_call import ProfiledCall

TRACED_STEPS = 5
SHOWN_TESTS = 20
LIMITS: tuple[tuple[str, Callable[..., Limit]], ...] = (
    ("limit_step_ms", step_limit),
    ("limit_stage_ms", stage_limit),
    ("limit_peak_memory_mb", memory_limit),
    ("no_sync_in_loop", no_sync_in_loop),
)
"""Each mark and what makes a limit of it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One test that called pipelines."""

    name: str
    calls: tuple[ProfiledCall, ...]


class StepscopeWarning(pytest.PytestWarning):
    """A limit that could not be checked, or a measurement that could not be made."""


@dataclass(slots=True)
class Observing:
    """Observes each test and checks its limits."""

    folder: Path | None = None
    seen: list[_Seen] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Observe the test's own call; a limit that is broken fails a test that passed."""
        limits = [limit for name, make in LIMITS for limit in _limits_of(item, name, make)]
        traced = any(True for _ in item.iter_markers("no_sync_in_loop"))
        session = profile(steps=TRACED_STEPS if traced else None)
        session.start()
        try:
            result = yield
        finally:
            session.stop()
            self._note(item, session)
        _check(item, session, limits)
        return result

    def _note(self, item: pytest.Item, session: ProfileSession) -> None:
        for problem in session.problems:
            item.warn(StepscopeWarning(problem))
        if not session.calls:
            return
        self.seen.append(_Seen(item.nodeid, session.calls))
        if self.folder is not None:
            session.save(self.folder / _file_name(item.nodeid))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line a test, the slowest first."""
        if not self.seen:
            return
        terminalreporter.section("stepscope: pipeline calls")
        slowest = sorted(self.seen, key=lambda one: -max(call.total_ms for call in one.calls))
        for one in slowest[:SHOWN_TESTS]:
            terminalreporter.write_line(_line(one))
        if len(slowest) > SHOWN_TESTS:
            terminalreporter.write_line(f"and {len(slowest) - SHOWN_TESTS} more tests")
        if self.folder is not None:
            terminalreporter.write_line(f"Saved runs to: {self.folder.absolute()}")


def _check(item: pytest.Item, session: ProfileSession, limits: list[Limit]) -> None:
    if limits and not session.calls:
        item.warn(StepscopeWarning("the test has limits but no pipeline call was seen in it"))
    verdicts: list[Verdict] = [
        verdict for call in session.calls for limit in limits for verdict in limit(call)
    ]
    for text in dict.fromkeys(verdict.unchecked for verdict in verdicts if verdict.unchecked):
        item.warn(StepscopeWarning(f"not checked: {text}"))
    broken = [verdict.broken for verdict in verdicts if verdict.broken]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def _limits_of(item: pytest.Item, name: str, make: Callable[..., Limit]) -> Iterator[Limit]:
    for mark in item.iter_markers(name):
        yield _limit(name, make, mark)


def _limit(name: str, make: Callable[..., Limit], mark: pytest.Mark) -> Limit:
    try:
        return make(*mark.args, **mark.kwargs)
    except (TypeError, UsageError) as error:  # of the arguments
        said = str(error)
    pytest.fail(f"@pytest.mark.{name}: {said}", pytrace=False)


def _line(seen: _Seen) -> str:
    slowest = max(seen.calls, key=lambda call: call.total_ms)
    calls = f"{len(seen.calls)} calls, the slowest " if len(seen.calls) > 1 else ""
    steps = f", {counted(len(slowest.steps_ms), 'step')}" if slowest.steps_ms else ""
    memory = "" if slowest.peak_memory_mb is None else f", peak {slowest.peak_memory_mb:,.0f} MiB"
    trust = "" if slowest.trusted else ", UNTRUSTED"
    return f"{seen.name}: {calls}{slowest.total_ms:,.1f} ms{steps}{memory}{trust}"


def _file_name(node: str) -> str:
    """A test's id as one name that any file system takes."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in node)[-150:]
