"""Sweeps: every point a row, kills that lose nothing, fits that find planted laws."""

import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.comparison.scaling import power_law, sweep_report, tokens_of
from stepscope.analyse.comparison.sweep_results import CurvePoint
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
from sweeps import FAKE, TWELVE, Silent, flags_of, options, rows_in, run, signal_when

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


def test_planted_laws_are_found(tmp_path) -> None:
    """The fake step is fixed plus quadratic in tokens and its decode linear: the fits say so."""
    sizes = tuple((width, 256) for width in (256, 512, 1024, 2048, 4096))
    report = sweep_report(run(tmp_path, Grid(resolutions=sizes, steps=(4, 8, 16))))
    fits = {(fit.series, fit.against, fit.group): fit for fit in report.fits}
    assert fits["DenoisingStage", "steps", "1024x256"].exponent == pytest.approx(1.0, abs=0.01)
    assert fits["DecodingStage", "tokens", "4 steps"].exponent == pytest.approx(1.0, abs=0.05)
    assert fits["step", "tokens", "4 steps"].exponent == pytest.approx(2.0, abs=0.02)
    (composition, *_) = report.compositions
    assert composition.fixed_ms == pytest.approx(1.0, rel=0.01)
    assert composition.quadratic_ms_per_token2 == pytest.approx(1e-3, rel=0.01)
    assert composition.quadratic_share > 0.99
    assert composition.worst_residual < 0.01


def row(tokens_side, *, steps=4, stages, **changes) -> SweepRow:
    point = SweepPoint(width=tokens_side, height=16, steps=steps)
    return SweepRow(
        id=str(point), point=point, status="ok", total_ms=sum(stages.values()), stages_ms=stages,
        step_ms=stages.get("DenoisingStage", 1.0 * steps) / steps,
        width=tokens_side, height=16, steps=steps, **changes,
    )  # fmt: skip


def test_the_crossover_is_where_the_curves_meet() -> None:
    """Linear 100 n against quadratic n^2: the second takes over at 100 tokens."""
    rows = [
        row(16 * n, stages={"TextEncodingStage": 100.0 * n, "DenoisingStage": float(n * n)})
        for n in (10, 50, 200, 1000)
    ]
    (crossover,) = sweep_report(rows).crossovers
    assert (crossover.before, crossover.after, crossover.within) == (
        "TextEncodingStage",
        "DenoisingStage",
        True,
    )
    assert crossover.tokens == pytest.approx(100.0)
    assert crossover.interval == pytest.approx((100.0, 100.0), rel=0.01)


def stages_of(sizes, text_ms, denoising_ms):
    return [
        row(16 * n, stages={"TextEncodingStage": float(text), "DenoisingStage": float(denoising)})
        for n, text, denoising in zip(sizes, text_ms, denoising_ms, strict=True)
    ]


def test_a_crossover_has_the_uncertainty_of_its_fits() -> None:
    """Some 3 % of residual move where linear meets quadratic; between measured points it is measured."""
    sizes = (10, 30, 90, 110, 300, 900)
    wobble = (1.03, 0.97, 1.02, 0.99, 0.97, 1.03)
    rows = stages_of(
        sizes,
        [100 * n * w for n, w in zip(sizes, wobble, strict=True)],
        [n * n * w for n, w in zip(sizes, wobble[::-1], strict=True)],
    )
    (crossover,) = sweep_report(rows).crossovers
    low, high = crossover.interval
    assert crossover.within
    assert 90.0 <= low < crossover.tokens < high <= 110.0
    assert all(not each.within for each in sweep_report(rows[:3]).crossovers)


def test_a_crossover_that_the_fits_hardly_know_is_not_told_but_why() -> None:
    """Residuals of 12 to 14 %, extrapolated: the interval is wider than a factor of two, so no number."""
    sizes = (64, 100, 144, 256)
    report = sweep_report(stages_of(sizes, [52.0, 84.0, 88.0, 175.0], [20.0, 26.0, 52.0, 90.0]))
    assert report.crossovers == ()
    (said,) = report.crossovers_withheld
    assert "is not told (TextEncodingStage and DenoisingStage, 4 steps): the fits allow " in said
    assert said in render_sweep_html(report)
    assert "is not told" in render_sweep_terminal(report)


_wobble = st.lists(st.floats(0.97, 1.03), min_size=4, max_size=4)


@given(_wobble, _wobble, st.floats(0.5, 2.5), st.floats(0.5, 2.5), st.floats(5.0, 200.0))
def test_what_is_told_of_a_crossover_holds_of_the_measured_points(one, other, power, steeper, place) -> None:
    """Its interval holds it and spans no more than a factor of two; 'measured' has a point on each side."""
    sizes = (10, 20, 40, 80)
    text_ms = [100 * (n / place) ** power * w for n, w in zip(sizes, one, strict=True)]
    denoising_ms = [100 * (n / place) ** steeper * w for n, w in zip(sizes, other, strict=True)]
    for told in sweep_report(stages_of(sizes, text_ms, denoising_ms)).crossovers:
        low, high = told.interval
        assert low <= told.tokens <= high <= 2 * low
        first, second = (text_ms, denoising_ms)
        if told.before == "DenoisingStage":
            first, second = second, first
        longer = [n for n, a, b in zip(sizes, first, second, strict=True) if a > b]
        after = [n for n, a, b in zip(sizes, first, second, strict=True) if b > a]
        assert all(n <= high for n in longer)
        assert all(n >= low for n in after)
        assert told.within == bool(longer and after and max(longer) < min(after))


