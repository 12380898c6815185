"""`generate` on tiny models: the trace holds exactly the steps asked for, and the picture is the same."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import programs
import stepscope
from stepscope.record.perf_dump import dump_schema
from stepscope.record.run_record import read_run

pytest.importorskip("torch")
pytest.importorskip("diffusers")

TINY = [
    "tiny/qwen-image",
    "tiny/flux.1-dev",
    "tiny/flux.1-schnell",
    "tiny/stable-diffusion-3.5-large",
    "tiny/stable-diffusion-xl",
    "tiny/wan2.1-t2v-1.3b",
    "tiny/wan2.1-t2v-14b",
    "tiny/z-image-turbo",
    "tiny/hunyuanvideo",
    "tiny/ltx-video",
]


pytestmark = pytest.mark.usefixtures("own_folder")


def one(**flags: object) -> stepscope.GenerateResult:
    [result] = stepscope.generate(**{"prompt": "a cat", "warmup": False, "save_output": False} | flags)
    return result


def events_of(path: Path) -> list[dict]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.mark.parametrize(
    ("model", "steps", "asked", "held", "note"),
    [
        ("tiny/qwen-image", 12, 5, range(1, 6), False),
        ("tiny/qwen-image", 12, 1, range(1, 2), False),
        ("tiny/qwen-image", 12, 12, range(1, 12), True),
        ("tiny/qwen-image", 12, -1, range(12), False),
        ("tiny/qwen-image", 12, 50, range(1, 12), True),
        ("tiny/qwen-image", 2, 5, range(1, 2), True),
        ("tiny/qwen-image", 4, 5, range(1, 4), True),
        ("tiny/flux.1-schnell", 1, 5, range(1), True),
    ],
)
def test_the_trace_holds_exactly_these_steps(
    model: str, steps: int, asked: int, held: range, note: bool
) -> None:
    """One span for each step with operators inside, none of any other step, the number in the name."""
    result = one(model_path=model, num_inference_steps=steps, profile=True, num_profiled_timesteps=asked)
    path = result.trace_path
    events = events_of(path)
    spans = [e for e in events if e.get("args", {}).get("stepscope")]
    operators = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "cpu_op"]
    named = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in spans if "denoising_step" in e["name"]}

    assert Counter(e["name"] for e in spans if "denoising_step" in e["name"]) == Counter(
        f"denoising_step_{index}" for index in held
    )
    assert path.name == f"{result.run.request_id}-{len(held)}_steps-global-rank0.trace.json.gz"
    assert path.parent == Path("logs").resolve()
    assert result.run.traces[0].steps == tuple(held)
    assert bool(result.run.traces[0].note) is note
    first, last = min(low for low, _ in named.values()), max(high for _, high in named.values())
    assert all(first <= low < last for low, _ in operators)
    per_step = [sum(low <= start < high for start, _ in operators) for low, high in named.values()]
    assert sum(per_step) == len(operators)
    assert min(per_step) > 100
    assert max(per_step) - min(per_step) < 0.1 * max(per_step)
    others = {e["name"] for e in spans if "step" not in e["name"]}
    assert {name.removesuffix("_uncond").removesuffix("_cond") for name in others} == {
        "DenoisingStage",
        "forward_transformer",
    }
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name]


def test_all_stages_are_in_a_trace_of_everything() -> None:
    """--profile-all-stages: text encoding, denoising, decoding, every step."""
    result = one(num_inference_steps=3, profile=True, profile_all_stages=True)
    spans = [e["name"] for e in events_of(result.trace_path) if e.get("args", {}).get("stepscope")]

    assert result.trace_path.name.endswith("-full_stages-global-rank0.trace.json.gz")
    assert [name for name in spans if name.endswith("Stage")] == [
        stage.span.name for stage in result.run.stages
    ]
    assert {f"denoising_step_{index}" for index in range(3)} <= set(spans)


def test_the_dump_has_every_key_and_its_sums_agree(shared_traces: Path) -> None:
    """Every key of a dump that SGLang wrote is in ours; stages sum to the total, steps to their stage."""
    result = one(perf_dump_path="deep/perf.json", warmup=True)
    dump = json.loads(result.dump_path.read_text())
    theirs = json.loads((shared_traces / "engines" / "sglang_cpu_untraced.perf.json").read_text())

    assert set(theirs) <= set(dump)
    assert set(theirs["steps"][0]) <= set(dump["steps"][0])
    assert set(theirs["denoise_steps_ms"][0]) <= set(dump["denoise_steps_ms"][0])
    jsonschema.validate(dump, dump_schema())
    stages = {entry["name"]: entry["duration_ms"] for entry in dump["steps"]}
    steps_ms = sum(step["duration_ms"] for step in dump["denoise_steps_ms"])
    assert len(dump["denoise_steps_ms"]) == 12
    assert steps_ms == pytest.approx(stages["DenoisingStage"])
    assert sum(stages.values()) + dump["unaccounted_ms"] == pytest.approx(dump["total_duration_ms"])
    assert programs.doubts(dump) == []
    assert dump["memory_checkpoints"] is None
    assert dump["memory_checkpoints_reason"]
    assert dump["warmup"]["requests"] >= 1
    assert dump["workload"]["load_format"] == "dummy"
    assert [entry["name"] for entry in dump["outside_stages"]] == ["ModelLoading", "Warmup"]


@pytest.mark.parametrize("model", TINY)
def test_the_saved_output_is_the_same_with_and_without_a_profiler(model: str) -> None:
    """Bit for bit, for every tiny preset, and the warm-up before it changes nothing either."""
    few = {"model_path": model, "num_inference_steps": 2, "save_output": True, "seed": 7}
    plain = one(**few)
    profiled = one(**few, profile=True, warmup=True)

    assert [output.sha256 for output in plain.run.outputs] == [o.sha256 for o in profiled.run.outputs]
    assert plain.output_paths[0].suffix in {".png", ".mp4"}
    if plain.output_paths[0].suffix == ".png":
        assert np.array_equal(*(pixels(r.output_paths[0]) for r in (plain, profiled)))
    else:
        first, second = (r.output_paths[0].read_bytes() for r in (plain, profiled))
        assert first == second
    assert profiled.run.warmup.requests >= 1
    assert len(profiled.run.steps) == 2


def pixels(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(path))


def test_several_prompts_are_several_runs_of_one_load() -> None:
    """Own ids, own traces, numbered dumps, one loading and one warm-up before the first."""
    first, second = stepscope.generate(
        prompt=["a cat", "a/../dog"],
        num_inference_steps=2,
        profile=True,
        perf_dump_path="perf.json",
        run_dir="run",
    )
    assert first.run.request_id != second.run.request_id
    assert [r.dump_path.name for r in (first, second)] == ["perf.json", "perf-1.json"]
    assert [r.run_directory.name for r in (first, second)] == ["run", "run-1"]
    for result in (first, second):
        assert result.trace_path.parent.name == result.run_directory.name
        assert result.trace_path.name.startswith(result.run.request_id)
        assert result.output_paths[0].parent.name == result.run_directory.name
        assert read_run(result.run_directory / "run.json") == result.run
    assert {item.name for item in first.run.outside} >= {"ModelLoading", "Warmup"}
    assert not {item.name for item in second.run.outside} & {"ModelLoading", "Warmup"}


def test_a_run_directory_is_never_written_over() -> None:
    """A second run goes beside the first."""
    few = {"num_inference_steps": 2, "run_dir": "run"}
    assert [one(**few).run_directory.name for _ in range(2)] == ["run", "run-1"]


def test_an_output_of_the_same_name_is_kept() -> None:
    """The second picture gets a number and a warning says so."""
    few = {"num_inference_steps": 2, "save_output": True, "output_file_name": "cat.png"}
    first, second = one(**few), one(**few)

    assert [r.output_paths[0].name for r in (first, second)] == ["cat.png", "cat-1.png"]
    assert any("exists" in warning for warning in second.run.warnings)


def test_the_trace_directory_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours before SGLang's two, an empty one counts as unset, the flag before all."""
    from stepscope.session.destinations import profile_directory

    assert profile_directory({}) == Path("logs")
    assert profile_directory({"SGLANG_TORCH_PROFILER_DIR": "c"}) == Path("c")
    both = {"SGLANG_TORCH_PROFILER_DIR": "c", "SGLANG_DIFFUSION_TORCH_PROFILER_DIR": "b"}
    assert profile_directory(both) == Path("b")
    assert profile_directory(both | {"STEPSCOPE_PROFILE_DIR": "a"}) == Path("a")
    assert profile_directory(both | {"STEPSCOPE_PROFILE_DIR": ""}) == Path("b")
    monkeypatch.setenv("STEPSCOPE_PROFILE_DIR", "from-environment")
    few = {"num_inference_steps": 2, "profile": True}
    assert one(**few).trace_path.parent.name == "from-environment"
    assert one(**few, profile_dir="from-flag").trace_path.parent.name == "from-flag"


