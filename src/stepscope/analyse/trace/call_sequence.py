"""The calls of one thread that matter for alignment, in order, each with a token of its name and size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope.analyse.trace.align import U64
from stepscope.analyse.trace.gpu_work import launches_of
from stepscope.model.trace import I32, I64, Trace

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class Vocabulary:
    """Numbers for texts, the same for every trace that is compared."""

    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, texts: tuple[str, ...], used: I32) -> U64:
        """The number of the text of each row."""
        table = np.zeros(len(texts) + 1, np.uint64)
        for index in np.unique(used).tolist():
            table[index] = self.numbers.setdefault(texts[index], len(self.numbers) + 1)
        result: U64 = table[used]
        return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallSequence:
    """Calls of one thread in order.

    ``row``: in the launches, or in the operators where nothing is launched.
    """

    of_launches: bool
    row: I64
    at_ns: I64
    token: U64


def call_sequence(trace: Trace, thread: int, vocabulary: Vocabulary) -> CallSequence:
    """The launches of a thread that made the device work or waited for it; its operators if there are none.

    Queries (is the stream capturing, has an event passed) come as often as time allows, so they are no part
    of the sequence.
    """
    if not len(trace.launches.start_ns):
        return _operators(trace, thread, vocabulary)
    launches = trace.launches
    token = vocabulary.of(trace.names, launches.name)
    works = np.zeros(len(token), np.bool_)
    works |= np.isin(launches.start_ns, trace.syncs.start_ns)
    for table, sizes in (
        (trace.kernels, (trace.kernels.grid, trace.kernels.block)),
        (trace.copies, (trace.copies.bytes[:, np.newaxis],)),
    ):
        launch = launches_of(trace, table.process, table.correlation)
        work = vocabulary.of(trace.names, table.name)
        for size in sizes:
            for column in size.T:
                work = work * _MULTIPLIER + column.astype(np.uint64)
        first, rows = np.unique(launch, return_index=True)
        rows = rows[first >= 0]
        first = first[first >= 0]
        token[first] = token[first] * _MULTIPLIER + work[rows]
        works[first] = True
    mine = np.flatnonzero(works & (launches.thread == thread))
    if not len(mine) and works.any():  # the recorder names threads in another way
        threads, counts = np.unique(launches.thread[works], return_counts=True)
        mine = np.flatnonzero(works & (launches.thread == threads[counts.argmax()]))
    return CallSequence(of_launches=True, row=mine, at_ns=launches.start_ns[mine], token=token[mine])


def _operators(trace: Trace, thread: int, vocabulary: Vocabulary) -> CallSequence:
    operators = trace.operators
    mine = np.flatnonzero(operators.thread == thread)
    token = vocabulary.of(trace.names, operators.name)[mine]
    return CallSequence(of_launches=False, row=mine, at_ns=operators.start_ns[mine], token=token)
