"""vLLM-Omni (in process, and workers that are scheduled step by step): its base classes in our words.

A pipeline is a torch module with the parts and method names of a diffusers one, so stages are told as there.
The pipeline call is the model runner's; step by step it rests between the scheduler's waves.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from stepscope.capture.components import Known
from stepscope.capture.engines.call import Engine, Observed, Request, active
from stepscope.capture.engines.hooks import Adapter, Hook, argument
from stepscope.capture.engines.parts import parts_of
from stepscope.capture.engines.spool import the_spool
from stepscope.capture.engines.times import OpenRequests
from stepscope.capture.observer import PIPELINE
from stepscope.model.engine_record import ClientRecord, NamedTime
from stepscope.model.plain_values import figures, text, whole
from stepscope.model.recording import CallKind
from stepscope.model.run import Workload
from stepscope.model.vocabulary import Outside

ROOT = "vllm_omni.diffusion"
ENGINE = Engine("vllm_omni", "vllm-omni")
REQUESTS = OpenRequests()
FORWARD = Known(CallKind.FORWARD, "transformer", "predict_noise")
SCHEDULER_STEP = Known(CallKind.SCHEDULER_STEP, "scheduler", "scheduler_step")
GUIDANCE = ("guidance_scale", "true_cfg_scale")
WARM_UP = "dummy"
"""What the ids of the engine's own warm-up requests begin with."""
MOST_SENT = 4096

_resting: dict[str, Observed] = {}
_sent: dict[str, int] = {}
_generating: list[list[ClientRecord]] = []


def workload_of(request: Any, pipeline: Any) -> Workload:
    """What was asked for, from the request's sampling parameters."""
    sampling = request.sampling_params
    prompt = request.prompt if isinstance(request.prompt, dict) else {"prompt": request.prompt}
    return Workload(
        model=str(getattr(getattr(pipeline, "od_config", None), "model", "")),
        pipeline_class=type(pipeline).__name__,
        prompt=text(prompt.get("prompt")) or "",
        negative_prompt=text(prompt.get("negative_prompt")),
        seed=whole(getattr(sampling, "seed", None)),
        steps=whole(getattr(sampling, "num_inference_steps", None)),
        guidance=figures(sampling, GUIDANCE),
        height=whole(getattr(sampling, "height", None)),
        width=whole(getattr(sampling, "width", None)),
        frames=whole(getattr(sampling, "num_frames", None)),
    )


def _begin(runner: Any, request: Any) -> Observed | None:
    pipeline = runner.pipeline
    parts = [(PIPELINE, pipeline), *parts_of([pipeline])]
    asked = Request(request_id=request.request_id, workload=workload_of(request, pipeline))
    return ENGINE.begin(asked, parts, runner.device)


def _is_warm_up(request: Any) -> bool:
    return str(request.request_id).startswith(WARM_UP)


