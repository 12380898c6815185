"""Lines of a user's code, followed while a pipeline runs."""

from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from stepscope.capture.line_watch import LineWatch, module_paths  # noqa: E402
from stepscope.model.source_map import LineLog  # noqa: E402

SOURCE = """
import torch

def scaled(x):
    for part in pieces(x):
        x = x + part
    return x

def pieces(x):
    yield x * 2
    yield x * 3

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        y = self.layers(x)
        return (
            y
            - x
        )

class Failing(torch.nn.Module):
    def forward(self, x):
        raise ValueError
"""


@pytest.fixture
def code(tmp_path: Path) -> Any:
    """A user's file, imported."""
    path = tmp_path / "users_model.py"
    path.write_text(textwrap.dedent(SOURCE))
    module = types.ModuleType("users_model")
    module.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def watched(call: Callable[[], Any], modules: list[tuple[str, Any]] | None = None) -> LineLog:
    watch = LineWatch(modules or [])
    watch.start()
    try:
        call()
    finally:
        log = watch.stop()
    return log


def places(log: LineLog, function: str) -> list[tuple[int, str | None]]:
    """Line and module of each entry in one function, repeats left out."""
    found: list[tuple[int, str | None]] = []
    for index in log.source.tolist():
        line = log.sources[index] if index >= 0 else None
        if line is not None and line.function == function:
            place = (line.line, line.module_path)
            if not found or found[-1] != place:
                found.append(place)
    return found


def line_of(text: str) -> int:
    return 1 + SOURCE.split("\n").index(text)


def test_each_line_of_a_users_file_is_noted_in_order(code: Any) -> None:
    """Lines of a function and of the generator it runs, with rising times; torch is not followed."""
    log = watched(lambda: code.scaled(torch.ones(2)))

    assert [line for line, _ in places(log, "pieces")] == [
        line_of("def pieces(x):"),
        line_of("    yield x * 2"),
        line_of("    yield x * 3"),
    ]
    assert (line_of("        x = x + part"), None) in places(log, "scaled")
    assert (np.diff(log.at_ns) >= 0).all()
    assert {line.file for line in log.sources if line.function == "pieces"} == {code.__file__}
    assert not any("torch/" in line.file for line in log.sources)


def test_a_line_knows_the_module_at_work_below_it(code: Any) -> None:
    """While the line that calls layers is at work, the module changes from block to linear to relu."""
    block = code.Block()
    log = watched(lambda: block(torch.ones(2, 4)), [("transformer", block)])
    at = line_of("        y = self.layers(x)")

    modules = [module for line, module in places(log, "forward") if line == at]
    assert modules == [
        "transformer",
        "transformer.layers",
        "transformer.layers.0",
        "transformer.layers",
        "transformer.layers.1",
        "transformer.layers",
        "transformer",
    ]


def test_a_failing_module_is_left_again(code: Any) -> None:
    """After an exception the next line belongs to no module any more."""
    failing = code.Failing()

    def call() -> None:
        with pytest.raises(ValueError):
            failing(torch.ones(1))
        code.scaled(torch.ones(2))

    log = watched(call, [("unet", failing)])
    assert {module for _, module in places(log, "forward")} == {"unet"}
    assert {module for _, module in places(log, "scaled")} == {None}


def test_a_compiled_function_is_one_inexact_line_and_stays_compiled(code: Any) -> None:
    """Following lines adds no compilation and no graph break; the region is named by its first line."""
    from torch._dynamo.utils import counters

    block = code.Block()
    block.compile(backend="eager", fullgraph=True)
    with torch.inference_mode():
        expected = block(torch.ones(2, 4))
        before = (dict(counters["stats"]), sum(counters["recompiles"].values()))
        results: list[Any] = []
        log = watched(lambda: results.append(block(torch.ones(2, 4))), [("transformer", block)])

    assert (dict(counters["stats"]), sum(counters["recompiles"].values())) == before
    assert torch.equal(results[0], expected)
    region = [line for line in log.sources if line.function == "forward"]
    assert [(line.line, line.line_exact, line.module_path) for line in region] == [
        (line_of("    def forward(self, x):"), False, "transformer")
    ]
    torch._dynamo.reset()


def test_a_debugger_keeps_its_trace_function() -> None:
    """Where somebody follows lines already, the watch refuses and leaves theirs."""

    def theirs(*_: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(theirs)
    try:
        with pytest.raises(RuntimeError, match="debugger or a coverage tool"):
            LineWatch([]).start()
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(before)


def test_nothing_follows_lines_afterwards(code: Any) -> None:
    """The thread's trace function is gone after ``stop``."""
    watched(lambda: code.scaled(torch.ones(2)))

    assert sys.gettrace() is None


def test_paths_leave_out_what_torch_compile_wraps(code: Any) -> None:
    """``torch.compile(module)`` names its inner module ``_orig_mod``: no user knows that word."""
    block = code.Block()
    paths = dict(module_paths([("transformer", torch.compile(block))]))

    assert paths[id(block)] == "transformer"
    assert paths[id(block.layers[0])] == "transformer.layers.0"
