"""The claim protocol over the real SQL: who may act on an outbox row, and what late, doubled or forged words do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from msgspec import Raw

from sagas import machine
from sagas.events import Cancel, Succeeded
from sagas.states import Status
from sagas.store import rows
from sagas.store.rows import Delivery, Recording
from sagas_django.models import DedupeRecord, OutboxRow
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Claimed, Room
from tests.shop.sagas import Charge, Externals, Queues
from tests.support.stories import begin, begin_many, differences, entries, log_of, outbox, second_connection

pytestmark = pytest.mark.usefixtures("shop")

DONE = Raw(b"null")
ROOM = [Room("default", 1000)]
Connection = psycopg.Connection[Any]


@pytest.fixture
def wire(shop: str) -> Iterator[Connection]:
    """A worker's own connection."""
    with DjangoStore("default").connect() as connection:
        yield connection


def publish(wire: Connection, *, holder: str = "relay:1", now: datetime | None = None) -> list[Claimed]:
    return claims.claim(wire, ROOM, holder=holder, window=10, begun=True, now=now)


def take(
    wire: Connection, held: list[tuple[int, int]], *, holder: str = "worker:1", published: bool = True
) -> list[Delivery]:  # fmt: skip
    begun = rows.begin(wire, held, holder=holder, lease=30, published=published, now=None)
    assert all(isinstance(each, Delivery) for each in begun)
    return begun  # type: ignore[return-value]


def due(wire: Connection) -> list[tuple[int, int]]:
    return [held for held, _ in claims.lock_due(wire, ROOM, begun=True, now=None)]


def done(delivery: Delivery, *, saga: Any = Externals, goes_on: bool = False) -> Recording:
    assert delivery.attempt is not None
    decision = machine.decide(saga.plan, delivery.state, Succeeded(delivery.attempt, DONE))
    return Recording(delivery, decision, machine.finished(decision.state), goes_on)


def record(wire: Connection, *batch: Recording, holder: str = "worker:1") -> set[int]:
    return set(rows.record(wire, batch, holder=holder, lease=30, now=None))


def in_the_future(seconds: float) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now + timedelta(seconds=seconds)


# --- claim and begin -------------------------------------------------------------------------------------------


def test_begin_consumes_the_token(wire: Connection) -> None:
    """A message delivered twice begins once; begin makes the row the worker's, under a new token."""
    run = begin(Externals)
    [claimed] = publish(wire)
    message = [(claimed.id, claimed.token)]
    [begun] = take(wire, message)
    assert (begun.token, begun.saga_id, begun.key) == (claimed.token + 1, run.id, "a")
    assert take(wire, message) == take(wire, message, holder="worker:2") == []
    [row] = outbox(run)
    assert (row.holder, row.token, row.deliveries, row.publishes) == ("worker:1", claimed.token + 1, 1, 0)
    assert row.first_begun_at is not None


@pytest.mark.parametrize(("id", "token"), [(0, 1), (0, -1), (0, 10**15), (1, 0), (10**15, 0)])
def test_forged_messages_begin_nothing(wire: Connection, id: int, token: int) -> None:
    """A wrong id or token, above all a guessed later one, begins nothing and changes nothing."""
    begin(Externals)
    [claimed] = publish(wire)
    before = OutboxRow.objects.values().get()
    assert take(wire, [(claimed.id + id, claimed.token + token)]) == []
    assert OutboxRow.objects.values().get() == before


def test_a_row_that_nobody_published_is_not_begun_by_a_message(wire: Connection) -> None:
    """A message for a row that no relay holds begins nothing."""
    run = begin(Externals)
    [row] = outbox(run)
    assert take(wire, [(row.id, row.token)]) == []
    assert len(take(wire, [(row.id, row.token)], published=False)) == 1


def test_an_embedded_worker_begins_only_what_is_due(wire: Connection) -> None:
    """Without a relay the due time decides."""
    run = begin(Externals)
    with second_connection() as other:
        other.execute("update sagas_outbox set due_at = clock_timestamp() + interval '1 minute'")
    [row] = outbox(run)
    assert due(wire) == []
    assert take(wire, [(row.id, row.token)], published=False) == []


