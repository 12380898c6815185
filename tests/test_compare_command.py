"""The command: what goes in, what people see, and the exit status."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import PurePath

import jsonschema
import numpy as np
import pytest

from dumps import DATA, sglang_json, stepscope_json
from stepscope.cli import main
from stepscope.render.comparison.compare_json import compare_schema
from stepscope.session.path_names import told_apart


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write dumps into the working directory; golden files then hold no absolute path."""
    monkeypatch.chdir(tmp_path)

    def make(name, document):
        (tmp_path / name).write_text(json.dumps(document))
        return name

    return make


def repeated(write, name, step_ms, *, seed, slow_step=None, **changes):
    """Five runs of twenty steps with half a percent of noise."""
    generator = np.random.default_rng(seed)
    names = []
    for index in range(5):
        factor = float(generator.normal(1, 0.005))
        steps = [step_ms * factor * float(each) for each in generator.normal(1, 0.005, 20)]
        if slow_step is not None:
            steps[slow_step] *= 1.5
        names.append(write(f"{name}{index}.json", stepscope_json(steps, **changes)))
    return names


def test_repeated_runs_on_the_terminal(write, capsys, golden) -> None:
    """The verdict first, with interval and p-value; the one step that changed; the rest in a line."""
    base = repeated(write, "a", 350.0, seed=1)
    new = repeated(write, "b", 350.0, seed=2, slow_step=7)
    assert main(["compare", "--base", *base, "--new", *new]) == 0
    golden("compare_repeated.txt", capsys.readouterr().out)


