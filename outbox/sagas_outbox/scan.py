"""Where to look for due rows: which lanes there are, from which due time on, and how many of each.

A queue is made of lanes: one for each saga name and priority that has work in it, and one for requests. Each claim
takes from all lanes of a queue, so that a backlog of one name does not keep the others waiting.

A claim starts from a low-water mark of `due_at`, so that it need not wade through index entries of rows that
are gone but not yet vacuumed. A mark is a hint: rows may appear below it (a long transaction commits) and in
lanes not seen before, so a few times a second a full scan starts from the beginning, the more rarely the longer
it takes. Who has nothing to do looks from the beginning each time, unless that would keep the database busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sagas_outbox.claims import LONG_AGO, REQUESTS, Ask, Lane, Room

FULL_SCAN_EVERY = 0.25  # seconds at least, while there is work: so long can the first work of a saga name be overlooked
FULL_SCAN_SHARE = 20  # and at least this many times its own duration, in any case
SLACK = timedelta(seconds=1)  # how far below the oldest known row a mark stays
ROOM_CHECK = 0.05  # seconds between two looks whether a queue with limits has room again
BY_TURNS = 10  # one row of so many is given by turns alone, where there are several priorities


@dataclass(slots=True)
class _Track:
    """What is known of a lane."""

    mark: datetime = LONG_AGO
    full: bool = False  # it had all that was asked for the last time: there is more, as far as one knows
    served: int = 0  # when it was given something last, in claims


@dataclass(slots=True)
class Marks:
    """What one relay or worker knows of the lanes of its queues."""

    lanes: dict[str, dict[Lane, _Track]] = field(default_factory=dict)
    full_scan_at: float = 0.0
    idle_scan_at: float = 0.0
    idle: bool = True
    partial: bool = False  # the last look was not from the beginning
    overdue: frozenset[str] = frozenset()  # queues that had something due at the last full scan
    owed: dict[str, float] = field(default_factory=dict)  # to turns, in rows
    claims: int = 0

    def full_scan_due(self) -> bool:
        """Whether to look from the beginning again."""
        self.partial = time.monotonic() < (self.idle_scan_at if self.idle else self.full_scan_at)
        return not self.partial

    def rest(self, longest: float, served: Callable[[str], bool]) -> float:
        """Seconds until who has found nothing looks again.

        Args:
            longest: where there is no reason to hurry.
            served: whether a queue is one of ours: what is due there and was not given has no room yet.
        """
        if any(served(queue) for queue in self.overdue):
            return min(longest, ROOM_CHECK)
        if self.partial:  # there may be lanes that nobody has seen
            return min(longest, max(0.001, self.idle_scan_at - time.monotonic()))
        return longest

    def full_scan_done(self, oldest: Mapping[Lane, tuple[float, datetime]], took: float) -> None:
        """Take in what a full scan found: of each lane, in how many seconds its oldest row is due, and when.

        A row due later does not lift the mark above the present: work that comes in now is due before it. A
        lane without rows stays known: work may come in at any moment.
        """
        for lane, (due_in, due_at) in oldest.items():
            track = self._track(lane)
            track.full |= track.mark == LONG_AGO  # nobody has asked yet
            track.mark = due_at - timedelta(seconds=max(0.0, due_in)) - SLACK
        self.overdue = frozenset(lane.queue for lane, (due_in, _) in oldest.items() if due_in <= 0)
        now = time.monotonic()
        self.idle_scan_at = now + took * FULL_SCAN_SHARE
        self.full_scan_at = max(now + FULL_SCAN_EVERY, self.idle_scan_at)

    def claimed(self, rows: int, rooms: Iterable[Room] = ()) -> None:
        """Take in what a claim found: how many rows, and of which lanes, as it is said in what it was given."""
        self.idle = rows == 0
        self.claims += 1
        for room in rooms:
            for ask in room.asks:
                track = self._track(ask.lane)
                track.full = ask.found >= ask.rows
                if ask.found:
                    track.served = self.claims

    def room(self, queue: str, rows: int) -> Room:
        """A room for a claim, with the lanes of this queue that are known.

        Lanes that gave all that was asked of them share the room, and some more, of each priority; the others are
        asked for as much as would be their share if all had something. What is too much is left where it is.
        """
        known = self.lanes.get(queue, {})
        turns = sorted(known, key=lambda lane: (known[lane].served, lane))
        levels: dict[int, list[Lane]] = {}
        for lane in turns:
            levels.setdefault(lane.priority, []).append(lane)
        asks = []
        for lanes in levels.values():
            full = sum(known[lane].full for lane in lanes)
            for lane in lanes:
                share = rows * 5 // (4 * full) if known[lane].full else rows // max(1, len(lanes) - 1)
                asks.append(Ask(lane, max(1, min(rows, share)), known[lane].mark, turns.index(lane)))
        return Room(queue, rows, asks=asks, by_turns=self._by_turns(queue, rows) if len(levels) > 1 else 0)

    def _by_turns(self, queue: str, rows: int) -> int:
        owed = self.owed.get(queue, 0.0) + rows / BY_TURNS
        self.owed[queue] = owed - int(owed)
        return int(owed)

    def rooms(self, wanted: Iterable[tuple[str, int]]) -> list[Room]:
        """Rooms for a claim; queues without any room are left out."""
        return [self.room(queue, rows) for queue, rows in wanted if rows > 0]

    def _track(self, lane: Lane) -> _Track:
        known = self.lanes.setdefault(lane.queue, {})
        if not known:
            known[Lane(lane.queue, 0, REQUESTS)] = _Track()
        return known.setdefault(lane, _Track())
