"""Benches: the order of runs, the verdict, drift, and what the GPU did meanwhile."""

import json
import sys
import types
from functools import partial
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.comparison.bench import drift, notes, order_of
from stepscope.analyse.comparison.bench_results import BenchRun, GpuState
from stepscope.analyse.comparison.compare_results import Verdict
from stepscope.capture.gpu_watch import GpuSample, GpuWatch, nvml_sampler
from stepscope.cli import build_parser, main
from stepscope.model.errors import RunFailedError
from stepscope.render.comparison.bench_views import (
    bench_schema,
    render_bench_html,
    render_bench_json,
    render_bench_markdown,
    render_bench_terminal,
)
from stepscope.session.bench import BenchOptions, Variant, bench, gpu_state
from stepscope.session.sweeping.worker_client import WorkerClient, WorkerDied

FAKE = (sys.executable, str(Path(__file__).parent / "fake_worker.py"), "0.01")


class Heard:
    def __init__(self):
        self.lines = []

    def doing(self, text):
        self.lines.append(text)


def variants(**slow):
    return tuple(Variant(name=name, flags={"height": 256, "slow": factor}) for name, factor in slow.items())


def run(folder, *, runs=3, sampler=None, heard=None, **slow):
    options = BenchOptions(variants=variants(**slow), runs=runs, folder=folder, worker_command=FAKE)
    return bench(options, heard or Heard(), sampler=sampler)


@given(st.integers(1, 4), st.integers(1, 9))
def test_the_order_is_balanced(count, runs) -> None:
    """Every variant runs as often as asked, and neighbouring rounds are mirror images: A B B A."""
    order = order_of(count, runs)
    assert all(order.count(variant) == runs for variant in range(count))
    rounds = [order[at : at + count] for at in range(0, len(order), count)]
    assert all(first == second[::-1] for first, second in pairwise(rounds))


def test_variants_are_interleaved_and_judged(tmp_path) -> None:
    """Two variants, A B B A A B; the slower one is told, with every run on disk."""
    heard = Heard()
    report = run(tmp_path, heard=heard, base=1.0, slower=1.2)
    assert [each.variant for each in report.runs] == ["base", "slower", "slower", "base", "base", "slower"]
    (comparison,) = report.comparison.comparisons
    assert comparison.total.verdict is Verdict.WORSE
    assert comparison.new.runs == report.comparison.base.runs == 3
    assert sorted(path.name for path in tmp_path.glob("*.json"))[0] == "variant-0-run-0.json"
    assert heard.lines[:3] == ["loading base", "loading slower", "run 1 of 6: base"]


def test_a_variant_against_itself_is_no_change(tmp_path) -> None:
    """The null bench of a machine without noise."""
    report = run(tmp_path, base=1.0, itself=1.0)
    assert report.comparison.comparisons[0].total.verdict is Verdict.NO_CHANGE


def test_reloading_keeps_one_process_at_a_time(tmp_path) -> None:
    """With reload each run has a process of its own: loaded as often as it ran."""
    heard = Heard()
    options = BenchOptions(
        variants=variants(base=1.0, other=1.0), runs=2, folder=tmp_path, worker_command=FAKE, reload=True
    )
    bench(options, heard)
    assert sum(line.startswith("loading") for line in heard.lines) == 4


@pytest.mark.parametrize(
    ("height", "words"), [(13, "no room"), (17, "killed by signal 9"), (23, "no such size")]
)
def test_a_failed_run_ends_the_bench_with_its_reason(tmp_path, height, words) -> None:
    """Out of memory, a kill and an exception name the variant, and what was measured stays."""
    broken = (Variant(name="base", flags={"height": 256}), Variant(name="other", flags={"height": height}))
    options = BenchOptions(variants=broken, runs=3, folder=tmp_path, worker_command=FAKE)
    with pytest.raises(RunFailedError, match=words):
        bench(options, Heard())
    assert (tmp_path / "variant-0-run-0.json").exists()


def test_a_bench_without_verdict_says_which_runs_were_untrusted(tmp_path, monkeypatch, capsys) -> None:
    """It ran, so its status is 0; that there is no verdict, and why, is said on standard error too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepscope.session.bench.BenchOptions", partial(BenchOptions, worker_command=FAKE))
    call = ["bench", "--runs", "2", "--vs", "--height 29", "--dir", "b", "--", "generate", "--prompt", "p"]
    assert main(call) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("NO VERDICT: untrusted: variant-1-run-0.json: ")
    assert "untrusted, so no verdict: variant-1-run-0.json, variant-1-run-1.json; run it again" in shown.err


def bench_runs(totals, *, gpu=None):
    return [
        BenchRun(order=order, variant="AB"[order % 2], total_ms=total, path="", gpu=gpu and gpu[order % 2])
        for order, total in enumerate(totals)
    ]


def test_drift_is_found_and_steady_runs_have_none() -> None:
    """A machine that warms up by 5 % over ten runs is told; constant and noisy ones are not."""
    rising = [1000 * (1 + 0.005 * order) for order in range(10)]
    found = drift(bench_runs(rising))
    assert found.found
    assert found.change == pytest.approx(0.045, abs=0.005)
    assert not drift(bench_runs([1000.0] * 10)).found
    assert not drift(bench_runs([1000.0, 1010.0, 995.0, 1005.0, 1000.0, 990.0, 1008.0, 1001.0])).found
    assert drift(bench_runs([1.0] * 5)) is None
    assert any("drifted" in text for text in notes(bench_runs(rising), found))


def test_a_difference_between_variants_is_no_drift() -> None:
    """Each run is held against its own variant's median."""
    assert not drift(bench_runs([1000.0, 2000.0] * 5)).found


