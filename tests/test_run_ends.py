"""However a program ends, it ends under ``stepscope run`` as it ends alone: status, output, traceback."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import programs

WAYS = {
    "to the end": "print('done')",
    "falls over": "def inner():\n    return 1 / 0\n\n\ninner()\n",
    "raises from a cause": "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('b') from e\n",
    "raises in the handling": "try:\n    {}['a']\nexcept KeyError:\n    raise RuntimeError('b')\n",
    "sys.exit()": "import sys\nsys.exit()\n",
    "sys.exit(3)": "import sys\nsys.exit(3)\n",
    "sys.exit(True)": "import sys\nsys.exit(True)\n",
    "sys.exit(text)": "import sys\nsys.exit('no more')\n",
    "sys.exit(object)": "import sys\nsys.exit((1, 2))\n",
    "raise SystemExit": "raise SystemExit(258)\n",
    "exit in a function": "def main():\n    print('x', flush=True)\n    raise SystemExit\n\n\nmain()\n",
    "os._exit": "import os\nprint('last', flush=True)\nos._exit(7)\n",
    "interrupted": "import signal, os\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(5)\n",
    "KeyboardInterrupt": "raise KeyboardInterrupt\n",
    "killed": "import signal, os\nos.kill(os.getpid(), signal.SIGTERM)\nimport time\ntime.sleep(5)\n",
    "aborted": "import os\nos.abort()\n",
    "syntax error": "print('never')\nif True print(1)\n",
    "own hook": (
        "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_frame.f_lineno)\n1 / 0\n"
    ),
    "warning": "import warnings\nwarnings.warn('careful')\n",
    "thread alive": (
        "import threading, time\n"
        "def late():\n    time.sleep(0.3)\n    print('late')\n"
        "threading.Thread(target=late).start()\nprint('main done')\n"
    ),
    "thread alive after an error": (
        "import threading, time\n"
        "def late():\n    time.sleep(0.3)\n    print('late')\n"
        "threading.Thread(target=late).start()\n1 / 0\n"
    ),
    "thread fails": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()\n"
    ),
    "atexit": "import atexit\natexit.register(print, 'bye')\nraise SystemExit(4)\n",
    "atexit fails": "import atexit\natexit.register(divmod, 1, 0)\nprint('end')\n",
    "stepscope's own error": "import stepscope\nraise stepscope.UsageError('mine', remedy='Do.')\n",
    "broken pipe": "raise BrokenPipeError(32, 'gone')\n",
    "group": "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])\n",
    "main's globals": (
        "import sys, __main__\nprint(sorted(vars(__main__)))\n"
        "print(__name__, __spec__, __package__, __file__, __loader__.path)\n"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_ends_as_it_ends_alone(way: str, tmp_path: Path) -> None:
    """The same exit status, standard output, traceback and messages."""
    (tmp_path / "script.py").write_text(WAYS[way])
    alone = programs.python(["script.py", "a", "--profile"], tmp_path)
    under = programs.run(["--perf-dump-path", "perf.json", "script.py", "a", "--profile"], tmp_path)

    assert (under.status, under.out, under.own_err) == (alone.status, alone.out, alone.err)


@pytest.mark.parametrize("way", ["to the end", "falls over", "sys.exit(text)", "KeyboardInterrupt"])
def test_a_module_ends_as_it_ends_alone(way: str, tmp_path: Path) -> None:
    """``-m package.module`` too, with the frames of runpy that python itself shows."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "module.py").write_text(
        f"import sys\nprint(sys.argv, sys.path[0], __spec__.name)\n{WAYS[way]}"
    )
    alone = programs.python(["-m", "package.module", "-m", "x"], tmp_path)
    under = programs.run(["-m", "package.module", "-m", "x"], tmp_path)

    assert (under.status, under.out, under.own_err) == (alone.status, alone.out, alone.err)


CUT_OFF = """
import os, signal, sys, threading, time
import pipelines

started = threading.Barrier(2)
built = {4: pipelines.stable_diffusion(), 6: pipelines.stable_diffusion()}  # lazy imports are for one thread

def callback(pipeline, index, timestep, tensors):
    if index == 1:
        started.wait()
        if threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        time.sleep(60)
    return {}

def call(steps):
    try:
        pipelines.sd(built[steps], steps, callback_on_step_end=callback)
    finally:
        print("not reached", flush=True)

threading.Thread(target=call, args=(6,), daemon=True).start()
call(4)
"""


def test_what_a_signal_cuts_off_is_written(tmp_path: Path) -> None:
    """SIGTERM ends a program as ever, nothing of it runs any more, and its calls are kept: all threads'."""
    (tmp_path / "script.py").write_text(CUT_OFF)
    flags = ["--profile", "--trace-detail", "ops", "--perf-dump-path", "perf.json"]
    ended = programs.run([*flags, "script.py", "SIGTERM"], tmp_path)

    assert ended.status == -signal.SIGTERM
    assert ended.out == ""
    records = [json.loads(path.read_text()) for path in tmp_path.glob("perf*.json")]
    assert sorted(record["workload"]["steps"] for record in records) == [4, 6]
    for record in records:
        assert record["incomplete_reason"] == "Terminated: SIGTERM, in DenoisingStage, step 1"
        assert len(record["denoise_steps_ms"]) == 2
    assert "INCOMPLETE call 1: Terminated: SIGTERM" in ended.err
    assert "Metrics dumped to" in ended.err
    assert [path for path in (tmp_path / "logs").iterdir() if path.name.startswith(".")] == []


def test_an_interrupted_program_with_calls_ends_by_the_signal(tmp_path: Path) -> None:
    """What shows its calls is imported at the end, and must not change how Python ends the process."""
    call = "import pipelines\npipelines.sd(pipelines.stable_diffusion(), 1)\n"
    (tmp_path / "script.py").write_text(call + WAYS["interrupted"])
    ended = programs.run(["script.py"], tmp_path)

    assert "DenoisingStage" in ended.err
    assert ended.status == -signal.SIGINT
