"""Stages and steps from every kind of evidence."""

from stepscope.analyse.trace.analysis import Analysis, analyse
from traces import TraceBuilder

SCHEDULER = "diffusers/schedulers/scheduling_euler.py(400): step"


def stages(found: Analysis) -> list[tuple[str, bool]]:
    return [(mark.name, mark.inferred) for mark in found.marks.stages]


def steps(found: Analysis) -> list[tuple[int, int, bool]]:
    return [(mark.index, mark.forwards, mark.inferred) for mark in found.marks.steps]


def test_our_own_spans_are_authoritative() -> None:
    """Beside them the same names from elsewhere do not count."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100, ours=True)
    made.annotate("denoising_step_0", 0, 50, ours=True)
    made.annotate("denoising_step_1", 50, 50, ours=True)
    made.annotate("forward_transformer", 10, 20, ours=True)
    made.annotate("forward_transformer", 60, 20, ours=True)
    made.annotate("ProfilerStep#7", 0, 100)
    made.annotate("TextEncodingStage", 0, 100)
    found = analyse(made.build())

    assert stages(found) == [("DenoisingStage", False)]
    assert steps(found) == [(0, 1, False), (1, 1, False)]


def test_neighbouring_occurrences_of_a_stage_are_one_and_later_ones_are_kept_apart() -> None:
    """Two prompts encoded in turn are one occurrence; a decode per chunk is several."""
    made = TraceBuilder()
    for name, at in (
        ("TextEncodingStage", 0), ("TextEncodingStage", 20), ("DecodingStage", 40),
        ("TextEncodingStage", 60), ("DecodingStage", 80),
    ):  # fmt: skip
        made.annotate(name, at, 10)
        made.launch("k", at + 1, at + 5, 2)
    made.launch("k", 15, 17, 2)
    found = analyse(made.build())

    assert [name for name, _ in stages(found)] == [
        "TextEncodingStage", "DecodingStage", "TextEncodingStage", "DecodingStage",
    ]  # fmt: skip
    assert sorted(found.attribution.stage.tolist()) == [-1, 0, 0, 1, 2, 3]


def test_profiler_steps_keep_their_numbers() -> None:
    """SGLang's first recorded step is ProfilerStep#1, step 1 of the loop."""
    made = TraceBuilder()
    for index in (1, 2, 3):
        made.annotate(f"ProfilerStep#{index}", 100 * index, 100)
        for launch in range(10):
            made.launch(f"k{launch}", 100 * index + launch, 100 * index + launch + 5, 1)

    assert [index for index, _, _ in steps(analyse(made.build()))] == [1, 2, 3]


def test_a_profiler_step_of_other_work_is_left_out_and_remarked_on() -> None:
    """With -1 SGLang records the whole decoder as one more profiler step."""
    made = TraceBuilder()
    for index in (1, 2, 3, 4):
        made.annotate(f"ProfilerStep#{index}", 100 * index, 100)
        for launch in range(10):
            kernel = f"conv{launch}" if index == 4 else f"k{launch}"
            made.launch(kernel, 100 * index + launch, 100 * index + launch + 5, 1)
    found = analyse(made.build())

    assert [index for index, _, _ in steps(found)] == [1, 2, 3]
    assert found.marks.notes == ("ProfilerStep#4 holds other work than a denoising step.",)


def test_profiler_steps_that_are_whole_calls_are_not_steps() -> None:
    """A script that steps its profiler once an image; the scheduler tells."""
    made = TraceBuilder()
    for call in (0, 1):
        made.annotate(f"ProfilerStep#{call}", 1000 * call, 1000)
        for step in range(3):
            made.annotate("transformer_forward", 1000 * call + 300 * step, 200)
            made.annotate("scheduler_step", 1000 * call + 300 * step + 210, 50)
    found = analyse(made.build())

    assert len(found.marks.steps) == 6
    assert "not denoising steps" in found.marks.notes[0]


