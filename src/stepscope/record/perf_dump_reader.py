"""Reads perf dumps, ours and SGLang's, and SGLang's performance.log, all into ``PerfDump``.

Lenient where the file is only odd (an unknown key, a null, an entry that cannot be used: skipped and said in
``warnings``), strict where it would mislead (no times at all, a newer schema).
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from stepscope.model.dump import DUMP_SCHEMA_VERSION, PerfDump
from stepscope.model.errors import UnreadableInputError
from stepscope.model.vocabulary import Stage
from stepscope.record.byte_stream import ByteStream
from stepscope.record.input_file import too_large

_FARTHEST = 1e18  # milliseconds: the sums of a run stay far inside a float's range
_MOST_DIGITS = 21
_LARGEST_BYTES = 1 << 27  # inflated; a million steps take 40 MB
_FIELDS = tuple(field for field in dataclasses.fields(PerfDump) if field.name != "warnings")
_HINTS = get_type_hints(PerfDump)
_BLANK: dict[str, Any] = {
    "timestamp": "", "request_id": "", "commit_hash": "N/A", "tag": "", "total_duration_ms": 0.0,
    "steps": (), "denoise_steps_ms": (),
}  # fmt: skip


def read_perf_dumps(path: Path) -> tuple[PerfDump, ...]:
    """Every run in a file: one for a perf dump, one a line for a performance.log.

    Raises:
        UnreadableInputError: the file is missing, is not JSON, or holds no stage or step times.

    """
    text = _text_of(path)
    try:
        document = _parsed(text)
    except ValueError as whole:
        return _from_lines(text, path, whole)
    except RecursionError as error:
        raise UnreadableInputError(
            f"{path} is nested too deeply to be a perf dump.", remedy="Is it the right file?"
        ) from error
    entries = document if isinstance(document, list) else [document]
    return tuple(perf_dump_from_json(entry, origin=str(path)) for entry in entries)


def read_perf_dump(path: Path) -> PerfDump:
    """The run in a perf dump; of a file with several, the last.

    Raises:
        UnreadableInputError: as ``read_perf_dumps``, or the file is an empty list.

    """
    dumps = read_perf_dumps(path)
    if not dumps:
        raise UnreadableInputError(f"{path} holds no run.", remedy="Write one with --perf-dump-path.")
    return dumps[-1]


def is_perf_dump(document: object) -> bool:
    """Whether parsed JSON is a perf dump or a performance.log record, rather than a trace."""
    if not isinstance(document, dict) or "traceEvents" in document:
        return False
    return any(key in document for key in ("denoise_steps_ms", "total_duration_ms"))


def perf_dump_from_json(document: object, *, origin: str) -> PerfDump:
    """A perf dump from its parsed JSON; ``origin`` names it in messages.

    Raises:
        UnreadableInputError: it holds no stage or step times, or its schema is newer than this stepscope.

    """
    if not isinstance(document, dict) or not is_perf_dump(document):
        raise UnreadableInputError(
            f"{origin} is not a perf dump: it has neither total_duration_ms nor denoise_steps_ms.",
            remedy="Give a file written with --perf-dump-path.",
        )
    version = document.get("schema_version") or 0
    if not isinstance(version, int) or version > DUMP_SCHEMA_VERSION:
        raise UnreadableInputError(
            f"{origin} has schema version {version}; this stepscope reads up to {DUMP_SCHEMA_VERSION}.",
            remedy="Upgrade stepscope.",
        )
    warnings = [text for text in _list_at(document, "warnings") if isinstance(text, str)]
    published = _published_names(document)
    values = {field.name: _value_of(field, published, warnings) for field in _FIELDS}
    if published.get("total_duration_ms") is None:
        warnings.append("total_duration_ms is missing")
    return PerfDump(**values, warnings=tuple(warnings))


def _text_of(path: Path) -> str:
    blocks = ByteStream(path)
    raw = bytearray()
    for block in blocks:
        raw += block
        if len(raw) > _LARGEST_BYTES:
            raise too_large(path, _LARGEST_BYTES)
    if blocks.damage:
        raise UnreadableInputError(f"{path} cannot be read: {blocks.damage}.", remedy="Copy it again.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInputError(f"{path} is not text.", remedy="Give a perf dump (JSON).") from error


def _parsed(text: str) -> Any:
    """JSON in which NaN, infinities and numbers that no clock or memory reaches are null."""
    return json.loads(text, parse_constant=lambda _: None, parse_float=_possible, parse_int=_possible_integer)


def _possible(text: str) -> float | None:
    value = float(text)
    return value if abs(value) < _FARTHEST else None


def _possible_integer(text: str) -> int | None:
    return int(text) if len(text) < _MOST_DIGITS else None


def _from_lines(text: str, path: Path, whole: ValueError) -> tuple[PerfDump, ...]:
    """The runs of a performance.log; a last line cut off by a killed writer is left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    dumps: list[PerfDump] = []
    for number, line in enumerate(lines, start=1):
        try:
            document = _parsed(line)
        except ValueError:
            if number == len(lines) and dumps:
                break
            raise UnreadableInputError(
                f"{path} is not JSON: {whole}.", remedy="It may be cut off; record the run again."
            ) from whole
        dumps.append(perf_dump_from_json(document, origin=f"{path} line {number}"))
    return tuple(dumps)


