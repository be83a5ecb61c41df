"""Signals: in the sender's transaction, once, in order, early or late, and never lost."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from sagas import KEEP, InvalidInput, PayloadTooLarge
from sagas.embedded import Embedded
from sagas.errors import NotPossible
from sagas.settings import Settings
from sagas.states import Status
from sagas_django.models import OutboxRow
from sagas_django.store import DjangoStore
from tests.shop.waiting import Crowded, Patient, Review, Reviewed, Sleeper
from tests.shop.world import World
from tests.support.reviews import FINE, send, status, waiting
from tests.support.stories import (
    Aside,
    begin,
    differences,
    drain,
    entries,
    log_of,
    outbox,
    second_connection,
)
from tests.support.waiting import queued, wait_until_blocked
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
THREE_DAYS = timedelta(days=3)


# --- the sender's transaction ---


def test_a_signal_is_in_the_log_with_who_and_why(world: World) -> None:
    """What was sent, by whom and for what reason: the log says so, and the step's result is what was sent."""
    saga = waiting()
    assert send(actor="ann", reason="looked at the papers")
    drain()
    (signalled,) = [entry for entry in entries(saga) if entry.kind == "signalled"]
    assert (signalled.data["actor"], signalled.data["reason"]) == ("ann", "looked at the papers")
    assert signalled.data["result"] == {"ok": True, "note": "fine"}
    assert [call.argument for call in world.of("ship")] == ["fine"]
    assert outbox(saga) == []


def test_a_sender_that_rolls_back_has_sent_nothing(world: World) -> None:
    """A signal is one row in the sender's transaction; its dedupe_id is free again as well."""
    saga = waiting()
    with transaction.atomic():
        assert Reviewed.review.send(FINE, key="a", dedupe_id="hook-1")
        transaction.set_rollback(True)
    drain()
    assert log_of(saga)[-1] == "waiting review"
    assert send(dedupe_id="hook-1")
    drain()
    assert status() == Status.COMPLETED


def test_a_signal_that_is_not_committed_holds_nobody_up() -> None:
    """Neither workers nor other senders wait for a long transaction that has sent something."""
    waiting()
    waiting("b")
    with second_connection(autocommit=False) as sender:
        Reviewed.review.send(Review(True, "slow"), key="a", using=sender)
        send(key="b")
        assert send(Review(True, "quick"))
        drain()
        assert (status(), status("b")) == (Status.COMPLETED, Status.COMPLETED)
        sender.commit()
    drain()
    assert (differences(), OutboxRow.objects.count()) == ([], 0)


