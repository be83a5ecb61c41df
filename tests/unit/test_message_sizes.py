"""Relay, broker and two worker children under a clock that the test moves: how much is under way, and who waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import pytest

from sagas.pace import Pace
from sagas_outbox import flight
from sagas_outbox.claims import REQUESTS, Ask, Claimed, Lane, Room
from sagas_outbox.flight import Flight
from sagas_outbox.packing import pack, short_first
from sagas_outbox.weighing import Weights, whole_messages
from tests.unit.test_flight import Clock

MESSAGE, LOOK, OVERHEAD = 0.05, 0.05, 0.005  # seconds: work in a message, between two passes, of a message and a pass
PACES, HAND_BACK_AFTER, TICK = 1.0, 1.0, 0.002  # seconds: between looks at what was measured; in one message; a step
LANES = {"brisk": Lane("q", 0, 1), "slow": Lane("q", 0, 2)}


@dataclass
class Message:
    """What the broker holds."""

    rows: list[Claimed]
    claimed_at: float


@dataclass
class Child:
    """A worker process with the rest of a message, and the body that it runs."""

    pace: Pace = field(default_factory=Pace)
    rows: deque[Claimed] = field(default_factory=deque)
    running: Claimed | None = None
    since: float = 0.0  # of the body
    until: float = 0.0  # of the body, or of what a message takes beside its bodies
    message_at: float = 0.0
    busy: float = 0.0  # seconds in bodies


class Plant:
    """The relay's decisions, as it makes them, with a backlog that never ends and children that take messages in order.

    Args:
        clock: the only one.
        takes: seconds that a body of a saga name takes at a moment.
        children: worker processes.
    """

    def __init__(self, clock: Clock, takes: Callable[[str, float], float], children: int = 2) -> None:
        self.clock, self.takes = clock, takes
        self.flight, self.weights = Flight(400, 10.0, MESSAGE, looked_at=clock.now), Weights(message=MESSAGE)
        self.broker: deque[Message] = deque()
        self.children = [Child() for _ in range(children)]
        self.unbegun: set[int] = set()
        self.paces: dict[tuple[str | None, str | None, str | None], float] = {}
        self.paces_at, self.pass_at, self.turn, self.ids = -PACES, 0.0, 0, 0
        self.begun: list[tuple[float, str, int, float]] = []  # when, saga name, rows in the message, seconds waited

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            if self.clock.now >= self.pass_at:
                self._pass()
                self.pass_at = self.clock.now + LOOK
            for child in sorted(self.children, key=lambda child: child.until):
                self._child(child)
            self.clock.now += TICK

    def seen(self, name: str, since: float = 0.0) -> tuple[float, float]:
        """Of a saga name: rows in a message (median) and the longest wait."""
        found = [(rows, waited) for at, each, rows, waited in self.begun if each == name and at >= since]
        return median(rows for rows, _ in found), max(waited for _, waited in found)

    def _pass(self) -> None:
        now = self.clock.now
        if now - self.paces_at >= PACES:
            self.paces_at = now
            for child in self.children:
                self.paces |= child.pace.known()
        self.flight.look(self.unbegun)
        self.turn += 1
        asks = [Ask(LANES[name], 200, turn=(turn + self.turn) % 2) for turn, name in enumerate(LANES)]
        room = self.weights.fit(Room("q", self.flight.room(), asks=asks), self.flight.free(), self._seconds)
        claimed = self._claim(room)
        self.weights.note([room])
        surplus = {*self.weights.surplus([room], self._seconds)}
        claimed = [row for row in claimed if row not in surplus]
        groups = pack(claimed, work=lambda row: self.paces.get(row.work), alone=lambda row: False,
                      target=MESSAGE, most=100)  # fmt: skip
        for rows in short_first(groups, work=lambda row: self._seconds(row.work), target=MESSAGE):
            self.broker.append(Message(rows, now))
            self.flight.add(rows, 6, lambda row: self._seconds(row.work))
            self.unbegun |= {row.id for row in rows}

    def _claim(self, room: Room) -> list[Claimed]:
        claimed = []
        names = {lane: name for name, lane in LANES.items()}
        for nth in range(max((ask.rows for ask in room.asks), default=0)):
            for ask in sorted(room.asks, key=lambda ask: ask.turn):
                if nth < ask.rows and len(claimed) < room.rows:
                    self.ids += 1
                    row = Claimed(self.ids, 0, "q", "step", names[ask.lane], "act", "do", 0, 1)
                    claimed.append(row)
                    ask.taken.append(row)
                    ask.found = ask.rows
        return claimed

    def _child(self, child: Child) -> None:
        """All that this child does until now."""
        while child.until <= self.clock.now:
            if child.running is not None:
                child.pace.note(child.running.work, child.until - child.since)
                child.busy += child.until - child.since
                child.running = None
            if child.rows and child.until - child.message_at > HAND_BACK_AFTER:
                child.rows.clear()  # others take them
            if child.rows:
                child.running = child.rows.popleft()
                child.since, name = child.until, child.running.name or ""
                child.until += self.takes(name, child.since)
            elif self.broker:
                message = self.broker.popleft()
                child.until = child.message_at = max(child.until, message.claimed_at) + OVERHEAD
                child.rows.extend(message.rows)
                self.unbegun -= {row.id for row in message.rows}
                waited = child.until - message.claimed_at
                self.begun += [(child.until, row.name or "", len(message.rows), waited) for row in message.rows]
            else:
                return

    def _seconds(self, work: tuple[str | None, str | None, str | None]) -> float:
        return self.paces.get(work, MESSAGE)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(flight, "time", clock)
    return clock


def test_a_short_step_among_long_ones_is_begun_within_300_ms(clock: Clock) -> None:
    """One of 1 ms and one of 200 ms in one backlog, two children, nothing declared: from the very first row on; and
    within five seconds twenty times as many short ones share a message."""
    plant = Plant(clock, lambda name, at: 0.001 if name == "brisk" else 0.2)
    plant.run(20)
    assert plant.seen("brisk")[1] <= 0.3
    sizes = {name: plant.seen(name, since=1005)[0] for name in LANES}
    assert sizes["brisk"] >= 20 * sizes["slow"], sizes


def test_sizes_follow_when_two_steps_change_places(clock: Clock) -> None:
    """Within five seconds; nobody says so."""
    swap = clock.now + 10
    plant = Plant(clock, lambda name, at: 0.001 if (name == "brisk") == (at < swap) else 0.2)
    plant.run(25)
    sizes = {name: plant.seen(name, since=swap + 5)[0] for name in LANES}
    assert sizes["slow"] >= 20 * sizes["brisk"], sizes
    assert plant.seen("slow", since=swap + 5)[1] <= 0.3


@pytest.mark.parametrize("children", [1, 2, 16, 64])
@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.2])
def test_no_child_is_left_without_work(clock: Clock, children: int, seconds: float) -> None:
    """What is under way grows to what so many children begin: they are busy nearly all of the time."""
    plant = Plant(clock, lambda name, at: seconds, children)
    plant.run(5)
    since, before = clock.now, sum(child.busy for child in plant.children)
    plant.run(5)
    busy = (sum(child.busy for child in plant.children) - before) / (clock.now - since) / children
    passes = 400 / LOOK * seconds / children  # no more than so many rows may be under way
    assert busy >= 0.8 * min(1.0, passes), busy


def test_what_the_broker_lost_stands_in_nobodys_way_for_long(clock: Clock) -> None:
    """Work that nobody begins is not counted for longer than a second and twice what it takes."""
    window = Flight(400, 10.0, MESSAGE, looked_at=clock.now)
    window.add([Claimed(1, 0, "q", "step", "slow", "act", "do", 0, 1)], 6, lambda row: 0.2)
    assert window.free() == 0.0
    clock.now += 1.5
    window.look({1})
    assert window.free() == pytest.approx(2 * MESSAGE)


def test_requests_weigh_nothing() -> None:
    """A signal or a cancel is claimed however much work is under way."""
    room = Room("q", 10, asks=[Ask(Lane("q", 0, REQUESTS), 10), Ask(LANES["slow"], 10)])
    fitted = Weights(message=MESSAGE).fit(room, 0.0, lambda work: 0.2)
    assert [(ask.lane.lane, ask.rows) for ask in fitted.asks] == [(REQUESTS, 10)]


@pytest.mark.parametrize("slow", [0.001, 0.02, 0.2])
def test_the_higher_priority_is_given_first_and_the_lower_a_tenth_of_the_time(slow: float) -> None:
    """What is left over is the lower one's; where nothing is, it gets its tenth by turns, however long its rows are."""
    high, low = Lane("q", 5, 1), Lane("q", 0, 1)
    weights = Weights(
        message=MESSAGE,
        seen={high: Counter([("h", "act", "do")]), low: Counter([("l", "act", "do")])},
        lively={high, low},
    )
    given = {high: 0, low: 0}
    for _ in range(1000):
        room = Room("q", 100, asks=[Ask(high, 100, turn=1), Ask(low, 100, turn=0)], by_turns=1)
        for ask in weights.fit(room, 0.05, lambda work: 0.001 if work[0] == "h" else slow).asks:
            given[ask.lane] += ask.rows
    assert given[high] == 50_000
    assert 4.5 <= given[low] * slow <= 5.5


