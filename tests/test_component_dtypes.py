"""A pipeline whose components have different dtypes: said in every view, and what float32 in it costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import torch

import pipelines
import stepscope
from dumps import stepscope_json
from reports import normal
from stepscope.analyse.comparison.cohort import identifying_facts, observe
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.report import AnalysedTrace, assemble
from stepscope.analyse.results import Finding, Report, RunSummary
from stepscope.analyse.run.run_findings import RUN_FINDING_IDS
from stepscope.analyse.run.summarise import summarise
from stepscope.model.budget import Budget, Budgets, GateRules
from stepscope.record.perf_dump import dump_schema
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.report.report_csv import render_csv
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_json import render_json, report_schema
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from stepscope.render.report.run_summary import RunFiles, render_run_summary
from stepscope.workload.describe_call import describe_call
from stepscope.workload.dtypes import dtypes_of, weights_dtype

VAE = RUN_FINDING_IDS[0]
MIXED = {"text_encoder": "bfloat16", "transformer": "bfloat16", "vae": "float32"}


def dump_of(
    dtypes: dict[str, str] | None, *, decode_ms: float = 400.0, device: str = "cuda", dtype: str = "bfloat16"
) -> dict[str, Any]:
    """A run of 2,000 ms of denoising on a GPU: 10 steps, text encoding and decoding."""
    document = stepscope_json([200.0] * 10, encode_ms=100.0, decode_ms=decode_ms)
    document["environment"]["device_kind"] = device
    document["workload"]["dtype"] = dtype
    if dtypes is not None:
        document["workload"]["component_dtypes"] = dtypes
    return document


def summary_of(dtypes: dict[str, str] | None, **changes: Any) -> RunSummary:
    return summarise(perf_dump_from_json(dump_of(dtypes, **changes), origin="x"), path="perf.json")


def report_of(summary: RunSummary) -> Report:
    return assemble(["perf.json"], [summary], [])


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_modules_dtype_is_that_of_its_weights() -> None:
    """Not of those that the model keeps in float32 whatever is asked, and not of its buffers."""
    layers = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4).to(torch.bfloat16))
    assert weights_dtype(layers) == "float32"
    layers._keep_in_fp32_modules = ["0."]
    assert weights_dtype(layers) == "bfloat16"
    packed = torch.nn.Module()
    packed.weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.uint8), requires_grad=False)
    assert weights_dtype(packed) == "uint8"
    parts = {"a": layers, "b": packed, "none": torch.nn.Identity(), "tokenizer": object(), "absent": None}
    assert dtypes_of(parts) == {"a": "bfloat16", "b": "uint8"}


def test_an_attached_call_tells_the_dtype_of_each_component() -> None:
    """The pipeline's own ``dtype`` is that of the first, the VAE: what counts is the denoiser's."""
    pipeline = pipelines.stable_diffusion()
    pipeline.unet.to(torch.bfloat16)
    pipeline.text_encoder.to(torch.float16)
    workload = describe_call(pipeline, (), {})
    assert workload.dtype == "bfloat16"
    assert workload.component_dtypes == {"vae": "float32", "text_encoder": "float16", "unet": "bfloat16"}


def test_a_recorded_run_and_its_dump_have_them() -> None:
    """From the pipeline to the dump, which keeps its schema."""
    pipeline = pipelines.stable_diffusion()
    pipeline.vae.to(torch.float64)
    with stepscope.profile(pipeline) as session:
        pipeline("a", num_inference_steps=1, height=32, width=32, output_type="latent")
    (call,) = session.calls
    assert call.dump.workload["component_dtypes"]["vae"] == "float64"
    assert call.run.workload.component_dtypes["unet"] == "float32"
    document = json.loads(stepscope_dump(call))
    jsonschema.Draft202012Validator(dump_schema()).validate(document)


def stepscope_dump(call: Any) -> bytes:
    from stepscope.record.perf_dump import encode_dump

    return encode_dump(call.dump)


@pytest.mark.parametrize("render", [render_terminal, render_markdown, render_html])
def test_every_view_names_the_component_that_differs(render: Callable[[Report], str]) -> None:
    """In the sentence that says what was run; where all are alike there is one dtype, as before."""
    text = words(render(report_of(summary_of(MIXED))).replace("\\", ""))
    assert "bfloat16 (vae float32) on NVIDIA H200" in text
    alike = words(render(report_of(summary_of(dict.fromkeys(MIXED, "bfloat16")))))
    assert "bfloat16 on NVIDIA H200" in alike


def test_many_that_differ_are_grouped_and_counted() -> None:
    """By dtype, a few names of each: a dump may hold anything."""
    dtypes = MIXED | {"text_encoder": "float16"} | {f"part{at}": "float32" for at in range(9)}
    text = words(render_terminal(report_of(summary_of(dtypes))))
    assert "bfloat16 (text_encoder float16; vae, part0, part1, part2 and 6 more float32) on" in text


def test_a_float32_vae_that_costs_is_a_finding() -> None:
    """What it is, its share, what to try, and the caution; the first finding of a report of dumps."""
    (found,) = summary_of(MIXED).findings
    assert found.id == VAE
    assert found.cost_ms == 400.0
    assert found.evidence == (
        "vae is float32, the denoiser bfloat16: DecodingStage takes 400.0 ms, 16.0 % of the call; "
        "at most that can be won"
    )
    assert "--vae-precision bf16" in found.remedy
    assert "SDXL" in found.remedy
    assert "overflow in fp16" in found.remedy
    text = words(render_terminal(report_of(summary_of(MIXED))))
    assert f"Finding The VAE computes in float32: costs 400.0 ms [{VAE}]" in text


@pytest.mark.parametrize(
    ("dtypes", "changes"),
    [
        (MIXED, {"decode_ms": 100.0}),  # 4.5 % of the call
        (MIXED, {"device": "cpu"}),
        (dict.fromkeys(MIXED, "bfloat16"), {}),
        (dict.fromkeys(MIXED, "float32"), {"dtype": "float32"}),
        ({"vae": "float32"}, {}),  # which dtype the rest has is not known
        (None, {}),
    ],
)
def test_what_is_not_worth_telling_is_no_finding(
    dtypes: dict[str, str] | None, changes: dict[str, Any]
) -> None:
    """A small share, a CPU, a pipeline that is all of one dtype, a dump that does not say."""
    assert summary_of(dtypes, **changes).findings == ()


def test_a_text_encoder_beside_others_says_that_they_are_in_the_time() -> None:
    """A stage's time is that of all its encoders."""
    dtypes = MIXED | {"vae": "bfloat16", "text_encoder_2": "float32"}
    document = dump_of(dtypes)
    for stages in (document["stages"], document["steps"]):
        stages[0]["duration_ms"] = 500.0
    document["total_duration_ms"] = 2900.0
    (found,) = summarise(perf_dump_from_json(document, origin="x")).findings
    assert found.id == "components.float32_text_encoder"
    assert "text_encoder_2 is float32" in found.evidence
    assert "text_encoder included" in found.evidence
    assert "pipe.text_encoder_2.to(torch.bfloat16)" in found.remedy


