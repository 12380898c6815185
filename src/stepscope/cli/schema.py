"""``stepscope schema``: the JSON Schemas of what stepscope writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any


def _perf_dump() -> dict[str, Any]:
    from stepscope.record.perf_dump import dump_schema

    return dump_schema()


def _report() -> dict[str, Any]:
    from stepscope.render.report.report_json import report_schema

    return report_schema()


def _compare() -> dict[str, Any]:
    from stepscope.render.comparison.compare_json import compare_schema

    return compare_schema()


def _gate() -> dict[str, Any]:
    from stepscope.render.comparison.gate_json import gate_schema

    return gate_schema()


def _bench() -> dict[str, Any]:
    from stepscope.render.comparison.bench_views import bench_schema

    return bench_schema()


def _sweep() -> dict[str, Any]:
    from stepscope.render.comparison.sweep_views import sweep_schema

    return sweep_schema()


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "perf-dump": _perf_dump,
    "report": _report,
    "compare": _compare,
    "gate": _gate,
    "bench": _bench,
    "sweep": _sweep,
}


class SchemaCommand:
    """Print the JSON Schema of something that stepscope writes."""

    name = "schema"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the name of the schema."""
        parser.add_argument("schema", choices=tuple(SCHEMAS), help="what to describe")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print it to standard output."""
        print(json.dumps(SCHEMAS[arguments.schema](), indent=2))
        return 0
