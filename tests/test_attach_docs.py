"""docs/attach.md: its examples run, with a tiny pipeline for the one they name; its commands parse."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
import programs
import stepscope
from stepscope.cli import build_parser

DOCS = (Path(__file__).parent.parent / "docs" / "attach.md").read_text(encoding="utf-8")
MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"
PYTHON = re.findall(r"```python ?(\S*)\n(.*?)```", DOCS, re.DOTALL)
COMMANDS = [line for body in re.findall(r"```sh\n(.*?)```", DOCS, re.DOTALL) for line in body.splitlines()]


def example(beginning: str) -> str:
    """The Python example that has this text."""
    return next(body for _, body in PYTHON if beginning in body)


@pytest.fixture(scope="module")
def pipe() -> Any:
    return pipelines.stable_diffusion()


def test_the_script_in_the_style_of_diffusers_docs_gives_the_same_pictures(pipe: Any, tmp_path: Path) -> None:
    """Loaded from a folder with from_pretrained, run as the docs run it, alone and observed."""
    pipe.save_pretrained(tmp_path / "tiny")
    script = example("from_pretrained").replace(MODEL, "tiny")
    (tmp_path / "my_script.py").write_text(script.replace("steps=20", "steps=2, height=32, width=32"))
    [command] = [line for line in COMMANDS if "--call 1" in line]
    _, _, *words = shlex.split(command)

    def hashes() -> list[str]:
        return [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("cat.png", "dog.png")]

    assert programs.python(["my_script.py", "cat", "dog"], tmp_path).status == 0
    alone = hashes()
    under = programs.run(words, tmp_path)

    assert under.status == 0, under.err
    assert hashes() == alone
    assert "2 pipeline calls observed" in under.err
    assert "tiny (as the program loaded it)" in under.err
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_the_library_example_runs(pipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attribute that it names is there."""
    monkeypatch.chdir(tmp_path)
    body = example("steps=5").replace("num_inference_steps=20", "num_inference_steps=3, height=32, width=32")
    names: dict[str, Any] = {"pipe": pipe}
    exec(body, names)

    assert (tmp_path / "runs" / "a" / "run.json").exists()
    assert len(names["call"].steps_ms) == 3


def test_the_node_graph_example_runs(pipe: Any) -> None:
    """One call a prompt with the three stages and eight steps."""

    class Graph:
        encode = staticmethod(lambda prompt: np.ones(4))
        sample = staticmethod(lambda latents, index: latents * 0.9)
        decode = staticmethod(lambda latents: latents)

    names: dict[str, Any] = {}
    exec(example("KSampler"), names)
    with stepscope.profile() as session:
        names["execute"](Graph(), "a cat")
    [call] = session.calls

    assert len(call.steps_ms) == 8
    assert {"LoadAndEncode", "KSampler", "VAEDecode"} <= set(call.stages_ms)


def test_the_server_example_runs(pipe: Any) -> None:
    """Requests between start and stop are in its answer."""
    testclient = pytest.importorskip("fastapi.testclient")
    names: dict[str, Any] = {"pipe": lambda *a, **k: None}
    names["pipe"] = pipe
    exec(example("FastAPI"), names)
    client = testclient.TestClient(names["app"])
    client.post("/profile/start").raise_for_status()
    client.get("/generate", params={"prompt": "a cat", "steps": 2}).raise_for_status()
    [record] = client.post("/profile/stop").json()

    assert len(record["steps"]) == 2


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("stepscope ")])
def test_every_command_line_in_the_docs_parses(line: str) -> None:
    """Its flags exist."""
    build_parser().parse_args(shlex.split(line)[1:])


def test_the_marks_in_the_docs_are_those_of_the_plugin() -> None:
    """And compile."""
    from stepscope.integrations.pytest_plugin import MARKS

    body = example("pytest.mark")
    compile(body, "test_speed.py", "exec")
    assert set(re.findall(r"pytest\.mark\.(\w+)", body)) == {re.split(r"[(:]", mark)[0] for mark in MARKS}
