"""Odd files: copies, impossible times, names and counts that are none. A reason in words, no verdict."""

import json

import pytest

from dumps import stepscope_json
from stepscope.cli import main


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write dumps into the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(name, document):
        (tmp_path / name).write_text(json.dumps(document))
        return name

    return make


def compared(capsys, *arguments) -> dict:
    """The comparison as JSON; the command has to succeed."""
    assert main(["compare", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["comparisons"][0]


@pytest.mark.parametrize("total", [0.0, -3000.0, None, float("nan"), float("inf"), "fast"])
@pytest.mark.parametrize("flags", [[], ["--anyway"]])
def test_a_total_that_is_none_gets_no_verdict(write, capsys, total, flags) -> None:
    """What was not measured is not 100 % faster, on neither side, even with --anyway."""
    good = write("good.json", stepscope_json([350.0] * 5))
    bad = write("bad.json", stepscope_json([350.0] * 5) | {"total_duration_ms": total})
    for files in ((good, bad), (bad, good)):
        comparison = compared(capsys, *files, *flags)
        assert comparison["total"]["verdict"] == "no verdict"
        assert comparison["throughput"] is None
    assert main(["compare", good, bad, *flags, "--fail-above", "50"]) == 1


def test_negative_stages_and_steps_are_not_measured(write, capsys) -> None:
    """They would be the fastest of all."""
    good = write("good.json", stepscope_json([350.0] * 5))
    bad = write("bad.json", stepscope_json([350.0, -1.0, 350.0, 350.0, 350.0], decode_ms=-80.0, total_ms=3e3))
    comparison = compared(capsys, good, bad, "--anyway")
    rows = {row["name"]: row for row in (*comparison["stages"], *comparison["steps"])}
    for name in ("DecodingStage", "step 1"):
        assert (rows[name]["new"], rows[name]["verdict"]) == (None, "no verdict")


@pytest.mark.parametrize("count", ["²", "9" * 5000, "0", "-1", "two", "1.5"])
def test_odd_numbers_of_outputs_give_no_throughput(write, capsys, count) -> None:
    """A count that is none, or zero, is not divided by."""
    documents = [stepscope_json([350.0] * 5), stepscope_json([360.0] * 5)]
    documents[0]["workload"]["outputs_per_prompt"] = count
    names = [write(f"{at}.json", document) for at, document in enumerate(documents)]
    assert compared(capsys, *names, "--anyway")["throughput"] is None
    assert compared(capsys, *names[::-1], "--anyway")["throughput"] is None


@pytest.mark.parametrize("runs", [1, 3])
def test_a_change_from_zero_has_no_verdict(write, capsys, runs) -> None:
    """A stage of 0 ms that takes 500 ms now is not 'no change', and two zeros are equal."""

    def side(letter, decode_ms, growth):
        times = [[350.0 + growth * at] * 5 for at in range(runs)]
        return [
            write(f"{letter}{at}.json", stepscope_json(steps, encode_ms=0.0, decode_ms=decode_ms))
            for at, steps in enumerate(times)
        ]

    base, new = side("a", 0.0, 0.1), side("b", 500.0, 0.2)
    comparison = compared(capsys, ",".join(base), ",".join(new), "--anyway")
    rows = {row["name"]: row for row in comparison["stages"]}
    assert rows["DecodingStage"]["verdict"] == "no verdict"
    assert "zero" in rows["DecodingStage"]["reason"]
    assert rows["TextEncodingStage"]["verdict"] == "no change"


def test_the_same_file_twice_on_a_side_is_refused(write, tmp_path, capsys) -> None:
    """By any name: a link, a longer path, the folder that holds it."""
    base, new = write("a.json", stepscope_json([350.0] * 5)), write("b.json", stepscope_json([360.0] * 5))
    (tmp_path / "link.json").symlink_to("a.json")
    for other in (base, str(tmp_path / "a.json"), "link.json", str(tmp_path)):
        assert main(["compare", "--base", base, other, "--new", new]) == 2
        assert "is given twice" in capsys.readouterr().err


def test_copies_of_a_recording_count_once(write, capsys) -> None:
    """Five copies of one slow run against five of a fast one are one run each: no test, no p-value."""
    base = [write(f"a{at}.json", stepscope_json([350.0] * 5)) for at in range(5)]
    new = [write(f"b{at}.json", stepscope_json([352.0] * 5)) for at in range(5)]
    comparison = compared(capsys, "--base", *base, "--new", *new)
    assert (comparison["basis"], comparison["new"]["runs"]) == ("thresholds", 1)
    assert comparison["total"]["p_value"] is None
    assert sum("copies count once" in text for text in comparison["warnings"]) == 2
    same = compared(capsys, base[0], base[1])
    assert "both sides hold the same recording" in same["warnings"]


@pytest.mark.parametrize("files", [["a.json", ""], ["", "a.json"], ["a.json", "a.json,"], ["a.json", ","]])
def test_an_empty_name_is_a_mistake(write, capsys, files) -> None:
    """A script's empty variable is not the working directory, nor one run less."""
    write("a.json", stepscope_json([350.0] * 5))
    assert main(["compare", *files]) == 2
    assert "empty name" in capsys.readouterr().err


def test_many_names_joined_by_commas_are_many_names(write, capsys) -> None:
    """Together they are longer than a file's name may be, which is no error."""
    names = [write(f"{'long' * 10}{at}.json", stepscope_json([350.0 + 0.1 * at] * 5)) for at in range(10)]
    assert compared(capsys, names[0], ",".join(names))["new"]["runs"] == 10


@pytest.mark.parametrize("place", ["", ".", "/", "a.json/x.html", "/dev/full"])
def test_a_place_that_cannot_be_written_is_one_line(write, capsys, place) -> None:
    """No traceback, status 1, and the reason."""
    name = write("a.json", stepscope_json([350.0] * 5))
    assert main(["compare", name, name, "-o", place]) == 1
    error = capsys.readouterr().err
    assert error.startswith("stepscope: error: cannot write")
    assert error.count("\n") == 1


def test_a_name_that_no_file_can_have_is_refused_before_the_work(write, capsys) -> None:
    """One line and status 2."""
    name = write("a.json", stepscope_json([350.0] * 5))
    assert main(["compare", name, name, "-o", "x" * 300 + ".html"]) == 2
    error = capsys.readouterr().err
    assert "a name in it is too long" in error
    assert error.count("\n") == 1


def test_absurd_changes_stay_short(write, capsys) -> None:
    """A total of 1e-300 ms does not print three hundred digits."""
    tiny = write("tiny.json", stepscope_json([350.0] * 5) | {"total_duration_ms": 1e-300})
    good = write("good.json", stepscope_json([350.0] * 5))
    assert main(["compare", tiny, good, "--anyway"]) == 0
    assert max(map(len, capsys.readouterr().out.split())) < 60
