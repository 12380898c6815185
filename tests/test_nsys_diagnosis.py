"""What went wrong with a capture, told from the recorded words of two real versions of nsys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.analyse.nsys_diagnosis import diagnose
from stepscope.model.nsight import Capture, ExportFacts, NsysRun, Trigger
from stepscope.model.step_range import StepRange

DATA = Path(__file__).parent / "data" / "nsys"
GOOD = ExportFacts(kernels=900, launches=950, ranges=12, our_ranges=12, our_domain=True, whole_graphs=0)
CAPTURE = Capture(trigger=Trigger.NVTX, steps=StepRange(first=3, end=5))


def run(said: str = "", **fields: Any) -> NsysRun:
    plain: dict[str, Any] = {
        "command": ("/opt/nsys/target/nsys", "profile"),
        "exit_status": 0,
        "said": said,
        "capture": CAPTURE,
        "traced": frozenset({"cuda", "nvtx"}),
        "report": None,
        "expected": Path("/out/x.nsys-rep"),
    }
    return NsysRun(**plain | fields)


def recorded(case: str, **fields: Any) -> NsysRun:
    """A run with the words that a real nsys printed; its last line is the exit status."""
    lines = (DATA / f"{case}.txt").read_text().splitlines()
    return run("\n".join(lines[:-1]), exit_status=int(lines[-1].split()[-1]), **fields)


REPORT = {"report": Path("/out/x.nsys-rep")}
ELSEWHERE = {"elsewhere": (Path("/tmp/nsys-report-1.nsys-rep"),)}
RAW = {"elsewhere": (Path("/out/x.qdstrm"),)}


@pytest.mark.parametrize(
    ("case", "fields", "ids", "says"),
    [
        ("2022.never", {}, ["never_opened"], "steps 3:5"),
        ("2023.never", {}, ["never_opened"], "stepscope run"),
        ("2022.badflag", {}, ["unknown_flag"], "--no-such-flag"),
        ("2023.badflag", {}, ["unknown_flag"], "--no-such-flag"),
        ("2022.noapp", {}, ["not_started"], "without nsys"),
        ("2023.noapp", {}, ["not_started"], "without nsys"),
        ("2022.exists", ELSEWHERE, ["output_not_writable"], "/tmp/nsys-report-1.nsys-rep"),
        ("2023.folder", ELSEWHERE, ["output_not_writable"], "Create the folder"),
        ("2022.readonly", ELSEWHERE, ["output_not_writable"], "Read-only file system"),
        ("2023.readonly", ELSEWHERE, ["output_not_writable"], "can be written"),
        ("2022.full", RAW, ["disk_full"], "Free some space"),
        ("2023.full", RAW, ["disk_full"], "Free some space"),
        ("2023.noimporter", RAW, ["importer_missing"], "QdstrmImporter -i /out/x.qdstrm"),
        ("2022.folder", {}, ["nsys_start_failed"], "again"),
    ],
)
def test_recorded_failures_are_recognised(
    case: str, fields: dict[str, Any], ids: list[str], says: str
) -> None:
    """Although nsys exits with 0 in most of them."""
    found = diagnose(recorded(case, **fields), None)
    assert [one.id for one in found] == ids
    assert says in f"{found[0].text} {found[0].remedy}"


@pytest.mark.parametrize("case", ["2022.good", "2023.good", "2022.exit3", "2023.exit3", "2022.short"])
def test_a_good_capture_has_no_diagnosis(case: str) -> None:
    """Nothing is said where nothing is wrong."""
    assert diagnose(recorded(case, **REPORT), GOOD) == ()


def test_a_command_that_failed_before_the_capture_is_told_apart() -> None:
    """Its own status, not a wrong range of steps."""
    found = diagnose(run("Generated:", exit_status=3), None)
    assert [one.id for one in found] == ["never_opened"]
    assert "status 3" in found[0].text


def test_an_nvtx_package_that_this_nsys_cannot_read() -> None:
    """Exit status 0, a report, our domain in it and no range: silently nothing."""
    facts = replace(GOOD, ranges=0, our_ranges=0)
    (found,) = diagnose(recorded("2022.toonew", **REPORT), facts)
    assert found.id == "nvtx_too_new"
    assert "0.2.11" in found.remedy
    said = replace(
        GOOD,
        our_domain=False,
        diagnostics=("NVTX binary payload extension is incompatible. Provided compatibility ID 260 != 259",),
    )
    assert [one.id for one in diagnose(run(**REPORT), said)] == ["nvtx_too_new"]


NONE = replace(GOOD, kernels=0)


@pytest.mark.parametrize(
    ("facts", "said", "fields", "says"),
    [
        (replace(NONE, whole_graphs=40), "", {}, "--cuda-graph-trace=node"),
        (replace(NONE, diagnostics=("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",)), "", {}, "DCGM"),
        (
            NONE,
            "Installed CUDA driver version (13.0) is not supported by this build of Nsight Systems.",
            {},
            "nvidia-smi",
        ),
        (NONE, "", {}, "flushed"),
        (replace(NONE, launches=0), "", {}, "child process"),
        (
            replace(NONE, launches=0, gpus=("NVIDIA H200",)),
            "",
            {"traced": frozenset({"nvtx"})},
            "--trace cuda,nvtx",
        ),
    ],
)
def test_every_reason_for_no_kernels_has_its_remedy(
    facts: ExportFacts, said: str, fields: dict[str, Any], says: str
) -> None:
    """Never 'run more steps'."""
    found = [one for one in diagnose(run(said, **REPORT, **fields), facts) if one.id == "no_kernels"]
    assert len(found) == 1
    assert says in f"{found[0].text} {found[0].remedy}"


def test_no_kernels_are_missing_on_a_machine_without_a_gpu() -> None:
    """A CPU-only capture of ranges is complete."""
    facts = replace(NONE, launches=0)
    assert diagnose(run(**REPORT, traced=frozenset({"nvtx"})), facts) == ()


def test_sampling_that_is_not_allowed_is_only_a_warning() -> None:
    """Kernels and ranges do not need it."""
    said = "WARNING: CPU IP/backtrace sampling not supported, disabling. perf_event_paranoid is 4"
    (found,) = diagnose(run(said, **REPORT), GOOD)
    assert (found.id, found.fatal) == ("no_sampling_permission", False)
