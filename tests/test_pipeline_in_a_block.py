"""A pipeline called inside a marked block is told with it: class, dtype, size, steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import stepscope
from pipelines import sd, stable_diffusion
from stepscope.analyse.run.summarise import summarise
from stepscope.model.run import AS_LOADED, Workload
from stepscope.render.report.report_terminal import render_terminal
from stepscope.render.report.what_ran import model_sentence
from stepscope.session.report import report_files
from stepscope.workload.describe_block import workload_of_block

BLOCK = Workload(model="http0", pipeline_class="", load_format=AS_LOADED, block="http0")
CALL = Workload(
    model="sd", pipeline_class="P", dtype="float32", steps=6, height=32, width=48, load_format=AS_LOADED
)


def test_a_block_has_what_its_calls_have_in_common() -> None:
    """Under its own name; what differs between calls is not said."""
    assert workload_of_block(BLOCK, []) == BLOCK
    one = workload_of_block(BLOCK, [CALL])
    assert one == replace(CALL, model="http0", block="http0")
    two = workload_of_block(BLOCK, [CALL, replace(CALL, pipeline_class="Q", steps=8)])
    assert (two.pipeline_class, two.steps, two.width) == ("P, Q", None, 48)


def test_the_model_line_tells_the_pipeline_inside(tmp_path: Path) -> None:
    """In a session, from the files that it writes: one call, and several by the names of their blocks."""
    pipe = stable_diffusion()
    with stepscope.profile(save_to=tmp_path / "run") as session:
        for number in range(2):
            with stepscope.call(f"http{number}"):
                sd(pipe, steps=3)
    said = model_sentence(summarise(session.calls[0].dump))
    assert said.startswith("http0: StableDiffusionPipeline (as the program loaded it), float32 on ")
    assert "32x32, 3 steps asked for" in said
    text = render_terminal(report_files([tmp_path / "run-1", tmp_path / "run"]).report)
    assert "\nModel      StableDiffusionPipeline (as the program loaded it), float32 on " in text
    assert text.index("\nRun http0 (") < text.index("\nRun http1 (")
