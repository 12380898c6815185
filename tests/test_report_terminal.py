"""The terminal report: the answer first, 100 columns, plain where nobody can see colour."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.cells import cell_len

from hostile_report import hostile
from reports import EVERY, normal, previews, several_runs, two_ranks, untrusted_dump, video
from stepscope.analyse.results import Report
from stepscope.render.report.answer import answer
from stepscope.render.report.rank_names import rank_name
from stepscope.render.report.rank_tables import rank_stages_by_name
from stepscope.render.report.report_csv import render_csv
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal, write_terminal
from stepscope.render.report.stage_sentences import dominant_sentence
from stepscope.render.wrapping import wrap_command


@pytest.mark.parametrize("name", EVERY)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """What people see is what was looked at."""
    golden(f"{name}.terminal.txt", render_terminal(EVERY[name]()))


@pytest.mark.parametrize("width", [100, 72, 60])
@pytest.mark.parametrize("name", EVERY)
def test_no_line_is_wider_than_the_console(name: str, width: int) -> None:
    """100 columns at most, and narrower terminals are respected."""
    for line in render_terminal(EVERY[name](), width).splitlines():
        assert cell_len(line) <= width, line


def test_the_first_screen_is_the_answer() -> None:
    """Trust, dominant stage, steps, GPU, kernels, finding with cost and remedy: in thirty lines."""
    screen = "\n".join(render_terminal(normal()).splitlines()[:30])
    assert screen.startswith("TRUSTED: ")
    for expected in (
        "DenoisingStage 3,502.0 ms, 96.2 % of the run",
        "10 uniform: median 350.2 ms",
        "busy 95.4 %",
        "the host launched late",
        "gemm 60.9 %, attention 21.0 %",
        "costs 180.0 ms",
        "compile_repeated_blocks",
        "transformer_qwenimage.py:312",
    ):
        assert expected in " ".join(screen.split()), expected


@pytest.mark.parametrize("render", [render_terminal, render_markdown, render_html])
def test_a_stage_that_alternates_with_another_is_told_by_its_sum(render: Callable[[Report], str]) -> None:
    """Twelve occurrences of two stages are two rows and one dominant sum; CSV keeps every occurrence."""
    shown = " ".join(render(previews()).split())
    assert "DenoisingStage 616.5 ms, 72.5 % of the run, in 12 occurrences" in shown
    assert "DecodingStage ran 12 times, 22.0 %" in shown
    assert "the longest of" not in shown
    assert len(re.findall(r"(?m)^.*DecodingStage \| +12 \|", render_markdown(previews()))) == 1
    assert render_csv(previews(), "run_stages").count("DecodingStage") == 12


@pytest.mark.parametrize("render", [render_terminal, render_markdown, render_html])
def test_time_between_known_calls_is_spoken_of(render: Callable[[Report], str]) -> None:
    """Where it is more than a tenth of the total, occurrences summed; a little of it is not worth a line."""
    said = "180.0 ms of DenoisingStage lie between known calls"
    assert said in " ".join(render(previews()).split())
    assert "between known calls" not in render(normal())


def test_what_was_run_is_said_before_its_times() -> None:
    """Model, dtype, device, size and steps as the dump has them: once for runs alike, by name for others."""
    said = "Qwen/Qwen-Image, bfloat16 on NVIDIA H200, 1024x1024, 10 steps asked for"
    assert f"\nModel      {said}\nTotal " in render_terminal(normal())
    assert f"| **Model** | {said} |" in render_markdown(normal())
    page = render_html(normal())
    assert f"<dt>Model</dt><dd>{said}</dd>" in page
    assert ">Run of Qwen/Qwen-Image (3f2a9c)</h2>" in page

    alike = several_runs()
    assert [line.text for line in answer(alike).lines if line.label == "Model"] == [said]
    other = replace(alike.runs[1], workload=(("pipeline_class", "WanPipeline"), ("steps", "x" * 9000)))
    lines = answer(replace(alike, runs=(alike.runs[0], other))).lines
    told = [line.text for line in lines if line.label == "Model"]
    assert told == [f"3f2a9c: {said}", "9b41d0: WanPipeline, on NVIDIA H200"]
    nothing = replace(normal().runs[0], workload=(("prompt", "A cat"),))
    assert not [line for line in answer(replace(normal(), runs=(nothing,))).lines if line.label == "Model"]


def test_stages_of_a_trace_that_come_back_are_one_row() -> None:
    """The sum of what can be summed; rates and bounds that differ are not made up."""
    report = normal()
    first, decoding = report.ranks[0].stages[:2]
    again = replace(first, bound_by="host", stage_index=2, kernel_count=1)
    rank = replace(report.ranks[0], stages=(first, decoding, again, replace(again, stage_index=3)))
    keys = ("name", "times", "duration_ms", "bound_by", "kernel_count", "tflop_per_s")
    table = rank_stages_by_name(rank).pick(*keys)
    assert table.rows == (
        ("DenoisingStage", 3, 3 * first.duration_ms, "mixed", first.kernel_count + 2, None),
        ("DecodingStage", 1, decoding.duration_ms, decoding.bound_by, decoding.kernel_count, None),
    )
    said = dominant_sentence(rank.stages, "DenoisingStage")
    assert said.startswith("DenoisingStage 5,259.6 ms, 291.5 % of the traced span, in 3 occurrences; ")
    assert said.endswith("GPU-bound (its longest occurrence)")


def test_what_a_stage_waits_for_is_not_a_column_of_unknowns() -> None:
    """Without GPU events, as on a CPU, no human view has the word; beside known ones the unknown is empty."""
    report = normal()
    rank = report.ranks[0]
    unknown = tuple(replace(stage, bound_by="unknown") for stage in rank.stages)
    on_a_cpu = replace(report, ranks=(replace(rank, gpu=None, stages=unknown),))
    for text in (render_terminal(on_a_cpu), render_markdown(on_a_cpu), render_html(on_a_cpu)):
        assert "unknown" not in text
        assert "bound by" not in text

    one = replace(rank, stages=(unknown[0], *rank.stages[1:]))
    assert rank_stages_by_name(one).pick("bound_by").rows[:2] == ((None,), (rank.stages[1].bound_by,))
    thrice = replace(rank, stages=(unknown[0], *[replace(rank.stages[0], stage_index=at) for at in (5, 6)]))
    assert rank_stages_by_name(thrice).pick("bound_by").rows == ((rank.stages[0].bound_by,),)


def test_an_untrusted_report_says_so_first_and_why() -> None:
    """The first line is the verdict and the first reason, the others follow."""
    lines = render_terminal(untrusted_dump()).splitlines()
    assert lines[0].startswith("UNTRUSTED: step times look like enqueue times")
    assert lines[1].startswith("  also: step 5")


def test_steps_that_differ_are_named_with_the_reason() -> None:
    """Not uniform: the slowest, by how much and why; of forty steps only that one gets a row."""
    text = render_terminal(video())
    assert "NOT uniform: median 1,982.0 ms, slowest is step 13" in text
    assert "4.66x the median" in text
    assert "transformer_2 runs for the first time" in text
    assert "39 more steps" in text


def test_a_source_that_is_only_the_definition_says_so() -> None:
    """A definition's line is never shown as the line that called."""
    text = render_terminal(normal())
    assert "transformer_qwenimage.py:312 (def) __call__" in text
    assert "attention.py:1249 forward" in text