def test_a_row_twice_in_one_message(wire: Connection) -> None:
    """One message that names a row twice begins it once."""
    begin(Externals)
    [claimed] = publish(wire)
    assert len(take(wire, [(claimed.id, claimed.token)] * 3)) == 1


def test_republished_rows_keep_their_token(wire: Connection) -> None:
    """A row never begun keeps its token when published again, so that the first message is as good as the second;
    its publish window doubles, up to 64 times."""
    begin(Externals)
    windows = []
    for _ in range(9):
        [claimed] = publish(wire)
        assert claimed.token == 0
        [row] = OutboxRow.objects.all()
        windows.append(round((row.due_at - in_the_future(0)).total_seconds()))
        with second_connection() as other:
            other.execute("update sagas_outbox set due_at = clock_timestamp()")
    assert windows == [10, 20, 40, 80, 160, 320, 640, 640, 640]
    assert len(take(wire, [(claimed.id, 0)])) == 1


def test_a_begun_row_gets_a_new_token(wire: Connection) -> None:
    """When its lease ends it is published under a new token: the old holder can neither begin nor record."""
    begin(Externals)
    [claimed] = publish(wire)
    [lost] = take(wire, [(claimed.id, claimed.token)])
    assert publish(wire) == []
    later = in_the_future(31)
    [again] = publish(wire, holder="relay:2", now=later)
    assert (again.token, again.deliveries) == (lost.token + 1, 1)
    assert record(wire, done(lost)) == set()
    [taken] = take(wire, [(again.id, again.token)], holder="worker:2")
    assert taken.attempt is not None
    assert (taken.attempt.deliveries, taken.attempt.lost, taken.state.seq) == (2, 1, 0)
    assert record(wire, done(lost)) == set()
    assert record(wire, done(taken), holder="worker:2") == {taken.id}


def test_begun_rows_wait_after_an_outage(wire: Connection) -> None:
    """`begun=False` claims fresh rows only, while workers may not have been able to renew their leases."""
    begin_many(Externals, ["a", "b"])
    first, second = publish(wire)
    take(wire, [(first.id, first.token)])
    later = in_the_future(100)
    fresh = claims.claim(wire, ROOM, holder="relay:1", window=10, begun=False, now=later)
    assert [each.id for each in fresh] == [second.id]


def test_two_relays_share_the_rows(wire: Connection) -> None:
    """Rows that one transaction claims are skipped by another, never waited for."""
    begin_many(Externals, [str(number) for number in range(10)])
    with second_connection(autocommit=False) as other:
        mine = claims.claim(other, [Room("default", 6)], holder="relay:2", window=10, begun=True, now=None)
        theirs = publish(wire)
        other.commit()
    assert (len(mine), len(theirs)) == (6, 4)
    assert {each.id for each in mine}.isdisjoint(each.id for each in theirs)


def test_queues_have_rooms_of_their_own(wire: Connection) -> None:
    """A claim takes from each queue at most its room, the oldest first, from the low-water mark on."""
    begin_many(Externals, ["a", "b", "c"])
    begin(Queues)
    found = claims.claim(wire, [Room("default", 2), Room("left", 5)], holder="relay:1", window=10, begun=True, now=None)
    assert [(each.queue, each.name) for each in found] == [
        ("default", "test.externals"), ("default", "test.externals"), ("left", "test.queues")
    ]  # fmt: skip
    above = [Room("default", 5, in_the_future(60))]
    assert claims.claim(wire, above, holder="relay:1", window=10, begun=True, now=in_the_future(1)) == []
    assert set(claims.queues(wire, now=None)) == {"default", "left"}


def test_begin_skips_locked_rows(wire: Connection) -> None:
    """A row that somebody has locked is not begun and not waited for."""
    begin_many(Externals, ["a", "b"])
    held = [(each.id, each.token) for each in publish(wire)]
    with second_connection(autocommit=False) as other:
        other.execute("select from sagas_outbox where id = %s for update", [held[0][0]])
        assert [each.id for each in take(wire, held)] == [held[1][0]]
    assert [each.id for each in take(wire, held)] == [held[0][0]]


# --- heartbeat and hand-back -----------------------------------------------------------------------------------


