"""What one relay has published and nobody has begun: a bounded window for each queue, in rows and in seconds of work.

A backlog of a million rows waits in Postgres, not in the broker. In rows the window holds about what the workers begin
in half a publish window, so that a message is begun before it would be sent again. In seconds of work it holds what
they begin in the time of two messages, so that what is published next is begun soon, whatever stands in front of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sagas_outbox.claims import Claimed

FIRST = 50  # rows, before any rate is known
LEAST = 20
WEIGHT = 0.3  # of one new rate
SHORTEST_LOOK = 0.02  # seconds between two measurements of a rate
OVERHEAD = 0.005  # seconds of work that a message is at least: it costs some milliseconds beside its bodies
GROWTH = 1.5  # of the work under way, as long as all of it is begun at once
MESSAGES = 2  # so many times the work of a message is what a worker may have waiting
FLIGHT_CHECK = 0.05  # seconds between looks at a full window: what is under way has to last as long
LOST_AFTER = 1.0  # seconds, and twice its own work, after which a row that nobody began no longer counts as work


def nothing(_: Claimed) -> float:
    """A row that takes no time."""
    return 0.0


@dataclass(slots=True)
class Flight:
    """The rows of one queue that are under way.

    Args:
        most: rows that may ever be under way.
        window: seconds until an unbegun row may be published again.
        message: seconds of work that one message carries.
    """

    most: int
    window: float
    message: float = 0.05
    expires: dict[int, float] = field(default_factory=dict)  # row id -> when it may be published again
    size: float = FIRST
    rate: float | None = None  # rows begun in a second
    looked_at: float = field(default_factory=time.monotonic)
    work: dict[int, tuple[float, float]] = field(default_factory=dict)  # row id -> seconds, and until when they count
    load: float = 0.0  # seconds of work that may be under way
    busy: float = 0.0  # seconds of work begun in a second: about how many workers there are
    begun_at: float = 0.0  # when it was last seen that work was begun, or that there was none
    waited: bool = False  # something under way was seen waiting
    at_once: bool = False  # what was published last was begun by the next look
    begun_rows: int = 0  # since `looked_at`
    begun_work: float = 0.0  # likewise, in seconds

    def __post_init__(self) -> None:
        self.load = self.load or self.least

    @property
    def least(self) -> float:
        """Seconds of work that one busy worker may have waiting."""
        return MESSAGES * max(self.message, FLIGHT_CHECK)

    def room(self) -> int:
        """How many more rows may be published now."""
        now = time.monotonic()
        for id in [id for id, expiry in self.expires.items() if expiry <= now]:
            self.remove([id])  # lost in the broker, or begun unnoticed: no reason to hold others back
        return max(0, int(min(self.size, self.most)) - len(self.expires))

    def free(self) -> float:
        """How many more seconds of work may be published now; 0 until there is room for a good part of it at once."""
        free = self.load - self._under_way(time.monotonic())
        return free if free >= self.load / 2 else 0.0

    def add(self, rows: Sequence[Claimed], doublings: int, work: Callable[[Claimed], float] = nothing) -> None:
        """These rows were published, in one message.

        Args:
            rows: which; one at least.
            doublings: the publish window doubles at most so many times.
            work: seconds that a row takes.
        """
        now = time.monotonic()
        if not self.expires:
            self.begun_at = now
        left = OVERHEAD
        for row in rows:
            self.expires[row.id] = now + self.window * 2 ** min(row.publishes - 1, doublings)
            seconds = work(row)
            left -= seconds
            self.work[row.id] = seconds, now + LOST_AFTER + 2 * seconds
        if left > 0:  # many small messages are work too: with some under way, what comes in is gathered for the next
            self.work[row.id] = seconds + left, now + LOST_AFTER

    def remove(self, ids: Iterable[int]) -> None:
        """These rows were not published after all."""
        for id in ids:
            self.expires.pop(id, None)
            self.work.pop(id, None)

    def look(self, unbegun: set[int]) -> None:
        """Take in which rows nobody has begun, and learn from it how fast the workers are."""
        now = time.monotonic()
        begun = [id for id in self.expires if id not in unbegun]
        self.begun_rows += len(begun)
        self.begun_work += sum(self.work[id][0] for id in begun if id in self.work)
        self.remove(begun)
        if now - self.looked_at < SHORTEST_LOOK:
            return
        rate = self.begun_rows / (now - self.looked_at)
        if self.begun_rows or self.expires:  # an empty window says nothing about the workers
            self.rate = rate if self.rate is None else self.rate + WEIGHT * (rate - self.rate)
            self.size = max(LEAST, min(self.most, self.rate * self.window / 2))
        self._learn(self.begun_work, now)
        self.looked_at, self.begun_rows, self.begun_work = now, 0, 0.0

    def _under_way(self, now: float) -> float:
        return sum(seconds for seconds, until in self.work.values() if until > now)

    def _learn(self, begun: float, now: float) -> None:
        """Go by how much work was begun. Where everything is begun at once, workers may be idle: try more."""
        waits = any(until > now for _, until in self.work.values())
        if begun:
            busy = begun / max(now - self.begun_at, SHORTEST_LOOK)
            self.busy += WEIGHT * (busy - self.busy)
            if waits or self.waited:
                self.load = max(self.least, self.busy * self.least)
            elif begun >= self.load / 2:
                self.load *= GROWTH if self.at_once else 1.0
                self.at_once = True
        if begun or not waits:
            self.begun_at = now
        self.waited = waits
        self.at_once &= not waits
