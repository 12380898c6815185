"""Rules about the kernels themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.findings.cost import gap_cost_ns, kernels_ns, moments
from stepscope.analyse.findings.thresholds import percent, stage_positions, traced_ns, worth_telling
from stepscope.analyse.kernels.families import gemm_dtype
from stepscope.analyse.results import Finding, RankReport, Source
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import source_of
from stepscope.analyse.trace.gpu_work import CATEGORIES
from stepscope.model.trace import I64
from stepscope.model.vocabulary import BoundBy, KernelCategory, Stage

_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|tensorTransform|nchw2nhwc|nhwc2nchw|[Tt]ranspose", re.IGNORECASE)
_MEMORY_BOUND = frozenset(
    CATEGORIES.index(category)
    for category in (
        KernelCategory.ELEMENTWISE,
        KernelCategory.NORMALISATION,
        KernelCategory.COPY_LAYOUT,
        KernelCategory.REDUCTION,
    )
)
_MULTIPLYING = (CATEGORIES.index(KernelCategory.GEMM), CATEGORIES.index(KernelCategory.CONVOLUTION))
_FULL_PRECISION = ("fp32", "tf32")

GAPS_FROM = 0.03
"""Share of the denoising stage that gaps between queued kernels must take to be told: some must be."""

CHAINS_FROM = 0.10
"""Share of the denoising stage that fusing chains could win at most, to be told."""


def kernel_gaps(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Idle time between kernels that were queued in time: many short kernels, each with its start and end."""
    gaps = found.gaps
    for index in stage_positions(found, Stage.DENOISING):
        window = found.stage_windows[index]
        inside = (gaps.start_ns >= window.start_ns) & (gaps.start_ns < window.end_ns)
        cost_ns = gap_cost_ns(found, gaps.start_end_ns, moments([window]))
        if window.time.bound_by is not BoundBy.GPU or cost_ns < GAPS_FROM * window.duration_ns:
            continue
        count = int(np.count_nonzero(gaps.start_end_ns[inside] > 0))
        yield Finding(
            id="kernels.gaps",
            title="The GPU idles between queued kernels",
            evidence=(
                f"{count:,} gaps of {cost_ns / max(count, 1) / 1e3:.1f} µs between kernels that were queued "
                f"in time, {percent(cost_ns, window.duration_ns)} of the stage"
            ),
            cost_ms=cost_ns / 1e6,
            source=None,
            remedy="Fewer, larger kernels: torch.compile of the repeated blocks fuses the small ones.",
        )