def test_nan_in_the_output_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timing stands."""
    from diffusers import AutoencoderKLQwenImage

    decode = AutoencoderKLQwenImage._decode

    def broken(self: object, *arguments: object, **keywords: object) -> object:
        decoded = decode(self, *arguments, **keywords)
        sample = decoded[0] if isinstance(decoded, tuple) else decoded.sample
        sample.fill_(float("nan"))
        return decoded

    monkeypatch.setattr(AutoencoderKLQwenImage, "_decode", broken)
    result = one(num_inference_steps=2)

    assert any("NaN" in warning for warning in result.run.warnings)
    assert programs.doubts(result.dump) == []


def test_an_exception_of_the_pipeline_goes_on_after_everything_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of memory in step 3: dump, trace of the steps before, run record, all marked with the reason."""
    import torch
    from diffusers import QwenImageTransformer2DModel

    forward, calls = QwenImageTransformer2DModel.forward, []

    def until_step_three(self: object, *arguments: object, **keywords: object) -> object:
        calls.append(1)
        if len(calls) > 6:
            raise torch.OutOfMemoryError("no memory left")
        return forward(self, *arguments, **keywords)

    monkeypatch.setattr(QwenImageTransformer2DModel, "forward", until_step_three)
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        one(profile=True, perf_dump_path="perf.json", run_dir="run")
    dump = json.loads(Path("perf.json").read_text())
    run = read_run(Path("run/run.json"))
    spans = [e["name"] for e in events_of(Path(run.traces[0].path)) if e.get("args", {}).get("stepscope")]

    assert "OutOfMemoryError: no memory left" in dump["incomplete_reason"]
    assert not dump["trust"]["ok"]
    assert {"denoising_step_1", "denoising_step_2"} <= set(spans)
    assert "denoising_step_4" not in spans
    assert run.incomplete_reason == dump["incomplete_reason"]


