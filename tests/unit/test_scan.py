"""Where claims start from, and when to look from the very beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sagas_outbox import scan
from sagas_outbox.claims import LONG_AGO
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


def test_a_claim_starts_a_little_below_the_oldest_row(clock: Clock) -> None:
    """Not from the beginning, where the rows are that are gone and not yet vacuumed."""
    marks = Marks()
    assert marks.room("q", 5).mark == LONG_AGO
    marks.full_scan_done({"q": oldest(-30)}, took=0.001)
    assert marks.room("q", 5).mark == NOW - timedelta(seconds=30) - SLACK


def test_a_mark_is_never_later_than_now(clock: Clock) -> None:
    """A queue of leases and timers only: what comes in now is due before all of them."""
    marks = Marks()
    marks.full_scan_done({"q": oldest(3600)}, took=0.001)
    assert marks.room("q", 5).mark == NOW - SLACK


def test_a_queue_that_ran_empty_stays_known(clock: Clock) -> None:
    """Work may come in at any moment, and a wake-up is to find it at once."""
    marks = Marks()
    marks.full_scan_done({"q": oldest(-1)}, took=0.001)
    marks.full_scan_done({}, took=0.001)
    assert [room.queue for room in marks.rooms((queue, 1) for queue in marks.marks)] == ["q"]


def test_queues_without_room_are_left_out() -> None:
    """A claim does not even look at them."""
    assert [room.queue for room in Marks().rooms([("a", 0), ("b", 3), ("c", -1)])] == ["b"]


def test_while_there_is_work_full_scans_are_rare(clock: Clock) -> None:
    """Every few seconds, the more rarely the longer they take."""
    marks = Marks()
    assert marks.full_scan_due()
    for took in (0.001, 1.0):
        marks.full_scan_done({"q": oldest(-1)}, took=took)
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
