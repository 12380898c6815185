"""``stepscope schema``: the JSON Schemas of what stepscope writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any


def _report() -> dict[str, Any]:
    from stepscope.render.report_json import report_schema

    return report_schema()


def _perf_dump() -> dict[str, Any]:
    from stepscope.record.perf_dump import dump_schema

    return dump_schema()


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "perf-dump": _perf_dump,
    "report": _report,
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
