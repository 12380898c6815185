"""NVTX ranges of a Nsight Systems export: push and pop, start and end, registered and plain strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.record.nsight.tables import NsightTables, is_usable_time
from stepscope.record.reader_warnings import WarningLog

PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75  # ENUM_NSYS_EVENT_TYPE
OUR_DOMAIN = "stepscope"
_UNCLOSED = np.iinfo(np.int64).min
# What torch.autograd.profiler.emit_nvtx and nsys --pytorch=autograd-nvtx call an operator.
_OPERATOR = re.compile(r"^(\w+::[\w.]+)(?:, (?:seq|op_id|sizes) = .*)?$")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NvtxRanges:
    """Columns of ranges, in no order; ``texts`` holds the range's name."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    global_thread: NDArray[np.int64]
    ours: NDArray[np.bool_]
    texts: list[str]

    def chosen(self, rows: NDArray[np.bool_]) -> NvtxRanges:
        """The ranges of the marked rows."""
        return NvtxRanges(
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            global_thread=self.global_thread[rows],
            ours=self.ours[rows],
            texts=[text for text, kept in zip(self.texts, rows.tolist(), strict=True) if kept],
        )


def nvtx_ranges(tables: NsightTables, strings: dict[int, str], last_ns: int, log: WarningLog) -> NvtxRanges:
    """All closed ranges, and open ones as if they ended at ``last_ns``, the end of everything else."""
    columns = ("start", "end", "eventType", "textId", "globalTid", "domainId")
    found = tables.integers("NVTX_EVENTS", columns, {"end": int(_UNCLOSED)})
    texts = _texts(tables, found["textId"], strings)
    domains = {
        int(domain): text
        for kind, domain, text in zip(found["eventType"], found["domainId"], texts, strict=True)
        if kind == DOMAIN_CREATE
    }
    our_domains = [domain for domain, name in domains.items() if name == OUR_DOMAIN]
    is_range = np.isin(found["eventType"], (PUSH_POP, START_END)) & is_usable_time(found["start"])
    unclosed = is_range & ~is_usable_time(found["end"])
    log.add(
        "unclosed_range",
        "NVTX ranges were never closed; they are taken to last to the end",
        int(unclosed.sum()),
    )
    return NvtxRanges(
        start_ns=found["start"],
        end_ns=np.where(unclosed, np.maximum(last_ns, found["start"]), found["end"]),
        global_thread=found["globalTid"],
        ours=np.isin(found["domainId"], our_domains),
        texts=texts,
    ).chosen(is_range)


def operator_name(text: str) -> str:
    """The operator that a range stands for, empty if it stands for none."""
    found = _OPERATOR.match(text)
    return found[1] if found else ""


def _texts(tables: NsightTables, text_ids: NDArray[np.int64], strings: dict[int, str]) -> list[str]:
    """The plain text, else the registered string: newer exports have only the latter."""
    registered = [strings.get(key, "") for key in text_ids.tolist()]
    if "text" not in tables.columns("NVTX_EVENTS"):
        return registered
    plain: list[Any] = [row[0] for batch in tables.rows("NVTX_EVENTS", "CAST(text AS TEXT)") for row in batch]
    plain += [None] * (len(registered) - len(plain))  # a damaged table may give fewer rows the second time
    return [text or fallback for text, fallback in zip(plain, registered, strict=False)]
