"""Which destinations have messages, and from which due time on to look for them.

A mark spares claims the index entries of messages that are gone and not vacuumed yet. It is a hint: messages may appear
below it, and for destinations not seen before, so every while all are looked for from the beginning, the more rarely
the longer that takes. A relay that found nothing looks from the beginning at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
FEW = 200  # destinations that are kept in mind although nothing of them is due
EVERY = 1.0  # seconds at least between two full looks, while there is work
SHARE = 20  # and this many times its own duration, in any case
SLACK = timedelta(seconds=1)  # how far below the oldest known message a mark stays


@dataclass(slots=True)
class Destinations:
    """What one relay knows of them."""

    marks: dict[str, datetime] = field(default_factory=dict)
    idle: bool = True
    _look_at: float = 0.0
    _idle_look_at: float = 0.0
    _next: int = 0  # whose turn it is

    def look_in(self) -> float:
        """Seconds until it is time to look from the beginning again; 0 if it is."""
        return max(0.0, (self._idle_look_at if self.idle else self._look_at) - time.monotonic())

    def looked(self, oldest: Mapping[str, tuple[float, datetime]], took: float) -> None:
        """Take in what a full look found: of each destination in how many seconds its oldest is due, and when."""
        due = {destination: due_at - SLACK for destination, (due_in, due_at) in oldest.items() if due_in <= 0}
        self.marks = due if len(due) + len(self.marks) > FEW else self.marks | due
        now = time.monotonic()
        self._idle_look_at = now + took * SHARE
        self._look_at = max(now + EVERY, self._idle_look_at)

    def turn(self, most: int) -> list[tuple[str, datetime]]:
        """Destinations and marks to look at now: at most so many, the others have their turn next."""
        marks = list(self.marks.items())
        start, self._next = (self._next % len(marks), self._next + most) if len(marks) > most else (0, 0)
        return (marks[start:] + marks[:start])[:most]