def _published_names(document: dict[str, Any]) -> dict[str, Any]:
    """A performance.log record or an older dump under the names of a perf dump; a perf dump as it is."""
    if not document.get("denoise_steps_ms") and any(
        _step_number(each) is not None for each in _stages(document)
    ):
        return _with_steps_apart(document)
    if "denoise_steps_ms" in document or not _is_log_record(document):
        return document
    stages = [
        {"name": stage.get("name"), "duration_ms": stage.get("execution_time_ms")}
        for stage in _list_at(document, "stages")
        if isinstance(stage, dict)
    ]
    steps = [{"step": index, "duration_ms": ms} for index, ms in enumerate(_list_at(document, "steps"))]
    kept = {key: value for key, value in document.items() if key not in ("stages", "steps")}
    return kept | {
        "steps": stages,
        "denoise_steps_ms": steps,
        "memory_checkpoints": document.get("memory_snapshots"),
    }


def _with_steps_apart(document: dict[str, Any]) -> dict[str, Any]:
    """A dump as SGLang wrote it before #15537: ``denoising_step_3`` among the stages."""
    numbered = [(_step_number(each), each.get("duration_ms")) for each in _stages(document)]
    steps = [{"step": number, "duration_ms": ms} for number, ms in numbered if number is not None]
    stages = [each for each in _stages(document) if _step_number(each) is None]
    if not any("Denoising" in str(each.get("name")) for each in stages):
        loop_ms = sum(step["duration_ms"] for step in steps if isinstance(step["duration_ms"], (int, float)))
        stages.append({"name": Stage.DENOISING.value, "duration_ms": loop_ms})
    return document | {"steps": stages, "denoise_steps_ms": steps}


def _stages(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in _list_at(document, "steps") if isinstance(each, dict)]


def _step_number(stage: dict[str, Any]) -> int | None:
    """The number in ``denoising_step_12``; None for a stage."""
    found = re.fullmatch(r"denoising_step_(\d{1,9})", str(stage.get("name")), re.ASCII)
    return int(found[1]) if found else None


def _is_log_record(document: dict[str, Any]) -> bool:
    stages = _list_at(document, "stages")
    return document.get("tag") == "pipeline_stage_metrics" or any(
        isinstance(stage, dict) and "execution_time_ms" in stage for stage in stages
    )


def _list_at(document: dict[str, Any], key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def _value_of(field: dataclasses.Field[Any], document: dict[str, Any], warnings: list[str]) -> Any:
    blank = _blank_of(field)
    raw = document.get(field.name)
    if raw is None:
        return blank
    hint = _HINTS[field.name]
    if get_origin(hint) is tuple and isinstance(raw, list):
        item = get_args(hint)[0]
        return tuple(_usable(raw, item, field.name, warnings))
    converted = _convert(raw, hint)
    if isinstance(converted, msgspec.ValidationError):
        warnings.append(f"{field.name} cannot be used: {converted}")
        return blank
    return converted


def _blank_of(field: dataclasses.Field[Any]) -> Any:
    if field.name in _BLANK:
        return _BLANK[field.name]
    return field.default_factory() if callable(field.default_factory) else field.default


def _usable(items: list[Any], kind: Any, name: str, warnings: list[str]) -> list[Any]:
    """The items that are what they should be, in order; each other one is named in ``warnings``."""
    converted = [_convert(item, kind) for item in items]
    bad = [(index, item) for index, item in enumerate(converted) if isinstance(item, msgspec.ValidationError)]
    warnings.extend(f"{name}[{index}] left out: {error}" for index, error in bad)
    return [item for item in converted if not isinstance(item, msgspec.ValidationError)]


def _convert(item: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(item, kind, strict=False)
    except msgspec.ValidationError as error:
        return error
    except OverflowError:
        return msgspec.ValidationError("a number is too large")
    except UnicodeEncodeError:  # half a surrogate where a word of ours or a number is meant
        return msgspec.ValidationError("a text is no UTF-8")
