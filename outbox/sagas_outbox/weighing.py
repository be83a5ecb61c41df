"""How many rows of each lane to claim, so that what is under way is work for a moment and no more.

A broker hands out what it got first. Whatever has been published and not begun stands in front of what is published
next: twenty rows of 200 ms would keep a row of 1 ms waiting for two seconds. So a claim asks for as many rows as fit
into what the workers begin soon (see `Flight.free`), and lanes that have something share that by seconds, not by rows:
a hundred short rows for each long one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sagas_outbox.claims import REQUESTS, Ask, Claimed, Lane, Room, Work
from sagas_outbox.scan import BY_TURNS

FIRST_LOOK = 50  # rows of a lane that nobody has looked into; what turns out to be too much is given back
LONGEST_DEBT = 100  # messages: one row that takes for ever, or is thought to, is paid off in a while
ROUNDING = 1e-6  # of a row or a message


@dataclass(slots=True)
class Weights:
    """What the lanes gave when they last gave something.

    Args:
        message: seconds of work that one message carries; as much is expected of a row that nobody has looked at.
    """

    message: float
    seen: dict[Lane, Counter[Work]] = field(default_factory=dict)
    asked: set[Lane] = field(default_factory=set)
    lively: set[Lane] = field(default_factory=set)  # gave something when they were last asked
    owed: dict[str, float] = field(default_factory=dict)  # by queue: seconds of work, to turns

    def note(self, rooms: Iterable[Room]) -> None:
        """Take in what a claim found."""
        for room in rooms:
            for ask in room.asks:
                if ask.rows:
                    self.asked.add(ask.lane)
                if ask.taken:
                    self.seen[ask.lane] = Counter(row.work for row in ask.taken)
                    self.lively.add(ask.lane)
                elif ask.rows and not ask.found:
                    self.lively.discard(ask.lane)

    def surplus(self, rooms: Iterable[Room], work: Callable[[Work], float]) -> list[Claimed]:
        """What was claimed of lanes that nobody had looked into, and is too much now that one knows what it is."""
        found: list[Claimed] = []
        for ask in (ask for room in rooms for ask in room.asks if ask.share is not None and ask.taken):
            seconds = sum(work(row.work) for row in ask.taken) / len(ask.taken)
            if seconds > 0:
                found += ask.taken[whole_messages(ask.share or 0.0, seconds, self.message) :]
        return found

    def seconds(self, lane: Lane, work: Callable[[Work], float]) -> float:
        """What a row of a lane probably takes.

        Args:
            lane: whose rows.
            work: seconds of one piece of work.
        """
        if lane.lane == REQUESTS:
            return 0.0
        seen = self.seen.get(lane)
        if not seen:
            return self.message
        return sum(work(each) * count for each, count in seen.items()) / seen.total()

    def fit(self, room: Room, free: float, work: Callable[[Work], float]) -> Room:
        """Ask for about `free` seconds of work, in whole messages.

        The higher priority is given first, and lanes of the same priority get the same time. For which nothing is left
        is given a tenth of the time by turns. Lanes that seem to be empty are asked for a share like the others', and
        nobody gets less for it.

        Args:
            room: what would be asked for without regard to work; its asks are lowered, and left out where nothing fits.
            free: seconds of work.
            work: seconds of one piece of work.
        """
        left = free
        seconds = {ask.lane: self.seconds(ask.lane, work) for ask in room.asks}
        heavy = sorted((ask for ask in room.asks if seconds[ask.lane] > 0), key=lambda ask: ask.turn)
        first = next((ask for ask in heavy if self._shares(ask.lane)), None)
        levels = sorted({ask.lane.priority for ask in heavy}, reverse=True)
        if len(levels) > 1:
            self.owed[room.queue] = min(self.owed.get(room.queue, 0.0) + free / BY_TURNS, max(free, self.message))
        for level in levels:
            asks = [ask for ask in heavy if ask.lane.priority == level]
            share = left / max(1, sum(self._shares(ask.lane) for ask in asks))
            for ask in asks:
                if left > 0 and ask.lane not in self.seen:
                    ask.rows, ask.share = min(ask.rows, FIRST_LOOK), share
                    continue
                some = left > 0 if level == levels[0] else left >= self.message
                fits = whole_messages(share, seconds[ask.lane], self.message) if some else 0
                if ask is first:
                    fits = max(fits, self._by_turns(ask, seconds[ask.lane]))
                ask.rows = min(ask.rows, fits)
                if ask.lane in self.lively:  # others give way to twice what it gave last, not to all that it may have
                    left -= min(ask.rows, 2 * self.seen[ask.lane].total()) * seconds[ask.lane]
        room.asks = [ask for ask in room.asks if ask.rows]
        return room

    def _shares(self, lane: Lane) -> bool:
        """Whether a lane has something, as far as one knows."""
        return lane in self.lively or lane not in self.asked

    def _by_turns(self, ask: Ask, seconds: float) -> int:
        """Rows for a lane that higher priorities leave nothing for: none until a message, or one row, is owed."""
        queue = ask.lane.queue
        if self.owed.get(queue, 0.0) < min(seconds, self.message):
            return 0
        rows = whole_messages(self.owed[queue], seconds, self.message)
        self.owed[queue] = max(self.owed[queue] - rows * seconds, -LONGEST_DEBT * self.message)
        return rows


def whole_messages(share: float, seconds: float, message: float) -> int:
    """How many rows fill about `share` seconds with full messages; those of one message at least.

    Args:
        share: seconds of work.
        seconds: what a row takes; above 0.
        message: seconds of work that one message carries.
    """
    full = max(1, int(message / seconds + ROUNDING))
    return full * max(1, int(share / (full * seconds) + ROUNDING))
