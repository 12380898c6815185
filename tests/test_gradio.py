"""A Gradio app, unchanged, under ``stepscope run``. Only where gradio is installed: ``make integrations``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import programs

pytest.importorskip("gradio")
pytestmark = pytest.mark.slow

APP = """
import hashlib
import sys

import gradio as gr
import numpy as np
import torch
from gradio_client import Client

import pipelines

pipe = pipelines.stable_diffusion()

def infer(prompt, steps, progress=gr.Progress(track_tqdm=True)):
    generator = torch.Generator().manual_seed(0)
    return pipe(prompt, num_inference_steps=int(steps), height=32, width=32, generator=generator).images[0]

with gr.Blocks() as demo:
    prompt, steps = gr.Textbox(label="Prompt"), gr.Slider(1, 8, value=2, step=1, label="Steps")
    result = gr.Image(label="Result", format="png")
    gr.Button("Run").click(fn=infer, inputs=[prompt, steps], outputs=result, api_name="infer")

demo.queue(max_size=20).launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
client = Client(demo.local_url, verbose=False)
for asked in (2, 3, 2):
    from PIL import Image
    path = client.predict("a cat", asked, api_name="/infer")
    print(hashlib.sha256(np.asarray(Image.open(path)).tobytes()).hexdigest())
demo.close()
"""


def test_a_gradio_app_gives_the_same_pictures_and_a_record_for_each_request(tmp_path: Path) -> None:
    """Requests come through the app's queue and worker threads; the app does not know of us."""
    (tmp_path / "app.py").write_text(APP)
    quiet = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
    alone = programs.python(["app.py"], tmp_path, **quiet)
    flags = ["--profile", "--call", "2", "--num-profiled-timesteps", "1", "--perf-dump-path", "perf.json"]
    under = programs.run([*flags, "app.py"], tmp_path, **quiet)
    records = [
        json.loads((tmp_path / name).read_text()) for name in ("perf.json", "perf-1.json", "perf-2.json")
    ]

    assert (alone.status, under.status) == (0, 0), under.err
    assert under.out == alone.out
    assert sum(len(word) == 64 for word in under.out.split()) == 3
    assert [len(record["denoise_steps_ms"]) for record in records] == [2, 3, 2]
    assert [len(record["traces"]) for record in records] == [0, 0, 1]
    assert [reason for record in records for reason in programs.doubts(record)] == []