def test_names_that_only_wait_take_nothing_from_the_others() -> None:
    """Their lanes have rows that are due some other day: asked for, and no share is kept for them."""
    weights, busy = Weights(message=MESSAGE), Lane("q", 0, 1)
    for _ in range(3):
        asks = [Ask(busy, 400)] + [Ask(Lane("q", 0, number), 400) for number in range(2, 22)]
        fitted = weights.fit(Room("q", 400, asks=asks), 1.0, lambda work: 0.02)
        for ask in fitted.asks:
            if ask.lane == busy:
                ask.found = ask.rows
                ask.taken = [Claimed(1, 0, "q", "step", "busy", "act", "do", 0, 1)] * ask.rows
        weights.note([fitted])
    assert {ask.lane: ask.rows for ask in fitted.asks}[busy] == 50  # all of the second


def test_a_trickle_of_high_priority_leaves_the_rest_to_others() -> None:
    """It goes first, and takes what it has, not what it might have."""
    high, low = Lane("q", 5, 1), Lane("q", 0, 1)
    weights = Weights(
        message=MESSAGE,
        seen={high: Counter({("h", "act", "do"): 2}), low: Counter({("l", "act", "do"): 50})},
        lively={high, low}, asked={high, low},
    )  # fmt: skip
    room = Room("q", 400, asks=[Ask(high, 400, turn=1), Ask(low, 400, turn=0)], by_turns=1)
    fitted = weights.fit(room, 1.0, lambda work: 0.001 if work[0] == "h" else 0.2)
    assert {ask.lane: ask.rows for ask in fitted.asks} == {high: 400, low: 4}


def test_shares_are_filled_up_to_whole_messages() -> None:
    """What is left of a share makes no small message; one message is given in any case."""
    assert whole_messages(0.02, 0.001, 0.05) == 50
    assert whole_messages(0.13, 0.001, 0.05) == 100
    assert whole_messages(0.05, 0.2, 0.05) == 1
