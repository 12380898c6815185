"""A ready Nsight Compute command for one launch of one kernel.

Kineto and ``ncu`` spell a demangled name differently (``<2ul, false>``, ``<(unsigned long)2, (bool)0>``), and
several kernels share a function's name. So the name is not copied but searched for by the words in it that
every spelling has, in their order. Only letters, digits and underscores of a name reach the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from stepscope.analyse.kernels.families import readable

__all__ = ["PLACEHOLDER", "kernel_pattern", "ncu_command"]

PLACEHOLDER = "YOUR_COMMAND"
"""Stands for the program to profile where the trace does not tell it."""

_MOST_WORDS = 14  # enough to tell PyTorch's functors apart, short enough for a line
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"(?<![A-Za-z0-9_])(?:[A-Za-z_][A-Za-z0-9_]*(?!\w|::)|[0-9]+)")
_PARENTHESES = re.compile(r"\([^()]*\)")
# Spelt by one demangler only, or in another place by the other.
_UNRELIABLE = {
    *("anon", "bool", "char", "const", "double", "false", "instance", "int", "lambda", "long", "operator"),
    *("short", "signed", "true", "unsigned", "void"),
}


def kernel_pattern(kernel_name: str) -> str | None:
    """A regular expression that finds the kernel in ``ncu``'s demangled names; None if it has no word."""
    text = readable(kernel_name)
    if _PLAIN.fullmatch(text):
        return f"^{text}$"
    while (bare := _PARENTHESES.sub(" ", text)) != text:  # parameter lists, casts, from the inside out
        text = bare
    head, _, arguments = text.partition("<")
    function = next(reversed(_WORD.findall(head)), None)
    if function is None:
        return None
    words = [word for word in _WORD.findall(arguments) if word not in _UNRELIABLE]
    return ".*".join([rf"\b{function}\b", *words[:_MOST_WORDS]])


def ncu_command(kernel_name: str, *, launches: int = 1, target: Sequence[str] = ()) -> str | None:
    """The command for a POSIX shell that profiles one launch of the kernel with every section.

    Of the ``launches`` that the trace holds, the one in the middle: the first ones are not typical.
    ``target`` is the program and its arguments; ``PLACEHOLDER`` stands where there is none. None for a name
    without a word in it.
    """
    pattern = kernel_pattern(kernel_name)
    if pattern is None:
        return None
    words = [
        "ncu",
        *("--set", "full"),
        *("--target-processes", "all"),
        *("--kernel-name-base", "demangled"),
        *("--kernel-name", f"regex:{pattern}"),
        *("--launch-skip", str(max(launches, 1) // 2)),
        *("--launch-count", "1"),
        *(target or (PLACEHOLDER,)),
    ]
    return shlex.join(words)
