"""The broker hands a message out again: while its step still runs, long after, or to several workers at once."""

from __future__ import annotations

from typing import Any

import pytest

from sagas import Refused, Retry, Saga, external_step
from sagas.states import Status
from sagas_celery.publisher import CeleryPublisher
from sagas_django.models import OutboxRow
from tests.cases.conftest import (
    Gate,
    Letter,
    Mailbox,
    at_gate,
    deliver,
    letter_of,
    memory_broker,
    publish_due,
    received,
    relaying,
    sql,
    until_quiet,
)
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World, world
from tests.support.stories import NO_WAIT, Aside, begin, bring_forward, differences, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")

DAY = 24 * 3600.0


class Patient(Saga[Ordered], name="cases.patient", version=1):
    """Waits a day before it tries again."""

    @external_step(retry=Retry(max_attempts=3, first=2 * DAY, longest=2 * DAY), compensate=None)
    def charge(self) -> str:
        return str(world.act("charge", self))


def charge_letter(mailbox: Mailbox, relay: Any) -> Letter:
    """Run the step before, and return the message about the charge."""
    [first] = publish_due(relay, mailbox)
    assert deliver(first) == 1
    [charge] = publish_due(relay, mailbox)
    return charge


def test_rd01_a_message_handed_out_again_while_its_step_runs(world: World) -> None:
    """The second worker begins nothing: one request, one entry, and nothing that turns the saga back."""
    mailbox, gate = Mailbox(), Gate("charged")
    world.plan("charge", gate)
    run = begin(Trip)
    with relaying(mailbox) as relay:
        letter = charge_letter(mailbox, relay)
        with at_gate(gate, lambda: deliver(letter)):
            assert deliver(letter) == 0
            assert log_of(run) == ["started", "step_done book"]
        published = until_quiet(relay, mailbox)
    assert [len(letter.rows) for letter in published] == [1]  # the last step
    assert log_of(run) == ["started", "step_done book", "step_done charge", "step_done confirm", "completed"]
    assert world.count() == {"book": 1, "charge": 1, "confirm": 1}
    assert [entry.attempt for entry in entries(run)[1:4]] == [1, 1, 1]


def test_rd02_a_long_backoff_is_a_row_and_no_message(world: World) -> None:
    """A wait that outlives any visibility timeout is `due_at` in Postgres: until then the broker holds nothing, and
    what it gets then is to be run at once. Two attempts, two messages."""
    world.plan("charge", ConnectionError("no reply"))
    run = begin(Patient)
    messages = []
    with memory_broker() as (app, queue):
        publisher = CeleryPublisher(app, "default", timeout=5)
        with relaying(publisher) as relay:
            assert relay.run_once() == 1
            messages.append(received(queue))
            assert deliver(letter_of(messages[0])) == 1
            [(waits,)] = sql("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox")
            assert waits == pytest.approx(DAY, rel=0.01)
            assert relay.run_once() == relay.run_once() == 0
            assert bring_forward(skip=NO_WAIT) == 0
            sql("update sagas_outbox set due_at = clock_timestamp()")
            assert relay.run_once() == 1
            messages.append(received(queue))
            assert deliver(letter_of(messages[1])) == 1
        publisher.reset()
    assert [(each.headers["eta"], each.headers["expires"]) for each in messages] == [(None, None)] * 2
    assert (Patient.get(key="a").status, world.count()) == (Status.COMPLETED, {"charge": 2})
    assert len({call.key for call in world.calls}) == 1
    assert log_of(run) == ["started", "step_failed charge", "step_done charge", "completed"]


def test_rd03_five_copies_of_a_message_at_once(world: World) -> None:
    """One of them begins the step; the others come and go without a failure, an attempt or an error."""
    mailbox, gate = Mailbox(), Gate("charged")
    world.plan("charge", gate)
    run = begin(Trip)
    with relaying(mailbox) as relay:
        letter = charge_letter(mailbox, relay)
        with at_gate(gate, lambda: deliver(letter)):
            [held] = outbox(run)
            begun: list[int] = []
            copies = [Aside(lambda: begun.append(deliver(letter))) for _ in range(4)]
            for copy in reversed(copies):
                copy.join()
            assert begun == [0, 0, 0, 0]
            [row] = outbox(run)
            assert (row.holder, row.token, row.deliveries, row.failures) == (held.holder, held.token, 1, 0)
        until_quiet(relay, mailbox)
    assert (Trip.get(key="a").status, Trip.get(key="a").error) == (Status.COMPLETED, "")
    assert world.count()["charge"] == 1
    assert Trip.get(key="a").steps["charge"].do.failures == 0
    assert differences() == []


@pytest.mark.parametrize("undone", [False, True], ids=["completed", "compensated"])
def test_rd04_a_message_restored_after_its_step_was_done(world: World, undone: bool) -> None:
    """To a worker that knows nothing of it, right after the step, after the saga, and after its undo: a message is
    spent once. It moves nothing and adds no row."""
    if undone:
        world.plan("confirm", Refused("sold out"))
    mailbox = Mailbox()
    run = begin(Trip)
    with relaying(mailbox) as relay:
        letter = charge_letter(mailbox, relay)
        assert deliver(letter) == 1
        before = OutboxRow.objects.values().get()
        assert deliver(letter) == 0
        assert OutboxRow.objects.values().get() == before
        [confirm] = publish_due(relay, mailbox)
        assert deliver(letter) == 0  # while the row is published for the next step
        assert deliver(confirm) == 1
        until_quiet(relay, mailbox)
    ended, calls = log_of(run), world.names
    assert Trip.get(key="a").status == (Status.COMPENSATED if undone else Status.COMPLETED)
    assert [deliver(letter), deliver(confirm)] == [0, 0]
    assert (log_of(run), world.names, OutboxRow.objects.count()) == (ended, calls, 0)
    assert world.count()["charge"] == 1
