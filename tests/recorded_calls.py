"""What real engines recorded on a CPU (benchmarks/engines/demonstrate.py), for several test modules."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.model.engine_record import CallRecord, ClientRecord

DATA = Path(__file__).parent / "data" / "engines"


def call_of(name: str) -> CallRecord:
    return msgspec.json.decode((DATA / f"{name}.call.json").read_bytes(), type=CallRecord)


def client_of(name: str) -> ClientRecord:
    return msgspec.json.decode((DATA / f"{name}.client.json").read_bytes(), type=ClientRecord)
