"""Where to look for due rows: which queues there are, and from which due time on.

A claim starts from a low-water mark of `due_at`, so that it need not wade through index entries of rows that
are gone but not yet vacuumed. A mark is a hint: rows may appear below it (a long transaction commits) and in
queues not seen before, so every few seconds a full scan starts from the beginning, the more rarely the longer
it takes. Who has nothing to do looks from the beginning each time, unless that would keep the database busy.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sagas_outbox.claims import LONG_AGO, Room

FULL_SCAN_EVERY = 2.0  # seconds at least, while there is work
FULL_SCAN_SHARE = 20  # and at least this many times its own duration, in any case
SLACK = timedelta(seconds=1)  # how far below the oldest known row a mark stays


@dataclass(slots=True)
class Marks:
    """Low-water marks of one relay or worker."""

    marks: dict[str, datetime] = field(default_factory=dict)
    full_scan_at: float = 0.0
    idle_scan_at: float = 0.0
    idle: bool = True

    def full_scan_due(self) -> bool:
        """Whether to look from the beginning again."""
        return time.monotonic() >= (self.idle_scan_at if self.idle else self.full_scan_at)

    def full_scan_done(self, oldest: Mapping[str, tuple[float, datetime]], took: float) -> None:
        """Take in what a full scan found: of each queue, in how many seconds its oldest row is due, and when.

        A row due later does not lift the mark above the present: work that comes in now is due before it. A
        queue without rows stays known: work may come in at any moment.
        """
        for queue, (due_in, due_at) in oldest.items():
            self.marks[queue] = due_at - timedelta(seconds=max(0.0, due_in)) - SLACK
        now = time.monotonic()
        self.idle_scan_at = now + took * FULL_SCAN_SHARE
        self.full_scan_at = max(now + FULL_SCAN_EVERY, self.idle_scan_at)

    def claimed(self, rows: int) -> None:
        """Take in how many rows a claim found."""
        self.idle = rows == 0

    def room(self, queue: str, rows: int) -> Room:
        """A room for a claim, with this queue's mark."""
        return Room(queue, rows, self.marks.get(queue, LONG_AGO))

    def rooms(self, wanted: Iterable[tuple[str, int]]) -> list[Room]:
        """Rooms for a claim; queues without any room are left out."""
        return [self.room(queue, rows) for queue, rows in wanted if rows > 0]
