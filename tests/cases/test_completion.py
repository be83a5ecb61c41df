"""Messages and requests that are faster than the transaction they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from sagas import Missing, SagaNotFound
from sagas.states import Status
from sagas_django.models import OutboxRow
from sagas_django.store import DjangoStore
from tests.cases.conftest import Gate, Letter, Mailbox, at_gate, deliver, publish_due, relaying, sql, until_quiet
from tests.integration.conftest import database_alias
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Questioned, Review
from tests.shop.world import World
from tests.support.stories import Aside, begin, differences, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


@contextmanager
def uncommitted() -> Iterator[str]:
    """The alias of a second connection with an open transaction, which commits at the end."""
    with database_alias("elsewhere", dict(connections.databases["default"])) as alias, transaction.atomic(using=alias):
        yield alias


def test_fn02_a_message_before_the_commit_of_start(world: World) -> None:
    """It begins nothing, and nothing is lost with it: the row is published once it is there."""
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        with uncommitted() as alias:
            Trip.start(Ordered(), key="a", using=alias)
            [row] = OutboxRow.objects.using(alias).all()
            early = Letter("default", ((row.id, row.token),))
            with relaying(Mailbox()) as other:
                assert other.run_once() == 0
            assert early_begins(early) == 0
        assert log_of(Trip.get(key="a").id) == ["started"]
        until_quiet(relay, mailbox)
    assert (Trip.get(key="a").status, world.count()) == (Status.COMPLETED, {"book": 1, "charge": 1, "confirm": 1})


def early_begins(letter: Letter) -> int:
    """What a message begins, in a thread of its own: a worker closes the connections it finds open."""
    begun: list[int] = []
    Aside(lambda: begun.append(deliver(letter))).join()
    return begun[0]


def test_fn02_a_message_about_the_next_step_before_the_commit_of_this_one(world: World) -> None:
    """While a local step's transaction is open its row is locked: a message with whatever token begins nothing and
    waits for nobody. The step's commit makes the row due for the next one."""
    mailbox, gate = Mailbox(), Gate()
    world.plan("book", gate)
    saga = begin(Trip)
    with relaying(mailbox) as relay:
        [letter] = publish_due(relay, mailbox)
        [(id, token)] = letter.rows
        with at_gate(gate, lambda: deliver(letter)):
            for guess in range(token, token + 4):
                assert deliver(Letter("default", ((id, guess),))) == 0
            expire_leases_of_free_rows()
            assert relay.run_once() == 0  # locked: nobody takes it over meanwhile
        assert log_of(saga) == ["started", "step_done book"]
        until_quiet(relay, mailbox)
    assert (log_of(saga)[-1], world.count()) == ("completed", {"book": 1, "charge": 1, "confirm": 1})


def expire_leases_of_free_rows() -> None:
    """Leases end, but for those of rows that somebody has locked."""
    sql(
        "update sagas_outbox set due_at = clock_timestamp() where id in"
        " (select id from sagas_outbox where holder is not null for update skip locked)"
    )


def test_fn02_a_cancel_in_the_transaction_of_start(world: World) -> None:
    """It knows the saga before anybody else does, and is applied before its first step."""
    with transaction.atomic():
        Trip.start(Ordered(), key="a")
        Trip.cancel(key="a", reason="thought better of it")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        until_quiet(relay, mailbox)
    assert (Trip.get(key="a").status, world.names) == (Status.CANCELLED, [])


def test_fn02_a_cancel_before_the_commit_of_start(world: World) -> None:
    """From elsewhere the saga is not there yet. A cancel only inserts a row and needs the saga for it, so the caller is
    told at once, and keeps a usable transaction to try again in; nothing is dropped in silence."""
    with uncommitted() as alias:
        Trip.start(Ordered(), key="a", using=alias)
        with transaction.atomic():
            with pytest.raises(SagaNotFound):
                Trip.cancel(key="a", reason="too early")
            assert OutboxRow.objects.count() == 0
    Trip.cancel(key="a", reason="now")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        until_quiet(relay, mailbox)
    assert Trip.get(key="a").status == Status.CANCELLED


def test_fn02_a_cancel_that_commits_while_a_step_is_recorded(world: World) -> None:
    """It is a row of its own: whichever of the two commits first, the cancel is there afterwards and is applied."""
    mailbox, gate = Mailbox(), Gate("charged")
    world.plan("charge", gate)
    saga = begin(Trip)
    with relaying(mailbox) as relay:
        deliver(*publish_due(relay, mailbox))
        letters = publish_due(relay, mailbox)
        with uncommitted() as alias:
            Trip.cancel(key="a", reason="enough", using=alias)
            with at_gate(gate, lambda: deliver(*letters)):
                pass
            assert log_of(saga)[-1] == "step_done charge"
        assert {row.kind for row in outbox(saga)} == {"step", "cancel"}
        until_quiet(relay, mailbox)
    assert (Trip.get(key="a").status, differences()) == (Status.CANCELLED, [])
    assert world.names == ["book", "charge", "refund", "unbook"]


@pytest.mark.parametrize("missing", [Missing.KEEP, Missing.RAISE])
def test_fn02_a_signal_before_the_commit_of_start(missing: Missing, world: World) -> None:
    """The sender cannot see the saga yet. It is told so, unless it wants the signal to be kept: then workers look for
    the saga again and again while there is none, and the saga takes the signal once it waits for it."""
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        with uncommitted() as alias:
            Questioned.start(Ordered(), key="a", using=alias)
            Aside(lambda: send_early(missing)).join()
            [*early] = publish_due(relay, mailbox)
            assert sum(early_begins(each) for each in early) == 0  # begun, and given back
        kept = OutboxRow.objects.filter(kind="signal").count()
        assert kept == (missing is Missing.KEEP)
        sql("update sagas_outbox set due_at = clock_timestamp() where kind = 'signal'")
    with relaying(mailbox) as relay:  # which knows of every queue there is by now
        until_quiet(relay, mailbox)
    taken = "step_done answer" in log_of(Questioned.get(key="a").id)
    assert taken == (missing is Missing.KEEP)
    assert differences() == []


def send_early(missing: Missing) -> None:
    """Send a signal from a connection of its own."""
    with transaction.atomic():
        if missing is Missing.KEEP:
            assert Questioned.answer.send(Review(True, "early"), key="a", missing=missing)
        else:
            with pytest.raises(SagaNotFound, match="missing=KEEP"):
                Questioned.answer.send(Review(True, "early"), key="a", missing=missing)


@pytest.mark.parametrize("waits", [False, True], ids=["before the wait", "in the wait"])
def test_fn02_a_signal_while_the_saga_is_locked(waits: bool, world: World) -> None:
    """Whoever records has the saga's row locked. A sender waits for nobody, before the wait and in it, and what it sent
    is taken once."""
    mailbox = Mailbox()
    begin(Questioned)
    with relaying(mailbox) as relay:
        if waits:
            until_quiet(relay, mailbox)
        with DjangoStore("default").connect() as wire:
            wire.execute("begin")
            wire.execute("select 1 from sagas_saga for update")
            Aside(lambda: send_now("in time")).join()
            wire.execute("rollback")
        until_quiet(relay, mailbox)
    assert log_of(Questioned.get(key="a").id).count("step_done answer") == 1


def send_now(note: str) -> None:
    """Send a signal from a connection of its own; it waits for nobody, whoever holds the saga."""
    with transaction.atomic():
        assert Questioned.answer.send(Review(True, note), key="a")
