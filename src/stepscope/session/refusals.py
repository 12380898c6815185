"""What the calls of a bench or a sweep would be refused for, found before the first one runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from stepscope.session.generate_flags import options_of
from stepscope.workload.load import refuse_unknown

if TYPE_CHECKING:
    from stepscope.session.generate_flags import GenerateFlags


def refuse_wrong_flags(calls: Iterable[Mapping[str, Any]]) -> None:
    """Look at the flags of every call, without a library and a worker.

    Raises:
        UsageError: flags that exclude each other, a value out of range, a model that there is not.

    """
    for flags in calls:
        refuse_unknown(options_of(cast("GenerateFlags", flags)).load)
