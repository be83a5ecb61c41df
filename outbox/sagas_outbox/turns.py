"""How one claim is divided among queues, for whoever has so many places in all and not so many for each queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sagas_outbox.claims import Room


@dataclass(slots=True)
class Turns:
    """Which queues had more than was asked for, and when each was served last."""

    full: set[str] = field(default_factory=set)
    served: dict[str, int] = field(default_factory=dict)  # queue -> number of the claim that it gave something to
    claims: int = 0

    def share(self, queues: Iterable[str], rows: int) -> list[tuple[str, int]]:
        """How many rows to ask of each queue, the queue that was served longest ago first.

        Queues that had more last time share the rows; of more queues than rows only as many are asked as there are
        rows. Those that had less are asked for what would be their share if all of them had something.

        Args:
            queues: the queues.
            rows: how many in all.
        """
        if rows <= 0:
            return []
        turn = sorted(queues, key=lambda queue: (self.served.get(queue, 0), queue))
        full = [queue for queue in turn if queue in self.full][:rows]
        others = [queue for queue in turn if queue not in self.full]
        asked = dict.fromkeys(full, rows // max(1, len(full))) | dict.fromkeys(
            others, max(1, rows // max(1, len(others)))
        )
        return [(queue, asked[queue]) for queue in turn if queue in asked]

    def note(self, rooms: Iterable[Room]) -> None:
        """Take in what a claim found, as it is said in what it was given."""
        self.claims += 1
        for room in rooms:
            found = sum(ask.found for ask in room.asks)
            if found:
                self.served[room.queue] = self.claims
            if found >= room.rows:
                self.full.add(room.queue)
            else:
                self.full.discard(room.queue)
