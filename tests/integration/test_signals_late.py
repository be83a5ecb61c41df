"""Signals to sagas that have parked, turned back, ended, or begun anew."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from sagas import OnExisting, Refused
from sagas.states import Status
from sagas.testing.moving import Clock
from sagas_django.models import OutboxRow
from tests.shop.sagas import Ordered
from tests.shop.waiting import Questioned, Review, Reviewed, ReviewedBefore
from tests.shop.world import World
from tests.support.reviews import FINE, send, status, waiting
from tests.support.stories import (
    begin,
    drain,
    entries,
    log_of,
    outbox,
    second_connection,
)

pytestmark = pytest.mark.usefixtures("shop")
THREE_DAYS = timedelta(days=3)


# --- parked, finished, run again ---


def test_a_signal_to_a_saga_that_parked_over_its_wait_resumes_it(time_machine: Clock) -> None:
    """Nobody answered in time and a person was called; the answer that comes after all is as good."""
    saga = begin(Questioned)
    drain()
    time_machine.advance(THREE_DAYS)
    drain()
    assert status(saga=Questioned) == Status.PARKED
    with transaction.atomic():
        Questioned.answer.send(Review(True, "sorry, late"), key="a", actor="bob")
    drain()
    assert status(saga=Questioned) == Status.COMPLETED
    assert log_of(saga)[-5:] == [
        "signalled answer",
        "retried answer",
        "step_done answer",
        "step_done told",
        "completed",
    ]
    assert outbox(saga) == []


def test_a_signal_to_a_saga_parked_over_something_else_is_kept(world: World) -> None:
    """It does not resume what a person has to decide, and is there when the saga goes on."""
    world.plan("charge", *[RuntimeError("no")] * 3)
    saga = begin(Reviewed)
    drain()
    assert status() == Status.PARKED
    send(Review(True, "kept"))
    drain()
    assert status() == Status.PARKED
    from sagas import engine

    with transaction.atomic():
        engine.request(None, "retry", id=saga.id, reason="again")
    drain()
    assert status() == Status.COMPLETED
    assert [call.argument for call in world.of("ship")] == ["kept"]


def test_a_signal_to_a_finished_saga_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is taken, dropped, and operators can read that in the worker's log."""
    saga = waiting()
    send()
    drain()
    before = log_of(saga)
    with caplog.at_level(logging.WARNING, "sagas.worker"):
        assert send(Review(False, "too late"))
        drain()
    assert (log_of(saga), OutboxRow.objects.count()) == (before, 0)
    assert "(key 'a'), signal: dropped, the saga has ended as completed" in caplog.text


def test_a_signal_to_a_saga_that_turns_back_is_noted(world: World) -> None:
    """Its log says that it came too late to matter."""
    saga = waiting()
    world.plan("refund", RuntimeError("not now"))
    with transaction.atomic():
        Reviewed.cancel(key="a", reason="changed my mind")
    drain(skip=timedelta(0))
    assert status() == Status.COMPENSATING
    send()
    drain(skip=timedelta(0))
    assert [entry.data.get("ignored") for entry in entries(saga) if entry.kind == "signalled"] == [True]
    drain()
    assert status() == Status.CANCELLED


def _second_run(world: World) -> tuple[Any, Any]:
    world.plan("charge", Refused("card declined"))
    first = begin(Reviewed)
    drain()
    assert status() == Status.COMPENSATED
    with transaction.atomic():
        second = Reviewed.start(Ordered(), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
    assert second.run == 2
    return first, second


def test_a_signal_by_key_goes_to_the_latest_run(world: World) -> None:
    """What was undone is over: a key means the run that there is now."""
    first, second = _second_run(world)
    drain()
    send(Review(True, "for the second"))
    drain()
    assert (Reviewed.get(id=first.id).status, status()) == (Status.COMPENSATED, Status.COMPLETED)
    assert "signalled review" in log_of(second) and "signalled review" not in log_of(first)


def test_a_signal_on_its_way_goes_to_the_run_that_is_the_latest_when_it_arrives(world: World) -> None:
    """Sent to the first run, applied when there is a second."""
    world.plan("charge", Refused("card declined"))
    begin(Reviewed)
    with second_connection(autocommit=False) as sender:
        Reviewed.review.send(Review(True, "slow"), key="a", using=sender)
        drain(check=False)
        with transaction.atomic():
            second = Reviewed.start(Ordered(), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
        drain(check=False)
        sender.commit()
    drain()
    assert (Reviewed.get(key="a").run, status()) == (2, Status.COMPLETED)
    assert "signalled review" in log_of(second)


def test_a_signal_by_id_goes_to_that_run_only(world: World) -> None:
    """An approval of the first order is none of the second."""
    first, second = _second_run(world)
    drain()
    with transaction.atomic():
        assert Reviewed.review.send(FINE, id=first.id)
    drain()
    assert "signalled review" not in log_of(second)
    assert (Reviewed.get(id=first.id).status, status()) == (Status.COMPENSATED, Status.RUNNING)
    assert OutboxRow.objects.filter(kind="signal").count() == 0


def test_a_signal_to_an_older_version_without_that_wait_is_noted(world: World) -> None:
    """The saga goes on as its own version says; its log tells that the signal meant nothing to it."""
    saga = begin(ReviewedBefore)
    drain(skip=timedelta(0))
    send()
    drain()
    assert [entry.data.get("ignored") for entry in entries(saga) if entry.kind == "signalled"] == [True]
    assert Reviewed.get(key="a").status == Status.RUNNING and Reviewed.get(key="a").version == 2
