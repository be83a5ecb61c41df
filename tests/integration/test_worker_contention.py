"""Local steps that update the same few rows: sharing a transaction must not make them deadlock again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from django.db import connection

from sagas.local import LocalRunner
from sagas.states import Status
from sagas.store import rows
from sagas.store.rows import Delivery
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.shop.models import Booking, Seat
from tests.shop.sagas import Local
from tests.shop.world import World
from tests.support.stories import Aside, begin_many, second_connection
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")

WAITS = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
AWAITED = "select 1 from pg_stat_activity where %s = any(pg_blocking_pids(pid))"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each transaction of local steps was begun with."""
    sizes: list[int] = []
    inner = LocalRunner._transaction

    def counted(self: LocalRunner, group: Any, *, shared: bool) -> Any:
        sizes.append(len(group))
        return inner(self, group, shared=shared)

    monkeypatch.setattr(LocalRunner, "_transaction", counted)
    return sizes


def test_a_step_that_deadlocked_in_a_group_runs_alone_from_then_on(world: World, groups: list[int]) -> None:
    """A group keeps its locks until its last body is done; whoever paid for that once does not pay again."""
    Seat.objects.create(number=1)
    Seat.objects.create(number=2)
    backend: list[int] = []
    holds_two, holds_one = threading.Event(), threading.Event()

    def touch(number: int) -> Any:
        def body(run: Any) -> None:
            backend[:] = [connection.connection.info.backend_pid]
            Seat.objects.filter(number=number).update(number=number)
            if number == 1:
                holds_one.set()
                assert holds_two.wait(10)

        return body

    def cross() -> None:
        """Hold what the second body wants; want what the first holds, once the second waits: it finds the deadlock."""
        with second_connection(autocommit=False) as other, second_connection() as watcher:
            other.execute("set deadlock_timeout = '20s'; set lock_timeout = '20s'")
            other.execute("update shop_seat set number = 2 where number = 2")
            holds_two.set()
            assert holds_one.wait(10)
            while not watcher.execute(WAITS, [backend[0]]).fetchone():
                pass
            other.execute("update shop_seat set number = 1 where number = 1")
            other.commit()

    world.always("body", touch(1), saga="a")
    world.always("body", touch(2), saga="b")
    with one_worker() as worker:
        begin_many(Local, ["a", "b"])
        begun = begin_due(worker)
        crossing = Aside(cross)
        run_batch(worker, begun)
        crossing.join()
        assert groups == [2, 1, 1]
        begin_many(Local, ["c", "d"])
        run_batch(worker, begin_due(worker))
    assert groups == [2, 1, 1, 1, 1]
    assert {Local.get(key=key).status for key in "abcd"} == {Status.COMPLETED}
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "b", "c", "d"]


def released_once_awaited(run: Callable[[], object]) -> None:
    """Hold the locks of all outbox rows as a claim does that takes none of them, until `run` waits for one."""
    with second_connection(autocommit=False) as other, second_connection() as watcher:
        other.execute("select from sagas_outbox for update")
        waiting = Aside(run)
        while not watcher.execute(AWAITED, [other.info.backend_pid]).fetchone() and waiting.runs():
            pass
        other.rollback()
        waiting.join()


def test_a_message_is_begun_although_a_claim_locks_its_row_for_a_moment(world: World) -> None:
    """A second relay's claim locks rows that the first has just taken, and then lets them go. Whoever begins in that
    moment does not take the message for a stale one: it would wait for another publish window."""
    begin_many(Local, ["a"])
    with one_worker() as worker, closing(worker.store.connect()) as wire:
        claimed = claims.claim(wire, [Room("default", 9)], holder="relay:1", window=60, begun=True, now=None)
        begun: list[Delivery] = []
        released_once_awaited(
            lambda: begun.extend(worker.begin(wire, [(row.id, row.token) for row in claimed], published=True))
        )
        assert [delivery.key for delivery in begun] == ["a"]


def test_a_local_step_runs_although_its_row_is_locked_for_a_moment(world: World) -> None:
    """A heartbeat that renews the row's lease, or a claim that passes by, does not cost the step its lease."""
    begin_many(Local, ["a"])
    with one_worker() as worker:
        begun = begin_due(worker)
        released_once_awaited(lambda: run_batch(worker, begun))
    assert Local.get(key="a").status == Status.COMPLETED


def test_a_row_that_stays_locked_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded, and the transaction in which it happens is left as it was."""
    monkeypatch.setattr(rows, "PATIENCE", 0.05)
    begin_many(Local, ["a"])
    with one_worker() as worker, closing(worker.store.connect()) as wire, second_connection(autocommit=False) as other:
        claimed = claims.claim(wire, [Room("default", 9)], holder="relay:1", window=60, begun=True, now=None)
        other.execute("select from sagas_outbox for update")
        held = [(row.id, row.token) for row in claimed]
        with wire.transaction():
            before = wire.execute("show lock_timeout").fetchone()
            assert worker.begin(wire, held, published=True) == []
            assert wire.execute("show lock_timeout").fetchone() == before
        other.rollback()
        assert len(worker.begin(wire, held, published=True)) == 1
