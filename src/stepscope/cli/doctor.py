"""``stepscope doctor``: what this machine can do."""

from __future__ import annotations

import argparse
import sys

from stepscope.cli.output import add_output_options, chosen_format, deliver, terminal_width
from stepscope.model.health import Check

FORMATS = ("terminal", "json")


class DoctorCommand:
    """Say what this machine can do, and how to get what is missing.

    Looks at torch and its devices (their events are tried against a known wait), Nsight Systems and the nvtx
    package (a range is recorded to see whether they fit), permissions, disk space and the trace viewer.
    """

    name = "doctor"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Only where the answer goes."""
        add_output_options(parser, FORMATS)

    def run(self, arguments: argparse.Namespace) -> int:
        """Tell each check as it is made. The status is 0: what is missing may not be wanted."""
        from stepscope.session.doctor import examine

        if chosen_format(arguments, FORMATS) == "json":
            from stepscope.render.json_text import json_text

            deliver(json_text(examine()), arguments.output)
        elif arguments.output is not None:
            deliver("".join(map(_line, examine().checks)), arguments.output)
        else:
            examine(told=_tell)
        return 0


def _tell(check: Check) -> None:
    sys.stdout.write(_line(check))
    sys.stdout.flush()


def _line(check: Check) -> str:
    from stepscope.render.health_terminal import render_check

    return render_check(check, terminal_width())