@pytest.mark.parametrize("render", [render_terminal, render_markdown, render_html])
def test_every_view_has_the_findings_of_a_run(render: Callable[[Report], str]) -> None:
    """In the section of the run too, beside the tables."""
    text = render(report_of(summary_of(MIXED)))
    assert text.count("The VAE computes in float32") >= 2


def test_the_findings_of_a_run_are_in_json_and_csv() -> None:
    """Under their names, with the run's file in the place of a trace."""
    report = report_of(summary_of(MIXED))
    document = json.loads(render_json(report))
    jsonschema.Draft202012Validator(report_schema()).validate(document)
    assert [finding["id"] for finding in document["runs"][0]["findings"]] == [VAE]
    assert f"0,perf.json,{VAE},warning,The VAE computes in float32,400.0," in render_csv(report, "findings")


def test_what_generate_prints_has_it() -> None:
    """Below the stages, with what to do."""
    from runs import three_stages

    text = words(render_run_summary(summary_of(MIXED), three_stages(), RunFiles()))
    assert "bfloat16 (vae float32)" in text
    assert "Finding The VAE computes in float32: costs 400.0 ms" in text
    assert "do Try --vae-precision bf16" in text


def test_a_trace_that_shows_the_kernels_tells_it_alone() -> None:
    """One finding, not two that are the same: the trace's is exact."""
    rank = normal().ranks[0]
    seen = Finding(
        id="kernels.fp32_decoder", title="The VAE decodes in fp32", evidence="seen", cost_ms=1.0,
        source=None, remedy="do",
    )  # fmt: skip
    traced = AnalysedTrace(rank=replace(rank, findings=(seen,)), untrusted=(), warnings=())
    other = AnalysedTrace(rank=replace(rank, findings=()), untrusted=(), warnings=())
    run = summary_of(MIXED)
    assert assemble([], [run], [traced]).runs[0].findings == ()
    assert assemble([], [run], [other]).runs[0].findings == run.findings


def test_a_gate_may_forbid_it_without_a_trace() -> None:
    """A dump that does not tell its components' dtypes proves nothing."""
    budgets = Budgets(default=Budget(), rules=GateRules(forbid_findings=(VAE,)))

    def details(dtypes: dict[str, str] | None) -> list[str]:
        return [check.detail for check in gate(summary_of(dtypes), budgets).checks if VAE in check.name]

    assert details(dict.fromkeys(MIXED, "bfloat16")) == [""]
    assert details(MIXED)[0].startswith("The VAE computes in float32: vae is float32")
    assert details(None) == ["not measured: the dump does not tell the dtypes of components"]


def test_only_a_component_that_differs_makes_another_cohort() -> None:
    """Runs of before, which did not tell, are still of the same cohort as those that are all alike."""

    def identity(dtypes: dict[str, str] | None) -> dict[str, str]:
        return identifying_facts(observe(summary_of(dtypes)).facts)

    assert identity(None) == identity(dict.fromkeys(MIXED, "bfloat16"))
    assert identity(MIXED) == identity(None) | {"component_dtypes.vae": "float32"}
