"""Sweeps: every point a row, and kills that lose nothing."""

import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stepscope.analyse.comparison.scaling import sweep_report
from stepscope.cli import main
from stepscope.model.errors import RunFailedError
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.record.json_lines import read_lines
from stepscope.render.comparison.sweep_views import (
    render_sweep_html,
    render_sweep_json,
    render_sweep_terminal,
)
from stepscope.session.sweeping.point_runner import RunnerOptions
from stepscope.session.sweeping.sweep import Again, Grid, LocalExecutor, sweep
from sweeps import FAKE, TWELVE, Silent, flags_of, options, row, rows_in, run, signal_when

TESTS = Path(__file__).parent


def test_the_grid_is_every_combination_once() -> None:
    """Two prompts, three sizes, two step counts: twelve points, equal ones only once."""
    assert len(TWELVE.points()) == 12
    assert len(Grid(steps=(4, 4, 8)).points()) == 2
    assert Grid().points() == (SweepPoint(),)


def test_every_point_is_a_row_with_first_use_apart(tmp_path) -> None:
    """Each size is called once more at first, and that call is in no median."""
    rows = run(tmp_path, TWELVE)
    assert [row.status for row in rows] == ["ok"] * 12
    first = [row for row in rows if row.first_use_ms is not None]
    assert [(row.width, row.height) for row in first] == [(256, 256), (512, 256), (512, 512)]
    assert [row.first_in_process for row in first] == [True, False, False]
    assert all(len(row.runs_ms) == 2 for row in rows)
    assert rows[0].device == "NVIDIA H200"
    assert rows[0].peak_memory_bytes == 49152 * 1024**2


def test_accidents_are_rows_and_the_rest_goes_on(tmp_path) -> None:
    """Out of memory, an exception, a kill: each is a row; a process killed once is tried again."""
    sizes = ((256, 13), (256, 17), (256, 19), (256, 23), (256, 256))
    rows = run(tmp_path, Grid(resolutions=sizes))
    assert [row.status for row in rows] == ["out_of_memory", "failed", "ok", "failed", "ok"]
    assert "killed by signal 9" in rows[1].error
    assert rows[1].attempts == rows[2].attempts == 2
    assert "no such size" in rows[3].error
    assert "no room" in rows[0].error


def test_finished_points_are_never_repeated(tmp_path) -> None:
    """A second sweep measures nothing anew; with --retry-failed only what failed; a larger grid the rest."""
    grid = Grid(resolutions=((256, 13), (256, 256)))
    run(tmp_path, grid)
    before = (tmp_path / "sweep.jsonl").read_bytes()
    run(tmp_path, grid)
    assert (tmp_path / "sweep.jsonl").read_bytes() == before
    run(tmp_path, grid, again=frozenset({Again.FAILED}))
    assert len(read_lines(tmp_path / "sweep.jsonl", SweepRow)) == 3
    larger = run(tmp_path, Grid(resolutions=((256, 13), (256, 256), (512, 512))))
    assert len(larger) == 3
    assert len(read_lines(tmp_path / "sweep.jsonl", SweepRow)) == 4


def test_rows_of_another_call_are_not_taken_for_ours(tmp_path) -> None:
    """The same grid over other flags of generate, in the same folder, is measured anew."""
    grid = Grid(steps=(4, 8))
    run(tmp_path, grid)
    asked = options(tmp_path, grid)
    other = replace(asked, flags=lambda point: {**flags_of(point), "slow": 2.0})
    rows = sweep(other, LocalExecutor(other.runner), Silent())
    assert len(read_lines(tmp_path / "sweep.jsonl", SweepRow)) == 4
    assert rows[0].step_ms == pytest.approx(2 * run(tmp_path, grid)[0].step_ms)


