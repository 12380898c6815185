"""What the ranks of a report are called: by number, and by request or file too where that does not tell all.

The one place that names them; no view has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from stepscope.analyse.results import RankReport
from stepscope.render.names import shorten, visible

_LONGEST = 32


def numbers_suffice(ranks: Sequence[RankReport]) -> bool:
    """Whether the traces are the ranks of one request, each there once."""
    return len({rank.request_id for rank in ranks}) <= 1 and len({rank.rank for rank in ranks}) == len(ranks)


def rank_name(rank: RankReport, ranks: Sequence[RankReport]) -> str:
    """``rank 0``; ``request rank 0``, or with the file's name, where that does not tell all."""
    number = f"rank {rank.rank}"
    if len(ranks) == 1 and rank.call_id is not None:  # one trace beside several runs
        return f"call {rank.call_id}"
    if numbers_suffice(ranks):
        return number
    return f"{shorten(visible(_origin(rank, ranks)), _LONGEST)} {number}"


def rank_prefix(rank: RankReport, ranks: Sequence[RankReport]) -> str:
    """The name with a colon, to stand before a sentence; nothing where there is nothing to tell it from."""
    told = len(ranks) > 1 or rank.call_id is not None
    return f"{rank_name(rank, ranks)}: " if told else ""


def _origin(rank: RankReport, ranks: Sequence[RankReport]) -> str:
    """The first of request, file name and path that tells the trace from the others of its number."""
    alike = [other for other in ranks if other.rank == rank.rank]
    if rank.call_id is not None and sum(other.call_id == rank.call_id for other in alike) == 1:
        return f"call {rank.call_id}"
    if rank.request_id and sum(other.request_id == rank.request_id for other in alike) == 1:
        return rank.request_id
    name = PurePath(rank.path).name
    return name if sum(PurePath(other.path).name == name for other in alike) == 1 else rank.path
