"""The dump's file: SGLang's keys, a published schema, names for several prompts, whole or not at all."""

import json
from pathlib import Path

import jsonschema
import pytest

from runs import three_stages
from stepscope.analyse.run.reconcile import reconcile
from stepscope.model.errors import RunFailedError, UnreadableInputError
from stepscope.record.atomic import atomic_path, free_path, keep_existing
from stepscope.record.perf_dump import dump_schema, numbered, write_dump
from stepscope.record.perf_dump_fields import DESCRIPTIONS
from stepscope.record.run_record import read_run, write_run

SGLANG_KEYS = [
    "timestamp",
    "request_id",
    "commit_hash",
    "tag",
    "total_duration_ms",
    "steps",
    "denoise_steps_ms",
    "memory_checkpoints",
    "meta",
]


def test_the_dump_has_sglangs_keys_first_and_fits_its_schema(tmp_path: Path) -> None:
    """A script written for SGLang's dump reads ours; the schema published is the schema kept."""
    path = write_dump(reconcile(three_stages()), tmp_path / "deep" / "perf.json")
    content = json.loads(path.read_text())

    assert list(content)[: len(SGLANG_KEYS)] == SGLANG_KEYS
    assert content["steps"][1] == {"name": "DenoisingStage", "duration_ms": 40.0}
    assert content["denoise_steps_ms"][2]["step"] == 2
    assert content["meta"] == {"prompt": "a prompt", "model": "tiny/test"}
    jsonschema.validate(content, dump_schema())


def test_every_key_of_the_schema_is_described() -> None:
    """No key without a sentence, no sentence without a key."""
    keys = {
        f"{name}.{key}"
        for name, definition in dump_schema()["$defs"].items()
        for key in definition["properties"]
    }
    assert keys == set(DESCRIPTIONS)


def test_several_prompts_get_numbered_names() -> None:
    """perf.json, perf-1.json, perf-2.json."""
    assert [numbered(Path("perf.json"), i).name for i in range(3)] == [
        "perf.json",
        "perf-1.json",
        "perf-2.json",
    ]


def test_an_earlier_dump_keeps_its_content_under_another_name(tmp_path: Path) -> None:
    """The name a user gave goes to the new dump, and the old one is not lost."""
    path = tmp_path / "perf.json"
    for text in ("first", "second"):
        path.write_text(text)
        keep_existing(path)
    assert not path.exists()
    assert (tmp_path / "perf.previous.json").read_text() == "first"
    assert (tmp_path / "perf.previous-1.json").read_text() == "second"
    assert keep_existing(path) is None


def test_a_failed_write_leaves_what_was_there_and_no_temporary_file(tmp_path: Path) -> None:
    """Whole or not at all."""
    path = tmp_path / "perf.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="half way"), atomic_path(path) as temporary:
        temporary.write_text("new")
        raise ValueError("half way")
    assert [entry.name for entry in tmp_path.iterdir()] == ["perf.json"]
    assert path.read_text() == "old"


def test_a_path_through_a_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """No traceback: what is wrong and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError, match="choose another directory"):
        write_dump(reconcile(three_stages()), tmp_path / "file" / "perf.json")


def test_free_path_numbers_on(tmp_path: Path) -> None:
    """The first name that nothing has."""
    assert free_path(tmp_path / "a.png") == tmp_path / "a.png"
    (tmp_path / "a.png").touch()
    (tmp_path / "a-1.png").touch()
    assert free_path(tmp_path / "a.png") == tmp_path / "a-2.png"


def test_a_run_record_reads_back_equal(tmp_path: Path) -> None:
    """Nothing is lost on the way through the file."""
    run = three_stages(traced=(1, 2))
    assert read_run(write_run(run, tmp_path / "run.json")) == run


@pytest.mark.parametrize("content", ["", "{}", '{"schema_version": 99}', '{"schema_version": 1}', "[]"])
def test_a_foreign_run_record_is_refused(tmp_path: Path, content: str) -> None:
    """Unknown versions and other files are named, not half read."""
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(UnreadableInputError, match=r"run\.json"):
        read_run(path)


def test_a_missing_run_record_is_refused(tmp_path: Path) -> None:
    """A path that is not there is the user's mistake."""
    with pytest.raises(UnreadableInputError, match="does not exist"):
        read_run(tmp_path / "none.json")
