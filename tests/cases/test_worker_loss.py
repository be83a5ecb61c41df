"""Workers that die or are stopped at the worst moment, while the broker believes that their messages are done.

`Dead` stands for the end of the process: nothing in the engine catches it, and the message is never seen again. Real
processes are killed by SIGKILL at the same points in `tests/faults`.
"""

from __future__ import annotations

import io
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.core.management import call_command
from django.db import transaction

from sagas import Refused, Retry, Saga, engine, external_step, machine
from sagas.points import Point
from sagas.states import Status
from sagas_celery.publisher import CeleryPublisher
from sagas_celery.tasks import FOREVER, run
from sagas_django.models import OutboxRow
from tests.cases.conftest import (
    Dead,
    Letter,
    Mailbox,
    deliver,
    dying_at,
    letter_of,
    memory_broker,
    publish_due,
    received,
    recover,
    relaying,
    sql,
)
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, children, wait_until
from tests.relay.sagas import Single
from tests.shop.models import Booking
from tests.shop.sagas import Asked, Blind, Charge, Externals, Local, Ordered, Trip
from tests.shop.waiting import Questioned, Review
from tests.shop.world import World, world
from tests.support.stories import (
    NO_WAIT,
    begin,
    bring_forward,
    differences,
    drain,
    entries,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)

pytestmark = pytest.mark.usefixtures("shop")

SETTLED = timedelta(seconds=61)


class Deadly(Saga[Ordered], name="cases.deadly", version=1):
    """May be tried very often, and may take few workers with it."""

    @external_step(retry=Retry(max_attempts=1000), max_deliveries=3, compensate=None)
    def blow(self) -> str:
        return str(world.act("blow", self))


def up_to_charge(mailbox: Mailbox, relay: Any) -> Letter:
    """Run the step before the charge; returns the message about it."""
    [letter] = publish_due(relay, mailbox)
    deliver(letter)
    [charge] = publish_due(relay, mailbox)
    return charge


@pytest.mark.parametrize(
    ("point", "sent", "again"),
    [(Point.BEFORE_BODY, 0, True), (Point.AFTER_BODY, 1, True), (Point.AFTER_RECORD, 1, False)],
    ids=str,
)
def test_wl01_a_killed_child_whose_message_was_acknowledged(world: World, point: Point, sent: int, again: bool) -> None:
    """Before the request, after it, and after its record: nothing is lost with the message. What was not recorded is
    asked for again under the same key, what was is left alone."""
    mailbox = Mailbox()
    saga = begin(Trip)
    with relaying(mailbox) as relay:
        letter = up_to_charge(mailbox, relay)
        with dying_at(point, "charge:do") as death, pytest.raises(Dead):
            deliver(letter)
        assert death.hit and world.count()["charge"] == sent
    recover()
    assert (Trip.get(key="a").status, differences()) == (Status.COMPLETED, [])
    assert world.count()["charge"] == sent + again
    assert {call.key for call in world.of("charge")} == {f"{saga.id}:charge:do:0"}
    assert log_of(saga).count("step_done charge") == 1


def test_wl02_a_step_that_takes_its_worker_with_it(world: World) -> None:
    """Each begin is counted in Postgres before the body runs, so that death counts too: after `max_deliveries` the
    step is parked, however many attempts it may have. Other sagas move on meanwhile."""

    def blow(run: Any) -> None:
        with second_connection() as other:
            counted.append(other.execute("select deliveries from sagas_outbox").fetchone())

    counted: list[Any] = []
    world.always("blow", blow)
    saga = begin(Deadly)
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        for _ in range(3):
            [letter] = publish_due(relay, mailbox)
            with dying_at(Point.AFTER_BODY), pytest.raises(Dead):
                deliver(letter)
            expire_leases()
        assert counted == [(1,), (2,), (3,)]
        begin(Externals, "other")
        for letter in publish_due(relay, mailbox):
            deliver(letter, goes_on=True)
    assert Externals.get(key="other").status == Status.COMPLETED
    assert (Deadly.get(key="a").status, outbox(saga)) == (Status.PARKED, [])
    assert "3 workers died" in Deadly.get(key="a").error
    assert len(world.calls) == 3


