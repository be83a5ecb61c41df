"""Rows that become visible late, out of order, or that nobody can do anything with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from sagas import machine
from sagas.embedded import Embedded
from sagas.settings import Settings
from sagas.states import Status
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from sagas_outbox.relay import UnknownQueue
from tests.cases.conftest import Letter, Mailbox, deliver, publish_due, recover, relaying, sql, until_quiet, wait_until
from tests.integration.conftest import database_alias
from tests.shop.sagas import Charge, Externals, Ordered, Trip
from tests.shop.waiting import Crowded
from tests.shop.world import World
from tests.support.stories import begin, begin_many, differences, log_of
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")

GOOD = 10


@contextmanager
def open_start(key: str) -> Iterator[None]:
    """A saga started in a transaction of another connection that stays open until the block ends."""
    with database_alias("elsewhere", dict(connections.databases["default"])) as alias, transaction.atomic(using=alias):
        Externals.start(Ordered(), key=key, using=alias)
        sql("update sagas_outbox set due_at = due_at - interval '1 hour'", using=alias)  # a long transaction
        yield


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_ob01_a_row_that_commits_after_rows_with_higher_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """Its id and its due time lie far below all that was published meanwhile. It is published all the same, also by a
    relay that always has something to do."""
    monkeypatch.setattr("sagas_outbox.scan.FULL_SCAN_EVERY", 0.1)
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        with open_start("first"):
            begin(Externals, "second")
            [letter] = publish_due(relay, mailbox)
        [(late,)] = sql("select o.id from sagas_outbox o join sagas_saga s on s.id = o.saga_id where s.key = 'first'")
        assert late < letter.rows[0][0]

        def another_pass() -> bool:
            if busy:
                begin(Externals, f"more-{SagaRow.objects.count()}")
            assert relay.run_once() or not busy
            return any(id == late for letter in mailbox.take() for id, _ in letter.rows)

        wait_until(another_pass, "the late row")


@pytest.mark.parametrize("cancel_first", [True, False])
def test_ob02_two_rows_of_one_saga_in_either_order(world: World, cancel_first: bool) -> None:
    """One relay has claimed one row of a saga and stands still; the other one is not held up and publishes the rest. In
    whatever order both are delivered, the saga's log decides what happens and not the order of the messages: a cancel
    that was committed before a step begins stops that step."""
    mailbox = Mailbox()
    saga = begin(Trip)
    Trip.cancel(key="a", reason="enough")
    begin(Externals, "other")
    kinds = {kind: id for id, kind in sql("select id, kind from sagas_outbox where saga_id = %s", saga.id)}
    with DjangoStore("default").connect() as slow, slow.transaction(), relaying(mailbox) as relay:
        slow.execute("select 1 from sagas_outbox where id = %s for update", [kinds["cancel"]])
        rest = publish_due(relay, mailbox)
        assert {id for letter in rest for id, _ in letter.rows} == set(
            OutboxRow.objects.exclude(id=kinds["cancel"]).values_list("id", flat=True)
        )
    with relaying(mailbox) as relay:
        cancel = publish_due(relay, mailbox)
        for letter in cancel + rest if cancel_first else rest + cancel:
            deliver(letter)
        until_quiet(relay, mailbox)
    assert Externals.get(key="other").status == Status.COMPLETED
    assert (Trip.get(key="a").status, differences()) == (Status.CANCELLED, [])
    assert world.names == []


@pytest.mark.parametrize("late_first", [False, True], ids=["in order", "the later one first"])
def test_ob02_two_signals_of_one_saga_in_either_order(late_first: bool, world: World) -> None:
    """One relay has claimed the first of two signals and stands still; the other publishes the second, and another
    saga. Its worker gives the second back while the first is not applied: the log has them as they were sent."""
    mailbox = Mailbox()
    saga = begin(Crowded)
    with relaying(mailbox) as relay:
        until_quiet(relay, mailbox)
        with transaction.atomic():
            Crowded.one.send("first", key="a")
            Crowded.one.send("second", key="a")
        begin(Externals, "other")
        first = OutboxRow.objects.filter(kind="signal").order_by("id").values_list("id", flat=True)[0]
        with DjangoStore("default").connect() as slow, slow.transaction():
            slow.execute("select 1 from sagas_outbox where id = %s for update", [first])
            rest = publish_due(relay, mailbox)
            assert first not in {id for letter in rest for id, _ in letter.rows}
        late = publish_due(relay, mailbox)
        assert [id for letter in late for id, _ in letter.rows] == [first]
        for letter in rest + late if late_first else late + rest:
            deliver(letter)
        until_quiet(relay, mailbox)
    assert Externals.get(key="other").status == Status.COMPLETED
    notes = [value for (value,) in sql(HEARD, saga.id)]
    assert (notes, differences()) == (["first", "second"], [])


HEARD = "select data->>'result' from sagas_log where saga_id = %s and kind = 'signalled' order by seq"


@pytest.mark.parametrize("step", ["charge", "confirm"])
def test_ob02_a_row_of_a_step_that_is_not_its_turn(world: World, step: str) -> None:
    """However it got there and however right its message: it is not run before the steps before it, nor twice."""
    saga = begin(Trip)
    sql("update sagas_outbox set step = %s", step)
    recover()
    assert world.names == ["book", "charge", "confirm"]
    assert log_of(saga) == ["started", "step_done book", "step_done charge", "step_done confirm", "completed"]


def picky(letter: Letter) -> None:
    if letter.queue.startswith("no-such"):
        raise UnknownQueue(letter.queue)


def test_ob04_rows_that_can_never_be_published(world: World) -> None:
    """More rows than a relay takes at a time, of queues that the broker does not know, older than all others: good ones
    go out in the first passes beside them. The bad ones wait in their queue, claimed by nobody and counted as nothing;
    the relay says which queue is missing each time it tries. Nothing is parked: once the queue exists they go out by
    themselves."""
    begin_many(Charge, [f"bad-{number}" for number in range(55)])
    sql("update sagas_outbox set due_at = due_at - interval '1 hour', queue = 'no-such-' || (id % 3)")
    begin_many(Externals, [f"good-{number}" for number in range(GOOD)])
    mailbox = Mailbox(refuses=picky)
    with relaying(mailbox) as relay:
        relay.run_once()
        assert sum(len(letter.rows) for letter in mailbox.letters) == GOOD
        for _ in range(9):
            relay.run_once()
        deliver(*mailbox.take(), goes_on=True)
    assert SagaRow.objects.filter(status="completed").count() == GOOD
    bad = OutboxRow.objects.filter(queue__startswith="no-such")
    assert set(bad.values_list("holder", "publishes", "deliveries", "failures", "token")) == {(None, 0, 0, 0, 0)}
    mailbox.refuses = lambda letter: None
    recover(mailbox=mailbox)
    assert SagaRow.objects.filter(status="completed").count() == GOOD + 55


BROKEN: dict[str, str] = {
    "an unknown saga": "update sagas_saga set name = 'cases.nobody' where key like 'bad%'",
    "a step that is gone": "update sagas_outbox set step = 'gone' where saga_id in"
    " (select id from sagas_saga where key like 'bad%')",
    "no saga": "delete from sagas_saga where key like 'bad%'",
    "steps that cannot be read": """update sagas_saga set steps = '{"book": 7}' where key like 'bad%'""",
    "steps of another release": """update sagas_saga set steps = '{"gone": {"status": "done"}}', status = 'compensating'
        where key like 'bad%'""",
    "a request of a newer release": """alter table sagas_outbox drop constraint sagas_outbox_kind;
        update sagas_outbox set kind = 'newer', step = null, direction = null
        where saga_id in (select id from sagas_saga where key like 'bad%')""",
}


@pytest.fixture
def whole_table(shop: str) -> Iterator[None]:
    """Puts back the constraint that a test takes away."""
    [(kinds,)] = sql("select pg_get_constraintdef(oid) from pg_constraint where conname = 'sagas_outbox_kind'")
    yield
    [(missing,)] = sql("select count(*) = 0 from pg_constraint where conname = 'sagas_outbox_kind'")
    if missing:
        sql(f"delete from sagas_outbox; alter table sagas_outbox add constraint sagas_outbox_kind {kinds}")


@pytest.mark.usefixtures("whole_table")
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("embedded", [False, True], ids=["message", "embedded"])
def test_ob04_rows_that_no_worker_can_make_sense_of(world: World, broken: str, embedded: bool) -> None:
    """In one message with good ones: the good ones are done, at their first attempt and by this very message. The bad
    one is reported and waits; it is never in the way."""
    for number in range(3):
        begin(Charge, f"good-{number}")
    begin(Charge, "bad")
    for number in range(3, 6):
        begin(Charge, f"good-{number}")
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))  # the local step before
    sql(BROKEN[broken])
    if embedded:
        for _ in range(2):
            with one_worker() as worker:
                run_batch(worker, begin_due(worker))
    else:
        mailbox = Mailbox()
        with relaying(mailbox) as relay:
            for _ in range(2):
                rows = tuple(held for letter in publish_due(relay, mailbox) for held in letter.rows)
                deliver(Letter("default", rows))
    good = SagaRow.objects.filter(key__startswith="good")
    assert set(good.values_list("status", flat=True)) == {"completed"}
    assert world.count() == {"charge": 6}
    assert {Charge.get(key=f"good-{number}").steps["charge"].do.attempts for number in range(6)} == {1}
    [row] = OutboxRow.objects.all()
    [(waits,)] = sql("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox")
    assert waits > 5 and row.failures == 0


def test_ob04_a_decision_that_cannot_be_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours that strikes for one saga: what happened to the others of its batch is recorded. Its own row is
    taken over when the lease ends, as unknown."""
    real = machine.decide

    def decide(plan: Any, state: Any, event: Any) -> Any:
        if getattr(event, "result", None) is not None and bytes(event.result) == b'"poison"':
            raise OverflowError("math range error")
        return real(plan, state, event)

    monkeypatch.setattr("sagas.recorder.machine.decide", decide)
    world.plan("charge", "poison", saga="bad")
    begin_many(Charge, ["a", "bad", "b", "c"])
    for _ in range(2):
        with one_worker() as worker:
            run_batch(worker, begin_due(worker))
    assert {key: Charge.get(key=key).status.value for key in ("a", "b", "c")} == dict.fromkeys("abc", "completed")
    [row] = OutboxRow.objects.all()
    assert (row.step, row.deliveries) == ("charge", 1)
    monkeypatch.undo()
    recover()
    assert (Charge.get(key="bad").status, Charge.get(key="bad").steps["charge"].do.attempts) == ("completed", 2)


