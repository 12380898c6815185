"""A half-open range of steps, as people write it: ``5:10`` is five steps."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """Steps ``first`` to ``end - 1``; ``end`` None: to the last."""

    first: int
    end: int | None

    @staticmethod
    def parse(text: str) -> StepRange:
        """``5:10``, ``5:``, ``:10`` or ``5`` (that step alone). Raises UsageError."""
        low, colon, high = text.partition(":")
        try:
            first = int(low) if low else 0
            end = (int(high) if high else None) if colon else first + 1
        except ValueError:
            first, end = -1, None
        if first < 0 or (end is not None and end <= first) or not text.strip(": "):
            raise UsageError(
                f"{text!r} is no range of steps.", remedy="Write FIRST:END, as 5:10 for steps 5 to 9."
            )
        return StepRange(first=first, end=end)

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.end is None else self.end}"

    def __contains__(self, index: int) -> bool:
        return self.first <= index and (self.end is None or index < self.end)
