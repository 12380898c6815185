"""stepscope doctor: what a machine can do, and how to get what is missing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from stepscope.capture.machine import newest_cupti, python_check, sampling_check
from stepscope.capture.nsight import tool as nsys_tool
from stepscope.cli import main
from stepscope.model.health import Check, State
from stepscope.model.nsight import NsysTool
from stepscope.render.health_terminal import render_check
from stepscope.session.doctor import nsys_check, nvtx_check, space_check

TITLES = ("Nsight Systems", "NVTX ranges", "permissions", "disk", "viewer")
TOOL = NsysTool(path="/usr/bin/nsys", version="2022.4.2.1", flags=frozenset())


def test_a_machine_without_nsys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is told all the same, with the way to get it; the status is 0."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsys_tool, "USUAL_PLACES", ())
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    titles = (
        "Python",
        "torch",
        "pipelines",
        "device",
        "Nsight Systems",
        "NVTX ranges",
        "permissions",
        "disk",
        "viewer",
    )
    assert [line.split("  ")[0].strip() for line in out.splitlines() if line[:1].strip()][:1] == ["Python"]
    for title in titles:
        assert title in out
    assert "apt-get install nsight-systems" in " ".join(out.split())


def test_json_has_every_check_and_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For scripts: ids and states from a closed vocabulary."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsys_tool, "USUAL_PLACES", ())
    assert main(["doctor", "--format", "json"]) == 0
    health = json.loads(capsys.readouterr().out)
    assert health["schema_version"] == 1
    states = {check["id"]: check["state"] for check in health["checks"]}
    assert states["nsys"] == "missing"
    assert set(states.values()) <= {state.value for state in State}
    assert all(check["remedy"] for check in health["checks"] if check["state"] == "missing")


@pytest.mark.parametrize(
    ("tool", "known", "driver", "state", "says"),
    [
        (None, None, None, State.MISSING, "not installed"),
        (TOOL, None, None, State.OK, "2022.4.2.1 at /usr/bin/nsys"),
        (TOOL, (12, 4), (12, 2), State.OK, "2022.4.2.1"),
        (TOOL, (12, 4), (13, 0), State.LIMITED, "up to 12.4, the driver is for 13.0"),
        (
            NsysTool(path="/usr/bin/nsys", version="1", flags=frozenset(), importer=False),
            None,
            None,
            State.LIMITED,
            ".qdstrm",
        ),
    ],
)
def test_nsys_is_there_whole_and_new_enough(
    tool: NsysTool | None,
    known: tuple[int, int] | None,
    driver: tuple[int, int] | None,
    state: State,
    says: str,
) -> None:
    """Each way in which it is not has its own words."""
    check = nsys_check(tool, known, driver)
    assert check.state is state
    assert says in check.text
    assert bool(check.remedy) is (state is not State.OK)


def test_the_newest_cuda_is_that_of_the_libraries_beside_it(tmp_path: Path) -> None:
    """By number, not by spelling."""
    folder = tmp_path / "target-linux-x64"
    folder.mkdir()
    for name in ("libcupti.so.9.2", "libcupti.so.11.8", "libcupti.so.12.4"):
        (folder / name).touch()
    assert newest_cupti(str(folder / "nsys")) == (12, 4)
    assert newest_cupti(str(tmp_path / "other" / "nsys")) == (12, 4)  # the host part has its own folder
    assert newest_cupti("/no/such/nsys") is None


@pytest.mark.parametrize(
    ("level", "parameters", "state", "says"),
    [
        ("1", "", State.OK, "nothing stands in the way"),
        ("-1", "RmProfilingAdminOnly: 0", State.OK, "nothing"),
        ("4", "", State.LIMITED, "perf_event_paranoid is 4"),
        ("2", "x: 1\nRmProfilingAdminOnly: 1\n", State.LIMITED, "GPU metrics: root only"),
        ("", "", State.OK, "nothing"),
    ],
)
def test_permissions(level: str, parameters: str, state: State, says: str) -> None:
    """Read from the kernel and the driver."""
    check = sampling_check(lambda path: parameters if "nvidia" in str(path) else level)
    assert check.state is state
    assert says in check.text


def test_the_disk_of_traces_is_looked_at(tmp_path: Path) -> None:
    """Where traces go and where nsys keeps its raw capture."""
    check = space_check(tmp_path)
    assert str(tmp_path) in check.text
    assert python_check().state is State.OK


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nsys") is None, reason="no nsys on this machine: .ci/install-nsys")
def test_ranges_are_tried_not_looked_up() -> None:
    """With a real nsys the answer is that of a recorded range, or says why there is none."""
    tool = nsys_tool.find_nsys()
    check = nvtx_check(tool)
    assert check.state in {State.OK, State.LIMITED}
    assert "nvtx " in check.text
    assert check.state is State.OK or "0.2.11" in check.remedy
    broken = NsysTool(path=sys.executable, version="0", flags=frozenset())
    assert nvtx_check(broken).state is State.UNKNOWN


def test_a_check_is_wrapped_under_its_column() -> None:
    """The remedy begins with an arrow and keeps its indent."""
    check = Check(
        id="x", title="NVTX ranges", state=State.LIMITED, text="nvtx 0.2.17 is newer than this nsys",
        remedy="Install one that it understands: " + "word " * 12,
    )  # fmt: skip
    lines = render_check(check, 60).splitlines()
    assert lines[0] == "NVTX ranges    limited  nvtx 0.2.17 is newer than this nsys"
    assert lines[1].startswith(" " * 24 + "-> Install")
    assert lines[2].startswith(" " * 27)
    assert max(map(len, lines)) <= 60
