"""``stepscope models``: what runs without a download."""

from __future__ import annotations

import argparse

from stepscope.cli.output import add_output_options, chosen_format, deliver, terminal_width

FORMATS = ("terminal", "json")


class ModelsCommand:
    """List the presets: architectures that run with random weights, each with a small twin.

    Full-size counts are those that were published; --count builds every component without memory and counts.
    """

    name = "models"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Whether to count, and where the list goes."""
        parser.add_argument("--count", action="store_true", help="count parameters (needs torch, diffusers)")
        add_output_options(parser, FORMATS)

    def run(self, arguments: argparse.Namespace) -> int:
        """Show the list."""
        from stepscope.session.models import preset_infos

        presets = preset_infos(count=arguments.count)
        if chosen_format(arguments, FORMATS) == "json":
            from stepscope.render.json_text import json_text

            deliver(json_text(presets), arguments.output)
        else:
            from stepscope.render.models_terminal import render_models

            deliver(render_models(presets, terminal_width()), arguments.output)
        return 0