def test_throttling_and_clocks_are_said() -> None:
    """A thermal slowdown in a tenth of the samples, and clocks 10 % apart, are notes on the verdict."""
    cool = GpuState(samples=10, sm_mhz=1980.0)
    hot = GpuState(samples=10, sm_mhz=1780.0, throttled=(("hardware thermal slowdown", 0.1),))
    said = notes(bench_runs([1.0] * 6, gpu=(cool, hot)), None)
    assert "B: the GPU was held back by hardware thermal slowdown in 10 % of the samples" in said
    assert any("A 1,980 MHz, B 1,780 MHz" in text for text in said)
    assert notes(bench_runs([1.0] * 6, gpu=(cool, cool)), None) == ()
    assert "no GPU was watched" in notes(bench_runs([1.0] * 6), None)[0]


def test_samples_become_a_state() -> None:
    """Median clock and power, highest temperature, share of each reason; missing readings stay missing."""
    samples = [
        GpuSample(at_ns=0, sm_mhz=1000, temperature_c=60, throttled_by=("power cap",)),
        GpuSample(at_ns=1, sm_mhz=1200, temperature_c=70),
    ]
    state = gpu_state(samples)
    assert (state.sm_mhz, state.temperature_c, state.power_w) == (1100, 70, None)
    assert state.throttled == (("power cap", 0.5),)
    assert gpu_state([]) is None


class FakeNvml(types.ModuleType):
    """An NVML that knows clocks and throttling of one GPU and fails for its temperature."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1":
            raise self.NVMLError
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, handle, kind):
        raise self.NVMLError

    def nvmlDeviceGetPowerUsage(self, handle):
        return 650_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x1 | 0x4 | 0x40


def test_nvml_readings_and_what_it_will_not_tell(monkeypatch) -> None:
    """Bits become reasons, idle is none, a failing reading is missing, an unknown GPU has no sampler."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("pynvml"))
    sample = nvml_sampler("GPU-1")()
    assert (sample.sm_mhz, sample.power_w, sample.temperature_c) == (1980, 650.0, None)
    assert sample.throttled_by == ("power cap", "hardware thermal slowdown")
    assert nvml_sampler("GPU-2") is None


def test_the_watch_samples_while_others_work(tmp_path) -> None:
    """Samples are taken on a thread of their own and found again by time."""
    times = iter(range(10_000))
    with GpuWatch(lambda: GpuSample(at_ns=next(times), sm_mhz=1)) as watch:
        while len(watch.between(0, 10_000)) < 2:
            pass
    assert [sample.at_ns for sample in watch.between(1, 1)] == [1]


def test_the_terminal_view(tmp_path, golden) -> None:
    """Verdict, notes, tables, the runs in their order, the drift check."""
    golden("bench.txt", render_bench_terminal(run(tmp_path, base=1.0, slower=1.2)))


def test_every_view_shows_runs_and_drift(tmp_path) -> None:
    """Terminal, Markdown, page and JSON hold the runs in their order; the JSON keeps its schema."""
    report = run(tmp_path, sampler=lambda: GpuSample(at_ns=0, sm_mhz=1), base=1.0, slower=1.2)
    for text in (render_bench_terminal(report), render_bench_markdown(report), render_bench_html(report)):
        assert "Runs in their order" in text
        assert "Drift check" in text
    jsonschema.validate(json.loads(render_bench_json(report)), bench_schema())


def test_a_dead_worker_is_named_with_its_log(tmp_path) -> None:
    """A program that is no worker ends at once: the message says how and where its output is."""
    with (
        WorkerClient(tmp_path / "w.log", command=(sys.executable, "-c", "raise SystemExit(3)")) as worker,
        pytest.raises(WorkerDied, match="exit status 3"),
    ):
        worker.ask("load", {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "generate", "--prompt", "p"],
        ["--vs", ""],
        ["--vs", "--no-such-flag", "--", "generate", "--prompt", "p"],
        ["--vs", "", "--", "generate", "--prompt", "p", "--perf-dump-path", "x.json"],
        ["--vs", "'", "--", "generate", "--prompt", "p"],
        ["--vs", "", "--runs", "0", "--", "generate", "--prompt", "p"],
        ["--vs", "", "--", "generate"],
        ["--vs", "--model-path tiny/sd3", "--", "generate", "--prompt", "p"],
        ["--vs", "--tp-size 2", "--", "generate", "--prompt", "p"],
    ],
)
def test_wrong_calls_are_one_line_and_status_2(tmp_path, monkeypatch, capsys, arguments) -> None:
    """Nothing to compare with, no call, unknown flags: one line before anything is loaded."""
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_one_flag_is_a_variant_without_further_quoting(tmp_path, monkeypatch, capsys) -> None:
    """``--vs "--flag"`` reaches us as two words; argparse would take the second for a flag of ours."""
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--vs", "--no-such-flag", "--", "generate", "--prompt", "p"]) == 2
    assert "--no-such-flag" in capsys.readouterr().err
    parsed = build_parser().parse_args(["bench", "--vs", "--enable-torch-compile", "--", "generate", "--vs"])
    assert parsed.vs == ["--enable-torch-compile"]


@pytest.mark.slow
def test_a_real_pipeline_against_itself(tmp_path, monkeypatch, capsys) -> None:
    """The embedded pipeline in two real processes: equal pictures, both loaded, a verdict of some kind."""
    monkeypatch.chdir(tmp_path)
    call = ["--", "generate", "--prompt", "a logo", "--num-inference-steps", "2"]
    assert main(["bench", "--runs", "2", "--vs", "", "--dir", "b", "--format", "json", *call]) == 0
    comparison = json.loads(capsys.readouterr().out)["comparison"]["comparisons"][0]
    assert comparison["quality"][0]["verdict"] == "identical"
    assert comparison["basis"] == "significance"
    assert comparison["random_weights"]