async def _asend(saga_id: uuid.UUID, url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(url) as sender:
        return await Reviewed.review.asend(FINE, id=saga_id, using=sender)


def test_the_asynchronous_twin_sends_the_same(shop: str) -> None:
    """By id, on an asynchronous connection, committed with it."""
    saga = waiting()
    assert asyncio.run(_asend(saga.id, shop))
    drain()
    assert status() == Status.COMPLETED


# --- sent twice ---


def test_the_same_dedupe_id_counts_once(world: World) -> None:
    """A webhook that is delivered again changes nothing, before and after the saga has gone on."""
    saga = waiting()
    assert send(Review(True, "first"), dedupe_id="hook-1")
    assert not send(Review(True, "again"), dedupe_id="hook-1")
    drain()
    assert not send(Review(True, "late"), dedupe_id="hook-1")
    drain()
    assert [call.argument for call in world.of("ship")] == ["first"]
    assert log_of(saga).count("signalled review") == 1


def test_the_same_dedupe_id_from_two_transactions_counts_once(world: World) -> None:
    """The second sender waits for the first and is told that it was a duplicate; no other sender waits."""
    waiting()
    answers: list[bool] = []
    with second_connection(autocommit=False) as first:
        assert Reviewed.review.send(FINE, key="a", dedupe_id="hook-1", using=first)
        second = Aside(lambda: answers.append(send(Review(False, "no"), dedupe_id="hook-1")))
        wait_until_blocked(1)
        assert send(Review(True, "other"), dedupe_id="hook-2", key="a")
        assert second.runs()
        first.commit()
    second.join()
    assert answers == [False]
    drain()
    assert status() == Status.COMPLETED and world.of("ship")[0].argument in ("fine", "other")


def test_when_the_first_of_two_rolls_back_the_second_counts(world: World) -> None:
    """Nothing is lost: a dedupe_id is only taken by a sender that commits."""
    waiting()
    answers: list[bool] = []
    with second_connection(autocommit=False) as first:
        Reviewed.review.send(Review(True, "gone"), key="a", dedupe_id="hook-1", using=first)
        second = Aside(lambda: answers.append(send(Review(True, "kept"), dedupe_id="hook-1")))
        wait_until_blocked(1)
        first.rollback()
    second.join()
    assert answers == [True]
    drain()
    assert [call.argument for call in world.of("ship")] == ["kept"]


# --- order ---


def test_signals_that_pile_up_are_applied_one_after_the_other_without_a_pause(world: World) -> None:
    """Each is called as soon as the one before it is applied: thirty of them are no matter of many seconds."""
    saga = begin(Crowded)
    with transaction.atomic():
        for number in range(30):
            Crowded.waits()[number % 2].send(str(number), key="a")
    began = time.monotonic()
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    found = [entry.data["result"] for entry in entries(saga) if entry.kind == "signalled"]
    assert found == [str(number) for number in range(30)]
    assert time.monotonic() - began < 7  # half a second each: fifteen


def test_signals_of_one_sender_arrive_in_order(world: World) -> None:
    """However many are due at once."""
    saga = begin(Crowded)
    with transaction.atomic():
        for number in range(5):
            Crowded.waits()[number % 2].send(str(number), key="a")
    drain()
    assert queued(saga) == ["0", "1", "2", "3", "4"]


def test_two_workers_that_claim_two_signals_keep_their_order() -> None:
    """The one that has the later signal gives it back while the earlier one is not applied."""
    saga = begin(Crowded)
    drain()
    with transaction.atomic():
        Crowded.one.send("first", key="a")
    with one_worker() as ahead, one_worker() as behind:
        slow = begin_due(ahead)
        assert [each.kind for each in slow] == ["signal"]
        with transaction.atomic():
            Crowded.one.send("second", key="a")
        assert begin_due(behind) == []  # begun, and given back
        run_batch(ahead, slow)
    drain()
    assert queued(saga) == ["first", "second"]


def test_a_signal_whose_worker_died_is_still_before_the_next() -> None:
    """A begun signal counts as sent before, also while nobody works on it."""
    saga = begin(Crowded)
    drain()
    with transaction.atomic():
        Crowded.one.send("first", key="a")
    with one_worker() as dies:
        assert len(begin_due(dies)) == 1
    with transaction.atomic():
        Crowded.one.send("second", key="a")
    drain(skip=timedelta(0))
    assert queued(saga) == []
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = clock_timestamp() where holder is not null")
    drain()
    assert queued(saga) == ["first", "second"]


# --- early ---


def test_a_signal_may_come_before_the_wait(world: World) -> None:
    """It is kept in the log and taken the moment its wait is reached: the saga does not even wait."""
    saga = begin(Reviewed)
    assert send(Review(True, "early"))
    drain()
    assert status() == Status.COMPLETED
    assert "waiting review" not in log_of(saga)
    assert [call.argument for call in world.of("ship")] == ["early"]


def test_a_signal_that_arrives_while_the_step_before_its_wait_runs(world: World) -> None:
    """The worker that runs that step does not know of it, goes on from what is recorded, and finds it there."""
    saga = begin(Reviewed)

    def meanwhile(_: object) -> str:
        thread = Aside(lambda: (send(Review(True, "just in time")), _apply_requests()))
        thread.join()
        return "charged"

    world.plan("charge", meanwhile)
    drain(skip=timedelta(0))
    assert status() == Status.COMPLETED
    assert log_of(saga)[1:4] == ["signalled review", "step_done charge", "step_done review"]
    assert [(call.argument, call.attempt) for call in world.of("ship")] == [("just in time", 1)]


def _apply_requests() -> None:
    with one_worker() as other:
        run_batch(other, begin_due(other))


def test_a_wait_takes_the_first_of_several_signals(world: World) -> None:
    """The others stay for nobody, and nothing is wrong with that."""
    saga = begin(Patient)
    with transaction.atomic():
        Patient.first.send(Review(True, "one"), key="a")
        Patient.first.send(Review(True, "two"), key="a")
        Patient.second.send(Review(True, "three"), key="a")
    drain()
    assert status(saga=Patient) == Status.COMPLETED
    assert entries(saga)[-2].data["result"] == ["one", "three"]


# --- bad input ---


def test_a_value_of_another_type_is_refused() -> None:
    """The message names the field, the wait and its saga; nothing is sent."""
    waiting()
    with pytest.raises(InvalidInput, match=r"Reviewed\.review.*ok") as caught:
        send(Review("yes"))  # type: ignore[arg-type]
    assert caught.value.path.endswith("ok")
    with pytest.raises(InvalidInput, match=r"Reviewed\.review"):
        send("yes")  # type: ignore[arg-type]
    assert OutboxRow.objects.filter(kind="signal").count() == 0


def test_a_value_that_is_too_big_is_refused() -> None:
    """The limit is that of inputs and results."""
    waiting()
    limit = Settings().max_payload
    assert send(Review(True, "x" * (limit - 100)))
    with pytest.raises(PayloadTooLarge, match=r"Reviewed\.review"):
        send(Review(True, "x" * limit))


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"dedupe_id": ""}, "dedupe_id"),
        ({"dedupe_id": "x" * 256}, "dedupe_id"),
        ({"dedupe_id": "a\0b"}, "dedupe_id"),
        ({"dedupe_id": 7}, "dedupe_id"),
        ({"actor": "a\0b"}, "actor"),
        ({"reason": "x" * 2001}, "reason"),
        ({"missing": "keep!"}, "missing"),
    ],
)
def test_unusable_arguments_are_refused(options: dict[str, Any], path: str) -> None:
    """Each names itself; nothing is sent."""
    waiting()
    with pytest.raises(InvalidInput, match=path) as caught:
        send(**options)
    assert caught.value.path == path
    assert OutboxRow.objects.filter(kind="signal").count() == 0


def test_keep_needs_a_key() -> None:
    """An id says nothing before its saga exists."""
    with pytest.raises(InvalidInput, match="missing=KEEP needs key="), transaction.atomic():
        Reviewed.review.send(FINE, id=uuid.uuid4(), missing=KEEP)


def test_a_sleep_takes_no_signal() -> None:
    """It waits for a time only."""
    begin(Sleeper)
    with pytest.raises(NotPossible, match="does not wait for a signal"), transaction.atomic():
        Sleeper.nap.send(None, key="a")
