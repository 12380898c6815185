"""Findings: explained inefficiencies, each from one small rule."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analyse.analysis import Analysis
from stepscope.analyse.results import Finding, RankReport


def rank_findings(found: Analysis, rank: RankReport) -> tuple[Finding, ...]:
    return ()


def skew_findings(ranks: Sequence[RankReport]) -> tuple[RankReport, ...]:
    return tuple(ranks)