def beat(wire: Connection, *deliveries: Delivery, now: datetime | None = None, holder: str = "worker:1") -> set[int]:
    return claims.heartbeat(wire, [each.held for each in deliveries], holder=holder, lease=30, now=now)


def test_heartbeat_renews(wire: Connection) -> None:
    """A renewed lease keeps others away for another while; the token stays."""
    begin(Externals)
    [held] = take(wire, due(wire), published=False)
    assert beat(wire, held, now=in_the_future(20)) == {held.id}
    assert publish(wire, now=in_the_future(40)) == []
    assert record(wire, done(held)) == {held.id}


def test_heartbeat_revives_an_expired_lease(wire: Connection) -> None:
    """A lease that ended, and that nobody claimed, is still the worker's."""
    begin(Externals)
    [held] = take(wire, due(wire), published=False)
    with second_connection() as other:
        other.execute("update sagas_outbox set due_at = clock_timestamp() - interval '1 hour'")
    assert beat(wire, held) == {held.id}
    assert due(wire) == []


def test_heartbeat_is_lost_after_a_takeover(wire: Connection) -> None:
    """Once somebody else claimed the row the lease is gone for good."""
    begin(Externals)
    [held] = take(wire, due(wire), published=False)
    assert len(publish(wire, now=in_the_future(31))) == 1
    assert beat(wire, held) == set()
    assert beat(wire, held, holder="worker:2") == set()


def test_heartbeat_skips_locked_rows(wire: Connection) -> None:
    """A row that a local step has locked is neither waited for nor lost: nobody else can take it either."""
    begin_many(Externals, ["a", "b"])
    first, second = take(wire, due(wire), published=False)
    before = OutboxRow.objects.get(pk=first.id).due_at
    with second_connection(autocommit=False) as other:
        other.execute("select from sagas_outbox where id = %s for update", [first.id])
        assert beat(wire, first, second) == {first.id, second.id}
    assert OutboxRow.objects.get(pk=first.id).due_at == before
    assert OutboxRow.objects.get(pk=second.id).due_at > before


def test_what_was_claimed_and_is_too_much_keeps_its_place(wire: Connection) -> None:
    """As if it had never been claimed: the oldest stay the oldest."""
    begin_many(Externals, ["a", "b"])
    before = list(OutboxRow.objects.order_by("id").values_list("id", "due_at", "publishes", "holder", "token"))
    claimed = publish(wire)
    assert len(claimed) == 2
    claims.put_back(wire, claimed, holder="relay:other", now=None)
    assert OutboxRow.objects.filter(holder="relay:1").count() == 2
    claims.put_back(wire, claimed, holder="relay:1", now=None)
    assert list(OutboxRow.objects.order_by("id").values_list("id", "due_at", "publishes", "holder", "token")) == before


def test_hand_back_takes_off_only_its_own_delivery(wire: Connection) -> None:
    """A row given back is due at once, with the count it had, and its old token is worth nothing."""
    begin(Externals)
    [lost] = take(wire, due(wire), published=False)
    with second_connection() as other:
        other.execute("update sagas_outbox set due_at = clock_timestamp()")
    [held] = take(wire, due(wire), published=False, holder="worker:2")
    assert claims.hand_back(wire, [lost.held], now=None) == set()
    assert claims.hand_back(wire, [held.held], holder="worker:1", now=None) == set()  # whatever its token: not its row
    assert not claims.note_progress(wire, held.held, "1", holder="worker:1")
    assert claims.note_progress(wire, held.held, "2", holder="worker:2")
    assert claims.hand_back(wire, [held.held], holder="worker:2", now=None) == {held.id}
    [row] = OutboxRow.objects.all()
    assert (row.holder, row.deliveries, row.token) == (None, 1, held.token + 1)
    assert record(wire, done(held)) == set()
    [again] = take(wire, due(wire), published=False)
    assert again.attempt is not None
    assert again.attempt.lost == 1


# --- record ----------------------------------------------------------------------------------------------------


