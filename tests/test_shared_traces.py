"""The table of shared/traces/README.md, reproduced: counts exactly, spans to 0.1 ms, busy to 0.1 point."""

from pathlib import Path

import numpy as np
import pytest

from stepscope.analyse import intervals
from stepscope.model.trace import Trace
from stepscope.model.vocabulary import TraceSource
from stepscope.record.open import read_trace

# name, events, kernels, GPU span in ms, busy in percent
ROWS = [
    ("qwen_image_full_5_steps_ops", 486_881, 55_337, 1804.4, 95.4),
    ("qwen_image_full_5_steps_cuda_only", 244_149, 55_337, 1805.4, 95.4),
    ("qwen_image_4layer_all_stages_stack_memory", 73_446, 3_212, 237.3, 8.0),
    ("qwen_image_4layer_compiled_blocks", 13_986, 1_892, 134.4, 11.7),
    ("qwen_image_4layer_group_offload", 50_284, 3_131, 13_123, 90.6),
    ("wan_4layer_unipc_stack", 106_391, 6_082, 692.2, 69.8),
    ("ulysses2-global-rank0", 51_627, 4_884, 398.9, 34.1),
    ("ulysses2-global-rank1", 52_235, 4_884, 407.0, 91.9),
]


def gpu_busy(trace: Trace) -> intervals.Intervals:
    start = np.concatenate((trace.kernels.start_ns, trace.copies.start_ns))
    length = np.concatenate((trace.kernels.duration_ns, trace.copies.duration_ns))
    return intervals.union(start, start + length)


def launched_inside(trace: Trace, name: str) -> int:
    """Kernels whose launch lies in the annotations of that name, by correlation and launching thread."""
    order = np.argsort(trace.launches.correlation, kind="stable")
    place = np.searchsorted(trace.launches.correlation, trace.kernels.correlation, sorter=order)
    row = order[np.minimum(place, len(order) - 1)]
    known = trace.launches.correlation[row] == trace.kernels.correlation
    start, thread = trace.launches.start_ns[row], trace.launches.thread[row]
    inside = np.zeros(len(row), np.bool_)
    for i in np.flatnonzero(trace.annotations.name == trace.names.index(name)):
        begin = trace.annotations.start_ns[i]
        end = begin + trace.annotations.duration_ns[i]
        inside |= (start >= begin) & (start < end) & (thread == trace.annotations.thread[i])
    return int((inside & known).sum())


@pytest.mark.parametrize(
    ("name", "events", "kernels", "span_ms", "busy_percent"), ROWS, ids=[r[0] for r in ROWS]
)
def test_every_row_of_the_table(
    shared_traces: Path, name: str, events: int, kernels: int, span_ms: float, busy_percent: float
) -> None:
    """Events, kernels, span and busy share of each recorded trace, and its launches."""
    trace = read_trace(shared_traces / f"{name}.trace.json.gz")

    busy = gpu_busy(trace)
    assert (trace.event_count, len(trace.kernels.name)) == (events, kernels)
    # The README rounds the longest span to whole milliseconds.
    assert busy.span_ns / 1e6 == pytest.approx(span_ms, abs=0.5 if span_ms > 2000 else 0.051)
    assert 100 * busy.total_ns / busy.span_ns == pytest.approx(busy_percent, abs=0.051)
    # The launches of 932 kernels precede the recording of the five steps.
    lost = 932 if "5_steps" in name else 0
    assert (~np.isin(trace.kernels.correlation, trace.launches.correlation)).sum() == lost
    assert {w.kind for w in trace.warnings} <= {"overlapping_slices"}


def test_each_profiler_step_launches_the_same_kernels(shared_traces: Path) -> None:
    """10,881 kernels in each of five steps and 932 outside."""
    trace = read_trace(shared_traces / "qwen_image_full_5_steps_ops.trace.json.gz")

    inside = [launched_inside(trace, f"ProfilerStep#{step}") for step in range(1, 6)]
    assert inside == [10_881] * 5
    assert len(trace.kernels.name) - sum(inside) == 932


def test_stages_of_the_stack_trace(shared_traces: Path) -> None:
    """Kernels launched inside each annotation, Python frames, shapes and allocator samples are all there."""
    trace = read_trace(shared_traces / "qwen_image_4layer_all_stages_stack_memory.trace.json.gz")

    names = ("Pipeline", "TextEncodingStage", "DecodingStage")
    assert [launched_inside(trace, name) for name in names] == [3_212, 254, 536]
    assert (trace.has_stacks, trace.has_shapes, len(trace.frames.name)) == (True, True, 38_453)
    assert len(trace.counters.name) == 2 * 7_468


@pytest.mark.parametrize(
    ("name", "source", "operators", "frames"),
    [
        ("sglang_cpu_8_steps_asked_3", TraceSource.SGLANG, 12_224, 16_223),
        ("sglang_cpu_full_stages", TraceSource.SGLANG, 3_970, 15_976),
        ("vllm_omni_cpu_uniproc", TraceSource.VLLM_OMNI, 26_497, 85_351),
    ],
)
def test_traces_of_other_engines(
    shared_traces: Path, name: str, source: TraceSource, operators: int, frames: int
) -> None:
    """SGLang's and vLLM-Omni's own traces, without a GPU: recognised, and nothing of them lost."""
    trace = read_trace(shared_traces / "engines" / f"{name}.trace.json.gz")

    assert (trace.source, trace.rank, trace.world_size) == (source, 0, 1)
    assert (len(trace.operators.name), len(trace.frames.name)) == (operators, frames)
    assert (len(trace.kernels.name), trace.warnings) == (0, ())


def test_the_nsight_export(shared_traces: Path) -> None:
    """5,626 kernels, six equal steps, two text encodings, all launches known, no environment row."""
    trace = read_trace(shared_traces / "qwen_image_4layer.nsys.sqlite.gz")

    assert (trace.source, len(trace.kernels.name)) == (TraceSource.NSIGHT_SYSTEMS, 5_626)
    assert len({launched_inside(trace, f"denoising_step_{step}") for step in range(6)}) == 1
    assert (trace.annotations.name == trace.names.index("TextEncodingStage")).sum() == 2
    assert np.isin(trace.kernels.correlation, trace.launches.correlation).all()
    assert set(trace.metadata) == {"nsys_version", "schema_version", "graph_mode"}
