"""The CSV tables: raw numbers, every table with a head, no formula from a trace."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest

from hostile_report import hostile
from reports import EVERY, cpu_only, normal, several_runs, two_ranks
from stepscope.analyse.results import Report
from stepscope.model.errors import UsageError
from stepscope.render.report.report_csv import CSV_TABLES, render_csv


def _rows(report: Report, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(report, table))))


@pytest.mark.parametrize("table", CSV_TABLES)
@pytest.mark.parametrize("make", [*EVERY.values(), hostile])
def test_every_table_of_every_report_is_rectangular(make: Callable[[], Report], table: str) -> None:
    """A head with units in the names, and rows of the same length, even where there are none."""
    rows = list(csv.reader(io.StringIO(render_csv(make(), table))))
    assert rows[0]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_numbers_are_raw() -> None:
    """Full precision, no separators, empty for what is not known, true and false."""
    kernel = _rows(normal(), "kernels")[0]
    assert float(kernel["total_ms"]) == 610.2
    assert kernel["grid"] == "132x1x1"
    assert kernel["source_line"] == "1249"
    assert kernel["source_line_exact"] == "true"
    assert _rows(normal(), "kernels")[3]["source_file"] == ""
    assert _rows(normal(), "stages")[1]["tflop"] == ""
    assert _rows(normal(), "stages")[1]["inferred"] == "false"


def test_rows_say_which_rank_or_run_they_are_of() -> None:
    """Several ranks and runs share one table."""
    assert {row["rank"] for row in _rows(two_ranks(), "stages")} == {"0", "1"}
    assert {row["run"] for row in _rows(several_runs(), "run_steps")} == {"3f2a9c", "9b41d0"}
    assert _rows(cpu_only(), "kernels") == []


def test_no_cell_is_a_formula() -> None:
    """Text that a spreadsheet would run gets an apostrophe; negative numbers stay numbers."""
    for table in CSV_TABLES:
        for row in csv.reader(io.StringIO(render_csv(hostile(), table))):
            assert not [cell for cell in row if cell.strip().startswith(("=", "+", "-", "@", "\t", "|"))]
    assert "'=cmd" in render_csv(hostile(), "kernels")


def test_an_unknown_table_names_those_there_are() -> None:
    """A mistake is answered with the choices."""
    with pytest.raises(UsageError, match="kernels, categories") as caught:
        render_csv(normal(), "kernel")
    assert caught.value.exit_status == 2
