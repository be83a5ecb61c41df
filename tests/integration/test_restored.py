"""After the database has gone back in time: nothing of the lost history fits, what may have been done is asked about.

The tables are put back to what they were, sequences too; tests/deploys does the same with a physical copy of a server.
"""
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import io
import json
import threading
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection as django_connection
from django.db import transaction
from msgspec import Raw

from sagas import NotDone, Refused, Retry, Saga, external_step, restored, step
from sagas.errors import NotPossible
from sagas.events import Succeeded
from sagas.store import rows
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.families import After, Letters, Purchase
from tests.shop.going_on import Poll
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World
from tests.support.backup import Backup, Bought, act
from tests.support.stories import begin, bring_forward, differences, drain, log_of, outbox
from tests.support.workers import begin_due, one_worker, run_together

pytestmark = pytest.mark.usefixtures("shop")


def told(*options: str) -> str:
    out = io.StringIO()
    call_command("sagas", "restored", "--reason", "failover", *options, stdout=out, skip_checks=True)
    return out.getvalue()


def test_what_may_have_been_done_is_asked_about(world: World, backup: type[Backup]) -> None:
    """Both effects were had in the history that was lost: each is asked about in its turn, and none is had again."""
    saga = begin(Bought)
    before = backup()
    world.plan("charge", "charge-7")
    world.plan("ship", "parcel-7")
    drain()
    assert world.names == ["charge", "ship"]
    before.restore()
    assert log_of(saga) == ["started"]
    answer = told()
    assert "1 sagas are open; what each is still to do outside is in doubt" in answer
    assert log_of(saga) == ["started", "doubted charge", "doubted ship"]
    assert differences() == []
    world.plan("find_charge", "charge-7")
    world.plan("find_parcel", "parcel-7")
    drain()
    assert world.names == ["charge", "ship", "find_charge", "find_parcel"]
    assert SagaRow.objects.get(id=saga.id).status == "completed"


@pytest.mark.parametrize(
    ("definition", "refused"), [(Purchase, ""), (Letters, ""), (After, "send-0"), (Poll, "")],
    ids=["child", "item", "item that is begun anew", "next runs"],
)  # fmt: skip
def test_what_a_saga_starts_anew_acts_under_the_same_keys(
    world: World, backup: type[Backup], definition: type[Saga[Ordered]], refused: str
) -> None:
    """Sagas that were started in the history that was lost are started again as the same ones."""
    saga = begin(definition, input=Ordered(number=1))
    before = backup()
    world.plan(refused, Refused("no"))
    drain()
    first, started = world.calls[:], runs()
    assert len({call.key.split(":")[0] for call in first}) > 1
    before.restore()
    told()
    world.plan(refused, Refused("no"))
    drain()
    assert [(call.name, call.key) for call in world.calls] == [(call.name, call.key) for call in first] * 2
    assert runs() == started
    assert {id.hex[:12] for id in started} == {saga.id.hex[:12]}  # each lies beside the one that it came of
    assert sorted(started) == started  # and later runs after earlier ones


def runs() -> list[UUID]:
    """All sagas there are: one, and its children or its next runs."""
    return list(SagaRow.objects.order_by("-parent", "run").values_list("id", flat=True))  # that has none comes first


def test_without_being_told_a_step_is_done_again(world: World, backup: type[Backup]) -> None:
    """That is what `restored` is for: where the other side does not honour keys, this is once too often."""
    begin(Bought)
    before = backup()
    for _ in range(2):
        world.plan("charge", "charge-7")
        world.plan("ship", "parcel-7")
        drain()
        if world.names == ["charge", "ship"]:
            before.restore()
    assert world.names == ["charge", "ship", "charge", "ship"]


def test_telling_it_twice_changes_nothing_more(world: World) -> None:
    """An attempt counts once, however often it is said; ids only grow."""
    saga = begin(Bought)
    told()
    first = outbox(saga)[0].id
    told()
    assert outbox(saga)[0].id > first
    world.plan("find_charge", "charge-7")
    world.plan("find_parcel", "parcel-7")
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"


@pytest.mark.parametrize("renewed", [True, False], ids=["told", "not told"])
def test_a_stale_message_fits_nothing(world: World, backup: type[Backup], renewed: bool) -> None:
    """The broker still holds a message for a row of the lost history, whose id and token are given out again."""
    before = backup()
    (lost,) = outbox(begin(Trip, "lost"))
    before.restore()
    if renewed:
        told()
    (new,) = outbox(begin(Trip, "new"))
    OutboxRow.objects.filter(id=new.id).update(holder="relay:x")
    with DjangoStore("default").connect() as aside:
        held = [(lost.id, lost.token)]
        begun = rows.begin(aside, held, holder="worker:x", lease=30, published=True, now=None)
    assert (new.id > lost.id, len(begun)) == ((True, 0) if renewed else (False, 1))


