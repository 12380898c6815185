"""A gate as JUnit XML: one suite a run, one case a check."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from stepscope.analyse.comparison.gate_results import GateReport, GateResult, Outcome
from stepscope.render.comparison import gate_tables as tables
from stepscope.render.names import visible

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_gate_junit(report: GateReport) -> str:
    """The gate as JUnit XML; characters that XML cannot hold are shown as escapes."""
    checks = [check for result in report.results for check in result.checks]
    failures = sum(check.outcome is Outcome.FAILED for check in checks)
    root = ET.Element("testsuites", name="stepscope gate", tests=str(len(checks)), failures=str(failures))
    for result in report.results:
        _suite(root, result)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, result: GateResult) -> None:
    outcomes = [check.outcome for check in result.checks]
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_xml(tables.title(result)),
        tests=str(len(outcomes)),
        failures=str(outcomes.count(Outcome.FAILED)),
        errors="0",
        skipped=str(outcomes.count(Outcome.SKIPPED)),
    )
    for check in result.checks:
        case = ET.SubElement(suite, "testcase", classname="stepscope.gate", name=_xml(check.name), time="0")
        text = _xml(tables.message(check))
        if check.outcome is Outcome.FAILED:
            failure = ET.SubElement(case, "failure", message=text, type="budget" if check.unit else "rule")
            failure.text = text
        elif check.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=text)
        else:
            ET.SubElement(case, "system-out").text = text


def _xml(text: str) -> str:
    """Text without what XML 1.0 cannot hold, even escaped (section 2.2)."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