def test_several_ranks_each_have_their_line() -> None:
    """The finding that costs most comes first, with its rank."""
    text = render_terminal(two_ranks())
    assert "rank 0: NVIDIA H200 busy 34.1 %" in text
    assert "rank 1: NVIDIA H200 busy 91.9 %" in text
    assert "rank 1: Rank 1 waits for rank 0" in text


def test_nothing_hostile_reaches_the_terminal() -> None:
    """No control character, no markup taken as such, no line too wide."""
    text = render_terminal(hostile())
    assert not [line for line in text.splitlines() if not line.isprintable()]
    assert "\\x1b[2J" in text
    for line in text.splitlines():
        assert cell_len(line) <= 100 or line.lstrip().startswith(("stepscope", "ncu", "'", "<", "$"))


def test_a_pipe_gets_plain_text_and_a_terminal_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes only for a terminal without NO_COLOR; the words are the same."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    pipe, terminal, colourless = io.StringIO(), Terminal(), Terminal()
    write_terminal(normal(), pipe)
    write_terminal(normal(), terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    write_terminal(normal(), colourless)
    assert "\x1b" not in pipe.getvalue()
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[3" not in colourless.getvalue()
    assert pipe.getvalue() == render_terminal(normal())


def test_a_stream_that_is_not_utf_8_gets_what_it_can_encode() -> None:
    """An old locale gets u for µ and # for bars, not an exception."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write_terminal(normal(), stream)
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "mean us" in text
    assert "?" not in text


def test_wrapped_commands_are_the_same_command() -> None:
    """Pasted into a shell, the lines give the words that they came from."""
    command = "ncu --kernel-name 'regex:a b|c' --launch-skip 480 -o out stepscope generate --model x/y"
    wrapped = wrap_command(command, 30)
    assert max(map(len, wrapped.splitlines())) <= 30
    assert shlex.split(wrapped.replace("\\\n", "")) == shlex.split(command)
    assert wrap_command("not a 'command", 5) == "not a 'command"


def test_commands_are_whole_however_long_their_paths_are() -> None:
    """A path of 200 characters is wider than the console, and the command is there to be pasted."""
    path = f"/runs/{'long' * 50}.trace.json.gz"
    text = render_terminal(replace(normal(), source=(path,)), 100)

    pasted = shlex.split(text[text.index("stepscope report ") :].replace("\\\n", "").splitlines()[0])
    assert pasted == ["stepscope", "report", path, "--format", "html", "-o", "report.html"]


def test_information_never_comes_before_a_warning() -> None:
    """The finding on the first screen is the most expensive warning."""
    finding = answer(normal()).finding
    assert finding is not None
    assert finding.id == "eager_elementwise"


def test_ranks_of_several_requests_are_told_apart() -> None:
    """Where traces of several requests were read, each is named by its request (or file) in every view."""
    (one,) = normal().ranks
    other = replace(one, request_id="other", path="logs/other-global-rank0.trace.json.gz")
    unnamed = replace(one, request_id=None, path="logs/unnamed.trace.json.gz")
    report = replace(normal(), ranks=(one, other, unnamed, replace(one, rank=1)), runs=())
    for text in (render_terminal(report), render_markdown(report), render_html(report)):
        assert "other rank 0" in text
        assert "unnamed.trace.json.gz rank 0" in text
        assert f"{one.request_id} rank 1" in text
    assert rank_name(one, [one, replace(one, rank=1)]) == "rank 0"
    copies = [replace(one, path=f"{folder}/t.json") for folder in ("a", "b")]
    assert [rank_name(each, copies) for each in copies] == ["a/t.json rank 0", "b/t.json rank 0"]
