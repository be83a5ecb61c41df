"""What one relay has published and nobody has begun: a bounded window for each queue.

A backlog of a million rows waits in Postgres, not in the broker. The window follows the workers: it holds
about what they begin in half a publish window, so that a message is begun before it would be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sagas_outbox.claims import Claimed

FIRST = 50  # rows, before any rate is known
LEAST = 20
WEIGHT = 0.3  # of one new rate
SHORTEST_LOOK = 0.02  # seconds between two measurements of a rate


@dataclass(slots=True)
class Flight:
    """The rows of one queue that are under way.

    Args:
        most: rows that may ever be under way.
        window: seconds until an unbegun row may be published again.
    """

    most: int
    window: float
    expires: dict[int, float] = field(default_factory=dict)  # row id -> when it may be published again
    size: float = FIRST
    rate: float | None = None  # rows begun in a second
    looked_at: float = field(default_factory=time.monotonic)

    def room(self) -> int:
        """How many more rows may be published now."""
        now = time.monotonic()
        for id in [id for id, expiry in self.expires.items() if expiry <= now]:
            del self.expires[id]  # lost in the broker, or begun unnoticed: no reason to hold others back
        return max(0, int(min(self.size, self.most)) - len(self.expires))

    def add(self, rows: Iterable[Claimed], doublings: int) -> None:
        """These rows were published."""
        now = time.monotonic()
        for row in rows:
            self.expires[row.id] = now + self.window * 2 ** min(row.publishes - 1, doublings)

    def remove(self, ids: Iterable[int]) -> None:
        """These rows were not published after all."""
        for id in ids:
            self.expires.pop(id, None)

    def look(self, unbegun: set[int]) -> None:
        """Take in which rows nobody has begun, and learn from it how fast the workers are."""
        now = time.monotonic()
        begun = [id for id in self.expires if id not in unbegun]
        self.remove(begun)
        if now - self.looked_at < SHORTEST_LOOK:
            return
        rate = len(begun) / (now - self.looked_at)
        if begun or self.expires:  # an empty window says nothing about the workers
            self.rate = rate if self.rate is None else self.rate + WEIGHT * (rate - self.rate)
            self.size = max(LEAST, min(self.most, self.rate * self.window / 2))
        self.looked_at = now