def test_scheduler_calls_end_steps_and_two_without_a_forward_between_are_one_step() -> None:
    """Audio and video schedulers step in turn in one iteration."""
    made = TraceBuilder()
    made.annotate("TextEncodingStage", 0, 50)
    for step in range(3):
        base = 100 + 100 * step
        made.annotate("transformer_forward", base, 20)
        made.annotate("transformer_forward", base + 25, 20)
        made.annotate("scheduler_step", base + 50, 10)
        made.annotate("scheduler_step", base + 65, 10)
    found = analyse(made.build())

    assert steps(found) == [(0, 2, False), (1, 2, False), (2, 2, False)]
    assert [mark.span.start_ns // 1000 for mark in found.marks.steps] == [100, 175, 275]
    assert stages(found) == [("TextEncodingStage", False), ("DenoisingStage", True)]


def test_python_frames_alone_give_stages_steps_and_forwards() -> None:
    """A plain recording with stacks and no annotation at all; marked inferred."""
    made = TraceBuilder()
    made.frame("diffusers/pipelines/x/pipeline_x.py(1): __call__", 0, 1000)
    made.frame("diffusers/pipelines/x/pipeline_x.py(9): encode_prompt", 10, 80)
    made.frame("nn.Module: TextModel_0", 20, 60)
    for step in range(2):
        base = 100 + 200 * step
        made.frame("nn.Module: UNet2DConditionModel_0", base, 90)
        made.frame("nn.Module: Linear_0", base + 10, 20)
        made.frame("nn.Module: UNet2DConditionModel_0", base + 95, 90)
        made.frame(SCHEDULER, base + 190, 8)
    made.frame("diffusers/models/autoencoders/autoencoder_kl.py(1): decode", 600, 200)
    made.frame("nn.Module: Decoder_0", 610, 180)
    made.operator("aten::add", 0, 1)
    found = analyse(made.build())

    assert stages(found) == [("TextEncodingStage", True), ("DenoisingStage", True), ("DecodingStage", True)]
    assert steps(found) == [(0, 2, True), (1, 2, True)]


def test_the_kernel_sequence_is_the_last_resort_and_marked() -> None:
    """No marks at all: what repeats is the loop."""
    made = TraceBuilder()
    at = 0
    for name in [
        *(f"enc{i}" for i in range(30)),
        *[f"k{i}" for i in range(60)] * 4,
        *(f"dec{i}" for i in range(20)),
    ]:
        made.launch(name, at, at + 5, 1)
        at += 10
    found = analyse(made.build())

    assert [(index, inferred) for index, _, inferred in steps(found)] == [
        (0, True),
        (1, True),
        (2, True),
        (3, True),
    ]
    assert stages(found) == [("DenoisingStage", True)]
    assert [int((found.attribution.step == step).sum()) for step in range(4)] == [60] * 4
    assert int((found.attribution.stage == -1).sum()) == 50


def test_steps_after_another_stage_are_a_second_loop() -> None:
    """A prior and a decoder with their own loops; numbering runs on."""
    made = TraceBuilder()
    for stage, base in (("DenoisingStage", 0), ("DecodingStage", 100), ("DenoisingStage", 200)):
        made.annotate(stage, base, 90)
    for index, base in enumerate((0, 40, 200, 240)):
        made.annotate(f"denoising_step_{index}", base, 40)
    found = analyse(made.build())

    assert [(mark.index, mark.stage_index) for mark in found.marks.steps] == [(0, 0), (1, 0), (2, 2), (3, 2)]


def test_a_trace_without_anything_recognisable_has_no_steps() -> None:
    """Nothing is made up."""
    made = TraceBuilder()
    for index in range(40):
        made.launch(f"k{index}", index * 10, index * 10 + 5, 1)
    found = analyse(made.build())

    assert found.marks.stages == ()
    assert found.marks.steps == ()


def test_a_step_cut_by_a_pause_is_one_step() -> None:
    """A profiler that stopped inside a step left two pieces of it."""
    made = TraceBuilder()
    for name, at, length in (
        ("denoising_step_1", 0, 40),
        ("denoising_step_1", 60, 40),
        ("denoising_step_2", 100, 50),
    ):
        made.annotate(name, at, length, ours=True)
    found = analyse(made.build())

    assert [index for index, _, _ in steps(found)] == [1, 2]
    assert (found.marks.steps[0].span.start_ns, found.marks.steps[0].span.end_ns) == (0, 100_000)


def test_a_stage_inside_another_takes_its_own_work() -> None:
    """Nested time belongs to the innermost; the same stage marked twice is one."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100)
    made.annotate("denoising_loop", 1, 98)
    made.annotate("DecodingStage", 40, 20)
    made.launch("a", 10, 15, 1)
    made.launch("b", 50, 55, 1)
    found = analyse(made.build())

    assert [name for name, _ in stages(found)] == ["DenoisingStage", "DecodingStage"]
    assert found.attribution.stage.tolist() == [0, 1]
