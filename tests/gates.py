"""A run held against budgets: what the tests of gates share."""

import json

from dumps import stepscope_json
from stepscope.analyse.run.summarise import summarise
from stepscope.record.perf_dump_reader import perf_dump_from_json

BUDGETS = """
[default]
total_ms = 60000

[gpu."H200"]
total_ms = 4000
step_ms = 360
slowest_step_ms = 400
peak_memory_gib = 50

[gpu."H200".stages]
DenoisingStage = 3600
DecodingStage = 60

[rules]
trusted = true
"""


def summary_of(document):
    return summarise(perf_dump_from_json(document, origin="x"), path="perf.json")


def outcomes(result):
    return {check.name: check.outcome for check in result.checks}


def budgets_and_a_run(folder):
    """``folder`` with BUDGETS and one run on an H200 in it."""
    (folder / "budgets.toml").write_text(BUDGETS)
    (folder / "perf.json").write_text(json.dumps(stepscope_json([350.0] * 10)))
    return folder
