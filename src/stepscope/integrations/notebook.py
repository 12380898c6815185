"""``%load_ext stepscope``, then ``%%stepscope --profile`` at the head of a cell: its report below it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.parser import Parser
from stepscope.cli.values import step_count
from stepscope.model.errors import StepscopeError, UsageError

if TYPE_CHECKING:
    from stepscope.session.profile import ProfileSession

MAGIC = "stepscope"


def load(shell: Any) -> None:
    """Register the cell magic in an IPython shell; ``shell`` is what IPython gives to extensions."""
    shell.register_magic_function(_Magic(shell), magic_kind="cell", magic_name=MAGIC)


def unload(shell: Any) -> None:
    """Take it away again."""
    shell.magics_manager.magics["cell"].pop(MAGIC, None)


class _Magic:
    """The cell magic of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.__doc__ = _parser().format_help()

    def __call__(self, line: str, cell: str) -> None:
        """Run the cell observed and show what was seen; the cell's own error is shown as ever."""
        try:
            flags = _flags(line)
            session = _session(flags)
            with session:
                self._shell.run_cell(cell)
            if flags.save is not None and session.calls:
                print(f"Saved to {session.save(flags.save)}")  # noqa: T201  a notebook's cell is a terminal
        except StepscopeError as error:
            print(f"stepscope: error: {error}")  # noqa: T201
            return
        if flags.session is not None:
            self._shell.push({flags.session: session})
        self._show(session)

    def _show(self, session: ProfileSession) -> None:
        """As a page in a notebook, as text in a terminal."""
        from IPython.display import display

        if session.calls and hasattr(self._shell, "kernel"):
            display(session)  # type: ignore[no-untyped-call]
        else:
            session.report()


def _flags(line: str) -> argparse.Namespace:
    parser = _parser()
    try:
        flags = parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"{line!r} cannot be split into flags: {error}.") from error
    if flags.session is not None and not flags.session.isidentifier():
        raise UsageError(f"{flags.session!r} is no name for a variable.")
    return flags


def _session(flags: argparse.Namespace) -> ProfileSession:
    from stepscope.session.generate_options import PROFILED_STEPS
    from stepscope.session.profile import profile

    asked = flags.num_profiled_timesteps
    if not flags.profile:
        if asked is not None or flags.profile_all_stages:
            raise UsageError("steps are traced with --profile only.", remedy="Add --profile.")
        return profile()
    return profile(steps=asked or PROFILED_STEPS, all_stages=flags.profile_all_stages)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"%%{MAGIC}", description="Measure every pipeline call of this cell.", add_help=False
    )
    parser.add_argument("--profile", action="store_true", help="trace with torch.profiler")
    parser.add_argument(
        "--num-profiled-timesteps",
        type=step_count,
        metavar="N",
        help="steps to trace after step 0 (default: 5)",
    )
    parser.add_argument("--profile-all-stages", action="store_true", help="trace whole calls")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep records and traces there")
    parser.add_argument("--session", metavar="NAME", help="put the session into this variable")
    return parser
