"""Everything at once: failures, refusals, cancels, several workers and threads. What was taken is given back."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest
from django.db import transaction

from sagas import Refused
from sagas.states import Status
from sagas_django.models import OutboxRow, SagaRow
from tests.shop.models import Booking
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import Aside, begin_many, drain, expire_leases
from tests.support.workers import begin_due, one_worker

pytestmark = pytest.mark.usefixtures("shop")

KEYS = [f"s{number}" for number in range(30)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_net_zero_or_once(world: World, seed: int) -> None:
    """However it went: a completed saga charged once, an undone one nothing; bookings agree; logs agree."""
    chance = random.Random(seed)
    ledger: Counter[str] = Counter()
    charged: set[str] = set()
    lock = threading.Lock()

    def charge(run: Any) -> str:
        with lock:  # the bank honours idempotency keys
            ledger[run.key] += run.idempotency_key not in charged
            charged.add(run.idempotency_key)
        return f"charge of {run.key}"

    def charge_and_lose_the_reply(run: Any) -> str:
        charge(run)
        raise ConnectionError("no reply")

    def refund(run: Any) -> None:
        with lock:
            ledger[run.key] -= run.idempotency_key not in charged
            charged.add(run.idempotency_key)

    def lost_refund(run: Any) -> None:
        refund(run)
        raise ConnectionError("no reply")

    for key in KEYS:
        world.plan("book", *[ValueError("busy")] * chance.choice([0, 0, 1, 3]), saga=key)
        world.plan("charge", *chance.choices([charge, charge_and_lose_the_reply], k=2), charge, saga=key)
        if chance.random() < 0.4:
            world.plan("confirm", Refused("sold out"), saga=key)
        world.plan("refund", *chance.choices([refund, lost_refund], k=2), refund, saga=key)
        world.plan("unbook", *[ValueError("busy")] * chance.choice([0, 1]), saga=key)
    begin_many(Trip, KEYS)
    with one_worker() as dead:
        begin_due(dead)
    expire_leases()
    workers = [Aside(lambda: drain(concurrency=2, check=False)) for _ in range(2)]
    for key in chance.sample(KEYS, 12):
        with transaction.atomic():
            Trip.cancel(key=key, reason="changed my mind")
    for worker in workers:
        worker.join(60)
    drain()
    statuses = dict(SagaRow.objects.values_list("key", "status"))
    assert set(statuses.values()) <= {Status.COMPLETED, Status.COMPENSATED, Status.CANCELLED}
    assert {key: ledger[key] for key in KEYS} == {key: int(statuses[key] == Status.COMPLETED) for key in KEYS}
    assert Counter(Booking.objects.values_list("saga", flat=True)) == {
        key: 2 for key in KEYS if statuses[key] == Status.COMPLETED
    }
    assert not OutboxRow.objects.exists()
