"""Where to look for due rows: which queues there are, and from which due time on.

A claim starts from a low-water mark of `due_at`, so that it need not wade through index entries of rows that
are gone but not yet vacuumed. A mark is a hint: rows may appear below it (a long transaction commits), so
every few seconds a full scan starts from the beginning, the more rarely the longer it takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sagas_outbox.claims import LONG_AGO, Room

FULL_SCAN_EVERY = 2.0  # seconds at least
FULL_SCAN_SHARE = 20  # and at least this many times its own duration
SLACK = timedelta(seconds=1)  # how far below the oldest known row a mark stays


@dataclass(slots=True)
class Marks:
    """Low-water marks of one relay or worker."""

    marks: dict[str, datetime] = field(default_factory=dict)
    full_scan_at: float = 0.0

    def full_scan_due(self) -> bool:
        """Whether to look from the beginning again."""
        return time.monotonic() >= self.full_scan_at

    def full_scan_done(self, oldest: dict[str, datetime], took: float) -> None:
        """Take in what a full scan found: the oldest due time of each queue."""
        self.marks = {queue: due_at - SLACK for queue, due_at in oldest.items()}
        self.full_scan_at = time.monotonic() + max(FULL_SCAN_EVERY, took * FULL_SCAN_SHARE)

    def room(self, queue: str, rows: int) -> Room:
        """A room for a claim, with this queue's mark."""
        return Room(queue, rows, self.marks.get(queue, LONG_AGO))

    def rooms(self, wanted: Iterable[tuple[str, int]]) -> list[Room]:
        """Rooms for a claim; queues without any room are left out."""
        return [self.room(queue, rows) for queue, rows in wanted if rows > 0]
