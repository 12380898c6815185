"""What a file is, told from its content: names lie, and traces are renamed, packed and mailed."""

from __future__ import annotations

import json
import re
import sqlite3
from enum import Enum
from pathlib import Path
from typing import Any

from stepscope.record.byte_stream import Packing, first_bytes, packing_of
from stepscope.record.input_file import is_directory
from stepscope.record.kineto.stream import EVENTS_KEY
from stepscope.record.nsight.export import REPORT_SUFFIXES
from stepscope.record.nsight.tables import SQLITE_MAGIC, is_nsight, open_export, table_names


class InputKind(Enum):
    """Everything that a path given to us can be. The value is what a person calls it."""

    KINETO = "a PyTorch Profiler trace"
    NSIGHT_SQLITE = "a Nsight Systems SQLite export"
    NSIGHT_REPORT = "a Nsight Systems report"
    PERF_DUMP = "a perf dump"
    RUN_RECORD = "a stepscope run record"
    DIRECTORY = "a directory"
    EMPTY = "an empty file"
    OTHER_SQLITE = "a SQLite database of another program"
    OTHER_JSON = "JSON of something else, no perf dump and no run record either"
    OTHER = "no format that stepscope knows"


_HEAD_BYTES = 1 << 16
_JSON_BYTES = 1 << 24  # a Kineto header with thousands of process groups takes a few megabytes
_FIRST_EVENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}\[\]]*"ph"\s*:')
_KINETO_KEYS = frozenset({"traceEvents", "deviceProperties", "baseTimeNanoseconds", "displayTimeUnit"})
_KINETO_KEY = re.compile(rb'"(?:deviceProperties|baseTimeNanoseconds)"\s*:')
_DUMP_KEYS = frozenset({"denoise_steps_ms", "total_duration_ms"})
_RUN_KEYS = frozenset({"request_id", "call_id", "clock", "environment", "workload"})
_JSON_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*[\[\]{"\d-])')
_DUMP_KEY = re.compile(rb'"(?:denoise_steps_ms|total_duration_ms)"\s*:')


def recognise(path: Path) -> InputKind:
    """What ``path`` is, by looking into it; reads no more than 16 MiB, inflated.

    Raises:
        UnreadableInputError: nothing is there, or it cannot be opened.

    """
    if is_directory(path):
        return InputKind.DIRECTORY
    head = first_bytes(path, _HEAD_BYTES)
    if head.startswith(SQLITE_MAGIC):
        return _kind_of_sqlite(path)
    if not head.strip():
        return _kind_of_blank(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _kind_of_json(path, head)
    return InputKind.NSIGHT_REPORT if path.suffix.lower() in REPORT_SUFFIXES else InputKind.OTHER


def _kind_of_blank(path: Path) -> InputKind:
    """No content: an empty file, or one whose compression is damaged from the start."""
    with path.open("rb") as file:
        packed = packing_of(file.read(4)) is not Packing.PLAIN
    return InputKind.KINETO if packed and path.stat().st_size > _EMPTY_ARCHIVE_BYTES else InputKind.EMPTY


_EMPTY_ARCHIVE_BYTES = 100  # gzip of nothing takes about 20 bytes and the file's name


def _kind_of_sqlite(path: Path) -> InputKind:
    with path.open("rb") as file:
        if not file.read(len(SQLITE_MAGIC)).startswith(SQLITE_MAGIC):
            return InputKind.NSIGHT_SQLITE  # packed: told apart once it is unpacked
    try:
        with open_export(path) as connection:
            return InputKind.NSIGHT_SQLITE if is_nsight(table_names(connection)) else InputKind.OTHER_SQLITE
    except sqlite3.Error:
        return InputKind.NSIGHT_SQLITE  # damaged: its reader says how


def _kind_of_json(path: Path, head: bytes) -> InputKind:
    if EVENTS_KEY.search(head) or _FIRST_EVENT.match(head):
        return InputKind.KINETO
    text = first_bytes(path, _JSON_BYTES)
    if EVENTS_KEY.search(text):
        return InputKind.KINETO
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _kind_of_broken_json(text)
    return _kind_of_document(document)


def _kind_of_document(document: Any) -> InputKind:
    if isinstance(document, list):
        document = next((entry for entry in document if isinstance(entry, dict)), {})
        if "ph" in document:
            return InputKind.KINETO
    keys = frozenset(document) if isinstance(document, dict) else frozenset()
    if keys & _KINETO_KEYS:
        return InputKind.KINETO
    if keys >= _RUN_KEYS:
        return InputKind.RUN_RECORD
    return InputKind.PERF_DUMP if keys & _DUMP_KEYS else InputKind.OTHER_JSON


def _kind_of_broken_json(text: bytes) -> InputKind:
    """Cut or several documents in one file; the keys that can be seen decide, and the reader explains."""
    if _KINETO_KEY.search(text):
        return InputKind.KINETO
    if _DUMP_KEY.search(text):
        return InputKind.PERF_DUMP
    return InputKind.OTHER_JSON if _JSON_START.match(text) else InputKind.OTHER