def test_record_writes_all_of_a_decision(wire: Connection) -> None:
    """Saga, log and outbox row move together, under the token that was begun."""
    run = begin(Externals)
    [held] = take(wire, due(wire), published=False)
    assert record(wire, done(held)) == {held.id}
    [row] = outbox(run)
    assert (row.step, row.holder, row.token, row.deliveries, row.first_begun_at) == (
        "two", None, held.token + 1, 0, None
    )  # fmt: skip
    assert [entry.token for entry in entries(run)] == [None, held.token]
    assert record(wire, done(held)) == set()
    assert log_of(run) == ["started", "step_done one"]


def test_record_that_goes_on_begins_the_next_step(wire: Connection) -> None:
    """A continued step begins in the commit that recorded the one before: leased, counted, under a new token."""
    run = begin(Externals)
    [held] = take(wire, due(wire), published=False)
    record(wire, done(held, goes_on=True))
    [row] = outbox(run)
    assert (row.step, row.holder, row.token, row.deliveries) == ("two", "worker:1", held.token + 1, 1)
    assert row.first_begun_at is not None
    assert publish(wire) == []


def test_record_needs_the_saga_as_it_was(wire: Connection) -> None:
    """A decision from a stale state writes nothing, though its token is good; made again it is written."""
    run = begin(Externals)
    [held] = take(wire, due(wire), published=False)
    Externals.cancel(key="a", reason="enough")
    [cancel] = take(wire, due(wire), published=False)
    decision = machine.decide(Externals.plan, cancel.state, Cancel("", "enough"))
    assert record(wire, Recording(cancel, decision, False, False)) == {cancel.id}
    assert record(wire, done(held)) == set()
    held.state = rows.load(wire, [held.held], holder="worker:1")[held.held]
    assert record(wire, done(held)) == {held.id}
    assert log_of(run) == ["started", "cancel_requested", "step_done one", "compensating", "cancelled"]


def test_a_request_leaves_a_held_row_alone(wire: Connection) -> None:
    """A cancel may wake what nobody holds; a held row changes only through its holder or the end of its lease."""
    begin_many(Externals, ["held", "waiting"])
    with second_connection() as other:
        other.execute(
            "update sagas_outbox o set due_at = clock_timestamp() + interval '1 hour' from sagas_saga s"
            " where s.id = o.saga_id and s.key = 'waiting'"
        )
    [held] = take(wire, due(wire), published=False)
    before = OutboxRow.objects.values().get(pk=held.id)
    for key in ("held", "waiting"):
        Externals.cancel(key=key, reason="enough")
    for cancel in take(wire, due(wire), published=False):
        decision = machine.decide(Externals.plan, cancel.state, Cancel("", "enough"))
        record(wire, Recording(cancel, decision, False, False))
    assert OutboxRow.objects.values().get(pk=held.id) == before
    assert len(due(wire)) == 1


def test_ten_with_one_locked_one_stale_token_one_stale_seq(wire: Connection) -> None:
    """Of ten decisions in one statement exactly the seven good ones are written, each whole."""
    begin_many(Externals, [str(number) for number in range(10)])
    held = take(wire, due(wire), published=False)
    locked, stale_token, stale_seq, *good = held
    with second_connection() as other:
        other.execute("update sagas_outbox set token = token + 1 where id = %s", [stale_token.id])
        other.execute("update sagas_saga set seq = seq + 1 where id = %s", [stale_seq.saga_id])
        other.autocommit = False
        other.execute("select from sagas_outbox where id = %s for update", [locked.id])
        assert record(wire, *map(done, held)) == {each.id for each in good}
        other.rollback()
    for each in held:
        assert len(log_of(each.saga_id)) == (2 if each in good else 1)
        assert OutboxRow.objects.get(pk=each.id).step == ("two" if each in good else "one")
    assert record(wire, *map(done, held)) == {locked.id}


def test_a_locked_saga_row_is_left_for_later(wire: Connection) -> None:
    """A saga row that another transaction has locked is skipped like an outbox row."""
    begin_many(Externals, ["a", "b"])
    first, second = take(wire, due(wire), published=False)
    with second_connection(autocommit=False) as other:
        other.execute("select from sagas_saga where id = %s for update", [first.saga_id])
        assert record(wire, done(first), done(second)) == {second.id}
    assert record(wire, done(first)) == {first.id}


