"""The window of rows under way, one for each queue of a relay."""

from __future__ import annotations

import pytest

from sagas_outbox import flight
from sagas_outbox.claims import Claimed
from sagas_outbox.flight import FIRST, LEAST, Flight

WINDOW = 10.0
MOST = 400


class Clock:
    """The monotonic clock, moved by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(flight, "time", clock)
    return clock


@pytest.fixture
def window(clock: Clock) -> Flight:
    return Flight(MOST, WINDOW, looked_at=clock.now)


def rows(first: int, count: int, publishes: int = 1) -> list[Claimed]:
    return [
        Claimed(
            id=id, token=0, queue="q", kind="step", name="n", step="s", direction="do", deliveries=0,
            publishes=publishes,
        )
        for id in range(first, first + count)
    ]  # fmt: skip


def test_it_is_full_when_nobody_begins_anything(window: Flight) -> None:
    """However much is due."""
    assert window.room() == FIRST
    window.add(rows(0, FIRST), 6)
    assert window.room() == 0


def test_what_was_begun_makes_room(window: Flight, clock: Clock) -> None:
    """One for one, until there is a rate to go by."""
    window.add(rows(0, FIRST), 6)
    window.look(set(range(10, FIRST)))
    assert window.room() == 10


def test_it_grows_with_what_workers_begin_and_never_past_its_most(window: Flight, clock: Clock) -> None:
    """About what they begin in half a publish window."""
    for batch in range(20):
        window.add(rows(batch * 40, 40), 6)
        clock.now += 1.0
        window.look(set())
    assert window.room() == pytest.approx(40 * WINDOW / 2, rel=0.05)
    for batch in range(20, 40):
        window.add(rows(batch * 40, 40), 6)
        clock.now += 0.1
        window.look(set())
    assert window.room() == MOST


def test_it_shrinks_when_workers_stop_and_never_to_nothing(window: Flight, clock: Clock) -> None:
    """The next one who comes finds something to begin."""
    window.add(rows(0, 40), 6)
    for _ in range(40):
        clock.now += 0.1
        window.look(set(range(40)))
    assert window.size == LEAST


def test_an_empty_window_says_nothing_about_the_workers(window: Flight, clock: Clock) -> None:
    """Nothing to do is not slow."""
    before = window.room()
    for _ in range(40):
        clock.now += 1.0
        window.look(set())
    assert window.room() == before


def test_what_the_broker_lost_does_not_hold_others_back_for_ever(window: Flight, clock: Clock) -> None:
    """A row leaves the window when it may be published again; that doubles each time."""
    window.add(rows(0, 20), 6)
    window.add(rows(20, 30, publishes=2), 6)
    clock.now += WINDOW + 0.1
    assert window.room() == 20
    clock.now += WINDOW
    assert window.room() == FIRST


def test_what_was_not_published_after_all_makes_room(window: Flight) -> None:
    """Also when it is said twice."""
    window.add(rows(0, FIRST), 6)
    window.remove([0, 1])
    window.remove([1])
    assert window.room() == 2


def test_what_is_begun_between_two_measurements_counts(clock: Clock) -> None:
    """A relay that looks every few milliseconds learns the same of its workers as one that looks rarely."""
    found = []
    for step in (0.005, 0.05):
        window = Flight(MOST, WINDOW, looked_at=clock.now)
        under_way: set[int] = set()
        for number in range(int(4 / step)):
            fresh = rows(number * 100, int(step * 1000))  # a thousand rows of 10 ms in a second: ten busy workers
            window.add(fresh, 6, lambda row: 0.01)
            clock.now += step
            window.look(under_way)
            under_way = {row.id for row in fresh}
        found.append((window.rate, window.busy))
    assert found[0][0] == pytest.approx(found[1][0], rel=0.1)
    assert found[0][1] == pytest.approx(found[1][1], rel=0.3)


def test_a_window_in_work_lasts_from_one_look_to_the_next(clock: Clock) -> None:
    """However small messages are."""
    assert Flight(MOST, WINDOW, 0.001).free() == Flight(MOST, WINDOW, 0.05).free() > 0
