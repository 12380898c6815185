"""Operator tables for tests."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepscope.model.trace import Operators
from stepscope.record.kineto.reader import read_kineto


class OperatorTable(NamedTuple):
    """What ``operator_flops`` takes."""

    operators: Operators
    names: tuple[str, ...]
    shapes: tuple[str, ...]


class Row(NamedTuple):
    name: str
    start_ns: int
    duration_ns: int
    shapes: str | None = None
    thread: int = 1
    process: int = 0


def table(rows: list[Row]) -> OperatorTable:
    """Rows in any order -> the columns, interned and sorted by start."""
    rows = sorted(rows, key=lambda row: row.start_ns)
    names = tuple(dict.fromkeys(row.name for row in rows))
    shapes = tuple(dict.fromkeys(row.shapes for row in rows if row.shapes is not None))
    name_of = {name: index for index, name in enumerate(names)}
    shape_of = {text: index for index, text in enumerate(shapes)}
    i32, i64 = np.int32, np.int64
    operators = Operators(
        name=np.array([name_of[row.name] for row in rows], i32),
        process=np.array([row.process for row in rows], i32),
        thread=np.array([row.thread for row in rows], i64),
        start_ns=np.array([row.start_ns for row in rows], i64),
        duration_ns=np.array([row.duration_ns for row in rows], i64),
        shapes=np.array([-1 if row.shapes is None else shape_of[row.shapes] for row in rows], i32),
        external_id=np.zeros(len(rows), i64),
        source=np.full(len(rows), -1, i32),
    )
    return OperatorTable(operators, names, shapes)


def shapes_text(dims: Any, types: Any = (), concrete: Any = ()) -> str:
    """The text of ``Trace.shapes``."""
    return json.dumps({"dims": dims, "types": types, "concrete": concrete}, separators=(",", ":"))


def operators_of_file(path: Path) -> OperatorTable:
    """The CPU operators of a Kineto trace as the project's reader gives them."""
    trace = read_kineto(path)
    return OperatorTable(trace.operators, trace.names, trace.shapes)
