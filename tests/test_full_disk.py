"""Disks that fill and writes that fail: each costs at most its own file, and what was recorded is kept."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope.cli import main
from stepscope.model.errors import RunFailedError
from stepscope.record.abandoned import in_use, remove_abandoned
from stepscope.record.run_record import read_run
from stepscope.session import keep as keep_module
from stepscope.session import keep_trace as keep_trace_module
from stepscope.session.generate import generate as session_generate
from stepscope.session.generate_flags import options_of
from stepscope.session.rescue import or_elsewhere, scratch_parent

SMALL = {"model_path": "tiny/flux.1-schnell", "num_inference_steps": 1, "warmup": False}


pytestmark = pytest.mark.usefixtures("own_folder")


def test_a_write_failure_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a warning of the record; at the terminal the error line is enough."""
    from stepscope.session import keep

    def full(*_: object) -> None:
        raise RunFailedError("cannot write perf.json: No space left on device.", remedy="Free some space.")

    monkeypatch.setattr(keep, "write_dump", full)
    words = "generate --model-path tiny/flux.1-schnell --num-inference-steps 1 --no-warmup --no-save-output"

    assert main([*words.split(), "--prompt", "x", "--perf-dump-path", "perf.json"]) == 1

    said = capsys.readouterr()
    assert (said.out + said.err).count("No space left on device") == 1


def test_any_fault_while_files_are_written_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that nobody can read as media: the dump and the record are written, the fault is raised."""
    from stepscope.session import keep

    def odd(*_: object, **__: object) -> None:
        raise ValueError("an odd result")

    monkeypatch.setattr(keep, "media_of", odd)
    with pytest.raises(ValueError, match="an odd result"):
        stepscope.generate(prompt="x", perf_dump_path="perf.json", run_dir="run", **SMALL)

    assert "ValueError: an odd result" in json.loads(Path("perf.json").read_text())["warnings"]
    assert read_run(Path("run/run.json")).outputs == ()


def test_a_disk_that_the_export_fills_still_takes_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The raw export is gone before the small files are written, also where no trace could be made of it."""
    from stepscope.session import keep

    seen: list[list[Path]] = []
    write_run, save_media = keep.write_run, keep.save_media

    def raw() -> list[Path]:
        return [path for path in Path("run").rglob("*.json") if ".stepscope-" in str(path)]

    def fail(*_: object, **__: object) -> None:
        assert raw()
        raise RunFailedError("No space left on device")

    monkeypatch.setattr(keep, "keep_trace", fail)
    monkeypatch.setattr(keep, "save_media", lambda *a, **k: (seen.append(raw()), save_media(*a, **k))[1])
    monkeypatch.setattr(keep, "write_run", lambda *a: (seen.append(raw()), write_run(*a))[1])

    with pytest.raises(RunFailedError):
        stepscope.generate(prompt="x", profile=True, run_dir="run", **SMALL)

    assert seen == [[], []]
    assert read_run(Path("run/run.json")).outputs


def test_what_a_full_disk_does_not_take_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dump, run record, picture and trace of a run whose disk fills meanwhile: written, and named."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    places = [tmp_path / name for name in ("dumps", "run", "outputs", "logs")]

    def full(write: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **more: Any) -> Any:
            path = [argument for argument in arguments if isinstance(argument, Path)][-1]
            if any(place in [path, *path.parents] for place in places):
                raise RunFailedError("cannot write: No space left on device.")
            return write(*arguments, **more)

        return refuse

    for name in ("write_dump", "write_run", "save_media"):
        monkeypatch.setattr(keep_module, name, full(getattr(keep_module, name)))
    monkeypatch.setattr(keep_trace_module, "write_trace", full(keep_trace_module.write_trace))
    options = options_of(
        {
            "prompt": "x",
            "num_inference_steps": 2,
            "perf_dump_path": places[0] / "perf.json",
            "run_dir": places[1],
            "output_path": places[2],
            "profile_dir": places[3],
            "profile": True,
            "trace_detail": "ops",
        }
    )
    [result] = session_generate(options)

    assert isinstance(result.error, RunFailedError)
    kept = {path.name.rpartition(".")[2] for path in (tmp_path / "temporary").rglob("*.*")}
    assert kept == {"json", "png", "gz"}
    assert result.dump_path is not None
    assert result.dump_path.name == "perf.json"
    assert result.run_directory is not None
    assert read_run(result.run_directory / "run.json").incomplete_reason is None
    assert result.trace_path is not None
    assert Path(result.trace_path).exists()
    told = [text for text in result.run.warnings if text.startswith("what could not be written to")]
    assert [text.split()[6] for text in told] == [str(places[at]) for at in (3, 2, 1, 0)]


def test_where_neither_place_takes_it_the_first_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left of the second."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def write(folder: Path) -> Path:
        raise RunFailedError(f"not to {folder.name}")

    with pytest.raises(RunFailedError, match="not to here"):
        or_elsewhere(write, Path("here"), lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free_beside", "free_elsewhere", "moves"),
    [(1 << 20, 1 << 30, True), (1 << 20, 1 << 19, False), (1 << 40, 1 << 41, False)],
)
def test_an_export_goes_where_there_is_room(
    free_beside: int, free_elsewhere: int, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiler writes it once: on a small disk of traces what does not fit would be lost."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    free = {tmp_path: free_beside, tmp_path / "temporary": free_elsewhere}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free[Path(path)]))
    assert scratch_parent(tmp_path) == (tmp_path / "temporary" if moves else tmp_path)


def test_what_a_killed_process_left_is_cleared_away() -> None:
    """Its scratch folder goes with the next trace; one in use, and what is not ours, stays."""
    left, used, foreign = Path("logs/.stepscope-a"), Path("logs/.stepscope-b"), Path("logs/.stepscope-c")
    for folder in (left, used, foreign):
        folder.mkdir(parents=True)
    with in_use(left):
        (left / "raw.json").touch()

    with in_use(used):
        remove_abandoned(Path("logs"))

    assert not left.exists()
    assert used.exists()
    assert foreign.exists()
