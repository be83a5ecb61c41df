"""Saga and outbox rows are made again from the log alone: thousands of random histories, and sagas that go on."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from sagas import NotDone, Retry, Saga, external_step, machine
from sagas.events import Kind
from sagas.head import Head
from sagas.keys import idempotency_key
from sagas.rebuild import Rebuilt, rebuild
from sagas.registry import registry
from sagas.states import Status
from sagas.verify import Finding, verify
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Asked, Ordered, Trip
from tests.shop.world import World
from tests.shop.world import world as outside
from tests.support.machine_driver import Driven
from tests.support.machine_worlds import Tape, Troubled, run
from tests.support.stories import begin, differences, drain
from tests.support.workers import begin_due, one_worker, run_batch

HISTORIES = 1000
PLANS = (
    "trip",
    "externals",
    "charge",
    "asked",
    "asked_pivot",
    "blind",
    "blind_asked",
    "undo_asked",
    "picky",
    "pivoted",
)

pytestmark = pytest.mark.usefixtures("shop")


def lose_rows() -> None:
    """Everything but the log and the dedupe table is gone."""
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_saga; delete from sagas_outbox")


def rebuilt(*ids: UUID) -> list[Rebuilt]:
    with DjangoStore("default").connect() as aside:
        return list(rebuild(aside, ids or None))


def random_history(numbers: random.Random) -> Driven:
    """One saga after a random life, cut off anywhere."""
    plan = registry.get(f"test.{numbers.choice(PLANS)}", 1).plan
    tape = Tape(numbers.randbytes(numbers.randint(4, 40)))
    saga = Driven(plan)
    run(saga, Troubled(plan, tape), tape)
    return saga


def store_log(cursor: psycopg.Cursor[Any], saga: Driven, number: int) -> UUID:
    """Write the log of a history, and nothing else."""
    saga_id = UUID(int=number + 1)
    head = Head(
        name=saga.plan.name, version=saga.plan.version, key=f"k{number}",
        input=msgspec.Raw(msgspec.json.encode(Ordered())), headers={"trace": str(number)},
    )  # fmt: skip
    with cursor.copy("copy sagas_log (saga_id, seq, kind, step, attempt, data) from stdin") as copy:
        for entry in saga.log:
            data = entry.data
            if entry.kind is Kind.STARTED:
                data = msgspec.structs.replace(data, saga=msgspec.Raw(msgspec.json.encode(head)))
            line = (saga_id, entry.seq, entry.kind.value, entry.step, entry.attempt, msgspec.json.encode(data).decode())
            copy.write_row(line)
    return saga_id


def test_random_histories() -> None:
    """From its log alone each saga gets the state that it had, and the work that this state calls for."""
    numbers = random.Random(20)
    with DjangoStore("default").connect() as aside:
        with aside.transaction(), aside.cursor() as cursor:
            sagas = {
                store_log(cursor, history, number): history
                for number, history in enumerate(random_history(numbers) for _ in range(HISTORIES))
            }
        found = list(rebuild(aside))
        assert [each.problem for each in found if each.problem] == []
        assert {each.saga_id for each in found if each.changed} == set(sagas)
        assert [str(each) for each in verify(aside) if isinstance(each, Finding)] == []
        assert not any(each.changed for each in rebuild(aside)), "what agrees is left alone"
    statuses = set()
    for row in SagaRow.objects.all():
        saga = sagas[row.id]
        statuses.add(saga.status)
        before, work = saga.state, machine.frontier(saga.plan, saga.state)
        assert (row.status, row.parked_from) == (before.status, before.parked_from)
        assert (row.seq, row.error, row.key) == (before.seq + len(work), before.error, f"k{row.id.int - 1}")
        assert (row.finished_at is not None) == (before.status in machine.TERMINAL)
        rows = OutboxRow.objects.filter(saga_id=row.id).values_list("step", "direction", "deliveries", "holder")
        assert list(rows) == [(step, direction, 0, None) for step, direction in work]
        assert len(work) == (before.status in machine.DIRECTION), "whatever is not finished or parked owns a row"
    assert statuses >= set(Status) - {Status.ABORTED}, "the histories cover what can become of a saga"


def test_what_was_under_way_is_in_doubt(world: World) -> None:
    """A body that perhaps ran is asked about first, not run again."""
    saga = begin(Asked)
    lose_rows()
    assert [each.changed for each in rebuilt()] == [True]
    world.plan("find", "charge-7")
    drain()
    assert world.names == ["find"]
    assert Asked.get(key="a").id == saga.id
    assert Asked.get(key="a").status == Status.COMPLETED
    kinds = list(LogEntry.objects.filter(saga_id=saga.id).order_by("seq").values_list("kind", flat=True))
    assert kinds[:3] == ["started", "rebuilt", "step_done"]


class Sent(Saga[Ordered], name="test.sent", version=1):
    """Two effects side by side, each begun only once."""

    @external_step(compensate=None, retry=Retry(max_attempts=1), after=[])
    def ship(self) -> str:
        return str(outside.act("ship", self))

    @external_step(compensate=None, retry=Retry(max_attempts=1), after=[])
    def charge(self) -> str:
        return str(outside.act("charge", self))

    @charge.resolve
    def find(self) -> str | NotDone:
        return str(outside.act("find", self))


def test_what_was_under_way_beside_a_parked_step_is_in_doubt(world: World) -> None:
    """The charge has begun, and only the lost row said so: the bank is asked, although the saga is parked."""
    saga = begin(Sent)
    world.plan("ship", ConnectionError("no reply"))
    with one_worker() as worker:
        begun = begin_due(worker)
        run_batch(worker, [each for each in begun if each.attempt and each.attempt.step == "ship"])
        assert Sent.get(key="a").status == Status.PARKED
        lose_rows()
        assert [each.problem for each in rebuilt(saga.id)] == [""]
    world.plan("find", "charge-7")
    drain()
    assert world.names == ["ship", "find"]
    assert Sent.get(key="a").status == Status.PARKED
    assert differences() == []


class Lodged(Saga[Ordered], name="test.lodged_anew", version=1):
    """The other side knows a key for an hour, and cannot be asked."""

    @external_step(compensate=None, key_ttl=3600)
    def charge(self) -> str:
        return str(outside.act("charge", self))


def test_a_key_is_as_old_as_its_work(world: World) -> None:
    """Only the lost row said when the charge was begun first: it counts as begun when the saga came to it."""
    saga = begin(Lodged)
    lose_rows()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local session_replication_role = 'replica'")  # no trigger: nobody else changes a log
        cursor.execute("update sagas_log set at = at - interval '2 hours'")
    assert [each.problem for each in rebuilt(saga.id)] == [""]
    drain()
    assert world.names == []
    assert Lodged.get(key="a").status == Status.PARKED
    assert differences() == []


def test_sagas_go_on(world: World) -> None:
    """Sagas that lost their rows half-way end like any other, and nothing is done twice in Postgres."""
    for key in "abc":
        begin(Trip, key)
    world.plan("charge", ConnectionError("no reply"), saga="b")
    drain(skip=-machine_pause())
    lose_rows()
    assert all(each.problem == "" for each in rebuilt())
    drain()
    assert {Trip.get(key=key).status for key in "abc"} <= machine.TERMINAL
    assert differences() == []


def machine_pause() -> Any:
    """No backoff is skipped: sagas stay where their first trouble left them."""
    from datetime import timedelta

    return timedelta(days=1)


def test_only_the_row_that_is_gone(world: World) -> None:
    """A saga without work in the outbox is found by verify and mended by rebuild; others are not touched."""
    lost, kept = begin(Trip, "lost"), begin(Trip, "kept")
    OutboxRow.objects.filter(saga_id=lost.id)._raw_delete("default")
    assert [str(lost.id) in each for each in differences()] == [True]
    call_command("sagas", "rebuild")
    assert differences() == []
    assert LogEntry.objects.filter(saga_id=kept.id).count() == 1
    drain()
    assert {Trip.get(key="lost").status, Trip.get(key="kept").status} == {Status.COMPLETED}


def test_damaged_row(world: World) -> None:
    """A saga row that was edited by hand becomes what its log says."""
    saga = begin(Trip)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_saga set status = 'completed', finished_at = now(), steps = '{}', seq = 7")
    assert differences()
    rebuilt(saga.id)
    assert Trip.get(key="a").status == Status.RUNNING
    assert differences() == []


def test_log_without_a_row_is_found_by_verify() -> None:
    """A saga whose row is gone is not forgotten."""
    saga = begin(Trip)
    lose_rows()
    assert [str(saga.id) in each and "rebuild" in each for each in differences()] == [True]


def test_log_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported, nothing of it is changed, and the others are rebuilt."""
    begin(Trip, "good")
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_log (saga_id, seq, kind, data)"
            " values (%s, 0, 'started', '{}'), (%s, 1, 'settling', '{}')",
            [UUID(int=1), UUID(int=2)],
        )
    lose_rows()
    with pytest.raises(CommandError, match="2 sagas could not be rebuilt"):
        call_command("sagas", "rebuild")
    assert "1 sagas rebuilt, 2 problems" in capsys.readouterr().out
    assert SagaRow.objects.count() == 1


def test_keys_are_the_same_after_a_rebuild(world: World) -> None:
    """The effect is asked for under the key it always had."""
    saga = begin(Asked)
    lose_rows()
    rebuilt()
    from sagas import NOT_DONE

    world.plan("find", NOT_DONE)
    drain()
    assert [call.key for call in world.of("charge")] == [idempotency_key(saga.id, "charge")]
