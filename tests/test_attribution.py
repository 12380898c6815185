"""From a kernel back to its launch, operator, source, stage and step."""

import numpy as np
import pytest

from stepscope.analyse.report import analyse_trace
from stepscope.analyse.trace.analysis import Analysis, analyse
from stepscope.analyse.trace.attribute import source_of
from stepscope.analyse.trace.source_policy import is_user_frame
from stepscope.model.trace import SourceLine
from traces import TraceBuilder

MODEL = "diffusers/models/transformer.py(10): forward"


def stage_names(found: Analysis) -> list[str | None]:
    return [found.marks.stages[s].name if s >= 0 else None for s in found.attribution.stage]


def test_a_kernel_belongs_to_the_stage_that_launched_it_not_to_the_one_it_ran_in() -> None:
    """The GPU runs behind: the kernel starts after its stage's code is over."""
    made = TraceBuilder()
    made.annotate("TextEncodingStage", 0, 100)
    made.annotate("DecodingStage", 100, 100)
    made.launch("gemm", at=90, start=150, duration=20)

    assert stage_names(analyse(made.build())) == ["TextEncodingStage"]


def test_correlations_of_two_processes_do_not_mix() -> None:
    """Nsight exports several processes, and correlation ids repeat between them."""
    made = TraceBuilder()
    made.annotate("TextEncodingStage", 0, 100, process=0)
    made.annotate("DecodingStage", 0, 100, process=1)
    made.call("cudaLaunchKernel", 10, process=0, correlation=5)
    made.call("cudaLaunchKernel", 10, process=1, correlation=5)
    made.kernel("a", 20, 5, correlation=5, process=1)

    assert stage_names(analyse(made.build())) == ["DecodingStage"]


def test_all_kernels_of_a_graph_replay_keep_stage_and_step() -> None:
    """A replay is one launch with one correlation for all its kernels."""
    made = TraceBuilder()
    made.annotate("denoising_step_3", 0, 100)
    correlation = made.call("cudaGraphLaunch", 10)
    for index in range(50):
        made.kernel(f"k{index}", 20 + index, 1, correlation)

    found = analyse(made.build())

    assert found.attribution.step.tolist() == [0] * 50
    assert stage_names(found) == ["DenoisingStage"] * 50
    assert found.linking.launch_count == 1


def test_work_of_a_thread_without_marks_belongs_to_the_stage_open_meanwhile() -> None:
    """Prefetching threads have no annotations of their own."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100, thread=1)
    made.copy("HtoD", at=50, start=60, duration=10, thread=9)
    made.launch("k", at=150, start=160, duration=5, thread=9)

    assert sorted(stage_names(analyse(made.build())), key=str) == ["DenoisingStage", None]


def test_the_source_is_the_innermost_frame_that_is_not_plumbing() -> None:
    """Torch's own frames, built-ins and the standard library are passed over; modules give the path."""
    made = TraceBuilder()
    made.frame("run.py(1): <module>", 0, 100)
    made.frame("nn.Module: Transformer2DModel_0", 1, 98)
    made.frame("torch/nn/modules/module.py(1783): _call_impl", 2, 96)
    made.frame(MODEL, 3, 94)
    made.frame("contextlib.py(81): inner", 4, 90)
    made.frame("/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py(5677): normalize", 5, 80)
    made.frame("<built-in method add of type object at 0x7f>", 6, 70)
    made.operator("aten::add", 7, 60)
    made.launch("k", at=10, start=20, duration=5)
    trace = made.build()
    found = analyse(trace)

    source = source_of(trace, found.attribution, 0)

    assert source is not None
    assert (source.file, source.line, source.function) == ("diffusers/models/transformer.py", 10, "forward")
    assert source.module_path == "Transformer2DModel"
    assert not source.line_exact
    assert trace.names[trace.operators.name[found.attribution.operator[0]]] == "aten::add"


def test_an_exact_line_from_the_recorder_goes_before_the_frames_definition() -> None:
    """Kineto's frames give the definition; a recorder that knows the call says so."""
    made = TraceBuilder()
    made.frame(MODEL, 0, 100)
    made.operator("aten::add", 5, 20, source=SourceLine(file="m.py", line=42, function="f", line_exact=True))
    made.launch("k", at=10, start=20, duration=5)
    trace = made.build()

    source = source_of(trace, analyse(trace).attribution, 0)

    assert source is not None
    assert (source.line, source.line_exact) == (42, True)


def test_a_kernel_whose_launch_was_not_recorded_belongs_to_nothing() -> None:
    """It was launched before the recording began; its time on the GPU says nothing."""
    made = TraceBuilder()
    made.annotate("denoising_step_1", 10, 100)
    made.kernel("left over", 11, 5)
    made.launch("k", at=12, start=20, duration=5)
    found = analyse(made.build())

    assert found.attribution.step.tolist() == [-1, 0]
    assert found.linking.before_recording == 1


def test_without_any_launch_the_time_on_the_gpu_is_all_there_is() -> None:
    """A recording of GPU activity alone still shows which kernels lie in which range."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100, thread=-1)
    made.kernel("k", 50, 5)

    assert stage_names(analyse(made.build())) == ["DenoisingStage"]


@pytest.mark.parametrize(
    ("frame", "is_user"),
    [
        ("run.py(1): main", True),
        ("test.py(1): main", True),
        ("/home/me/torch_experiments/run.py(3): f", True),
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py(3): f", False),
        ("torch/_ops.py(1): __call__", False),
        ("threading.py(1): run", False),
        ("/usr/lib/python3.11/contextlib.py(1): inner", False),
        ("/x/lib/python3.11/site-packages/diffusers/models/a.py(1): f", True),
        ("<string>(1): <module>", False),
        ("<frozen runpy>(1): run", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_whose_code_a_frame_is(frame: str, is_user: bool) -> None:
    """Plumbing is torch, triton, the standard library and what is no file."""
    assert is_user_frame(frame) is is_user


def test_every_row_of_work_is_attributed_or_minus_one() -> None:
    """Columns have the length of the work, copies included."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100)
    made.launch("k", at=10, start=20, duration=5)
    made.copy("DtoH", at=30, start=40, duration=5)
    found = analyse(made.build())

    for column in (found.attribution.stage, found.attribution.step, found.attribution.source):
        assert len(column) == len(found.work) == 2
    assert np.all(found.attribution.stage == 0)


def test_forwards_are_rows_with_their_step_component_and_kernels() -> None:
    """Guidance's two calls in one step, each with what it launched."""
    made = TraceBuilder()
    made.annotate("denoising_step_4", 0, 100, ours=True)
    for at in (0, 50):
        made.annotate("forward_transformer", at, 40, ours=True)
        made.launch("k", at + 5, at + 10, 20)
        made.launch("k", at + 6, at + 30, 20)
    rows = analyse_trace(made.build()).rank.forwards

    assert [(row.step, row.component, row.kernel_count) for row in rows] == [(4, "transformer", 2)] * 2
    assert [row.gpu_busy_ms for row in rows] == [0.04, 0.04]
