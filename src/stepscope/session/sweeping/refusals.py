"""What every point of a sweep would be refused for, found before the first one runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from stepscope.session.generate_flags import options_of
from stepscope.session.sweeping.point_runner import PointTask
from stepscope.workload.load import refuse_unknown

if TYPE_CHECKING:
    from stepscope.session.generate_flags import GenerateFlags


def refuse_wrong_flags(tasks: Sequence[PointTask]) -> None:
    """Look at every point's flags, without a library and a worker.

    Raises:
        UsageError: flags that exclude each other, a value out of range, a model that there is not.

    """
    for task in tasks:
        refuse_unknown(options_of(cast("GenerateFlags", task.flags)).load)
