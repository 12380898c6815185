"""What a Nsight Systems export says of itself: versions, devices, graph mode, its own complaints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.model.trace import Device
from stepscope.record.nsight.tables import NsightTables
from stepscope.record.reader_warnings import WarningLog

_VERSION_ROWS = {
    "EXPORT_PRODUCT_VERSION": "nsys_version",
    "EXPORT_SCHEMA_VERSION": "schema_version",
}
_GRAPH_MODE_ROW = "CUDA_GRAPH_TRACE_OPTIONS:MODE"
_MAX_DIAGNOSTIC_CHARACTERS = 300
_NVTX_TOO_NEW = re.compile(r"NVTX binary payload extension is incompatible")
_WORRYING = re.compile(
    r"error|fail|warn|lost|drop|incompatible|not (?:supported|collected|be)|overflow", re.I
)
_ENVIRONMENT = re.compile(r"\b[A-Z][A-Z0-9_]{2,}=")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFacts:
    """Versions and modes of a capture."""

    versions: dict[str, str]
    graph_mode: str  # Graph | Node | "" where the export does not say
    start_unix_ns: int | None


def export_facts(tables: NsightTables) -> ExportFacts:
    """Read the few rows that are safe to keep."""
    exported = dict(_pairs(tables, "META_DATA_EXPORT"))
    captured = _pairs(tables, "META_DATA_CAPTURE")
    epochs = tables.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    return ExportFacts(
        versions={ours: exported[theirs] for theirs, ours in _VERSION_ROWS.items() if theirs in exported},
        graph_mode=next((value for name, value in captured if name.endswith(_GRAPH_MODE_ROW)), ""),
        start_unix_ns=int(epochs[0]) if len(epochs) and epochs[0] > 0 else None,
    )


def devices(tables: NsightTables, names: dict[int, str]) -> tuple[Device, ...]:
    """The GPUs of the machine; ``names`` are those of ``gpu_names``."""
    wanted = (
        "id", "totalMemory", "smCount", "computeMajor", "computeMinor", "maxRegistersPerSm", "maxShmemPerSm",
        "maxWarpsPerSm", "threadsPerWarp",
    )  # fmt: skip
    found = tables.integers("TARGET_INFO_GPU", wanted)
    rows = sorted(zip(*(found[column].tolist() for column in wanted), strict=True))
    return tuple(_device(dict(zip(wanted, row, strict=True)), names) for row in rows)


def gpu_names(tables: NsightTables) -> dict[int, str]:
    """The marketing name of each GPU."""
    if not {"id", "name"} <= tables.columns("TARGET_INFO_GPU"):
        return {}
    batches = tables.rows("TARGET_INFO_GPU", "CAST(id AS INTEGER), CAST(name AS TEXT)")
    return {key: name or "" for batch in batches for key, name in batch}


def device_map(tables: NsightTables) -> dict[tuple[int, int], int]:
    """(process, CUDA ordinal) to GPU: they differ under CUDA_VISIBLE_DEVICES."""
    found = tables.integers("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    rows = zip(found["pid"].tolist(), found["cudaId"].tolist(), found["gpuId"].tolist(), strict=True)
    return {(pid, ordinal): gpu for pid, ordinal, gpu in rows if gpu >= 0}


def note_diagnostics(tables: NsightTables, log: WarningLog) -> None:
    """Pass on what the profiler complained about; texts that show an environment variable are withheld."""
    if "text" not in tables.columns("DIAGNOSTIC_EVENT"):
        return
    for batch in tables.rows("DIAGNOSTIC_EVENT", "CAST(text AS TEXT)"):
        for (text,) in batch:
            if text and _NVTX_TOO_NEW.search(text):
                log.add("nvtx_too_new", _NVTX_REMEDY)
            elif text and _WORRYING.search(text) and not _ENVIRONMENT.search(text):
                short = " ".join(text.split())[:_MAX_DIAGNOSTIC_CHARACTERS]
                log.add("profiler_diagnostic", f"Nsight Systems reported: {short}")


_NVTX_REMEDY = (
    "this nsys does not understand the process's nvtx package, so it recorded no ranges; "
    "install nvtx 0.2.11 or a newer Nsight Systems"
)


def _pairs(tables: NsightTables, table: str) -> list[tuple[str, str]]:
    if not {"name", "value"} <= tables.columns(table):
        return []
    wanted = (*_VERSION_ROWS, _GRAPH_MODE_ROW)
    batches = tables.rows(table, "CAST(name AS TEXT), CAST(value AS TEXT)")
    return [
        (name, value or "") for batch in batches for name, value in batch if name and name.endswith(wanted)
    ]


def _device(row: dict[str, int], names: dict[int, str]) -> Device:
    known = {column: value if value >= 0 else None for column, value in row.items()}
    warps, lanes = known["maxWarpsPerSm"], known["threadsPerWarp"]
    return Device(
        id=row["id"],
        name=names.get(row["id"], ""),
        total_memory_bytes=known["totalMemory"],
        multiprocessors=known["smCount"],
        compute_capability=f"{row['computeMajor']}.{row['computeMinor']}"
        if row["computeMajor"] >= 0
        else None,
        registers_per_multiprocessor=known["maxRegistersPerSm"],
        shared_bytes_per_multiprocessor=known["maxShmemPerSm"],
        threads_per_multiprocessor=None if warps is None or lanes is None else warps * lanes,
    )
