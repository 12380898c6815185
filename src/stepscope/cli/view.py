"""``stepscope view``: a trace in Perfetto, with one command."""

from __future__ import annotations

import argparse
import sys
import webbrowser

from stepscope.cli.values import a_path, positive


class ViewCommand:
    """Open a trace in the Perfetto viewer, zoomed to the recorded steps.

    The file is served once, on this machine only, to the page and to nothing else; the command ends when
    the page has it. --offline serves the page too (pip install "stepscope[view]"): no network is needed.
    Nsight Systems exports are converted on the way.
    """

    name = "view"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """One trace."""
        parser.add_argument("trace", type=a_path, metavar="TRACE", help="trace of any recorder")
        parser.add_argument(
            "--offline", action="store_true", help="serve the viewer from this machine as well"
        )
        parser.add_argument("--no-browser", action="store_true", help="only print the address")
        parser.add_argument("--port", type=positive, metavar="N", help="port on 127.0.0.1 (default: 9001)")
        parser.add_argument(
            "--ui",
            default="https://ui.perfetto.dev",
            metavar="URL",
            help="the page (default: %(default)s)",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Serve until the page has the trace."""
        from stepscope.session.viewing.view import ViewOptions, forwarding, open_view

        options = ViewOptions(
            trace=arguments.trace, offline=arguments.offline, ui=arguments.ui, port=arguments.port
        )
        with open_view(options) as view:
            for note in view.notes:
                print(f"stepscope: note: {note}", file=sys.stderr)
            print(f"Open in a browser: {view.address}", flush=True)
            tunnel = forwarding(view.server.server_port)
            if tunnel is not None:
                print(f"From another machine, first: {tunnel}", flush=True)
            elif not arguments.no_browser and not webbrowser.open(view.address):
                print("stepscope: note: no browser could be opened here", file=sys.stderr)
            view.wait()
        print("The page has the trace.", flush=True)
        return 0
