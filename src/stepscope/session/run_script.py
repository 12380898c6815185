"""Runs a Python program in this process as ``python`` itself would: a script, a folder or archive, a module.

The program sees its own arguments, ``__main__`` and import path. Its exception, ``SystemExit`` and
KeyboardInterrupt go on to the interpreter, which ends the process as it always does; only the traceback it
shows is the program's alone.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.capture.frames import without_our_frames
from stepscope.model.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """``name`` is a path, or with ``is_module`` what ``python -m`` takes."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def check(self) -> None:
        """Raise UsageError if there is no such script; a module's absence is told as ``python -m`` does."""
        if self.is_module:
            return
        path = Path(self.name)
        if self.name == "-":
            raise UsageError("a program cannot be read from standard input.", remedy="Give a file.")
        if not os.path.exists(path):  # noqa: PTH110  pathlib's raises for a name that is too long
            raise UsageError(f"there is no script {self.name}.", remedy="Check the path, or give -m MODULE.")
        if not os.access(path, os.R_OK):
            raise UsageError(f"the script {self.name} cannot be read.", remedy="Check its permissions.")


def execute(program: Program) -> None:
    """Run the program. Its exceptions go on as they are, to be shown without a frame of ours."""
    threading.excepthook = _thread_hook(threading.excepthook)
    try:
        if program.is_module:
            _run_module(program)
        elif _holds_main(program.name):
            _prepare(program, path_entry=program.name)
            _run_as_main("__main__", alter_argv=False)
        else:
            _run_file(program)
    except SystemExit:
        raise
    except BaseException as error:
        _show_only_the_program(error)
        raise


def _run_module(program: Program) -> None:
    _prepare(program, path_entry=os.getcwd())  # noqa: PTH109  as text, as python does
    sys.argv[0] = "-m"
    _run_as_main(program.name, alter_argv=True)


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    """What the interpreter itself calls for ``-m`` and for archives, by this name since Python 2.6."""
    sys.modules["__main__"] = _fresh_main()
    run: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    run(name, alter_argv)


def _run_file(program: Program) -> None:
    path = str(Path(program.name).absolute())
    _prepare(program, path_entry=os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    main = _fresh_main()
    main.__file__ = path
    vars(main)["__cached__"] = None
    code = _code_of(main, path)
    sys.modules["__main__"] = main
    exec(code, vars(main))  # noqa: S102  the user's own program


def _code_of(main: types.ModuleType, path: str) -> types.CodeType:
    if path.endswith(".pyc"):
        compiled = importlib.machinery.SourcelessFileLoader("__main__", path)
        main.__loader__ = compiled
        code = compiled.get_code("__main__")
        assert code is not None
        return code
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    with io.open_code(path) as source:
        return compile(source.read(), path, "exec", dont_inherit=True)


def _fresh_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    return main


def _prepare(program: Program, *, path_entry: str) -> None:
    """Arguments and import path; in safe-path mode there is no entry of the program's own."""
    sys.argv = [program.name, *program.arguments]
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[0:1] = [path_entry]


def _holds_main(name: str) -> bool:
    """A folder or archive with a ``__main__`` in it."""
    path = Path(name)
    if path.is_dir():
        return True
    import zipfile

    return path.suffix not in {".py", ".pyc"} and zipfile.is_zipfile(path)


def _show_only_the_program(error: BaseException) -> None:
    """Whatever hook shows the exception, the user's own too: it gets the traceback without our frames."""
    shown = without_our_frames(error)
    hook = sys.excepthook

    def show(kind: Any, value: BaseException, frames: types.TracebackType | None) -> None:
        sys.excepthook = hook
        if value is error:
            frames = shown
            value.__traceback__ = shown
        hook(kind, value, frames)

    sys.excepthook = show


def _thread_hook(hook: Any) -> Any:
    def show(arguments: Any) -> None:
        if arguments.exc_value is None:
            hook(arguments)
            return
        frames = without_our_frames(arguments.exc_value)
        hook(type(arguments)((arguments.exc_type, arguments.exc_value, frames, arguments.thread)))

    return show
