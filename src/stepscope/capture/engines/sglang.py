"""SGLang Diffusion (native and diffusers backends): what its base classes are in our words.

A stage is a ``PipelineStage``, a forward ``DenoisingStage._predict_noise`` or a call of a stage's denoiser, a
step ends with its scheduler's ``step``; the pipeline call is the executor's, the request the ``Req``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from stepscope.capture.components import Known, is_pipeline
from stepscope.capture.engines.call import Engine, EngineCall, Observed, Request, active
from stepscope.capture.engines.hooks import Adapter, Hook, argument
from stepscope.capture.engines.parts import parts_of
from stepscope.capture.engines.spool import the_spool
from stepscope.capture.engines.times import ClientCall, OpenRequests
from stepscope.model.engine_record import ClientRecord
from stepscope.model.plain_values import figures, text, whole
from stepscope.model.recording import CallKind
from stepscope.model.run import Workload
from stepscope.model.vocabulary import Outside

ROOT = "sglang.multimodal_gen.runtime"
ENGINE = Engine("sglang", "sglang")
REQUESTS = OpenRequests()
FORWARD = Known(CallKind.FORWARD, "transformer", "predict_noise")
OUR_ID = "stepscope_request_id"
GUIDANCE = ("guidance_scale", "guidance_scale_2", "true_cfg_scale")
_generating: ContextVar[list[ClientRecord] | None] = ContextVar("stepscope_sglang_generating", default=None)


def requests_of(batch: Any) -> list[Any]:
    """The requests of what SGLang passes around: one, or a group; control messages and warm-ups are none."""
    items = batch if isinstance(batch, (list, tuple)) else [batch]
    return [item for item in items if hasattr(item, "sampling_params") and not item.is_warmup]


def identity_of(request: Any) -> str:
    """The request's id; one of ours where it has none, in the dictionary that goes to the worker with it."""
    if request.request_id:
        return str(request.request_id)
    return str(request.extra.setdefault(OUR_ID, str(uuid.uuid4())))


def workload_of(request: Any, stages: Iterable[Any]) -> Workload:
    """What was asked for, from the request's sampling parameters."""
    arguments = next((stage.server_args for stage in stages if hasattr(stage, "server_args")), None)
    return Workload(
        model=str(getattr(arguments, "model_path", "")),
        pipeline_class=str(getattr(arguments, "pipeline_class_name", None) or "sglang"),
        prompt=text(getattr(request, "prompt", None)) or "",
        negative_prompt=text(getattr(request, "negative_prompt", None)),
        seed=whole(getattr(request, "seed", None)),
        steps=whole(getattr(request, "num_inference_steps", None)),
        guidance=figures(request, GUIDANCE),
        height=whole(getattr(request, "height", None)),
        width=whole(getattr(request, "width", None)),
        frames=whole(getattr(request, "num_frames", None)),
    )


