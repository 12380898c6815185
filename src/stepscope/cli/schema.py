"""``stepscope schema``: the JSON Schemas of what stepscope writes."""

from __future__ import annotations

import argparse
import json


class SchemaCommand:
    """Print the JSON Schema of a file that stepscope writes."""

    name = "schema"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the name of the schema."""
        parser.add_argument("schema", choices=("perf-dump",), help="what to describe")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print it to standard output."""
        from stepscope.record.perf_dump import dump_schema

        assert arguments.schema == "perf-dump"
        print(json.dumps(dump_schema(), indent=2))
        return 0
