"""Imported by every Python process below ``stepscope run -- COMMAND`` or ``--children``, first of all.

It stands on PYTHONPATH, so it survives spawn and exec (fork keeps what is loaded). It uses the standard
library only, changes nothing but the import system, and never fails: a fault of ours is a line in the log.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib would cost each process 5 ms


def start_stepscope() -> None:
    """Begin watching for engines, or for pipelines; the variables are what switches it on."""
    engines, children = os.environ.get("STEPSCOPE"), os.environ.get("STEPSCOPE_CHILDREN")
    if not engines and not children:
        return
    import stepscope_plugin  # type: ignore[import-not-found]  # beside this file, on the path

    if engines:
        stepscope_plugin.start()
    if children:
        stepscope_plugin.start_child()


def next_sitecustomize() -> None:
    """Run the ``sitecustomize`` that ours has pushed aside, if the user or the distribution has one."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


start_stepscope()
next_sitecustomize()
