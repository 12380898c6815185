"""`stepscope generate` at the terminal: flags, configuration files, one-line errors, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli import build_parser, main
from stepscope.cli.config_file import with_config
from stepscope.cli.failure import show_failure
from stepscope.cli.generate_flags import NOT_HERE, add_flags
from stepscope.model.errors import UsageError
from stepscope.session.generate_flags import GenerateFlags, options_of
from stepscope.workload.request import CompileKind, OffloadKind

pytestmark = pytest.mark.usefixtures("own_folder")


def parsed(*words: str) -> dict:
    arguments = build_parser().parse_args(["generate", *words])
    values = vars(with_config(arguments, add_flags))
    return {name: value for name, value in values.items() if name not in {"command", "entrypoint", "config"}}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--prompt", "a", "b"], {"prompt": ["a", "b"]}),
        (["--warmup"], {"warmup": True}),
        (["--warmup", "true"], {"warmup": True}),
        (["--warmup=false"], {"warmup": False}),
        (["--no-warmup"], {"warmup": False}),
        (["--profile", "--num-profiled-timesteps", "-1"], {"profile": True, "num_profiled_timesteps": -1}),
        (["--no-save-output"], {"save_output": False}),
        (
            ["--diffusers-kwargs", '{"max_sequence_length": 64}'],
            {"diffusers_kwargs": {"max_sequence_length": 64}},
        ),
        (["--720p"], {"size": "720p"}),
        (["--vae-cpu-offload", "true"], {"vae_cpu_offload": True}),
        (["--prompt-file-path", "p.txt"], {"prompt_path": "p.txt"}),
    ],
)
def test_flags_have_sglangs_forms(words: list[str], values: dict) -> None:
    """Several prompts after one --prompt, booleans bare or with a value; nothing that was not given."""
    assert parsed(*words) == values


def test_every_flag_is_one_that_the_python_api_takes() -> None:
    """The command line and `stepscope.generate` cannot drift apart."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    names = {action.dest for action in parser._actions} - {"config", "size", "log_level"}
    assert names == set(GenerateFlags.__annotations__)
    assert not set(NOT_HERE) & set(parser._option_string_actions)


def test_values_of_sglangs_flags_that_mean_one_process_are_what_runs() -> None:
    """A line for SGLang on one GPU is taken as it is; nothing of it reaches the pipeline."""
    line = "--num-gpus 1 --tp-size 1 --sp-degree 1 --ulysses-degree 1 --ring-degree=1 --dp-size 1"
    line += " --dp-degree 1 --enable-cfg-parallel false --use-fsdp-inference false --enable-teacache false"
    plain = options_of({"prompt": "x"})
    assert options_of(parsed("--prompt", "x", *line.split()) | {"prompt": "x"}) == plain


