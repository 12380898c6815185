"""Observe every pipeline class of the installed diffusers, on tiny components built offline.

    python benchmarks/survey_diffusers.py                 # what is not in the results yet, then the table
    python benchmarks/survey_diffusers.py --again Flux*   # these classes once more
    python benchmarks/survey_diffusers.py --table-only

Each class is built, called plainly twice and observed once, on one thread. Results are appended to
benchmarks/results/survey_diffusers.jsonl as they come, so a survey that was stopped goes on where it was.
The table is written to docs/diffusers_coverage.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from survey.coverage_table import table  # noqa: E402
from survey.measure import Row, as_json  # noqa: E402
from survey.runner import read_rows, survey  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "survey_diffusers.jsonl"
TABLE = ROOT / "docs" / "diffusers_coverage.md"


def class_names() -> list[str]:
    """Every pipeline class of the installed diffusers."""
    from survey.environment import prepare

    prepare()
    from survey.build import pipeline_classes

    return list(pipeline_classes())


def chosen(names: Sequence[str], patterns: Sequence[str], done: Sequence[str]) -> list[str]:
    """The classes to survey: those that match, or all that have no row."""
    if patterns:
        return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    return [name for name in names if name not in done]


def last(names: Sequence[str]) -> list[str]:
    """Those that edit pictures of a megapixel, whatever they are given, come last: they take minutes."""
    return sorted(names, key=lambda name: "Edit" in name or "Layered" in name)


def main() -> None:
    """Run the survey and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="PATTERN", help="survey these classes once more"
    )
    parser.add_argument("--limit-s", type=float, default=400.0, help="seconds a class may take")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--table-only", action="store_true")
    options = parser.parse_args()
    rows = read_rows(options.results)
    names = class_names()
    todo = [] if options.table_only else chosen(names, options.again, list(rows))
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a", encoding="utf-8") as file:
        for row in survey(last(todo), limit_s=options.limit_s):
            rows[row["name"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(
                f"{row['status']:9} {row['name']} {row.get('coverage', '')} {row.get('reason', '')}",
                flush=True,
            )
    kept = {name: rows[name] for name in names if name in rows}
    left = [as_json(Row(name=name, status="not_surveyed")) for name in names if name not in rows]
    options.results.write_text("".join(json.dumps(row) + "\n" for row in kept.values()), encoding="utf-8")
    options.table.write_text(table([*kept.values(), *left]), encoding="utf-8")
    print(f"{options.table}: {len(kept)} classes")


if __name__ == "__main__":
    main()
