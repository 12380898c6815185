"""What the ranks of a report are called: by number, and by request too where traces of several were read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from stepscope.analyse.results import RankReport
from stepscope.render.names import shorten, visible

_LONGEST = 32


def rank_name(rank: RankReport, ranks: Sequence[RankReport]) -> str:
    """``rank 0``; ``request rank 0`` where another trace of the report has the same number."""
    number = f"rank {rank.rank}"
    if sum(other.rank == rank.rank for other in ranks) < 2:
        return number
    requests = [other.request_id for other in ranks if other.rank == rank.rank]
    is_told_apart = rank.request_id is not None and requests.count(rank.request_id) == 1
    name = rank.request_id if is_told_apart and rank.request_id else PurePath(rank.path).name
    return f"{shorten(visible(name), _LONGEST)} {number}"


def rank_prefix(rank: RankReport, ranks: Sequence[RankReport]) -> str:
    """The name with a colon, to stand before a sentence; nothing where there is one rank only."""
    return f"{rank_name(rank, ranks)}: " if len(ranks) > 1 else ""