@pytest.mark.parametrize("as_json", [True, False])
def test_a_configuration_file_fills_what_the_command_line_leaves_open(as_json: bool) -> None:
    """YAML or JSON, dashes or underscores; the command line wins wherever it stands."""
    content = {
        "prompt": ["from", "file"],
        "num-inference-steps": 7,
        "warmup": False,
        "diffusers_kwargs": {"a": 1},
    }
    lines = "prompt: [from, file]\nnum-inference-steps: 7\nwarmup: false\ndiffusers_kwargs: {a: 1}\nseed:\n"
    Path("c").write_text(json.dumps(content) if as_json else lines)

    assert parsed("--num-inference-steps", "3", "--config", "c") == {
        "prompt": ["from", "file"],
        "num_inference_steps": 3,
        "warmup": False,
        "diffusers_kwargs": {"a": 1},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seeed: 1", "there is no flag seeed. Did you mean --seed?"),
        ("seed: many", "c: argument --seed: invalid int value: 'many'."),
        ("[1, 2]", "does not map flags to values"),
        ("a: [", "neither YAML nor JSON"),
        ("config: other", "there is no flag config"),
    ],
)
def test_a_wrong_configuration_file_is_named(content: str, said: str) -> None:
    """The file and the key, not a traceback."""
    Path("c").write_text(content)
    with pytest.raises(UsageError) as raised:
        parsed("--config", "c")
    assert said in str(raised.value)
    assert "c" in str(raised.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profle"], "generate has no --profle. Did you mean --profile?"),
        (["--tp-size", "2", "--prompt", "x"], "--tp-size 2 is not in this version: tensor parallelism: it"),
        (["--enable-cfg-parallel", "--prompt", "x"], "CFG parallelism: it needs several processes; this"),
        (["--enable-teacache", "true", "--prompt", "x"], "TeaCache: step caches are not applied here"),
        (["--ring-degree", "0", "--prompt", "x"], "0 is not above zero"),
        (["--data-type", "video", "--prompt", "x"], "the model decides whether it makes pictures or videos"),
        (["--port=30000"], "--port is not in this version: it configures a server"),
        (["--num-gpus", "8", "--prompt", "x"], "--num-gpus 8 is not in this version"),
        (["--num-profiled-timesteps", "0"], "0 is neither a positive number of steps nor -1"),
        (["--num-profiled-timesteps", "-2"], "-2 is neither a positive number of steps nor -1"),
        (["--profile-all-stages", "--prompt", "x"], "traces nothing without --profile"),
        (["--num-inference-steps", "0"], "0 is not above zero"),
        (["--warmup", "maybe"], "'maybe' is neither true nor false"),
        (["--diffusers-kwargs", "[1]"], "not a JSON object"),
        ([], "there is no prompt"),
        (["--prompt-path", "none.txt"], "none.txt does not exist"),
        (["--prompt", "x", "--config", "none.yaml"], "cannot read none.yaml"),
        (["--prompt", "x", "--model-path", "tiny/none"], "tiny/none"),
        (["--prompt", "x", "--num-frames", "5"], "QwenImagePipeline takes no --num-frames. It accepts:"),
        (["--prompt", "x", "--image-path", "none.png"], "none.png"),
        (["--prompt", "x", "--offload", "model", "--dit-layerwise-offload"], "exclude each other"),
        (["--prompt", "x", "--output-file-name", "a", "--output-file-path", "b/c"], "exclude each other"),
        (["--prompt", "x", "--backend", "sglang"], "invalid choice: 'sglang'"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong and what to do; never a traceback, never a page of usage."""
    assert main(["generate", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("stepscope: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_folder_without_an_index_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It says which file is missing."""
    Path("model").mkdir()
    assert main(["generate", "--prompt", "x", "--model-path", "./model"]) == 2
    assert "model_index.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "offload", "compiled"),
    [
        ({}, OffloadKind.NONE, CompileKind.NONE),
        ({"dit_cpu_offload": True}, OffloadKind.MODEL, CompileKind.NONE),
        ({"dit_layerwise_offload": True, "enable_torch_compile": True}, OffloadKind.BLOCK, CompileKind.WHOLE),
        ({"offload": "leaf", "compile": "regional"}, OffloadKind.LEAF, CompileKind.REGIONAL),
    ],
)
def test_sglangs_offload_and_compile_flags_become_diffusers(
    flags: dict, offload: OffloadKind, compiled: CompileKind
) -> None:
    """Off unless asked for."""
    load = options_of({"prompt": "x"} | flags).load
    assert (load.offload.kind, load.compile) == (offload, compiled)


@pytest.mark.parametrize(
    ("given", "wanted"), [({}, False), ({"image_path": "a"}, True), ({"image_path": ["a"]}, True)]
)
def test_an_image_asks_for_a_pipeline_that_takes_one(given: dict, wanted: bool) -> None:
    """--image-path decides which of a model's pipeline classes is loaded."""
    assert options_of({"prompt": "x", **given}).load.image_input is wanted


def test_prompts_come_from_flags_and_from_a_file() -> None:
    """Empty lines are none."""
    Path("prompts.txt").write_text("one\n\n  two  \n")
    options = options_of({"prompt": ["zero"], "prompt_path": "prompts.txt"})
    assert [request.prompt for request in options.requests] == ["zero", "one", "two"]


def test_what_is_printed_names_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer first, absolute paths on lines of their own, the next command last."""
    words = "--prompt cat --num-inference-steps 3 --no-warmup --profile --perf-dump-path p.json"
    assert main(["generate", *words.split()]) == 0
    out = capsys.readouterr().out.splitlines()

    assert out[0].startswith("TRUSTED")
    saved = [
        line.partition("Saved profiler traces to: ")[2] for line in out if "Saved profiler traces" in line
    ]
    assert len(saved) == 1
    assert Path(saved[0]).is_absolute()
    assert Path(saved[0]).is_file()
    assert f"Metrics dumped to: {Path('p.json').resolve()}" in out
    assert out[-1] == f"Next: stepscope report {saved[0]} {Path('p.json').resolve()}"
    assert all(len(line) <= 100 for line in out if "/" not in line)


def test_the_size_of_a_trace_of_everything_is_said_before_it_is_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On standard error, and not far from what is then written."""
    words = "--prompt cat --num-inference-steps 4 --profile --profile-all-stages --no-save-output"
    assert main(["generate", *words.split()]) == 0
    said = capsys.readouterr().err
    size_mb = float(said.partition("expect about ")[2].split()[0])
    [trace] = Path("logs").iterdir()

    assert "tracing all stages of 4 steps" in said
    assert 0.5 < size_mb / (trace.stat().st_size / 1e6) < 2


def test_a_pipelines_exception_is_shown_without_our_frames(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback is the user's; ours would only be in the way. Exit status 1, with what helps."""
    import torch
    from diffusers import QwenImageTransformer2DModel

    def fails(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(QwenImageTransformer2DModel, "forward", fails)
    assert main(["generate", "--prompt", "x", "--perf-dump-path", "p.json", "--no-warmup"]) == 1
    captured = capsys.readouterr()

    reason = "OutOfMemoryError: no memory left, in DenoisingStage"
    assert captured.out.startswith(f"UNTRUSTED: the run is incomplete: {reason}")
    assert "torch.OutOfMemoryError: no memory left" in captured.err
    assert "pipeline_qwenimage.py" in captured.err
    assert "/stepscope/session/" not in captured.err
    assert "--offload model" in captured.err.splitlines()[-1]
    assert json.loads(Path("p.json").read_text())["incomplete_reason"].startswith(reason)


@pytest.mark.parametrize(
    ("code", "status", "warm_up"), [(0, 1, True), (0, 1, False), (256, 1, False), (3, 3, False)]
)
def test_a_pipeline_that_ends_the_program_has_failed(
    code: object,
    status: int,
    warm_up: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`sys.exit(0)` inside a pipeline is no success: no image came. Record and own status are kept."""
    from diffusers import QwenImageTransformer2DModel

    def ends(*_: object, **__: object) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(QwenImageTransformer2DModel, "forward", ends)
    words = ["--prompt", "x", "--perf-dump-path", "p.json", *([] if warm_up else ["--no-warmup"])]
    assert main(["generate", *words]) == status
    said = capsys.readouterr().err
    then = "nothing of the run was recorded" if warm_up else "what was recorded until then is written"
    assert f"the pipeline failed with SystemExit; {then}" in said
    assert Path("p.json").exists() is not warm_up
    if not warm_up:
        assert json.loads(Path("p.json").read_text())["incomplete_reason"].startswith("SystemExit")


@pytest.mark.parametrize(
    ("code", "status"), [(None, 1), (False, 1), ("enough", 1), (-1, -1), (512, 1), (1, 1)]
)
def test_no_way_to_end_the_program_is_a_success(
    code: object, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is given to `sys.exit`; shells see the lowest byte only."""
    assert show_failure(SystemExit(code), recorded=False) == status
    assert "nothing of the run was recorded" in capsys.readouterr().err


INTERRUPTED = """
import os, signal, sys
from diffusers import FlowMatchEulerDiscreteScheduler as Scheduler
step, count = Scheduler.step, []
def interrupting(self, *arguments, **keywords):
    count.append(1)
    if len(count) == 8:
        os.kill(os.getpid(), signal.SIGINT)
    return step(self, *arguments, **keywords)
Scheduler.step = interrupting
from stepscope.cli import main
words = "--prompt cat --no-warmup --profile --num-profiled-timesteps 3 --perf-dump-path p.json --run-dir run"
sys.exit(main(["generate", *words.split()]))
"""


def test_ctrl_c_in_step_7_leaves_everything_recorded_on_disk() -> None:
    """A real SIGINT to a real process: status 130, dump and trace there, no traceback, no temporary file."""
    source = Path(__file__).parent.parent / "src"
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(source)},
        timeout=280,
    )
    assert run.returncode == 128 + signal.SIGINT
    assert run.stderr.strip().endswith("stepscope: interrupted")
    assert "Traceback" not in run.stderr
    dump = json.loads(Path("p.json").read_text())
    assert dump["incomplete_reason"] == "KeyboardInterrupt, in DenoisingStage, step 7"
    assert [step["step"] for step in dump["denoise_steps_ms"]][:7] == list(range(7))
    assert dump["traces"][0]["steps"] == [1, 2, 3]
    names = sorted(entry.name for entry in Path("run").iterdir())
    assert len(names) == 3
    assert names[-1] == "run.json"


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`stepscope schema perf-dump` is valid JSON Schema."""
    import jsonschema

    assert main(["schema", "perf-dump"]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_what_is_to_be_installed_is_whole_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Square brackets are no markup: the offline viewer is an extra."""
    with pytest.raises(SystemExit):
        main(["view", "--help"])
    assert 'pip install "stepscope[view]"' in " ".join(capsys.readouterr().out.split())


def test_help_is_readable_and_states_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line within 100 columns."""
    with pytest.raises(SystemExit) as raised:
        main(["generate", "--help"])
    assert raised.value.code == 0
    out = capsys.readouterr().out
    assert "--num-profiled-timesteps N" in out
    assert "(default: 5)" in out
    assert max(len(line) for line in out.splitlines()) <= 100
