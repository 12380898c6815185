"""``--config FILE``: the same flags, from YAML or JSON; what the command line says wins."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from stepscope.model.errors import UsageError
from stepscope.model.nearest import nearest

AddFlags = Callable[[argparse.ArgumentParser], None]


class _ConfigParser(argparse.ArgumentParser):
    """Parses a file's flags; an error names the file."""

    origin = ""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.origin}: {message}.")


def with_config(arguments: argparse.Namespace, add_flags: AddFlags) -> argparse.Namespace:
    """The arguments, with what ``arguments.config`` names filled in where the command line was silent.

    Raises:
        UsageError: the file cannot be read, holds an unknown key or a value that its flag cannot take.

    """
    path = getattr(arguments, "config", None)
    if path is None:
        return arguments
    parser = _ConfigParser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.origin = path
    add_flags(parser)
    filled = parser.parse_args(list(_words(_read(Path(path)), parser, path)))
    return argparse.Namespace(**vars(filled) | vars(arguments))


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.load(_text(path), _unique_keys())  # noqa: S506 (it is the safe one)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.", remedy="Check --config.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is neither YAML nor JSON: {reason}.", remedy="Check --config.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} does not map flags to values.", remedy="One 'flag: value' a line.")
    return content


def _text(path: Path) -> str:
    return path.expanduser().read_text(encoding="utf-8-sig")


def _unique_keys() -> Any:
    """The safe loader, but a key given twice is an error: one of the two would be silently lost."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := [key for index, key in enumerate(keys) if key in keys[:index]]:
                problem = f"{twice[0]} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return mapping

    return Loader


def _words(content: dict[str, Any], parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
    """The file's content as the words of a command line. JSON is YAML, so one reader serves both."""
    known = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    for key, value in content.items():
        flag = "--" + str(key).lstrip("-").replace("_", "-")
        if flag not in known or flag == "--config":
            near = nearest(flag, known)
            raise UsageError(
                f"{path}: there is no flag {key}.", remedy=f"Did you mean {near[0]}?" if near else ""
            )
        yield from _flag_words(flag, value, takes_value=parser._option_string_actions[flag].nargs != 0)


def _flag_words(flag: str, value: Any, *, takes_value: bool) -> Iterator[str]:
    match value:
        case None:
            return
        case bool() if not takes_value:
            if value:
                yield flag
        case bool():
            yield f"{flag}={str(value).lower()}"
        case dict():
            yield f"{flag}={json.dumps(value)}"
        case list():
            yield from (flag, *(str(item) for item in value))
        case _:
            yield f"{flag}={value}"