def unfused_elementwise(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Chains of memory-bound kernels in the denoiser, each reading what the one before wrote."""
    for index in stage_positions(found, Stage.DENOISING):
        rows = np.flatnonzero(found.attribution.stage[: found.work.kernel_count] == index)
        winnable_ns, chains, length = _chains(found, rows)
        window_ns = found.stage_windows[index].duration_ns
        heavy = rows[np.isin(found.work.category[rows], list(_MEMORY_BOUND))]
        # Of chains side by side on several streams no more can be won than the time they ran.
        winnable_ns = min(winnable_ns, kernels_ns(found, heavy, moments([found.stage_windows[index]])))
        if found.stage_windows[index].time.bound_by is not BoundBy.GPU or (
            winnable_ns < CHAINS_FROM * window_ns
        ):
            continue
        yield Finding(
            id="kernels.unfused_chains",
            title="Chains of small memory-bound kernels could be fused",
            evidence=(
                f"{chains:,} chains of {length:.1f} kernels (elementwise, normalisation, copies, "
                "reductions); all but the longest kernel of each takes "
                f"{percent(winnable_ns, window_ns)} of the stage: at most that can be won"
            ),
            cost_ms=winnable_ns / 1e6,
            source=_heaviest_source(found, heavy),
            remedy="torch.compile of the repeated blocks (compile_repeated_blocks) fuses them; "
            "or fused norm, rotary embedding and modulation kernels.",
        )


def layout_transposes(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Kernels that only change the memory layout for a convolution."""
    rows = _rows_named(found, lambda name: _LAYOUT.search(name) is not None)
    cost_ns = kernels_ns(found, rows)
    if len(rows) and worth_telling(found, cost_ns):
        yield Finding(
            id="kernels.layout_transposes",
            title="Convolutions change the memory layout back and forth",
            evidence=(
                f"{len(rows):,} kernels between NCHW and NHWC take {cost_ns / 1e6:.1f} ms, "
                f"{percent(cost_ns, traced_ns(found))} of the traced time, in {_stages_of(found, rows)}"
            ),
            cost_ms=cost_ns / 1e6,
            source=_heaviest_source(found, rows),
            remedy="Run the VAE in channels-last: pipe.vae.to(memory_format=torch.channels_last) "
            "(channels_last_3d for video).",
        )


def fp32_in_decoder(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Single-precision work in the decoder: all of it, or casts around half-precision convolutions."""
    for index in stage_positions(found, Stage.DECODING):
        rows = np.flatnonzero(found.attribution.stage[: found.work.kernel_count] == index)
        full = _rows_named(found, lambda name: gemm_dtype(name) in _FULL_PRECISION, rows)
        cost_ns = kernels_ns(found, full, moments([found.stage_windows[index]]))
        if not len(full) or not worth_telling(found, cost_ns):
            continue
        multiplying = np.isin(found.work.category[full], _MULTIPLYING)
        whole = bool(found.duration_ns[full[multiplying]].sum() > 0.3 * cost_ns)
        stage_ns = found.stage_windows[index].duration_ns
        yield Finding(
            id="kernels.fp32_decoder" if whole else "kernels.fp32_casts",
            title="The VAE decodes in fp32" if whole else "The VAE casts to fp32 around its normalisations",
            evidence=(
                f"{len(full):,} fp32 kernels take {cost_ns / 1e6:.1f} ms, "
                f"{percent(cost_ns, stage_ns)} of {Stage.DECODING.value}"
            ),
            cost_ms=cost_ns / 1e6,
            source=_heaviest_source(found, full),
            remedy="Decode in bf16 where the model allows it (--vae-precision bf16; config.force_upcast): "
            "some VAEs, that of SDXL among them, overflow in fp16."
            if whole
            else "A fused normalisation and activation, or torch.compile of vae.decode, avoids the casts.",
        )


def unbatched_guidance(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Two forwards a step where one on a doubled batch would launch half as much."""
    counts = [step.forwards for step in rank.steps]
    if not counts or int(np.median(counts)) != 2:
        return
    for stage, window in zip(rank.stages, found.stage_windows, strict=True):
        if stage.name == Stage.DENOISING.value and stage.bound_by == BoundBy.HOST.value:
            cost_ns = window.time.idle_ns / len(found.devices) / 2
            if not worth_telling(found, cost_ns):
                continue
            yield Finding(
                id="steps.unbatched_guidance",
                title="Guidance runs two forwards a step, one after the other",
                evidence=(
                    f"2 forwards in each of {len(counts)} steps while the GPU idles "
                    f"{percent(window.time.idle_ns, window.time.length_ns)} of the stage: batching them can "
                    "win at most half of that idle time"
                ),
                cost_ms=cost_ns / 1e6,
                source=None,
                remedy="Batch the conditional and unconditional forward, run them on two GPUs "
                "(CFG parallel), or use a guidance-distilled model.",
            )


def _chains(found: Analysis, rows: I64) -> tuple[int, int, float]:
    """Of runs of memory-bound kernels: time beyond each run's longest kernel, their number, mean length."""
    rows = rows[np.lexsort((found.work.start_ns[rows], found.work.stream[rows]))]
    light = np.isin(found.work.category[rows], list(_MEMORY_BOUND))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], light, [False])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    starts, ends = starts[ends - starts > 1], ends[ends - starts > 1]
    if not len(starts):
        return 0, 0, 0.0
    duration = found.duration_ns[rows]
    done = np.concatenate(([0], np.cumsum(duration)))
    # reduceat takes maxima from each bound to the next; every other stretch is a run.
    bounds = np.stack((starts, ends), axis=1).ravel()
    longest = np.maximum.reduceat(np.append(duration, 0), bounds)[::2]
    return int((done[ends] - done[starts] - longest).sum()), len(starts), float((ends - starts).mean())


def _rows_named(found: Analysis, accept: Callable[[str], bool], rows: I64 | None = None) -> I64:
    """Kernels whose name is accepted; each distinct name is looked at once."""
    within = np.arange(found.work.kernel_count) if rows is None else rows
    names, inverse = np.unique(found.work.name[within], return_inverse=True)
    accepted: NDArray[np.bool_] = np.array([accept(found.name(int(name))) for name in names], np.bool_)
    return within[accepted[inverse]] if len(names) else within


def _heaviest_source(found: Analysis, rows: I64) -> Source | None:
    """The source that most of the time of these kernels comes from."""
    rows = rows[found.attribution.source[rows] >= 0]
    if not len(rows):
        return None
    sources, first, inverse = np.unique(
        found.attribution.source[rows], return_index=True, return_inverse=True
    )
    heaviest = int(np.argmax(np.bincount(inverse, weights=found.duration_ns[rows], minlength=len(sources))))
    return source_of(found.trace, found.attribution, int(rows[first[heaviest]]))


def _stages_of(found: Analysis, rows: I64) -> str:
    stages = np.unique(found.attribution.stage[rows])
    names = [found.marks.stages[int(stage)].name if stage >= 0 else "no stage" for stage in stages]
    return ", ".join(dict.fromkeys(names))