def call_begins(_executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Observed | None:
    """``PipelineExecutor.execute_with_profiling(stages, batch, server_args)``."""
    stages = argument(0, "stages", args, kwargs)
    batch = argument(1, "batch", args, kwargs)
    group = requests_of(argument(1, "batches", args, kwargs) if batch is None else batch)
    if not group or active() is not None:
        return None
    request = Request(request_id=identity_of(group[0]), workload=workload_of(group[0], stages))
    owners = [getattr(stage, "diffusers_pipe", stage) for stage in stages]
    return ENGINE.begin(request, parts_of([*stages, *owners]), stages[0].device)


def call_ends(observed: Observed | None, _result: Any, error: BaseException | None) -> None:
    if observed is not None:
        REQUESTS.ran(ENGINE.end(observed, error))


def stage_begins(stage: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """``PipelineStage.__call__``; a stage that runs a diffusers pipeline is told by that pipeline's parts."""
    call = active()
    if call is None or is_pipeline(getattr(stage, "diffusers_pipe", None)):
        return None
    known = call.enter_stage(stage._active_profile_stage_name())
    return None if known is None else (call, known)


def stage_ends(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is not None:
        token[0].leave_stage(token[1])


def forward_begins(_stage: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``DenoisingStage._predict_noise(current_model, latent_model_input, ...)``: one branch of guidance."""
    call = active()
    if call is None:
        return None
    known = call.here(_forward_of(call.modules, argument(0, "current_model", args, kwargs)))
    latents = argument(1, "latent_model_input", args, kwargs)
    return (call, known) if call.enter(known, (latents,), {}) else None


def _forward_of(modules: Iterable[tuple[str, Any]], model: Any) -> Known:
    name = next((name for name, module in modules if module is model), FORWARD.component)
    return FORWARD if name == FORWARD.component else _forward_named(name)


_named: dict[str, Known] = {}


def _forward_named(name: str) -> Known:
    return _named.setdefault(name, Known(CallKind.FORWARD, name, FORWARD.method))


def forward_ends(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is not None:
        token[0].leave(token[1])


def received(_token: Any, result: Any, _error: BaseException | None) -> None:
    """``Scheduler.recv_reqs`` returned ``[(identity, request or group)]``."""
    for _, batch in result or ():
        for request in requests_of(batch):
            REQUESTS.arrived(identity_of(request))


def work_begins(_worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """``GPUWorker._execute_forward_common(req, ...)``: all that a worker does for a request."""
    asked = requests_of(argument(0, "req", args, kwargs))
    if not asked:
        return None
    request_id = identity_of(asked[0])
    REQUESTS.started(request_id)
    return request_id


def work_ends(request_id: str | None, _result: Any, _error: BaseException | None) -> None:
    if request_id is not None:
        REQUESTS.finished(request_id)


def saving_begins(_worker: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``GPUWorker._finalize_output_batch``: pixels to files or to the client, SGLang's own dump."""
    asked = requests_of(kwargs["req"])
    return (identity_of(asked[0]), time.perf_counter_ns()) if asked else None


def saving_ends(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is not None:
        REQUESTS.took(token[0], Outside.OUTPUT_SAVING, token[1])


def sending_begins(_client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[ClientCall]:
    """``SchedulerClient.forward(batch)`` and its asynchronous twin: to the worker and back."""
    return [ClientCall(identity_of(item)) for item in requests_of(argument(0, "batch", args, kwargs))]


def sending_ends(calls: list[ClientCall] | None, _result: Any, error: BaseException | None) -> None:
    waiting = _generating.get()
    for call in calls or ():
        record = call.received(error)
        if waiting is None:
            the_spool().client(record)
        else:
            waiting.append(record)


def generate_begins(_generator: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """``DiffGenerator.generate``: the offline client's whole call."""
    records: list[ClientRecord] = []
    return records, _generating.set(records), time.perf_counter_ns()


def generate_ends(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is None:
        return
    records, setting, called_ns = token
    _generating.reset(setting)
    returned_ns = time.perf_counter_ns()
    for record in records:
        alone = len(records) == 1  # the call of several requests is nobody's own
        times = {"called_ns": called_ns, "returned_ns": returned_ns} if alone else {}
        the_spool().client(replace(record, **times))


def profiler_begins(profiler: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """``SGLDiffusionProfiler.__init__`` (which starts it), ``_step`` and ``stop`` (which exports).

    SGLang does this inside its timed steps; here it is a pause. What was launched before is waited for first.
    """
    call = active()
    if call is None or getattr(profiler, "has_stopped", False):
        return None
    call.clock.synchronise()
    call.rest()
    return call, profiler


def profiler_started(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is None:
        return
    call, profiler = token
    call.wake(OWN_PROFILER)
    if profiler.full_profile:
        _recording_since[id(call)] = call.clock.now_ns()


def profiler_stepped(token: Any, _result: Any, _error: BaseException | None) -> None:
    """Its schedule goes on: the first step ends the warm-up of torch.profiler, the last one the recording."""
    if token is None:
        return
    call, profiler = token
    call.wake(OWN_PROFILER)
    if getattr(profiler.profiler.current_action, "name", "") == "NONE":
        _recorded(call)
    else:
        _recording_since.setdefault(id(call), call.clock.now_ns())


def profiler_stopped(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is not None:
        token[0].wake(OWN_PROFILER)
        _recorded(token[0])


def _recorded(call: EngineCall) -> None:
    since = _recording_since.pop(id(call), None)
    if since is not None:
        call.profiled.append((since, call.pauses[-1].host_start_ns))


OWN_PROFILER = "profiler (SGLang's own)"
_recording_since: dict[int, int] = {}


def nothing(*_: Any) -> None:
    """A hook that needs only the end of a call."""


ADAPTER = Adapter(
    engine=ENGINE.name,
    distribution=ENGINE.distribution,
    tested=("0.5.23",),
    hooks=(
        Hook(
            module=f"{ROOT}.pipelines_core.stages.base",
            method="PipelineStage.__call__",
            enter=stage_begins,
            leave=stage_ends,
        ),
        Hook(
            module=f"{ROOT}.pipelines_core.stages.denoising",
            method="DenoisingStage._predict_noise",
            enter=forward_begins,
            leave=forward_ends,
        ),
        *(
            Hook(
                module=f"{ROOT}.pipelines_core.executors.pipeline_executor",
                method=f"PipelineExecutor.{name}",
                enter=call_begins,
                leave=call_ends,
            )
            for name in ("execute_with_profiling", "execute_group_with_profiling")
        ),
        *(
            Hook(
                module=f"{ROOT}.utils.profiler",
                method=f"SGLDiffusionProfiler.{name}",
                enter=profiler_begins,
                leave=leave,
            )
            for name, leave in (
                ("__init__", profiler_started),
                ("_step", profiler_stepped),
                ("stop", profiler_stopped),
            )
        ),
        Hook(
            module=f"{ROOT}.managers.scheduler",
            method="Scheduler.recv_reqs",
            enter=nothing,
            leave=received,
        ),
        Hook(
            module=f"{ROOT}.managers.gpu_worker",
            method="GPUWorker._execute_forward_common",
            enter=work_begins,
            leave=work_ends,
        ),
        Hook(
            module=f"{ROOT}.managers.gpu_worker",
            method="GPUWorker._finalize_output_batch",
            enter=saving_begins,
            leave=saving_ends,
        ),
        *(
            Hook(
                module=f"{ROOT}.scheduler_client",
                method=f"{name}.forward",
                enter=sending_begins,
                leave=sending_ends,
            )
            for name in ("SchedulerClient", "AsyncSchedulerClient")
        ),
        Hook(
            module=f"{ROOT}.entrypoints.diffusion_generator",
            method="DiffGenerator.generate",
            enter=generate_begins,
            leave=generate_ends,
        ),
    ),
)
