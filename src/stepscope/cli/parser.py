"""The argument parser of every command: one-line errors, the nearest known flag, help that costs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stepscope.model.errors import UsageError
from stepscope.model.nearest import nearest

HELP_WIDTH = 100


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that raises ``UsageError`` instead of printing and leaving.

    ``elsewhere`` maps flags that other tools have, and this command has not, to what to say about them.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords, formatter_class=_help_formatter, allow_abbrev=False)
        self.elsewhere: Mapping[str, str] = {}
        self.takes_command = False
        """Everything after ``--`` is a command, and unknown flags before it are for another program."""
        self.stops_at_program = False
        """What follows the first word that is no flag is another program's: ``program`` holds it."""
        self.quoted: tuple[str, ...] = ()
        """Options whose value is another command's flags: it may be one word that begins with a dash."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but a flag that this parser does not know is an error here and now."""
        if self.takes_command:
            return self._parse_command(list(args), namespace), []
        own, program = self._own_words(self._joined(args))
        parsed, rest = super().parse_known_args(own, namespace)
        unknown = next((word for word in rest if word.startswith("-")), None)
        if unknown is not None:
            raise self._unknown(unknown.split("=", 1)[0])
        if program is not None:
            parsed.is_command = program[:1] == ["--"]
            parsed.program = program[parsed.is_command :]
        return parsed, rest

    def _joined(self, args: Any) -> Any:
        """``--vs --flag`` as ``--vs=--flag``: argparse would take the value for a flag of ours."""
        if not self.quoted:
            return args
        given = list(args or ())
        end = given.index("--") if "--" in given else len(given)
        words: list[str] = []
        for word in given[:end]:
            if words and words[-1] in self.quoted:
                words[-1] += f"={word}"
            else:
                words.append(word)
        return words + given[end:]

    def _own_words(self, args: Any) -> tuple[Any, list[str] | None]:
        """The words that are ours and those of the program, None where there can be none."""
        if not self.stops_at_program:
            return args, None
        words = list(args or ())
        at = self._program_at(words)
        return words[:at], words[at:]

    def _program_at(self, words: Sequence[str]) -> int:
        """Where the program begins: at the first word that is neither a flag nor a flag's value."""
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
            flag, given, _ = words[at].partition("=")
            action = self._option_string_actions.get(flag)
            at += 1 if given or action is None or action.nargs == 0 else 2
            if flag == "-m":
                break
        return min(at, len(words))

    def _parse_command(self, words: list[str], namespace: Any) -> Any:
        """``passed_on``: words that nobody here knows; ``words``: the command, None without a ``--``."""
        at = words.index("--") if "--" in words else len(words)
        parsed, rest = super().parse_known_args(words[:at], namespace)
        parsed.passed_on = tuple(rest)
        parsed.words = tuple(words[at + 1 :]) if at < len(words) else None
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise the message as a UsageError; main prints it."""
        raise UsageError(f"{message}.", remedy=f"See {self.prog} --help.")

    def _unknown(self, flag: str) -> UsageError:
        if flag in self.elsewhere:
            return UsageError(f"{flag} is not in this version: {self.elsewhere[flag]}")
        near = nearest(flag, (one for one in self._option_string_actions if one.startswith("--")))
        remedy = f"Did you mean {near[0]}?" if near else f"See {self.prog} --help."
        return UsageError(f"{self.prog.split()[-1]} has no {flag}.", remedy=remedy)


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    """Rich is imported only when help is shown."""
    from rich_argparse import RichHelpFormatter

    RichHelpFormatter.text_markup = RichHelpFormatter.help_markup = False  # "stepscope[view]" is no markup
    RichHelpFormatter.group_name_formatter = str.capitalize
    formatter: argparse.HelpFormatter = RichHelpFormatter(prog, max_help_position=36, width=HELP_WIDTH)
    return formatter