@pytest.mark.parametrize("due", ["infinity", "-infinity", "12000-01-01", "0044-03-15 BC"])
def test_ob04_a_time_that_nobody_can_reckon_with(world: World, due: str) -> None:
    """Put into a row by hand it stopped every relay and worker, or hid the row for good. Postgres refuses it; a day
    that is merely far away, or long over, is in nobody's way."""
    begin(Externals, "odd")
    with pytest.raises(IntegrityError, match="sagas_outbox_due"):
        sql("update sagas_outbox set due_at = %s", due)
    sql("update sagas_outbox set queue = 'a', due_at = %s", "8999-12-31" if "B" not in due else "1970-01-02")
    begin(Externals, "now")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        letters = publish_due(relay, mailbox)
        assert "default" in {letter.queue for letter in letters}
        for letter in letters:
            deliver(letter, goes_on=True)
    assert Externals.get(key="now").status == Status.COMPLETED
    begin(Externals, "later")
    Embedded(DjangoStore("default")).run(until_idle=True)
    assert Externals.get(key="later").status == Status.COMPLETED


def test_ob04_claims_take_at_most_what_was_asked_for(world: World) -> None:
    """A claim is bounded by its room, whatever it finds; so the oldest rows can fill one pass of one queue at most."""
    begin_many(Externals, [str(number) for number in range(30)])
    with closing(DjangoStore("default").connect()) as wire:
        took = claims.claim(wire, [Room("default", 7)], holder="relay:x", window=9, begun=True, now=None)
    assert len(took) == 7
    assert Settings().in_flight >= Settings().message_rows