@pytest.mark.parametrize("renewed", [True, False], ids=["told", "not told"])
def test_an_old_worker_cannot_write(world: World, backup: type[Backup], renewed: bool) -> None:
    """A worker that lived through it holds a row of the lost history; the same id, token and seq have come again by
    another way, and another worker holds the row: what the old one brings is not written over a history that is not
    its own."""
    saga = begin(Trip)
    before = backup()
    with one_worker() as old, one_worker() as new:
        run_together()  # `book`, in the history that is lost
        (held,) = begin_due(old)
        assert held.attempt is not None
        assert held.attempt.step == "charge"
        before.restore()
        if renewed:
            told()
        world.plan("book", RuntimeError("no seat"))
        run_together()  # the same number of entries, and another one
        bring_forward()
        (again,) = begin_due(new)
        assert ((again.id, again.token, again.state.seq) == (held.id, held.token, held.state.seq)) is not renewed
        old.recorder.record([(held, Succeeded(held.attempt, Raw(b'"charge-7"')))])
    assert differences() == []
    assert "step_done charge" not in log_of(saga)


class Slow(Saga[Ordered], name="test.slow", version=1):
    """Something local that may fail comes before what can be undone outside."""

    @step(compensate=None, retry=Retry(max_attempts=1))
    def book(self) -> None:
        act(self, "book")

    @external_step(retry=Retry(max_attempts=3, first=10))
    def charge(self) -> str:
        return act(self, "charge")

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return act(self, "find_charge")

    @charge.compensate
    def refund(self, charge: str) -> None:
        act(self, "refund")

    @external_step(pivot=True)
    def ship(self) -> str:
        return act(self, "ship")


def test_what_its_turn_does_not_come_for_is_undone(world: World, backup: type[Backup]) -> None:
    """The lost history charged; here the saga fails before it comes to that. The bank is asked, and gives it back."""
    saga = begin(Slow)
    before = backup()
    world.plan("charge", "charge-7")
    drain()
    before.restore()
    told()
    world.reset()
    world.plan("book", RuntimeError("no seat"))
    world.plan("find_charge", "charge-7")
    drain()
    assert world.names == ["book", "find_charge", "refund"]
    assert SagaRow.objects.get(id=saga.id).status == "compensated"
    assert differences() == []


class Lodged(Saga[Ordered], name="test.lodged", version=1):
    """The other side knows a key for an hour, and cannot be asked."""

    @external_step(compensate=None, key_ttl=3600)
    def charge(self) -> str:
        return act(self, "charge")


def two_hours_old(saga: UUID) -> datetime:
    """The database that was restored is, and so is its last write."""
    (row,) = SagaRow.objects.filter(id=saga)
    SagaRow.objects.filter(id=saga).update(updated_at=row.updated_at - timedelta(hours=2))
    return row.updated_at - timedelta(hours=2)


def test_a_key_is_as_old_as_the_backup(world: World, backup: type[Backup]) -> None:
    """Callers have started sagas on it before anybody said so: the charge that was lost is no younger by that."""
    saga = begin(Lodged)
    before = backup()
    drain()
    before.restore()
    since = two_hours_old(saga.id)
    begin(Lodged, "new")
    assert datetime.fromisoformat(json.loads(told("--json"))["data"]["until"]) > since + timedelta(hours=1)
    assert f"counts as begun at {since.isoformat()}; if the backup is older" in told("--since", since.isoformat())
    drain()
    assert len(world.of("charge")) == 1
    assert SagaRow.objects.get(id=saga.id).status == "parked"


def test_the_last_commit_that_was_replayed_is_known_to_the_server(backup: type[Backup]) -> None:
    """After a failover nobody has to say when it was, whatever was written since."""
    saga = begin(Lodged)
    since = two_hours_old(saga.id)
    begin(Lodged, "new")
    with DjangoStore("default").connect() as raw:
        raw.execute("create schema failed_over")
        raw.execute("create function failed_over.pg_last_xact_replay_timestamp() returns timestamptz language sql as"
                    f" $$ select timestamptz '{since.isoformat()}' $$")  # fmt: skip
        raw.execute("select set_config('search_path', 'failed_over, pg_catalog, ' || current_schema(), false)")
        assert restored.until(raw) == since.timestamp()
        later = since + timedelta(hours=1)
        assert restored.until(raw, since=later) == later.timestamp()


@pytest.mark.parametrize("since", ["yesterday", "14:05"])
def test_a_time_that_is_none(since: str) -> None:
    """Nothing is changed."""
    first = outbox(begin(Bought))[0].id
    with pytest.raises(CommandError, match="a time such as"):
        told("--since", since)
    assert OutboxRow.objects.get().id == first


def test_callers_wait_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction that has started a saga stays open, it neither gets on nor holds others up."""
    monkeypatch.setattr(restored, "PATIENCE", 2.0)
    problems: list[Exception] = []

    def renew() -> None:
        with DjangoStore("default").connect() as raw:
            try:
                restored.renew(raw)
            except NotPossible as problem:
                problems.append(problem)

    with DjangoStore("default").connect() as raw, raw.transaction():
        raw.execute("insert into sagas_outbox (kind, step, direction, queue) values ('step', 'x', 'do', 'nowhere')")
        thread = threading.Thread(target=renew)
        thread.start()
        number = 0
        while thread.is_alive():
            number += 1
            with transaction.atomic(), django_connection.cursor() as cursor:
                cursor.execute("set local lock_timeout = '5s'")
                Trip.start(Ordered(), key=str(number))
        thread.join()
    assert "nothing was changed" in str(problems[0]) and number > 1
    with DjangoStore("default").connect() as raw:
        assert restored.renew(raw).rows == number + 1