def test_rc07_a_last_attempt_that_dies_frees_its_ordering_key(world: World) -> None:
    """The first saga of a key loses its last worker and parks: it leaves the line, and the second one runs."""
    with transaction.atomic():
        Deadly.start(Ordered(), key="a", ordering_key="customer-7")
        Externals.start(Ordered(), key="b", ordering_key="customer-7")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        for _ in range(3):
            [letter] = publish_due(relay, mailbox)
            with dying_at(Point.AFTER_BODY), pytest.raises(Dead):
                deliver(letter)
            expire_leases()
            assert Externals.get(key="b").steps == {}
    recover()
    assert Deadly.get(key="a").status == Status.PARKED
    assert Externals.get(key="b").status == Status.COMPLETED
    assert world.count()["blow"] == 3


def test_wl02_a_local_step_that_takes_its_worker_with_it(world: World) -> None:
    """A local step is counted as well, although nothing of it happened; and its death is nobody else's attempt."""
    begin(Local)
    begin(Charge, "other")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        for _ in range(8):
            for letter in publish_due(relay, mailbox):
                with dying_at(Point.AFTER_BODY, "body:do") as death:
                    try:
                        deliver(letter)
                    except Dead:
                        assert death.hit and len(letter.rows) == 1
            expire_leases()
    assert Local.get(key="a").status == Status.PARKED
    assert (world.count()["body"], Booking.objects.count()) == (5, 0)
    assert Charge.get(key="other").status == Status.COMPLETED
    assert Charge.get(key="other").steps["charge"].do.attempts == 1


def test_wl03_what_celery_thinks_of_a_task_is_no_outcome(world: World) -> None:
    """The process ends in the middle of a request, Celery acknowledges the message and notes FAILURE: for the saga the
    outcome is unknown. It is asked about; nothing is undone."""
    saga = begin(Asked)
    with memory_broker() as (app, queue):
        publisher = CeleryPublisher(app, "default", timeout=5)
        with relaying(publisher) as relay:
            assert relay.run_once() == 1
        message = received(queue)
        with dying_at(Point.AFTER_BODY), pytest.raises(Dead):
            deliver(letter_of(message))
        app.backend.mark_as_failure(message.headers["id"], RuntimeError("worker lost"))
        assert app.AsyncResult(message.headers["id"]).state == "FAILURE"
        publisher.reset()
    recover()
    assert log_of(saga) == ["started", "step_done charge", "completed"]
    assert world.names == ["charge", "find"]
    assert {call.key for call in world.calls} == {f"{saga.id}:charge:do:0"}


MANY = 80


