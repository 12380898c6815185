"""The JSON report: the names that others rely on, and a schema that holds."""

from __future__ import annotations

import json
from collections.abc import Callable

import jsonschema
import pytest

from hostile_report import hostile
from reports import EVERY, normal
from stepscope.analyse.results import Report
from stepscope.render.report.report_json import render_json, report_schema


@pytest.mark.parametrize("make", [*EVERY.values(), hostile])
def test_every_report_keeps_the_schema(make: Callable[[], Report]) -> None:
    """What is written is what the published schema says."""
    jsonschema.Draft202012Validator(report_schema()).validate(json.loads(render_json(make())))


def test_the_schema_is_a_schema() -> None:
    """It is valid itself and says which version it is of."""
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "schema version 1" in schema["title"]


def test_the_names_of_the_issue_are_there() -> None:
    """Names, once given out, are kept."""
    document = json.loads(render_json(normal()))
    assert set(document) == {"schema_version", "source", "trust", "warnings", "runs", "ranks"}
    assert set(document["trust"]) == {"ok", "reasons"}
    rank = document["ranks"][0]
    expected = {
        "gpu": "name kernel_count span_ms busy_ms busy_ratio compute_ms communication_ms "
        "exposed_communication_ms copy_ms exposed_copy_ms idle_ms",
        "stages": "name stage_index start_ms duration_ms gpu_busy_ms share kernel_count bound_by",
        "steps": "index stage_index duration_ms gpu_busy_ms kernel_count forwards outlier inferred",
        "categories": "name total_ms share count",
        "kernels": "name category count total_ms share mean_us source",
    }
    for part, names in expected.items():
        row = rank[part] if part == "gpu" else rank[part][0]
        assert set(names.split()) <= set(row), part
    assert {"file", "line", "line_exact", "function"} <= set(rank["kernels"][0]["source"])
    assert rank["kernels"][3]["source"] is None
    assert {"transfers", "engaged", "rank"} <= set(rank)
    assert {"stages", "steps"} <= set(document["runs"][0])


def test_text_without_utf_8_is_written_all_the_same() -> None:
    """A lone surrogate, as undecodable paths give, becomes an escape instead of an exception."""
    assert "\\\\ud800 lone surrogate" in render_json(hostile()).decode()
