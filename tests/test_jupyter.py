"""A notebook in a real kernel. Only where nbclient and ipykernel are installed: ``make integrations``."""

from __future__ import annotations

from pathlib import Path

import pytest

import programs

pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytestmark = pytest.mark.slow

CELLS = [
    "import pipelines\npipe = pipelines.stable_diffusion()",
    "%load_ext stepscope",
    "%%stepscope --profile --num-profiled-timesteps 1 --session session\npicture = pipelines.sd(pipe, 3)",
    "picture.shape, session.calls[0].run.traces[0].steps",
    "import stepscope\nwith stepscope.profile(pipe) as second:\n    pipelines.sd(pipe, 2)\nsecond",
    "%unload_ext stepscope",
]


def test_a_notebook_shows_its_report_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell magic's page and a session's, each in a frame of its own; variables stay the notebook's."""
    for name, value in programs.environment(IPYTHONDIR=str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute(cwd=str(tmp_path))
    magic, value, session = (notebook.cells[number].outputs for number in (2, 3, 4))

    frames = [output["data"]["text/html"] for output in magic if output.output_type == "display_data"]
    assert len(frames) == 1
    assert frames[0].startswith("<iframe ")
    assert value[0]["data"]["text/plain"] == "((1, 32, 32, 3), (1,))"
    assert session[-1]["data"]["text/html"].startswith("<iframe ")
    (tmp_path / "notebook.ipynb").write_text(nbformat.writes(notebook))
