"""Where claims start from, and when to look from the very beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sagas_outbox import scan
from sagas_outbox.claims import LONG_AGO, REQUESTS, Lane, Room
from sagas_outbox.scan import FULL_SCAN_EVERY, FULL_SCAN_SHARE, SLACK, Marks
from tests.unit.test_flight import Clock

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scan, "time", clock)
    return clock


def oldest(seconds: float) -> tuple[float, datetime]:
    """What a full scan says of a queue whose oldest row is due in so many seconds."""
    return seconds, NOW + timedelta(seconds=seconds)


Q = Lane("q", 0, 7)


def asked(room: Room) -> dict[Lane, int]:
    """How many rows each lane is asked for."""
    return {ask.lane: ask.rows for ask in room.asks}


def mark(marks: Marks) -> datetime:
    """Where a claim of the lane starts."""
    return next(ask.mark for ask in marks.room("q", 5).asks if ask.lane == Q)


def test_a_claim_starts_a_little_below_the_oldest_row(clock: Clock) -> None:
    """Not from the beginning, where the rows are that are gone and not yet vacuumed."""
    marks = Marks()
    marks.full_scan_done({Q: oldest(-30)}, took=0.001)
    assert marks.room("q", 5).asks[0].mark == LONG_AGO  # requests, of which nobody has seen any
    assert mark(marks) == NOW - timedelta(seconds=30) - SLACK


def test_a_mark_is_never_later_than_now(clock: Clock) -> None:
    """A queue of leases and timers only: what comes in now is due before all of them."""
    marks = Marks()
    marks.full_scan_done({Q: oldest(3600)}, took=0.001)
    assert mark(marks) == NOW - SLACK


def test_a_queue_that_ran_empty_stays_known(clock: Clock) -> None:
    """Work may come in at any moment, and a wake-up is to find it at once."""
    marks = Marks()
    marks.full_scan_done({Q: oldest(-1)}, took=0.001)
    marks.full_scan_done({}, took=0.001)
    assert [room.queue for room in marks.rooms((queue, 1) for queue in marks.lanes)] == ["q"]
    assert asked(marks.room("q", 5)).keys() == {Q, Lane("q", 0, REQUESTS)}


def test_queues_without_room_are_left_out() -> None:
    """A claim does not even look at them."""
    assert [room.queue for room in Marks().rooms([("a", 0), ("b", 3), ("c", -1)])] == ["b"]


def test_while_there_is_work_full_scans_are_rare(clock: Clock) -> None:
    """Every few seconds, the more rarely the longer they take."""
    marks = Marks()
    assert marks.full_scan_due()
    for took in (0.001, 1.0):
        marks.full_scan_done({Q: oldest(-1)}, took=took)
        marks.claimed(10)
        pause = max(FULL_SCAN_EVERY, took * FULL_SCAN_SHARE)
        clock.now += pause - 0.01
        assert not marks.full_scan_due()
        clock.now += 0.02
        assert marks.full_scan_due()


def test_who_has_nothing_to_do_looks_everywhere(clock: Clock) -> None:
    """Each time, but for a twentieth of its time at most: a new queue is found by the next poll."""
    marks = Marks()
    marks.full_scan_done({}, took=0.001)
    marks.claimed(0)
    assert not marks.full_scan_due()
    clock.now += 0.001 * FULL_SCAN_SHARE
    assert marks.full_scan_due()
    marks.claimed(3)
    assert not marks.full_scan_due()


def test_a_lane_alone_is_asked_for_everything(clock: Clock) -> None:
    """What is asked of the lane of requests takes nothing from it."""
    marks = Marks()
    marks.full_scan_done({Q: oldest(-1)}, took=0.001)
    for found in (400, 100, 0):
        room = marks.room("q", 400)
        asked_for = asked(room)[Q]
        for ask in room.asks:
            ask.found = min(ask.rows, found) if ask.lane == Q else 0
        marks.claimed(found, [room])
        if found == 400:
            assert asked(marks.room("q", 400))[Q] == 400 and asked_for >= 200


def test_lanes_that_have_enough_share_the_room(clock: Clock) -> None:
    """And what is asked for in all is never more than twice and a half of the room, however many lanes there are."""
    marks = Marks()
    lanes = [Lane("q", 0, number) for number in range(1, 41)]
    marks.full_scan_done({lane: oldest(-1) for lane in lanes}, took=0.001)
    for full in (1, 2, 8, 40):
        room = marks.room("q", 400)
        for ask in room.asks:
            ask.found = ask.rows if ask.lane in lanes[:full] else 0
        marks.claimed(400, [room])
        asks = asked(marks.room("q", 400))
        assert all(asks[lane] >= 400 // full for lane in lanes[:full])
        assert sum(asks.values()) <= 2.5 * 400, (full, asks)


def test_lanes_take_turns(clock: Clock) -> None:
    """With room for one row the lane goes first that was served longest ago."""
    marks = Marks()
    lanes = [Lane("q", 0, number) for number in (1, 2, 3)]
    marks.full_scan_done({lane: oldest(-1) for lane in lanes}, took=0.001)
    served = []
    for _ in range(6):
        room = marks.room("q", 1)
        first = min((ask for ask in room.asks if ask.lane in lanes), key=lambda ask: ask.turn)
        first.found = 1
        served.append(first.lane)
        marks.claimed(1, [room])
    assert served == lanes * 2


def test_of_ten_rows_one_is_given_by_turns_where_there_are_priorities(clock: Clock) -> None:
    """Also where there is room for one row only at a time; and none where all are alike."""
    marks = Marks()
    marks.full_scan_done({Q: oldest(-1)}, took=0.001)
    assert marks.room("q", 400).by_turns == 0
    marks.full_scan_done({Lane("q", 5, 7): oldest(-1)}, took=0.001)
    assert marks.room("q", 400).by_turns == 40
    assert sum(marks.room("q", 1).by_turns for _ in range(100)) in (9, 10)


def test_what_is_due_and_finds_no_room_is_looked_at_soon(clock: Clock) -> None:
    """In a queue of ours; elsewhere it is nothing to us. Nor is there a hurry where nothing is due."""
    marks = Marks()
    assert marks.full_scan_due()
    marks.full_scan_done({Q: oldest(-1)}, took=0.001)
    assert marks.rest(1.0, lambda queue: True) == scan.ROOM_CHECK
    assert marks.rest(1.0, lambda queue: False) == 1.0
    marks.full_scan_done({Q: oldest(1)}, took=0.001)
    assert marks.rest(1.0, lambda queue: True) == 1.0
    assert not marks.full_scan_due()
    assert marks.rest(1.0, lambda queue: True) == pytest.approx(0.001 * FULL_SCAN_SHARE)
