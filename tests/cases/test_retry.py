"""Trying again: what is counted, what a failure leaves behind, and who need not be up for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery.app.trace import build_tracer
from celery.backends.base import Backend
from django.db import DatabaseError

from sagas import Retry, Saga, Undecided, external_step, machine
from sagas.events import Attempt, Direction, ErrorText, Failed, Start, Succeeded
from sagas.events import Undecided as UndecidedEvent
from sagas.states import State, Status
from sagas_celery import process
from sagas_celery.tasks import run
from sagas_django.models import DedupeRecord
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from tests.cases.conftest import Mailbox, deliver, publish_due, recover, relaying, sql, until_quiet
from tests.shop.models import Booking, Seat
from tests.shop.sagas import Effects, Externals, Local, Ordered, Picky, Trip
from tests.shop.world import World, world
from tests.support.stories import NO_WAIT, begin, bring_forward, dedupe, differences, drain, entries, log_of, outbox
from tests.support.workers import begin_due, one_worker

pytestmark = pytest.mark.usefixtures("shop")

FAR = 40_000  # past a smallint


class Broken(Backend):
    """A result backend that is down."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[str] = []

    def _down(self, *arguments: Any, **options: Any) -> Any:
        self.asked.append("called")
        raise ConnectionError("the result backend is down")

    store_result = get_result = get_task_meta = forget = _down


@pytest.fixture
def no_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    """The one task has a broken result backend, and the process ends its saga worker with the test."""
    broken = Broken(app=run.app)
    monkeypatch.setattr(type(run._get_current_object()), "backend", broken)
    yield broken
    process._end()


def test_rt01_the_result_backend_is_down(world: World, no_backend: Broken) -> None:
    """The task stores nothing there, whether it succeeds, fails or tries again: what became of a step is in Postgres.
    The message is traced as a Celery worker traces it."""
    world.plan("charge", ConnectionError("no reply"))
    trace = build_tracer(run.name, run._get_current_object(), app=run.app)
    saga = begin(Trip)
    mailbox, number = Mailbox(), 0
    with relaying(mailbox) as relay:
        for _ in range(4):
            for letter in publish_due(relay, mailbox):
                number += 1
                body = {"v": 1, "store": "default", "rows": [list(row) for row in letter.rows]}
                request = {"id": str(number), "delivery_info": {}, "ignore_result": True, "is_eager": False}
                assert trace(str(number), (), body, request).info is None
            bring_forward()
    assert (Trip.get(key="a").status, no_backend.asked) == (Status.COMPLETED, [])
    assert log_of(saga).count("step_failed charge") == 1
    assert run.ignore_result and not run.store_errors_even_if_ignored and not run.track_started


class Waiting(Saga[Ordered], name="cases.waiting", version=1):
    """May be asked about very often."""

    @external_step(retry=Retry(max_attempts=10**6, first=0.001, factor=10, longest=60), compensate=None)
    def charge(self) -> str:
        return str(world.act("charge", self))

    @charge.resolve
    def find(self) -> str:
        return str(world.act("find", self))


WHY = ErrorText("Undecided", "not yet")


def test_rt02_waiting_forty_thousand_times_is_not_failing() -> None:
    """Answers "not yet" have a counter of their own; they raise neither the attempts nor the failures, the backoff
    stays what `Retry` caps it at, and the step can fail and succeed after that as if nothing had been."""
    plan = Waiting.plan
    state: State = machine.decide(plan, None, Start(machine_input())).state
    attempt = Attempt(step="charge", direction=Direction.DO)
    state = machine.decide(plan, state, Failed(attempt, WHY)).state
    for _ in range(FAR):
        decision = machine.decide(plan, state, UndecidedEvent(attempt, WHY))
        state = decision.state
    track = state.steps["charge"].do
    assert (track.asked, track.attempts, track.failures) == (FAR, 1, 1)
    assert decision.rows[0].delay == 60
    state = machine.decide(plan, state, Failed(attempt, WHY)).state
    assert (state.steps["charge"].do.attempts, state.steps["charge"].do.failures) == (2, 2)
    state = machine.decide(plan, state, Succeeded(attempt, machine_input())).state
    assert (state.status, state.steps["charge"].do.attempts) == (Status.COMPLETED, 3)


def machine_input() -> Any:
    from msgspec import Raw

    return Raw(b"null")


def test_rt02_both_numbers_are_seen(world: World) -> None:
    """How often a step was tried and how often it was asked about are told apart, in the row and in the log; and
    Postgres has room for many more."""
    seen: list[tuple[int, int, int]] = []

    def at_last(run: Any) -> str:
        track = Waiting.get(key="a").steps["charge"].do
        seen.append((track.asked, track.attempts, track.failures))
        return "charge-1"

    world.plan("charge", ConnectionError("no reply"))
    world.plan("find", *[Undecided("not yet")] * 5, at_last)
    saga = begin(Waiting)
    drain()
    assert seen == [(5, 1, 1)]
    assert Waiting.get(key="a").status == Status.COMPLETED
    assert (Waiting.get(key="a").steps["charge"].do.attempts, world.count()) == (1, {"charge": 1, "find": 6})
    assert log_of(saga).count("step_undecided charge") == 5
    assert {entry.attempt for entry in entries(saga)[1:-1]} == {1}
    small = "select attrelid::regclass::text, attname from pg_attribute join pg_class on pg_class.oid = attrelid"
    found = sql(f"{small} where relname like 'sagas_%' and relkind = 'r' and atttypid = 'smallint'::regtype order by 1")
    assert found == [("sagas_outbox", "priority"), ("sagas_saga", "priority")]