def test_two_models_of_a_page_that_contradict_each_other_tell_no_crossover() -> None:
    """The power law of denoising meets decoding ahead; by the split of the step, quadratic, it never does."""
    rows = [
        row(16 * n, steps=1, stages={"DenoisingStage": 60 + n * n / 1000, "DecodingStage": 0.0044 * n**1.7})
        for n in (100, 140, 200, 280)
    ]
    report = sweep_report(rows)
    assert report.crossovers == ()
    assert "by the split of a step" in report.crossovers_withheld[0]


def test_an_exponent_has_an_interval_not_a_bare_number() -> None:
    """95 % by Student's t: with three sizes one degree of freedom, so 12.7 standard errors."""
    points = [CurvePoint(x=2.0**at, ms=ms) for at, ms in enumerate((1.0, 2.1, 4.0))]
    fit = power_law(points, series="s", against="tokens", group="")
    low, high = fit.exponent_interval
    assert high - low == pytest.approx(2 * 12.706 * fit.exponent_error, rel=1e-3)


def test_untrusted_and_failed_rows_are_in_no_fit() -> None:
    """A wrong number does not bend a curve; it is named instead."""
    good = [row(16 * n, stages={"DenoisingStage": float(n)}) for n in (1, 2, 4)]
    bad = row(16 * 8, stages={"DenoisingStage": 1e6}, untrusted=("enqueue times",))
    report = sweep_report([*good, bad])
    assert next(fit for fit in report.fits if fit.series == "DenoisingStage").exponent == pytest.approx(1.0)
    assert any("enqueue times" in text for text in report.warnings)


def test_a_law_needs_three_sizes() -> None:
    """Fewer, or a time of zero, give no exponent rather than a made-up one."""
    assert power_law([CurvePoint(x=1, ms=1)] * 3, series="s", against="tokens", group="") is None
    points = [CurvePoint(x=1, ms=0), CurvePoint(x=2, ms=1), CurvePoint(x=3, ms=2)]
    assert power_law(points, series="s", against="tokens", group="") is None
    two = [CurvePoint(x=1, ms=3), CurvePoint(x=2, ms=6)]
    assert power_law(two, series="s", against="tokens", group="") is None


@pytest.mark.parametrize(
    ("times_ms", "doubt"),
    [
        ((1.0, 2.0, 4.0), ""),
        ((4.0, 2.0, 1.0), "falls as size grows"),
        ((1.0, 6.0, 4.0), "misses a point by"),
        ((1.0, 1.1, 1.0), "not distinguishable"),
    ],
)
def test_a_fit_that_should_not_be_believed_says_so(times_ms, doubt) -> None:
    """Beside the number: it is not left to the reader to know that time does not fall with size."""
    points = [CurvePoint(x=2.0**at, ms=ms) for at, ms in enumerate(times_ms)]
    fit = power_law(points, series="s", against="tokens", group="")
    assert fit.doubt.startswith(doubt)
    assert bool(fit.doubt) == bool(doubt)


def test_a_doubt_is_whole_in_the_terminal() -> None:
    """It wraps where it has to, and never loses its middle."""
    rows = stages_of((1, 2, 4), (5.0, 5.5, 5.1), (1.0, 2.0, 4.0))
    for width, words in ((110, "not distinguishable from"), (80, "not")):
        text = render_sweep_terminal(sweep_report(rows), width=width)
        assert words in text
        assert "distinguishable" in text
        assert "growth" in text
        assert "…" not in text


def test_a_sweep_of_too_few_points_says_why_there_is_no_fit() -> None:
    """Two sizes and one step count describe no growth; a first call that was faster cost nothing."""
    rows = [row(16 * n, stages={"DenoisingStage": float(n)}, first_use_ms=-5.0) for n in (1, 2)]
    report = sweep_report(rows)
    assert report.fits == ()
    assert any("no growth is fitted over sizes: 2 were" in text for text in report.warnings)
    assert "not distinguishable" in render_sweep_terminal(report)
    assert "-5" not in render_sweep_terminal(report)


def test_tokens_of_pictures_and_videos() -> None:
    """1024 x 1024 is 4,096 tokens; Wan's 81 frames of 1280 x 720 are the 75,600 of facts 6.4."""
    assert tokens_of(row(1024, stages={}, **{})) == 64
    video = SweepRow(id="x", point=SweepPoint(), status="ok", width=1280, height=720, frames=81)
    assert tokens_of(video) == 75_600
    assert tokens_of(SweepRow(id="x", point=SweepPoint(), status="ok")) is None


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