def test_wl04_messages_in_the_socket_buffer_of_a_worker_that_is_told_to_end(new_plant: PlantMaker) -> None:
    """Workers are stopped at any moment, one in good order and one with all its children by SIGKILL: whatever they
    had taken from Redis and not begun is published again. Every saga ends, each body ran once or was counted, nobody
    has to help."""
    moments = random.Random(4)
    keys = [f"saga-{number}" for number in range(MANY)]
    with new_plant({**SHORT, "PUBLISH_WINDOW": 1.0}) as plant:
        plant.relay()
        plant.measured(Single, "act", 0.02)  # two or three rows a message: many messages
        told, killed = (plant.worker("quick", "--prefetch-multiplier=20") for _ in range(2))
        plant.start(*keys)
        enough = moments.randrange(1, MANY // 4)
        wait_until(lambda: plant.value("select count(*) from relay_note") >= enough, "some bodies")
        told.terminate()
        enough += moments.randrange(1, MANY // 4)
        wait_until(lambda: plant.value("select count(*) from relay_note") >= enough, "more bodies")
        for pid in [killed.pid, *children(killed.pid)]:
            os.kill(pid, signal.SIGKILL)
        killed.wait(10)
        assert told.wait(60) == 0, told.output()  # a child may give its parent half a minute to read its last words
        plant.worker("quick")
        plant.wait_until_completed(*keys)
        assert plant.value("select count(*) from sagas_outbox") == 0
        bodies = dict(plant.fetch("select key, count(*) from relay_note group by key"))
        attempts = dict(
            plant.fetch(
                "select s.key, sum(l.attempt) from sagas_saga s join sagas_log l on l.saga_id = s.id"
                " where l.kind = 'step_done' group by s.key"
            )
        )
        assert bodies.keys() == set(keys)
        assert all(bodies[key] <= attempts[key] for key in keys)
        assert (
            plant.value("select count(*) from sagas_log where kind not in ('started', 'step_done', 'completed')") == 0
        )


def swallow(action: Callable[[], object]) -> str:
    """What careless code does."""
    with suppress(Exception):
        action()
    return "returned"


def limit() -> None:
    raise SoftTimeLimitExceeded


@pytest.mark.parametrize("swallows", [True, False])
def test_wl06_a_soft_time_limit_swallowed_by_the_body(swallows: bool, world: World) -> None:
    """The task asks Celery for no limit that strikes (`timeout` is ours). Where one strikes all the same and the body
    goes on, the step is done because the body returned and the row is still the worker's. A body that the limit ends
    is not done: its outcome is in doubt, and it is tried again under its key."""
    assert (run.soft_time_limit, run.time_limit) == (FOREVER, FOREVER)
    world.plan("charge", lambda run: swallow(limit) if swallows else limit())
    saga = begin(Charge)
    drain()
    assert Charge.get(key="a").status == Status.COMPLETED
    [result] = [entry.data["result"] for entry in entries(saga) if entry.kind == "step_done" and entry.step == "charge"]
    if swallows:
        assert (log_of(saga)[2], result) == ("step_done charge", "returned")
        assert Charge.get(key="a").steps["charge"].do.attempts == 1
    else:
        assert log_of(saga)[2:4] == ["step_failed charge", "step_done charge"]
        assert Charge.get(key="a").steps["charge"].do.attempts == 2
        assert len({call.key for call in world.of("charge")}) == 1


def test_wl06_a_soft_time_limit_swallowed_after_the_lease_was_lost(world: World) -> None:
    """The same, but another worker has taken over meanwhile: what the body returned is kept for it and not recorded."""

    def overtaken(run: Any) -> str:
        expire_leases()
        with relaying(mailbox) as relay:
            publish_due(relay, mailbox)
        return swallow(limit)

    mailbox = Mailbox()
    world.plan("charge", overtaken)
    saga = begin(Asked)
    drain(check=False)
    assert log_of(saga) == ["started"]
    recover()
    assert (Asked.get(key="a").status, world.names) == (Status.COMPLETED, ["charge"])
    assert Asked.get(key="a").steps["charge"].do.attempts == 1


@pytest.mark.parametrize("point", [Point.AFTER_BODY, Point.BEFORE_RECORD], ids=str)
@pytest.mark.parametrize("work", ["charge:do", "confirm:do"], ids=["external", "local"])
def test_wl06_a_soft_time_limit_in_the_engine(world: World, point: Point, work: str) -> None:
    """Between the effect and its record, and inside the record: no half of a transition is written, the connection is
    fit for the next saga, and the step is tried again under the same key."""
    saga, step = begin(Trip), work.partition(":")[0]
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        with dying_at(point, work, of=SoftTimeLimitExceeded()) as death:
            while not death.hit:
                for letter in publish_due(relay, mailbox):
                    swallow(lambda letter=letter: deliver(letter))  # type: ignore[misc]
        assert f"step_done {step}" not in log_of(saga) and differences() == []
        assert sql("select count(*) from pg_stat_activity where state like 'idle in transaction%%'") == [(0,)]
    assert Booking.objects.filter(step="confirm").count() == 0
    recover()
    assert (Trip.get(key="a").status, differences()) == (Status.COMPLETED, [])
    assert len({call.key for call in world.of(step)}) == 1 and world.count()[step] == 2
    assert Booking.objects.count() == 2


# --- every state has a way out -----------------------------------------------------------------------------------


def running(world: World) -> None:
    begin(Charge, "x")


def compensating(world: World) -> None:
    world.plan("charge", Refused("no"))
    world.plan("unbook", ConnectionError("later"))
    begin(Charge, "x")
    drain(skip=NO_WAIT)
    bring_forward()


def settling(world: World) -> None:
    world.plan("charge", ConnectionError("lost"))
    begin(Blind, "x")
    drain()
    bring_forward(skip=SETTLED)


def cancelled(world: World) -> None:
    begin(Charge, "x")
    Charge.cancel(key="x", reason="changed my mind")


def parked(world: World) -> None:
    world.plan("charge", *[ConnectionError("lost")] * 3)
    begin(Charge, "x")
    drain()


def retried(world: World) -> None:
    parked(world)
    call_command("sagas", "retry", "test.charge:x", reason="it works again", stdout=io.StringIO())


def aborted(world: World) -> None:
    parked(world)
    call_command("sagas", "abort", "test.charge:x", reason="done by hand", stdout=io.StringIO())


def answered_late(world: World) -> None:
    settling(world)
    drain()
    sql(
        "insert into sagas_outbox (saga_id, kind, queue, payload)"
        """ select id, 'late_answer', 'default', '{"step": "charge"}' from sagas_saga where status = 'compensated'"""
    )


def redone(world: World) -> None:
    parked(world)
    with transaction.atomic():
        engine.request("test.charge", "redo", key="x", step="charge", reason="they have no trace of it")


def paused_and_resumed(world: World) -> None:
    begin(Charge, "x")
    with transaction.atomic():
        for kind in ("pause", "resume"):
            engine.request("test.charge", kind, key="x", reason="for a moment")


def signalled(world: World) -> None:
    begin(Questioned, "x")
    with transaction.atomic():
        Questioned.answer.send(Review(True, "yes"), key="x")


Frozen = tuple[Callable[[World], None], Status, str]  # how to get there, how it ends, an entry of its log
STATES: dict[Status, Frozen] = {
    Status.RUNNING: (running, Status.COMPLETED, "step_done charge"),
    Status.COMPENSATING: (compensating, Status.COMPENSATED, "undo_done book"),
    Status.SETTLING: (settling, Status.COMPENSATED, "settle_done charge"),
}
KINDS: dict[str, Frozen] = {
    "step": STATES[Status.RUNNING],
    "cancel": (cancelled, Status.CANCELLED, "cancel_requested"),
    "retry": (retried, Status.COMPLETED, "retried charge"),
    "abort": (aborted, Status.ABORTED, "aborted"),
    "redo": (redone, Status.COMPLETED, "redone charge"),
    "pause": (paused_and_resumed, Status.COMPLETED, "paused"),
    "resume": (paused_and_resumed, Status.COMPLETED, "resumed"),
    "signal": (signalled, Status.COMPLETED, "signalled answer"),
    "late_answer": (answered_late, Status.COMPENSATED, "late_answer charge"),
}
LONGEST_WAY = 600.0  # seconds: a publish window, a lease, `settle_after`, a backoff; never "some day"


# Rows of parents and children: tests/faults/test_family_points.py kills at each of their places. What operators say of
# a parked step is applied like a redo: tests/integration/test_resolved.py.
ELSEWHERE = {"children", "undo_completed", "mark_done", "mark_not_done", "mark_undone", "skip"}


def test_wl09_every_state_is_in_the_table() -> None:
    """A new state of a saga, or a new kind of outbox row, does not go without the tests below."""
    assert set(STATES) == set(Status) - machine.TERMINAL - {Status.PARKED}
    [(kinds,)] = sql("select pg_get_constraintdef(oid) from pg_constraint where conname = 'sagas_outbox_kind'")
    assert set(kinds.partition("{")[2].partition("}")[0].split(",")) == set(KINDS) | ELSEWHERE


@pytest.mark.parametrize("holder", ["nobody", "relay", "worker"])
@pytest.mark.parametrize("name", [*STATES, *list(KINDS)[1:]])
def test_wl09_everything_stops_and_the_broker_is_wiped(world: World, name: Any, holder: str) -> None:
    """Whatever a saga was at and whoever held its row: the row has a time at which it is looked at again, and a relay
    and a worker that know of nothing bring the saga to its end."""
    freeze, ends, entry = ({**STATES, **KINDS})[name]
    freeze(world)
    mailbox = Mailbox()
    if holder != "nobody":
        with relaying(mailbox) as relay:
            letters = publish_due(relay, mailbox)
    if holder == "worker":
        with dying_at(Point.AFTER_BEGIN) as death, pytest.raises(Dead):
            deliver(letters[0])
        assert death.hit
    held = sql("select coalesce(split_part(holder, ':', 1), 'nobody') from sagas_outbox")
    assert (holder,) in held
    [(way,)] = sql("select max(extract(epoch from due_at - clock_timestamp()))::float8 from sagas_outbox")
    assert way < LONGEST_WAY
    for _ in range(3):
        recover()
        bring_forward(skip=SETTLED)
    [(saga, status)] = sql("select id, status from sagas_saga")
    assert (status, OutboxRow.objects.count(), differences()) == (ends, 0, [])
    assert entry in log_of(saga)
