"""The Python API of ``generate``: the same flags, the same files, results and exceptions instead of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.session import generate as session
from stepscope.session.generate_flags import GenerateFlags, options_of
from stepscope.session.generate_options import GenerateResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


def generate(**flags: Unpack[GenerateFlags]) -> tuple[GenerateResult, ...]:
    """Run a diffusion pipeline and return what was measured, one result a prompt.

    Takes every flag of ``stepscope generate`` as a keyword with underscores, and means the same by it::

        [result] = stepscope.generate(model_path="Qwen/Qwen-Image", prompt="A logo", seed=0, profile=True)
        result.dump.total_duration_ms, result.dump.denoise_steps_ms, result.trace_path

    Raises:
        UsageError: a flag is wrong or cannot be taken by the pipeline.
        RunFailedError: the model cannot be loaded, or a file cannot be written.
        BaseException: the pipeline's own exception, as it is, after what was recorded has been written.

    """
    results = session.generate(options_of(flags))
    error = results[-1].error
    if error is not None:
        raise error
    return results
