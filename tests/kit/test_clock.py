"""The clock that tests move, and the database clock as long as they do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from sagas import SagaError
from sagas import clock as engine
from sagas.embedded import Embedded
from sagas.states import Status
from sagas.testing import Kit, Unfinished
from sagas_django.models import LogEntry, OutboxRow
from sagas_django.store import DjangoStore
from tests.kit.sagas import Buy, Order, Slow

ROOT = Path(__file__).parents[2]
SPRING = datetime(2031, 4, 1, 12, tzinfo=UTC)


def test_the_database_clock_until_it_is_moved(sagas: Kit) -> None:
    """Nothing is passed to any statement."""
    assert engine.now() is None
    assert not sagas.clock.moved
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        (before,) = cursor.fetchone()
    assert before <= sagas.clock.now() < before + timedelta(seconds=20)
    assert engine.now() is None


def test_it_reaches_every_statement(sagas: Kit) -> None:
    """Start, request, begin and record: all times of a saga are those of the clock."""
    sagas.clock.move_to(SPRING)
    run = Buy.start(Order(1), key="a")
    Buy.cancel(key="a", reason="no")
    row, request = OutboxRow.objects.order_by("id")
    assert (row.due_at, request.timer_at) == (SPRING, SPRING)
    sagas.drain()
    run = Buy.get(key="a")
    assert run.status == Status.CANCELLED
    assert {run.created_at, run.updated_at, run.finished_at} == {SPRING}
    assert set(LogEntry.objects.values_list("at", flat=True)) == {SPRING}


def test_it_stands_still_and_moves_on(sagas: Kit) -> None:
    """As far as it is told, in any time zone, and back only by name."""
    sagas.clock.move_to(SPRING.astimezone(timezone(timedelta(hours=5))))
    assert sagas.clock.now() == SPRING and sagas.clock.now().tzinfo is UTC
    assert sagas.clock.advance(timedelta(days=2)) == SPRING + timedelta(days=2)
    with pytest.raises(SagaError, match="move_to"):
        sagas.clock.advance(timedelta(seconds=-1))
    with pytest.raises(SagaError, match="time zone"):
        sagas.clock.move_to(datetime(2031, 4, 1))


def test_what_is_not_due_does_not_run(sagas: Kit) -> None:
    """A retry in two days runs in two days, to the microsecond."""
    call = sagas.answers(Slow).call.times_out().returns("done")
    sagas.clock.move_to(SPRING)
    sagas.run(Slow, Order(1), key="a", skip=timedelta(0), check=False)
    sagas.clock.advance(timedelta(days=2) - timedelta(microseconds=1))
    assert sagas.drain(skip=timedelta(0), check=False) == []
    sagas.clock.advance(timedelta(microseconds=1))
    assert [str(each) for each in sagas.drain(skip=timedelta(0))] == ["call: succeeded"]
    assert [each.attempt for each in call.calls] == [1, 2]


def test_how_long_a_key_is_remembered(sagas: Kit) -> None:
    """No attempt begins after `key_ttl`: the third would be four days after the first, and three are allowed."""
    call = sagas.answers(Slow).call.times_out()
    with pytest.raises(Unfinished, match="parked"):
        sagas.run(Slow, Order(1), key="a", skip=timedelta(days=30))
    assert len(call.calls) == 2


def test_a_finished_test_leaves_no_time_behind_1(sagas: Kit) -> None:
    """One of two tests that would disturb each other."""
    assert not sagas.clock.moved
    sagas.clock.move_to(SPRING)


def test_a_finished_test_leaves_no_time_behind_2(sagas: Kit) -> None:
    """The other."""
    assert not sagas.clock.moved
    sagas.clock.move_to(SPRING)


def test_workers_go_by_it_too(transactional_db: None, sagas: Kit, settings: Any) -> None:
    """The embedded worker in this process, with its threads and connections."""
    settings.SAGAS = {"WAKE": False}
    sagas.answers(Slow).call.times_out().returns("done")
    sagas.run(Slow, Order(1), key="a", skip=timedelta(0), check=False)
    Embedded(DjangoStore("default")).run(until_idle=True)
    sagas.assert_status(Slow.get(key="a"), "running")
    sagas.clock.advance(timedelta(days=2))
    Embedded(DjangoStore("default")).run(until_idle=True)
    sagas.assert_status(Slow.get(key="a"), "completed")


def test_no_shell_has_a_time_of_its_own() -> None:
    """Whoever runs a statement that takes `now` asks the clock, or is told by somebody who has."""
    sources = [path for folder in ("sagas", "outbox", "integrations") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    assert not [str(path) for path in sources if "now=None" in path.read_text()]