def call_begins(runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Observed | None:
    """``DiffusionModelRunner.execute_model(req, ...)``: a whole request."""
    request = argument(0, "req", args, kwargs)
    return None if _is_warm_up(request) or active() is not None else _begin(runner, request)


def call_ends(observed: Observed | None, _result: Any, error: BaseException | None) -> None:
    if observed is not None:
        REQUESTS.ran(ENGINE.end(observed, error))


def wave_begins(runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Observed]:
    """``DiffusionModelRunner.execute_stepwise(scheduler_output)``: one step of one or several requests.

    Of several in one wave the first is observed: they share every forward.
    """
    wave = argument(0, "scheduler_output", args, kwargs)
    for request_id in wave.finished_req_ids:
        _cancelled(request_id)
    new = [item.req for item in wave.scheduled_new_reqs if not _is_warm_up(item.req)]
    for request_id in wave.scheduled_cached_reqs.request_ids:
        if request_id in _resting:
            observed = _resting.pop(request_id)
            observed.progress.resume()
            return [observed]
    begun = _begin(runner, new[0]) if new else None
    return [] if begun is None else [begun]


def _cancelled(request_id: str) -> None:
    """The scheduler says that a request is over which we still wait for."""
    observed = _resting.pop(request_id, None)
    if observed is not None:
        observed.progress.resume()
        REQUESTS.ran(ENGINE.end(observed, CancelledError("the engine ended it before its last step")))
        REQUESTS.finished(request_id)


class CancelledError(Exception):
    """Why a request's record is incomplete."""


def wave_ends(observed: list[Observed] | None, result: Any, error: BaseException | None) -> None:
    outputs = {output.request_id: output for output in getattr(result, "runner_outputs", ())}
    for one in observed or ():
        request_id = one.request.request_id
        output = outputs.get(request_id)
        if error is not None or output is None or output.finished:
            REQUESTS.ran(ENGINE.end(one, error))
        else:
            one.progress.suspend()
            _resting[request_id] = one


def forward_begins(_pipeline: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``CFGParallelMixin.predict_noise``: one branch of guidance."""
    call = active()
    return (call, FORWARD) if call is not None and call.enter(FORWARD, args, kwargs) else None


def step_begins(_pipeline: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """``CFGParallelMixin.scheduler_step``: the scheduler's, whatever it is."""
    call = active()
    return (call, SCHEDULER_STEP) if call is not None and call.enter(SCHEDULER_STEP, (), {}) else None


def leaves(token: Any, _result: Any, _error: BaseException | None) -> None:
    if token is not None:
        token[0].leave(token[1])


def work_begins(_worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """``DiffusionWorker.execute_model(req, ...)``; of a list each rank takes its own."""
    asked = argument(0, "req", args, kwargs)
    requests = [item.req for item in asked] if isinstance(asked, list) else [asked]
    ids = [str(request.request_id) for request in requests if not _is_warm_up(request)]
    for request_id in ids:
        REQUESTS.started(request_id)
    return ids


def work_ends(ids: list[str] | None, _result: Any, _error: BaseException | None) -> None:
    for request_id in ids or ():
        REQUESTS.finished(request_id)


def stepwise_work_begins(_worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``DiffusionWorker.execute_stepwise(scheduler_output)``: begins with a request's first wave."""
    for item in argument(0, "scheduler_output", args, kwargs).scheduled_new_reqs:
        if not _is_warm_up(item.req):
            REQUESTS.started(item.req.request_id)


def stepwise_work_ends(_token: Any, result: Any, _error: BaseException | None) -> None:
    for output in getattr(result, "runner_outputs", ()):
        if output.finished:
            REQUESTS.finished(output.request_id)


def queued(_engine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``DiffusionEngine._add_prepared_request(request)``."""
    _sent[argument(0, "request", args, kwargs).request_id] = time.perf_counter_ns()
    while len(_sent) > MOST_SENT:
        _sent.pop(next(iter(_sent)), None)


def answer_begins(_engine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``DiffusionEngine.postprocess_output(request, output)``: the worker's result has come back."""
    return argument(0, "request", args, kwargs), time.perf_counter_ns()


def answer_ends(token: Any, _result: Any, error: BaseException | None) -> None:
    request, received_ns = token
    sent_ns = _sent.pop(request.request_id, None)
    if sent_ns is None:
        return
    waited_ms = getattr(request, "scheduler_queue_wait_ms", None)
    spool = the_spool()
    record = ClientRecord(
        request_id=request.request_id,
        pid=spool.pid,
        clock_offset_ns=spool.clock_offset_ns,
        sent_ns=sent_ns,
        received_ns=received_ns,
        dispatched_ns=None if waited_ms is None else sent_ns + round(waited_ms * 1e6),
        around=(NamedTime(name=Outside.OUTPUT_SAVING, start_ns=received_ns, end_ns=time.perf_counter_ns()),),
        error=None if error is None else type(error).__name__,
    )
    if _generating:
        _generating[-1].append(record)
    else:
        spool.client(record)


def generate_begins(_omni: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """``Omni.generate``: the client's own call; the engine answers in another thread."""
    records: list[ClientRecord] = []
    _generating.append(records)
    return records, time.perf_counter_ns()


def generate_ends(token: Any, _result: Any, _error: BaseException | None) -> None:
    records, called_ns = token
    _generating.remove(records)
    returned_ns = time.perf_counter_ns()
    for record in records:
        alone = len(records) == 1
        times = {"called_ns": called_ns, "returned_ns": returned_ns} if alone else {}
        the_spool().client(replace(record, **times))


RUNNER, WORKER = f"{ROOT}.worker.diffusion_model_runner", f"{ROOT}.worker.diffusion_worker"
CFG, CORE = f"{ROOT}.distributed.cfg_parallel", f"{ROOT}.diffusion_engine"

ADAPTER = Adapter(
    engine=ENGINE.name,
    distribution=ENGINE.distribution,
    tested=("0.30.0",),
    hooks=(
        Hook(module=RUNNER, method="DiffusionModelRunner.execute_model", enter=call_begins, leave=call_ends),
        Hook(
            module=RUNNER, method="DiffusionModelRunner.execute_stepwise", enter=wave_begins, leave=wave_ends
        ),
        Hook(module=WORKER, method="DiffusionWorker.execute_model", enter=work_begins, leave=work_ends),
        Hook(
            module=WORKER,
            method="DiffusionWorker.execute_stepwise",
            enter=stepwise_work_begins,
            leave=stepwise_work_ends,
        ),
        Hook(module=CFG, method="CFGParallelMixin.predict_noise", enter=forward_begins, leave=leaves),
        Hook(module=CFG, method="CFGParallelMixin.scheduler_step", enter=step_begins, leave=leaves),
        Hook(module=CORE, method="DiffusionEngine._add_prepared_request", enter=queued),
        Hook(
            module=CORE, method="DiffusionEngine.postprocess_output", enter=answer_begins, leave=answer_ends
        ),
        Hook(
            module="vllm_omni.entrypoints.omni",
            method="Omni.generate",
            enter=generate_begins,
            leave=generate_ends,
        ),
    ),
)
