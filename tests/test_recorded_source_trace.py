"""A trace that `generate --profile` left on an H200 (4 blocks of Qwen-Image, 256x256, detail source)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.analyse.results import RankReport
from stepscope.session.report import report_files

RECORDED = Path(__file__).parent / "data" / "recorded" / "h200_qwen_4layer_source.trace.json.gz"


@pytest.fixture(scope="module")
def rank() -> RankReport:
    report = report_files([RECORDED]).report
    assert report.trust.ok, report.trust.reasons
    return report.ranks[0]


def test_exactly_the_steps_asked_for_are_in_it(rank: RankReport) -> None:
    """Steps 1 to 5 with two forwards each and the same kernels in all of them; nothing lies outside."""
    assert [(step.index, step.forwards, step.kernel_count) for step in rank.steps] == [
        (index, 2, 845) for index in range(1, 6)
    ]
    assert rank.outside_kernel_count == 0
    assert rank.gpu is not None
    assert rank.gpu.kernel_count == 5 * 845
    assert rank.gpu.kernels_without_launch == 0


def test_kernels_have_the_line_that_called_although_no_stack_was_recorded(rank: RankReport) -> None:
    """The mapping pass's lines, exact, with the path of the module: 98 % or more of the kernels."""
    assert rank.attributed_share is not None
    assert rank.attributed_share >= 0.98
    exact = sum(
        kernel.count for kernel in rank.kernels if kernel.source is not None and kernel.source.line_exact
    )
    assert exact / (5 * 845) >= 0.98
    sources = [kernel.source for kernel in rank.kernels if kernel.source is not None]
    assert any((source.module_path or "").startswith("transformer.") for source in sources)


def test_the_verdict_is_the_machines(rank: RankReport) -> None:
    """A launch-bound model: the GPU is busy a tenth of the time and the first finding says why."""
    assert rank.stages[0].bound_by == "host"
    assert rank.findings[0].id == "host.launch_bound"
    assert rank.engaged.gemm_dtypes == ("bf16",)
    assert rank.engaged.attention == "cudnn"