def test_two_decisions_of_one_saga_in_one_batch(wire: Connection) -> None:
    """The recorder writes the first, decides anew for the second, and writes that as well."""
    from sagas.recorder import Recorder
    from sagas.worker import definition_of
    from sagas_outbox.link import Link

    run, other = begin(Externals), begin(Externals, "b")
    held = take(wire, due(wire), published=False)
    Externals.cancel(key="a", reason="enough")
    [cancel] = take(wire, due(wire), published=False)
    happened: list[Any] = [(each, Succeeded(each.attempt, DONE)) for each in held if each.attempt]
    with closing(Link(DjangoStore("default").connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=30, goes_on=lambda *_: False)
        recorder.record([*happened, (cancel, Cancel("", "enough"))])
    assert log_of(run) == ["started", "step_done one", "cancel_requested"]
    assert log_of(other) == ["started", "step_done one"]
    assert differences() == []


def test_a_lost_acknowledgement_is_looked_up_in_the_log(wire: Connection) -> None:
    """Which decisions were written is in the log, under their own token; a guess by the row's token would be wrong."""
    begin_many(Externals, ["a", "b", "c"])
    written, lost, overtaken = map(done, take(wire, due(wire), published=False))
    record(wire, written)
    with second_connection() as other:
        other.execute("update sagas_outbox set due_at = clock_timestamp() where id = %s", [overtaken.delivery.id])
    [taken] = take(wire, due(wire)[-1:], published=False, holder="worker:2")
    assert record(wire, done(taken), holder="worker:2") == {overtaken.delivery.id}
    found = rows.recorded(wire, [written, lost, overtaken], holder="worker:1")
    assert set(found) == {written.delivery.id}


def test_the_recorder_survives_a_lost_acknowledgement(wire: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit arrived and its acknowledgement did not: nothing is written twice, and the saga goes on."""
    from sagas.recorder import Recorder
    from sagas.worker import definition_of
    from sagas_outbox.link import Link

    run = begin(Externals)
    [held] = take(wire, due(wire), published=False)
    inner, calls = rows.record, []

    def cut(*args: Any, **named: Any) -> dict[int, bool]:
        written = inner(*args, **named)
        calls.append(written)
        if len(calls) == 1:
            raise psycopg.OperationalError("the server closed the connection unexpectedly")
        return written

    monkeypatch.setattr(rows, "record", cut)
    assert held.attempt is not None
    with closing(Link(DjangoStore("default").connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=30, goes_on=lambda *_: True)
        [going_on] = recorder.record([(held, Succeeded(held.attempt, DONE))])
    assert log_of(run) == ["started", "step_done one"]
    assert going_on.attempt is not None
    assert (going_on.attempt.step, going_on.token) == ("two", outbox(run)[0].token)


def test_late_answers_go_into_the_dedupe_table(wire: Connection) -> None:
    """`started` becomes `done`; a second answer changes nothing; on `closed` the response is added."""
    run = begin(Charge)
    [held] = take(wire, due(wire), published=False)
    states = {"none": None, "started": "started", "done": "done", "closed": "closed"}
    with second_connection() as other:
        for key, state in states.items():
            if state:
                other.execute(
                    "insert into sagas_dedupe (key, saga_id, state, response) values (%s, %s, %s, %s)",
                    [key, run.id, state, '"first"' if state == "done" else None],
                )
    for key in states:
        rows.remember(wire, held, key, Raw(b'"late"'))
    assert {record.key: (record.state, record.response) for record in DedupeRecord.objects.all()} == {
        "none": ("done", "late"), "started": ("done", "late"), "done": ("done", "first"), "closed": ("closed", "late"),
    }  # fmt: skip


def test_a_finished_saga_leaves_no_row(wire: Connection) -> None:
    """The last decision takes its outbox row along, and nothing can act on it again."""
    run = begin(Externals)
    for _ in range(3):
        [held] = take(wire, due(wire), published=False)
        assert record(wire, done(held)) == {held.id}
    assert (Externals.get(key="a").status, outbox(run)) == (Status.COMPLETED, [])
    assert beat(wire, held) == record(wire, done(held)) == set()