def test_two_sweeps_do_not_share_a_folder(tmp_path) -> None:
    """The second is refused while the first is at work."""

    class Nested:
        def run(self, tasks, finished):
            run(tmp_path, TWELVE)

    asked = options(tmp_path, TWELVE)
    with pytest.raises(RunFailedError, match="another sweep"):
        sweep(asked, Nested(), Silent())


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import sweeps
held_from = int(sys.argv[1]) if len(sys.argv) > 1 else None
sweeps.run(Path({folder!r}), sweeps.TWELVE, held_from=held_from)
"""


def test_a_sweep_killed_twice_has_exactly_its_twelve_points(tmp_path) -> None:
    """SIGKILL after the third and after the eighth row: no point is lost, none is measured twice."""
    path = tmp_path / "sweep.jsonl"
    script = SCRIPT.format(tests=str(TESTS), folder=str(tmp_path))
    kept = []
    for count in (3, 8):
        process = subprocess.Popen([sys.executable, "-c", script, str(count)])
        signal_when(process, path, count, signal.SIGKILL)
        process.wait()
        kept.append(rows_in(path))
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=280).returncode == 0
    final = rows_in(path)
    assert final[: len(kept[1])][: len(kept[0])] == kept[0]
    rows = read_lines(path, SweepRow)
    assert len({row.id for row in rows}) == len(rows) == 12
    assert {row.point for row in rows} == set(TWELVE.points())
    assert [row.status for row in rows] == ["ok"] * 12


def test_the_views_show_every_point(tmp_path, golden) -> None:
    """Terminal, page and JSON hold the failed point too; the page draws its curves itself."""
    grid = Grid(resolutions=((256, 13), (256, 256), (512, 256), (512, 512), (1024, 1024)), steps=(4, 8))
    report = sweep_report(run(tmp_path, grid), missing=1)
    golden("sweep.txt", render_sweep_terminal(report))
    page = render_sweep_html(report)
    assert page.count("<svg") == len({(fit.group, fit.against) for fit in report.fits})
    assert "OUT OF MEMORY" in page
    assert "<script" not in page
    assert '"out_of_memory"' in render_sweep_json(report)


def test_the_terminal_says_what_happened_however_long_prompts_are() -> None:
    """There is no room for it in the table beside long prompts and flags; the same reason is said once."""
    points = [SweepPoint(prompt=prompt * 9_000, steps=1, variant="--compile regional") for prompt in "abc"]
    errors = ("ValueError: no such size", "ValueError: no such size", "no room \x1b[31m" + "x" * 9_000)
    rows = [
        SweepRow(id=str(at), point=point, status="failed", error=error)
        for at, (point, error) in enumerate(zip(points, errors, strict=True))
    ]
    text = render_sweep_terminal(sweep_report(rows))
    assert text.count("and 1 more: ValueError: no such size") == 1
    assert r"\x1b[31mxxx" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert len(text) < 2_000
    assert len(render_sweep_html(sweep_report(rows))) < 40_000


def test_hostile_flags_stay_text_in_the_page() -> None:
    """A variant's text cannot become markup, not even inside the drawing."""
    bad = "</svg><script>x</script>"
    rows = [row(16 * n, stages={bad: float(n)}) for n in (1, 2, 4)]
    page = render_sweep_html(sweep_report(rows))
    assert "<script>" not in page


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "4,x", "--", "generate", "--prompt", "p"],
        ["--resolutions", "64", "--", "generate", "--prompt", "p"],
        ["--steps", "4"],
        ["--steps", "4", "--", "generate"],
        ["--steps", "4", "--vs", "--no-such-flag", "--", "generate", "--prompt", "p"],
        ["--prompts", "none.txt", "--", "generate"],
        ["--steps", "4", "--", "generate", "--prompt", "p", "--profile"],
        ["--steps", "4", "--", "generate", "--prompt", "p", "--model-path", "tiny/sd3"],
        ["--steps", "4", "--vs", "--model-path tiny/sd3", "--", "generate", "--prompt", "p"],
        ["--steps", "4", "--", "generate", "--prompt", "p", "--offload", "model", "--dit-layerwise-offload"],
    ],
)
def test_wrong_calls_are_one_line_and_status_2(tmp_path, monkeypatch, capsys, arguments) -> None:
    """Bad axes, a missing call, unknown flags: one line before anything is loaded."""
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def fake_worker(tmp_path, monkeypatch):
    """The command's sweeps run on the worker without a pipeline, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    faked = partial(RunnerOptions, worker_command=FAKE)
    monkeypatch.setattr("stepscope.session.sweeping.point_runner.RunnerOptions", faked)


@pytest.mark.usefixtures("fake_worker")
def test_the_page_of_an_earlier_sweep_is_kept(tmp_path, capsys) -> None:
    """Another grid in the same folder keeps the first page under another name; the same grid writes none."""

    def swept(steps):
        assert main(["sweep", "--steps", steps, "--dir", "s", "--", "generate", "--prompt", "p"]) == 0
        return capsys.readouterr().err

    swept("4,8")
    first = (tmp_path / "s" / "sweep.html").read_bytes()
    assert "sweep.html is as it was" in swept("4,8")
    assert "the earlier page is kept: " in swept("2")
    assert (tmp_path / "s" / "sweep.previous.html").read_bytes() == first
    assert (tmp_path / "s" / "sweep.html").read_bytes() != first
    assert sorted(path.name for path in (tmp_path / "s").glob("*.html")) == [
        "sweep.html",
        "sweep.previous.html",
    ]


@pytest.mark.usefixtures("fake_worker")
def test_what_the_pipeline_takes_for_no_point_is_said_before_the_first(tmp_path, capsys) -> None:
    """One line and status 2, no row of each; where other points can run, the refused one is a row."""
    call = ["sweep", "--frames", "5,9", "--steps", "4,8", "--dir", "s", "--", "generate", "--prompt", "p"]
    assert main(call) == 2
    assert (
        capsys.readouterr().err == "stepscope: error: no point can run: the pipeline has no --num-frames.\n"
    )
    assert rows_in(tmp_path / "s" / "sweep.jsonl") == []


@pytest.mark.usefixtures("fake_worker")
def test_a_point_that_fails_says_why_at_once(capsys) -> None:
    """With its reason, on a line of its own, not only in the table at the end."""
    call = ["sweep", "--resolutions", "256x23,256x13", "--dir", "s", "--", "generate", "--prompt", "p"]
    assert main(call) == 1
    said = capsys.readouterr().err
    assert "1 of 2: 256x23: failed: ValueError: no such size" in said
    assert "2 of 2: 256x13: out of memory: OutOfMemoryError: no room" in said


@pytest.mark.usefixtures("fake_worker")
def test_untrusted_points_and_those_of_fewer_runs_are_measured_again_when_asked(tmp_path, capsys) -> None:
    """Without --again they are kept, and the sweep says so; their dumps stay beside the new ones."""

    def swept(*flags):
        call = ["sweep", "--resolutions", "256x29,256x256", "--dir", "s", *flags]
        assert main([*call, "--", "generate", "--prompt", "p"]) == 0
        rows = {row.id: row for row in read_lines(tmp_path / "s" / "sweep.jsonl", SweepRow)}
        return capsys.readouterr().err, [len(row.runs_ms) for row in rows.values()]

    assert swept()[1] == [2, 2]
    dumps = {path: path.read_bytes() for path in (tmp_path / "s" / "dumps").iterdir()}
    said, counts = swept("--repeats", "3")
    assert counts == [2, 2]
    assert "finished points with untrusted numbers: 1, kept (--again untrusted measures them anew)" in said
    assert "finished points of fewer measured runs than --repeats 3: 2, kept (--again fewer" in said
    assert swept("--repeats", "3", "--again", "untrusted")[1] == [3, 2]
    said, counts = swept("--repeats", "3", "--again", "fewer,untrusted")
    assert counts == [3, 3]
    assert all(path.read_bytes() == content for path, content in dumps.items())
    assert main(["sweep", "--again", "slow", "--", "generate", "--prompt", "p"]) == 2


@pytest.mark.slow
def test_a_real_pipeline_in_a_sweep(tmp_path, monkeypatch, capsys) -> None:
    """The embedded pipeline over two sizes: rows, page, and nothing left to do the second time."""
    monkeypatch.chdir(tmp_path)
    call = ["sweep", "--resolutions", "64x64,128x64", "--steps", "1", "--repeats", "1", "--dir", "s"]
    call += ["--", "generate", "--prompt", "a logo"]
    assert main(call) == 0
    rows = read_lines(tmp_path / "s" / "sweep.jsonl", SweepRow)
    assert [(row.status, row.width, row.height, row.steps) for row in rows] == [
        ("ok", 64, 64, 1),
        ("ok", 128, 64, 1),
    ]
    assert all(row.first_use_ms is not None and row.random_weights for row in rows)
    assert (tmp_path / "s" / "sweep.html").exists()
    capsys.readouterr()
    assert main(call) == 0
    assert "2 of 2 points are there already" in capsys.readouterr().err
