"""Work from before a recording's window, of which only the end is known: what the first step waited for."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierWork:
    """Until when a stream was busy with what had been launched before ``at_ns`` and was not recorded."""

    at_ns: int
    device: int
    stream: int
    until_ns: int


def earlier_work(trace: Trace) -> tuple[EarlierWork, ...]:
    """What stepscope wrote of it into the trace's header; none in other recorders' traces."""
    header = trace.metadata.get("stepscope")
    entries = header.get("busy_until") if isinstance(header, dict) else None
    names = EarlierWork.__dataclass_fields__
    return tuple(
        EarlierWork(**{name: entry[name] for name in names})
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
        and all(type(entry.get(name)) is int and abs(entry[name]) < 2**62 for name in names)
    )
