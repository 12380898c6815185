"""An engine with SGLang's module paths and base classes, small: for tests without the engine."""

from __future__ import annotations

from pathlib import Path

MODULES = {
    "pipelines_core/stages/base.py": """
import torch

class PipelineStage:
    server_args = None
    device = torch.device("cpu")
    def _active_profile_stage_name(self):
        return type(self).__name__
    def __call__(self, batch, server_args):
        return self.forward(batch, server_args)
""",
    "pipelines_core/stages/denoising.py": """
import torch
from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage

class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, hidden_states, timestep):
        return self.layer(hidden_states)

class Scheduler:
    def set_timesteps(self, count):
        self.count = count
    def step(self, noise, latents):
        return latents - 0.1 * noise

class DenoisingStage(PipelineStage):
    def __init__(self):
        self.transformer, self.scheduler = Transformer(), Scheduler()
    def _predict_noise(self, current_model, latent_model_input, timestep):
        return current_model(latent_model_input, timestep)
    @torch.inference_mode()
    def forward(self, batch, server_args):
        latents = torch.ones(1, 8)
        for step in range(batch.num_inference_steps):
            if step == batch.fail_at:
                raise RuntimeError("the request fails")
            if step == batch.die_at:
                import os, signal
                os.kill(os.getpid(), signal.SIGKILL)
            noise = [self._predict_noise(self.transformer, latents, step) for _ in range(2)]
            latents = self.scheduler.step(noise[0] + noise[1], latents)
        batch.output = latents
        return batch
""",
    "pipelines_core/executors/pipeline_executor.py": """
class PipelineExecutor:
    def execute_with_profiling(self, stages, batch, server_args):
        for stage in stages:
            batch = stage(batch, server_args)
        return batch
    execute_group_with_profiling = lambda self, stages, batches, server_args: batches
""",
    "managers/scheduler.py": """
class Scheduler:
    def recv_reqs(self, connection):
        return [(b"me", connection.recv())]
""",
    "managers/gpu_worker.py": """
from sglang.multimodal_gen.runtime.pipelines_core.executors.pipeline_executor import PipelineExecutor
from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage
from sglang.multimodal_gen.runtime.pipelines_core.stages.denoising import DenoisingStage

class TextEncodingStage(PipelineStage):
    def forward(self, batch, server_args):
        return batch

class GPUWorker:
    def __init__(self):
        self.stages, self.executor = [TextEncodingStage(), DenoisingStage()], PipelineExecutor()
    def _execute_forward_common(self, req):
        result = self.executor.execute_with_profiling(self.stages, req, None)
        self._finalize_output_batch(req=req)
        return result
    def _finalize_output_batch(self, *, req):
        req.saved = True
""",
    "scheduler_client.py": """
class SchedulerClient:
    def __init__(self, connection):
        self.connection = connection
    def forward(self, batch):
        self.connection.send(batch)
        return self.connection.recv()

class AsyncSchedulerClient:
    async def forward(self, batch):
        return batch
""",
    "entrypoints/diffusion_generator.py": """
class DiffGenerator:
    def __init__(self, client):
        self.client = client
    def generate(self, request):
        return self.client.forward(request)
""",
    "utils/profiler.py": """
class SGLDiffusionProfiler:
    def __init__(self):
        self.has_stopped = False
    def _step(self):
        pass
    def stop(self):
        self.has_stopped = True
""",
}

SCRIPT = """
import multiprocessing, sys, traceback
from dataclasses import dataclass, field

@dataclass
class Req:
    request_id: str
    sampling_params: object = field(default_factory=dict)
    num_inference_steps: int = 3
    is_warmup: bool = False
    fail_at: int = -1
    die_at: int = -1
    prompt: str = "a logo"
    extra: dict = field(default_factory=dict)
    output: object = None

def work(connection):
    from sglang.multimodal_gen.runtime.managers.gpu_worker import GPUWorker
    from sglang.multimodal_gen.runtime.managers.scheduler import Scheduler
    scheduler, worker = Scheduler(), GPUWorker()
    while True:
        [(_, request)] = scheduler.recv_reqs(connection)
        if request is None:
            return
        try:
            connection.send(worker._execute_forward_common(request))
        except Exception as error:
            connection.send(error)

def main(method, *requests):
    from sglang.multimodal_gen.runtime.entrypoints.diffusion_generator import DiffGenerator
    from sglang.multimodal_gen.runtime.scheduler_client import SchedulerClient
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs,))
    worker.start()
    theirs.close()
    generator = DiffGenerator(SchedulerClient(ours))
    for request in requests:
        try:
            answer = generator.generate(request)
            said = "error" if isinstance(answer, Exception) else answer.output.sum().item()
            print("ANSWER", request.request_id, said, flush=True)
        except (EOFError, ConnectionError):
            print("DIED", request.request_id, flush=True)
    try:
        ours.send(None)
    except OSError:
        pass
    worker.join(30)

if __name__ == "__main__":
    requests = [eval(text) for text in sys.argv[2:]]
    main(sys.argv[1], *requests)
"""


def write_engine(folder: Path, *, without: str | None = None, renamed: tuple[str, str] = ("", "")) -> Path:
    """Write the engine and a script that serves with it, less the lines that begin with ``without``.

    ``renamed`` is a module's name and the name that it has in another version.
    """
    root = folder / "sglang" / "multimodal_gen" / "runtime"
    for name, text in MODULES.items():
        path = root / name.replace(*renamed)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line for line in text.splitlines() if without is None or not line.startswith(without)]
        path.write_text("\n".join(lines).replace(*renamed))
    for path in [*root.rglob("*.py")]:
        for directory in path.parents[: len(path.relative_to(folder).parts) - 1]:
            (directory / "__init__.py").touch()
    script = folder / "serve.py"
    script.write_text(SCRIPT)
    return script