def test_rt02_waiting_is_not_counted_as_a_delivery(world: World) -> None:
    """A row that is put off again and again before its body (here: its saga is of a release that is not there yet)
    keeps its counters. Its idempotency key is as fresh as ever: `key_ttl` counts from the first body. And the time
    until a lost message is sent again does not grow."""
    begin(Externals)
    sql("update sagas_saga set version = 2")
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        for _ in range(12):
            deliver(*publish_due(relay, mailbox))
            sql("update sagas_outbox set due_at = clock_timestamp()")
        [letter] = publish_due(relay, mailbox)
        [(window,)] = sql("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox")
    [row] = outbox(Externals.get(key="a"))
    assert (row.deliveries, row.failures, row.first_begun_at is None) == (0, 0, True)
    assert window <= relay.settings.publish_window
    sql("update sagas_saga set version = 1")
    assert deliver(letter, goes_on=True) == 1
    assert Externals.get(key="a").status == Status.COMPLETED


@pytest.mark.parametrize("factor", [2, 2.0, 1e3, 1e5, 1e300, float("inf")])
def test_rt02_a_backoff_never_overflows(factor: float) -> None:
    """However many failures and whatever the factor: at most `longest`, and no error in the middle of a record."""
    retry = Retry(max_attempts=10**6, first=0.5, factor=factor, longest=300)
    delays = [retry.delay(failures, 1.0) for failures in (1, 2, 60, 64, 65, 100, FAR, 2**40)]
    assert delays[0] == 0.5 and delays[-1] == 300
    assert delays == sorted(delays)


def test_rt05_two_identical_messages_and_one_that_fails(world: World) -> None:
    """The second of two is dropped. A local step that raises after its writes leaves none of them, and no mark that it
    was here: it is run again and then happens once."""
    world.plan("body", DatabaseError("disk full"))
    saga = begin(Local)
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        [letter] = publish_due(relay, mailbox)
        assert [deliver(letter), deliver(letter)] == [1, 0]
        assert (Booking.objects.count(), DedupeRecord.objects.count()) == (0, 0)
        assert log_of(saga) == ["started", "step_failed body"]
        until_quiet(relay, mailbox)
    assert (Booking.objects.count(), world.count()) == (1, {"body": 2})
    assert Local.get(key="a").status == Status.COMPLETED


def test_rt05_writes_of_a_neighbour_in_the_same_transaction(world: World) -> None:
    """One of three local steps in one transaction breaks a constraint after it has written: it alone is undone."""
    Seat.objects.create(number=1)
    for key in ("a", "b", "c"):
        begin(Local, key)
    world.plan("body", lambda run: Seat.objects.create(number=1), saga="b")
    drain(skip=NO_WAIT)
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "c"]
    assert Local.get(key="b").steps["body"].do.failures == 1
    recover()
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "b", "c"]


def test_rt05_an_effect_whose_body_fails_is_a_doubt_and_no_answer(world: World) -> None:
    """The mark of an effect that was tried outlives the failure, for it may have happened; it does not stop the next
    attempt, which asks under the same key."""
    world.plan("credit", ConnectionError("no reply"))
    saga = begin(Effects)
    drain(skip=NO_WAIT)
    assert dedupe(saga)["pay/debit:do:0"] == "done" and dedupe(saga)["pay/credit:do:0"] == "started"
    recover()
    assert Effects.get(key="a").status == Status.COMPLETED
    assert (world.count(), len({call.key for call in world.of("credit")})) == (
        {"pay": 2, "debit": 1, "credit": 2},
        1,
    )
    assert differences() == []


def test_rt02_a_hand_back_between_two_attempts_keeps_the_age_of_the_key(world: World) -> None:
    """The counterpart: where a body has run, its key ages from then on, however often the row was put off since."""
    world.plan("there", KeyError("no reply"))
    saga = begin(Picky)
    drain(skip=NO_WAIT)
    [(first,)] = sql("select first_begun_at from sagas_outbox")
    with one_worker() as worker:
        bring_forward()
        begun = begin_due(worker)
        with DjangoStore("default").connect() as wire:
            assert claims.hand_back(wire, [each.held for each in begun], now=None)
        [again] = begin_due(worker)
    assert again.attempt is not None and again.attempt.first_begun_at == pytest.approx(first.timestamp(), abs=1e-3)
    assert log_of(saga)[-1] == "step_failed there"
