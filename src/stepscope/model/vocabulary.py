"""The closed vocabularies: the words of the design, each spelt in one place."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A member that prints, formats and serialises as its value (``enum.StrEnum`` needs Python 3.11)."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


class Stage(Word):
    """A part of a pipeline, named as SGLang names it; the last one is ours."""

    INPUT_VALIDATION = "InputValidationStage"
    TEXT_ENCODING = "TextEncodingStage"
    IMAGE_ENCODING = "ImageEncodingStage"
    IMAGE_VAE_ENCODING = "ImageVAEEncodingStage"
    LATENT_PREPARATION = "LatentPreparationStage"
    TIMESTEP_PREPARATION = "TimestepPreparationStage"
    DENOISING = "DenoisingStage"
    DECODING = "DecodingStage"
    POSTPROCESSING = "PostprocessingStage"


class Unmarked(Word):
    """Where time lies that a program which marks its own stages left unmarked: no stage of anything."""

    BEFORE = "(before the first stage)"
    BETWEEN = "(between stages)"
    AFTER = "(after the last stage)"
    ALL = "(nothing marked)"


UNMARKED = frozenset(place.value for place in Unmarked)


class Outside(Word):
    """What surrounds the pipeline call. Reported, never part of the total."""

    MODEL_LOADING = "ModelLoading"
    WARMUP = "Warmup"
    OUTPUT_SAVING = "OutputSaving"
    TRACE_EXPORT = "TraceExport"
    CLIENT = "Client"  # in the client's own call, before it sends and after it has the answer
    REQUEST_TRANSFER = "RequestTransfer"  # from the client to the worker's queue
    QUEUE_WAIT = "QueueWait"
    WORKER = "Worker"  # in the worker, around the pipeline call
    ENGINE_SCHEDULING = "EngineScheduling"  # between the steps of an engine that schedules each
    RESULT_TRANSFER = "ResultTransfer"  # from the worker to the client, encoding included


class ClockKind(Word):
    """What durations of a run were measured with."""

    DEVICE_EVENTS = "device_events"
    SYNCHRONISED_HOST = "synchronised_host"
    HOST = "host"  # right where the host does the work: CPU runs


class StepWork(Word):
    """How much of a step's denoiser was computed; caches skip some or all of it."""

    COMPUTED = "computed"
    PARTLY_COMPUTED = "partly_computed"
    SKIPPED = "skipped"


class CopyKind(Word):
    """Direction of a copy, seen from the host (H) and the device (D)."""

    HOST_TO_DEVICE = "HtoD"
    DEVICE_TO_HOST = "DtoH"
    DEVICE_TO_DEVICE = "DtoD"
    PEER_TO_PEER = "PtoP"
    HOST_TO_HOST = "HtoH"
    OTHER = "other"


class SyncKind(Word):
    """What a synchronising call waited for."""

    DEVICE = "device"
    STREAM = "stream"
    EVENT = "event"
    STREAM_WAIT = "stream_wait"
    OTHER = "other"


class KernelCategory(Word):
    """What a kernel does, told from its name by written rules."""

    ATTENTION = "attention"
    GEMM = "gemm"
    CONVOLUTION = "convolution"
    NORMALISATION = "normalisation"
    ELEMENTWISE = "elementwise"
    COPY_LAYOUT = "copy_layout"
    REDUCTION = "reduction"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    GRAPH_CAPTURED = "graph_captured"
    OTHER = "other"


class BoundBy(Word):
    """What a stage waits for most."""

    GPU = "gpu"
    HOST = "host"
    COPY = "copy"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


class TraceSource(Word):
    """Who recorded a trace."""

    STEPSCOPE = "stepscope"
    TORCH_PROFILER = "torch_profiler"
    SGLANG = "sglang"
    VLLM_OMNI = "vllm_omni"
    NSIGHT_SYSTEMS = "nsight_systems"


class TraceDetail(Word):
    """How much of each recorded step is recorded: what a trace shows, and what recording it costs."""

    KERNELS = "kernels"  # device activity and launch calls
    OPS = "ops"  # and operators
    SOURCE = "source"  # kernels, and for each its operator, module and exact line, found in the warm-up
    FULL = "full"  # operators with shapes and Python frames in every recorded step


STEP_SPAN_PREFIX = "denoising_step_"
"""A step's span in a trace is named with this prefix and its 0-based index (SGLang's spelling)."""

FORWARD_SPAN_PREFIX = "forward_"
"""A denoiser call's span: the prefix, the component and, when known, cond or uncond."""

TRANSFER_SPAN = "weight_transfer"
"""A move of weights by offloading that cuts a stage; in a trace it lies inside the step that waits for it."""
