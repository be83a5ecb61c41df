"""Signals that come before their saga: kept, dropped or refused, as the sender says."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction

from sagas import IGNORE, KEEP, SagaNotFound
from sagas.states import Status
from sagas.testing.moving import Clock
from sagas_django.models import OutboxRow
from tests.shop.sagas import Ordered
from tests.shop.waiting import Patient, Questioned, Review, Reviewed
from tests.shop.world import World
from tests.support.reviews import FINE, send, status
from tests.support.stories import (
    begin,
    bring_forward,
    drain,
    entries,
    second_connection,
)

pytestmark = pytest.mark.usefixtures("shop")
THREE_DAYS = timedelta(days=3)


# --- no saga ---


def test_without_a_saga_the_sender_is_told() -> None:
    """missing=RAISE is the default and says what to do; IGNORE drops it."""
    with pytest.raises(SagaNotFound, match=r"Reviewed\.review\.send\(\).*test\.reviewed.*'a'.*missing=KEEP"):
        send()
    with pytest.raises(SagaNotFound, match="id "), transaction.atomic():
        Reviewed.review.send(FINE, id=uuid.uuid4())
    assert send(missing=IGNORE) is False
    begin(Reviewed)
    drain()
    assert status() == Status.RUNNING
    assert send(missing=IGNORE) is True


def test_a_signal_before_its_saga_is_kept(world: World) -> None:
    """With missing=KEEP it may come first; start() makes it due, and it is applied like any other."""
    assert send(Review(True, "early"), missing=KEEP, dedupe_id="hook-1")
    assert not send(Review(True, "early"), missing=KEEP, dedupe_id="hook-1")
    drain(skip=timedelta(0))
    (kept,) = OutboxRow.objects.all()
    assert (kept.saga_id, kept.holder, kept.deliveries) == (None, None, 0)
    begin(Reviewed)
    drain(skip=timedelta(0))
    assert status() == Status.COMPLETED
    assert [call.argument for call in world.of("ship")] == ["early"]


def test_a_kept_signal_is_looked_at_less_and_less_often() -> None:
    """From a second up to five minutes apart; after thirty days it is given up with an error in the log."""
    send(missing=KEEP)
    drain(skip=timedelta(0))
    assert 0 < _due_in() <= 1.1
    _sent(days=2)
    bring_forward(skip=THREE_DAYS)
    drain(skip=timedelta(0))
    assert 290 < _due_in() <= 300


def test_a_kept_signal_is_given_up_after_a_month(caplog: pytest.LogCaptureFixture) -> None:
    """Not without a word, which says what it was for, and not what it said."""
    send(Review(True, "forgotten"), missing=KEEP)
    _sent(days=31)
    with caplog.at_level(logging.ERROR, "sagas.worker"):
        drain(skip=timedelta(0))
    assert OutboxRow.objects.count() == 0
    assert "no saga came for this signal" in caplog.text and 'step: "review"' in caplog.text
    assert "forgotten" not in caplog.text


def test_a_signal_that_was_given_up_can_be_sent_again() -> None:
    """Nobody has ever taken it, so nothing is kept of it, and the same event a second time is no duplicate."""
    assert send(key="a", dedupe_id="hook-1", missing=KEEP)
    assert send(key="b", dedupe_id="hook-1", missing=KEEP)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set timer_at = timer_at - interval '31 days' where payload->>'key' = 'a'")
    drain(skip=timedelta(0))
    with connection.cursor() as cursor:
        cursor.execute("select key from sagas_signal")
        assert cursor.fetchall() == [("b",)]
    assert send(key="a", dedupe_id="hook-1", missing=KEEP)
    assert not send(key="b", dedupe_id="hook-1", missing=KEEP)


def _due_in() -> float:
    with connection.cursor() as cursor:
        cursor.execute("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox")
        return float(cursor.fetchone()[0])


def _sent(days: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set timer_at = timer_at - make_interval(days => %s)", [days])


@pytest.mark.parametrize("first", ["send", "start"])
def test_send_and_start_that_do_not_see_each_other(first: str, world: World) -> None:
    """Both in open transactions, committed in either order: neither waits for the other, the signal arrives."""
    with second_connection(autocommit=False) as sender, second_connection(autocommit=False) as starter:
        Reviewed.review.send(Review(True, "crossed"), key="a", missing=KEEP, using=sender)
        Reviewed.start(Ordered(), key="a", using=starter)
        drain(check=False)
        order = (sender, starter) if first == "send" else (starter, sender)
        order[0].commit()
        drain(skip=timedelta(0), check=False)
        order[1].commit()
    drain(skip=timedelta(seconds=2))
    assert status() == Status.COMPLETED
    assert [call.argument for call in world.of("ship")] == ["crossed"]
    assert OutboxRow.objects.count() == 0


def test_a_kept_signal_that_start_did_not_see_wins_over_the_timeout(time_machine: Clock) -> None:
    """It was committed before the saga was, so it is there before any timeout, however seldom it is looked at."""
    with second_connection(autocommit=False) as starter:
        Questioned.start(Ordered(), key="a", using=starter)
        with transaction.atomic():
            Questioned.answer.send(FINE, key="a", missing=KEEP)
        _sent(days=1)
        drain(skip=timedelta(0), check=False)  # nobody there: looked at again in five minutes
        starter.commit()
    drain(skip=timedelta(0))
    assert Questioned.get(key="a").status == Status.RUNNING
    time_machine.advance(timedelta(minutes=2))  # the wait is over
    drain(skip=timedelta(0))
    assert status(saga=Questioned) == Status.RUNNING
    time_machine.advance(timedelta(minutes=5))
    drain()
    assert status(saga=Questioned) == Status.COMPLETED


def test_start_or_send_starts_once() -> None:
    """The first call starts the saga and signals it, later ones only signal; one transaction for both."""
    with transaction.atomic():
        assert Patient.first.start_or_send(Ordered(3), Review(True, "one"), key="a", dedupe_id="1")
    with transaction.atomic():
        assert Patient.second.start_or_send(Ordered(3), Review(True, "two"), key="a", dedupe_id="2")
        assert not Patient.second.start_or_send(Ordered(3), Review(True, "two"), key="a", dedupe_id="2")
    drain()
    run = Patient.get(key="a")
    assert (run.status, run.run) == (Status.COMPLETED, 1)
    assert entries(run.id)[-2].data["result"] == ["one", "two"]


def test_start_or_send_rolls_back_both() -> None:
    """Neither the saga nor the signal exists when the caller's transaction does not commit."""
    with transaction.atomic():
        Patient.first.start_or_send(Ordered(), FINE, key="a")
        transaction.set_rollback(True)
    with pytest.raises(SagaNotFound):
        Patient.get(key="a")
    assert OutboxRow.objects.count() == 0
