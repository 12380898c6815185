"""The command line of stepscope nsys: built from what this nsys has, never guessed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture.nsight import tool as nsys_tool
from stepscope.capture.nsight.command import NsysRequest, build_line, expected_report
from stepscope.cli import main
from stepscope.model.errors import UsageError
from stepscope.model.nsight import Capture, NsysTool, Trigger
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage

DATA = Path(__file__).parent / "data" / "nsys"
COMMAND = ("stepscope", "generate", "--prompt", "-o", "--seed", "0")


def tool(version: str) -> NsysTool:
    """An nsys with the flags that the help of a real one lists."""
    flags, aliases = nsys_tool.parse_help((DATA / f"flags-{version}.txt").read_text())
    return NsysTool(path="/opt/nsys", version=version, flags=flags, aliases=aliases)


def request(**fields: Any) -> NsysRequest:
    return NsysRequest(**{"command": COMMAND, "output": "QwenImage", "trace": ("cuda", "nvtx")} | fields)


@pytest.mark.parametrize("version", ["2022", "2023"])
def test_real_help_texts_have_every_flag_that_we_assume(version: str) -> None:
    """The set taken where no nsys can be asked is one that real ones have, short forms included."""
    real = tool(version)
    assert real.flags >= nsys_tool.USUAL_FLAGS
    assert real.aliases.items() >= nsys_tool.USUAL_ALIASES.items()
    assert {"--nvtx-domain-include", "--nvtx-domain-exclude"} <= real.flags


def test_steps_on_cuda_are_captured_by_the_profiler_api() -> None:
    """The whole line, as a person reads it."""
    capture = Capture(trigger=Trigger.CUDA_PROFILER, steps=StepRange(first=5, end=10))
    line = build_line(request(capture=capture), tool("2023"))
    assert shlex.join(line.words) == (
        "/opt/nsys profile --trace=cuda,nvtx --trace-fork-before-exec=true --cuda-graph-trace=node "
        "--force-overwrite=true --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi "
        "--capture-range-end=stop --env-var=STEPSCOPE_NSYS_CAPTURE=cuda:steps:5:10 -o QwenImage "
        "stepscope generate --prompt -o --seed 0"
    )
    assert line.missing == ()


def test_without_cuda_a_range_opens_the_capture() -> None:
    """A registered range, and no flag of CUDA's."""
    capture = Capture(trigger=Trigger.NVTX, stage=Stage.DECODING)
    words = build_line(request(capture=capture, trace=("nvtx",)), tool("2022")).words
    assert "--capture-range=nvtx" in words
    assert "--nvtx-capture=stepscope_capture@stepscope" in words
    assert not [word for word in words if "cuda" in word]


def test_flags_that_this_nsys_lacks_are_left_out_and_named() -> None:
    """An old or a future nsys gets a line that it understands."""
    poor = NsysTool(path="/opt/nsys", version="1", flags=frozenset({"--trace", "--output"}))
    line = build_line(request(), poor)
    assert line.words == ("/opt/nsys", "profile", "--trace=cuda,nvtx", "-o", "QwenImage", *COMMAND)
    assert "--cuda-graph-trace" in line.missing


@pytest.mark.parametrize(
    "given", [("--sample=process-tree",), ("-s", "process-tree"), ("--sample", "process-tree")]
)
def test_what_the_user_passes_on_wins(given: tuple[str, ...]) -> None:
    """A flag given in any of its forms replaces ours."""
    words = build_line(request(passed_on=given), tool("2022")).words
    assert "--sample=none" not in words
    assert words[words.index(given[0]) : words.index(given[0]) + len(given)] == given


def test_by_the_clock_the_command_lives_on() -> None:
    """The guide's --delay and --duration still work, and do not kill the command."""
    words = build_line(
        request(capture=Capture(trigger=Trigger.NONE), delay_s="10", duration_s="30"), tool("2023")
    ).words
    assert {"--delay=10", "--duration=30", "--kill=none"} <= set(words)
    assert not [word for word in words if word.startswith("--capture-range")]


def test_the_report_is_expected_where_o_says() -> None:
    """Ours, the user's own, and a pattern that only nsys can fill in; the command's own -o is another's."""
    cases = {(): "QwenImage", ("--output=/x/y",): "/x/y", ("--output=z.nsys-rep",): "z"}
    for passed_on, name in cases.items():
        wanted = request(passed_on=passed_on)
        assert (
            expected_report(build_line(wanted, tool("2022")), wanted) == Path(f"{name}.nsys-rep").absolute()
        )
    pattern = request(output="run_%p")
    assert expected_report(build_line(pattern, tool("2022")), pattern) is None


@pytest.mark.parametrize(
    ("text", "first", "end"), [("5:10", 5, 10), ("5:", 5, None), (":3", 0, 3), ("7", 7, 8)]
)
def test_ranges_of_steps_are_half_open(text: str, first: int, end: int | None) -> None:
    """As everywhere."""
    assert StepRange.parse(text) == StepRange(first=first, end=end)


@pytest.mark.parametrize("text", ["", ":", "5:5", "9:3", "-1:4", "a:b", "1:2:3", "1.5"])
def test_no_range_is_an_error_with_a_remedy(text: str) -> None:
    """One line that shows how to write it."""
    with pytest.raises(UsageError, match="FIRST:END"):
        StepRange.parse(text)


@pytest.fixture
def no_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Nsight Systems."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsys_tool, "USUAL_PLACES", ())


def test_a_dry_run_needs_no_nsys(no_nsys: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The usual flags, and a note that says so."""
    assert main(["nsys", "--dry-run", "--steps", "5:10", "-o", "Q", "--", "generate", "--prompt", "x"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("nsys profile --trace=cuda,nvtx ")
    assert "STEPSCOPE_NSYS_CAPTURE=cuda:steps:5:10 -o Q " in out
    assert "usual flags" in err


def test_without_nsys_the_remedy_says_where_to_get_it(
    no_nsys: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, status 1."""
    assert main(["nsys", "--", "generate", "--prompt", "x"]) == 1
    assert "nsight-systems" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--prompt", "x"], "no -- before the command"),
        (["--"], "no command"),
        (["--steps", "9:3", "--", "generate"], "9:3"),
        (["--stage", "Nonsense", "--", "generate"], "Nonsense"),
        (["--steps", "1:2", "--stage", "DecodingStage", "--", "generate"], "exclude each other"),
        (["--steps", "1:2", "--delay", "3", "--", "generate"], "exclude each other"),
        (["--dry-run", "--", "generate", "--profile", "--prompt", "x"], "exclude each other"),
        (["--nsys", "/no/such/nsys", "--", "generate"], "no nsys that runs"),
    ],
)
def test_bad_calls_are_one_line_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was wrong is named."""
    assert main(["nsys", *words]) == 2
    assert message in capsys.readouterr().err


def test_unknown_flags_go_to_nsys(no_nsys: None, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order given, with their values; the command's flags are its own."""
    words = ["--gpu-metrics-device=all", "--dry-run", "--nic-metrics", "true", "--", "sh", "-c", "--trace"]
    assert main(["nsys", *words]) == 0
    out = capsys.readouterr().out
    assert "--gpu-metrics-device=all --nic-metrics true -o" in out
    assert out.endswith("sh -c --trace\n")
    assert "STEPSCOPE_NSYS_CAPTURE" not in out