def test_what_cannot_be_told_is_no_verdict_of_its_own_in_any_view(write, capsys, golden, tmp_path) -> None:
    """A quarter faster in two against three noisy runs: 'cannot tell', what would tell, and exit status 0."""
    base = [write(f"a{i}.json", stepscope_json([ms] * 10)) for i, ms in enumerate((100.0, 112.0))]
    new = [write(f"b{i}.json", stepscope_json([ms] * 10)) for i, ms in enumerate((70.0, 92.0, 78.0))]
    sides = ["compare", ",".join(base), ",".join(new)]
    assert main([*sides, "--fail-above", "1"]) == 0
    shown = capsys.readouterr()
    assert "cannot tell whether it is more than 1.0 % slower" in shown.err
    golden("compare_cannot_tell.txt", shown.out)
    assert main([*sides, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparisons"][0]["total"]["verdict"] == "cannot tell"
    assert main([*sides, "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("### stepscope compare: cannot tell: ")
    assert main([*sides, "-o", str(tmp_path / "c.html")]) == 0
    assert '<h2 class="open"><span>CANNOT TELL</span>' in (tmp_path / "c.html").read_text()


def test_single_runs_as_markdown(write, capsys, golden) -> None:
    """Three files: an overview, then one section each; threshold verdicts say that they are such."""
    names = [
        write(f"{n}.json", stepscope_json([ms] * 5)) for n, ms in (("a", 350.0), ("b", 271.0), ("c", 351.0))
    ]
    assert main(["compare", *names, "--format", "md"]) == 0
    golden("compare_three.md", capsys.readouterr().out)


def test_untrusted_engine_dump_on_the_terminal(write, capsys, golden) -> None:
    """SGLang's dump with the profiler inside gets no verdict and no traceback."""
    base = write("untraced.json", json.loads((DATA / "sglang_cpu_untraced.perf.json").read_text()))
    new = write("traced.json", json.loads((DATA / "sglang_cpu_asked_3.perf.json").read_text()))
    assert main(["compare", base, new]) == 0
    golden("compare_untrusted.txt", capsys.readouterr().out)
    assert main(["compare", base, new, "--fail-above", "50"]) == 1
    assert main(["compare", base, new, "--anyway", "--fail-above", "50"]) == 0
    assert main(["compare", base, new, "--anyway", "--fail-above", "30%"]) == 1


def test_unlike_runs_are_refused_with_what_differs(write, capsys) -> None:
    """Exit status 2 and every difference by name; --anyway shows the numbers with the differences on top."""
    base = write("a.json", stepscope_json([350.0] * 10))
    small = stepscope_json([90.0] * 8)
    small["workload"]["height"] = 512
    new = write("b.json", small)
    assert main(["compare", base, new]) == 2
    message = capsys.readouterr().err
    assert "height 1024 against 512" in message
    assert "--anyway" in message
    assert main(["compare", base, new, "--anyway"]) == 0
    assert "not alike: height 1024 against 512" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["perf.json", "other.json"], ["perf.json", "other.json"]),
        (["a/perf.json", "b/perf.json", "b/x.json"], ["a/perf.json", "b/perf.json", "x.json"]),
        (["/r/a/1/p.json", "/r/b/1/p.json", "/r/b/2/p.json"], ["a/1/p.json", "b/1/p.json", "2/p.json"]),
        (["p.json", "a/p.json"], ["p.json", "a/p.json"]),
        (["log", "log", "x"], ["log", "log", "x"]),
    ],
)
def test_files_are_told_apart_by_as_little_as_that_takes(paths, names) -> None:
    """The end of a path, longer only where another file has the same."""
    assert list(told_apart([PurePath(path) for path in paths])) == names


def test_which_of_six_files_of_one_name_is_untrusted_is_said(write, tmp_path, capsys) -> None:
    """All are named perf.json, as ``--run-dir`` names them: folder and file, in every view."""
    for side, ms in (("a", 350.0), ("b", 300.0)):
        for number in range(3):
            (tmp_path / f"{side}{number}").mkdir()
            write(f"{side}{number}/perf.json", stepscope_json([ms + number] * 10))
    bad = json.loads((DATA / "sglang_cpu_asked_3.perf.json").read_text())
    write("b1/perf.json", bad)
    sides = [",".join(f"{side}{number}/perf.json" for number in range(3)) for side in "ab"]
    assert main(["compare", *sides, "--anyway"]) == 0
    said = capsys.readouterr().out
    assert "note: untrusted: b1/perf.json: " in said
    assert "b0/perf.json and 2 more (3 runs) against the base a0/perf.json and 2 more" in said


def test_a_failure_without_verdict_names_the_file_to_measure_again(write, tmp_path, capsys) -> None:
    """One of six runs is untrusted, the rest a quarter faster: status 1 and why in a line; 0 without it."""
    for side, ms in (("a", 350.0), ("b", 260.0)):
        for number in range(3):
            (tmp_path / f"{side}{number}").mkdir()
            changes = {"total_ms": 100.0} if (side, number) == ("b", 1) else {}  # less than its stages
            write(f"{side}{number}/perf.json", stepscope_json([ms + number] * 10, **changes))
    sides = [",".join(f"{side}{number}/perf.json" for number in range(3)) for side in "ab"]
    assert main(["compare", *sides, "--fail-above", "5"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no verdict counts as failed (untrusted: b1/perf.json: " in said
    assert said.endswith("measure b1/perf.json again, or leave it out\n")
    assert main(["compare", sides[0], "b0/perf.json,b2/perf.json", "--fail-above", "5"]) == 0


def test_fail_above_decides_the_status(write, capsys) -> None:
    """Two percent slower fails above one and passes above five; the reason goes to standard error."""
    base = repeated(write, "a", 350.0, seed=1)
    new = repeated(write, "b", 350.0, seed=2, slow_step=7)
    arguments = ["compare", ",".join(base), ",".join(new), "--fail-above"]
    assert main([*arguments, "5"]) == 0
    assert main([*arguments, "1"]) == 1
    assert "more than the 1.0 % allowed" in capsys.readouterr().err


def test_json_keeps_its_schema(write, capsys) -> None:
    """The JSON validates against the schema made from the types, and has the raw values."""
    base = repeated(write, "a", 350.0, seed=1)
    assert main(["compare", ",".join(base), base[0], "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, compare_schema())
    assert len(document["comparisons"][0]["total"]["base"]["values"]) == 5
    assert document["comparisons"][0]["basis"] == "thresholds"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert all(value == "data:," for name, value in attrs if name in ("src", "href"))


def test_html_is_escaped_and_loads_nothing(write, tmp_path) -> None:
    """A hostile dump adds no element to the page, and the page refers to nothing outside itself."""
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e\u2066"
    documents = [sglang_json([350.0] * 5), sglang_json([350.0] * 5)]
    for document, name in zip(documents, ("a", "b"), strict=True):
        document["steps"][0]["name"] = hostile
        document["meta"]["prompt"] = hostile + name
    names = [write("a.json", documents[0]), write("<b>.json", documents[1])]
    assert main(["compare", *names, "--output", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert {"script", "img", "b"}.isdisjoint(tags.seen)
    assert "&lt;script&gt;" in page
    assert r"\x1b[2J\u202e\u2066" in page  # shown, not done
    assert {"\x1b", "\u202e", "\u2066"}.isdisjoint(page)
    css = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'".replace("'", "&#39;") in page
    assert " style=" not in page
    assert main(["compare", *names, "--output", "page.md"]) == 0
    outside_code = re.sub("`[^`]*`", "", (tmp_path / "page.md").read_text())
    assert "<script>" not in outside_code


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.json"],
        [],
        ["--base", "a.json"],
        ["a.json", "--base", "a.json", "--new", "a.json"],
        ["a.json", "none.json"],
    ],
)
def test_wrong_calls_are_one_line_and_status_2(write, capsys, arguments) -> None:
    """Too few files, half of a pair, a missing file: one line each, with what to do."""
    write("a.json", stepscope_json([350.0] * 5))
    assert main(["compare", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_performance_log_is_one_side_of_repeated_runs(write, tmp_path, capsys) -> None:
    """The lines of a performance.log are repeated runs."""
    lines = [json.dumps(sglang_json([350.0 + i] * 5)) for i in range(3)]
    (tmp_path / "performance.log").write_text("\n".join(lines))
    assert main(["compare", "performance.log", "performance.log", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["base"]["runs"] == 3


def test_a_run_folder_is_compared_by_its_dumps(write, tmp_path, capsys) -> None:
    """A folder written with --run-dir stands for its runs; an empty one is refused."""
    for name in ("one", "two", "empty"):
        (tmp_path / name).mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "perf.json").write_text(json.dumps(stepscope_json([350.0] * 5)))
    assert main(["compare", "one", "two", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["base"]["label"] == "one"
    assert main(["compare", "one", "empty"]) == 2


def test_calls_beside_a_run_folder_are_told(write, tmp_path, capsys) -> None:
    """A script of two calls under ``run --run-dir b`` leaves b and b-1: which one is compared is said."""
    for name, ms in (("b", 350.0), ("b-1", 100.0), ("f", 349.0), ("b-2x", 1.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
        write(f"{name}/perf.json", stepscope_json([ms] * 10))
    assert main(["compare", "b", "f"]) == 0
    said = capsys.readouterr().out
    assert "note: beside b there are more calls that are not compared: b-1" in said
    assert "b-2x" not in said
    assert main(["compare", "b,b-1", "f"]) == 0
    assert "more calls" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["bench", "sweep"])
def test_a_script_cannot_be_benched_but_it_is_said_how(write, capsys, command) -> None:
    """One line with the two commands that do it."""
    axis = ["--vs", ""] if command == "bench" else ["--steps", "4"]
    assert main([command, *axis, "--", "run", "my_script.py"]) == 2
    said = capsys.readouterr().err
    assert "only generate can be measured by this command, not run." in said
    assert "stepscope run --run-dir" in said
    assert "stepscope compare base1,base2" in said


@pytest.mark.parametrize("chosen", ["terminal", "json", "md", "html"])
def test_lone_surrogates_break_no_view(write, capsys, chosen) -> None:
    """JSON may hold half a surrogate pair: it is shown as an escape in every format."""
    document = sglang_json([350.0] * 5)
    document["steps"][0]["name"] = document["meta"]["prompt"] = "bad \ud800 name"
    name = write("a.json", document)
    assert main(["compare", name, name, "--format", chosen]) == 0
    assert "name" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["a" * 300, "nul\0", "a/" * 3000])
def test_an_output_whose_path_cannot_be_is_one_that_is_not_here(write, capsys, path) -> None:
    """A dump may say anything: its numbers are compared without its pictures."""
    names = []
    for digest in ("0" * 64, "1" * 64):
        document = stepscope_json([350.0] * 5)
        document["outputs"] = [{"path": path, "sha256": digest, "kind": "image", "finite": True}]
        names.append(write(f"{digest[0]}.json", document))
    assert main(["compare", *names]) == 0
    assert "the files are not here" in " ".join(capsys.readouterr().out.split())


def test_steps_that_begin_anew_are_aligned_by_position(write, capsys) -> None:
    """Two denoising stages that both count from 0 are four steps, not two."""
    document = sglang_json([350.0, 351.0, 352.0, 353.0])
    for position, step in enumerate(document["denoise_steps_ms"]):
        step["step"] = position % 2
    name = write("a.json", document)
    assert main(["compare", name, name, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["comparisons"][0]["steps"]) == 4


def test_nothing_of_a_terminal_escape_gets_through(write, capsys) -> None:
    """A stage name cannot move the cursor."""
    document = sglang_json([350.0] * 5)
    document["steps"][0]["name"] = "\x1b[2Jgone"
    name = write("a.json", document)
    assert main(["compare", name, name]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("chosen", ["terminal", "md", "html"])
@pytest.mark.parametrize("with_key", [0, 1])
def test_what_only_one_side_has_keeps_both_columns(write, capsys, chosen, with_key) -> None:
    """Without its column the other side would seem not to be compared at all."""
    documents = [stepscope_json([350.0] * 10) for _ in range(2)]
    documents[with_key]["workload"]["lora"] = "a-lora"
    paths = [write(f"{name}.json", document) for name, document in zip("ab", documents, strict=True)]
    assert main(["compare", *map(str, paths), "--format", chosen]) == 0
    said = re.sub(r"<style>.*?</style>|<[^>]*>", " ", capsys.readouterr().out, flags=re.DOTALL)
    assert re.search(r"weight[\s|]+what differs[\s|]+base[\s|]+new\b", said)