def test_a_profiler_export_that_cannot_be_written_costs_only_the_trace() -> None:
    """Files limited to 64 KiB, as on a full disk: the dump is there, the error says where and what to do."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        with pytest.raises(stepscope.RunFailedError, match="full"):
            one(num_inference_steps=2, profile=True, perf_dump_path="perf.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    dump = json.loads(Path("perf.json").read_text())

    assert dump["incomplete_reason"] is None
    assert any("could not write" in warning for warning in dump["warnings"])
    assert not list(Path("logs").iterdir())


@pytest.mark.parametrize("flag", ["profile_dir", "output_path", "run_dir", "perf_dump_path"])
def test_a_place_that_cannot_be_written_is_found_before_anything_is_loaded(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with a remedy, no model loaded for nothing."""
    from stepscope.session import generate as session

    def never(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(session, "load", never)
    Path("file").touch()
    with pytest.raises(stepscope.RunFailedError, match="choose another directory"):
        stepscope.generate(prompt="x", profile=True, **{flag: "file/below/x"})
    assert [entry.name for entry in Path().iterdir()] == ["file"]


def test_ctrl_c_while_the_trace_is_written_costs_only_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dump and the run record are still written."""
    from stepscope.session import keep

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(keep, "keep_trace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one(num_inference_steps=2, profile=True, perf_dump_path="perf.json", run_dir="run")
    assert json.loads(Path("perf.json").read_text())["incomplete_reason"] is None
    assert read_run(Path("run/run.json")).traces == ()


def test_a_dump_path_that_is_a_folder_is_a_usage_error() -> None:
    """The folder is not renamed out of the way, as a file of an earlier run would be."""
    Path("dumps").mkdir()
    with pytest.raises(stepscope.UsageError, match=r"dumps/perf\.json"):
        one(perf_dump_path="dumps")
    assert Path("dumps").is_dir()


def test_the_commit_is_that_of_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what SGLang's variable says; N/A where there is neither."""
    import subprocess

    from stepscope.session.commit import commit_here

    assert commit_here({"SGLANG_GIT_COMMIT": "abc"}) == "abc"
    assert commit_here({}) is None
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(command, check=True)
    assert len(commit_here({})) == 40


def test_the_trace_is_aligned_by_the_anchors_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture's anchors are found in the export: the wall clock is only a fallback."""
    from stepscope.record.trace_writing import trace_writer

    used = []
    narrowest = trace_writer.narrowest_of_each_end
    monkeypatch.setattr(
        trace_writer, "narrowest_of_each_end", lambda *a: used.append(narrowest(*a)) or used[-1]
    )
    result = one(num_inference_steps=2, profile=True)

    assert len(used) == 1
    assert len(used[0]) == 2
    assert "stepscope_anchor" not in {e["name"] for e in events_of(result.trace_path)}
    drift_ns = abs((used[0][1][1] - used[0][0][1]) - (used[0][1][0] - used[0][0][0]))
    assert drift_ns < 0.01 * (used[0][1][0] - used[0][0][0])


def test_a_warm_up_that_fails_is_the_pipelines_own_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, the pipeline's traceback, none of our frames before it."""
    from diffusers import QwenImageTransformer2DModel

    from stepscope.cli import main

    def fails(*_: object, **__: object) -> None:
        raise ValueError("wrong shape")

    monkeypatch.setattr(QwenImageTransformer2DModel, "forward", fails)
    assert main(["generate", "--prompt", "x", "--warmup"]) == 1
    error = capsys.readouterr().err
    assert "ValueError: wrong shape" in error
    assert "pipeline_qwenimage.py" in error
    assert "/stepscope/session/" not in error
