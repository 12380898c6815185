"""A report in which everything that comes from a file is an attack on the page that shows it."""

from __future__ import annotations

from dataclasses import replace

from report_parts import image_rank, image_run
from stepscope.analyse.results import (
    REPORT_SCHEMA_VERSION,
    AnnotationRow,
    CategoryRow,
    EngagedView,
    Finding,
    IdleCause,
    OutsideTime,
    Report,
    Source,
    Trust,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "`code` | pipe **bold** [link](javascript:alert(1)) @everyone #1",
    "\u202egnp.exe\u202c \u200b\u2066hidden\u2069",
    "\x1b[2J\x1b[31mred\x07\x9b31m",
    "=cmd|' /C calc'!A0",
    "{{ 7*7 }}{% raw %}",
    "[bold red]markup[/]",
    "k" * 10_000,
    "k" * 9_999 + "j",
    "kernel<" * 3_000,
    "\ud800 lone surrogate",
    "",
    " \n\r\t ",
    "漢字" * 300,
)
"""Texts that a trace may hold and that must not do anything."""


def hostile() -> Report:
    """Every text of a report hostile."""
    rank, gpu = image_rank(), image_rank().gpu
    assert gpu is not None
    bad = HOSTILE[0] + HOSTILE[2] + HOSTILE[4] + HOSTILE[5]
    source = Source(
        file="javascript:alert(1)//" + bad, line=1, line_exact=True, function=bad, module_path=bad
    )
    kernel = rank.kernels[0]
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=HOSTILE,
        trust=Trust(ok=False, reasons=HOSTILE),
        warnings=HOSTILE,
        runs=(
            replace(
                image_run(),
                request_id=bad,
                path=bad,
                producer=bad,
                dominant_stage=bad,
                stages=(replace(image_run().stages[0], name=bad), *image_run().stages),
                steps=tuple(replace(step, outlier=bad, work=bad) for step in image_run().steps),
                environment=tuple((text, text) for text in HOSTILE),
                outside=(OutsideTime(name=bad, duration_ms=1.0),),
                warnings=HOSTILE,
                incomplete_reason=bad,
            ),
        ),
        ranks=(
            replace(
                rank,
                path=bad,
                source=bad,
                gpu=replace(gpu, name=bad, idle_causes=(IdleCause(cause=bad, total_ms=1.0, share=0.1),)),
                stages=(replace(rank.stages[0], name=bad, bound_by=bad),),
                steps=tuple(replace(step, outlier=bad) for step in rank.steps),
                categories=(CategoryRow(name=bad, total_ms=1.0, share=0.5, count=1),),
                transfers=(replace(rank.transfers[0], kind=bad, stage=bad, operator=bad, source=source),),
                kernels=tuple(
                    replace(
                        kernel,
                        name=text,
                        category=bad,
                        operator=bad,
                        source=source,
                        stages=(bad,),
                        ncu_command=bad,
                    )
                    for text in HOSTILE
                ),
                annotations=(AnnotationRow(name=bad, count=1, host_ms=1.0, kernel_count=1, gpu_busy_ms=1.0),),
                engaged=EngagedView(
                    attention=bad, gemm_dtypes=(bad,), compiled_kernel_share=0.1, graph_replays=1
                ),
                findings=(
                    Finding(
                        id=bad, title=bad, evidence=bad, cost_ms=1.0, source=source, remedy=bad, severity=bad
                    ),
                ),
            ),
        ),
    )
