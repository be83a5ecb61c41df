"""What an item of a `for_each` step costs beside a saga of one step: the same run, the same worker."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from django.db import connection, transaction

from sagas import Saga, external_step
from sagas.embedded import Embedded
from sagas.states import Status
from sagas_django.store import DjangoStore
from tests.support.stories import differences

ROUNDS = 2
ITEMS = 10_000
MOST = 1.5
LONGEST = 120.0  # seconds


@dataclass(frozen=True)
class Many:
    """How many."""

    items: int


class Single(Saga[Many], name="test.cost_single", version=1):
    """A saga of one step."""

    @external_step(compensate=None)
    def act(self) -> int:
        return self.input.items


class Fanned(Saga[Many], name="test.cost_fanned", version=1):
    """One step for each item."""

    @external_step(for_each=lambda self: range(self.input.items), compensate=None, concurrency=1000)
    def act(self, item: int) -> int:
        return item


def run() -> None:
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)


def tidy() -> None:
    """As it was, so that no run pays for the one before."""
    with connection.cursor() as cursor:
        cursor.execute("truncate sagas_saga, sagas_log, sagas_outbox, sagas_dedupe")
    connection.commit()


def singles(many: int) -> float:
    """Seconds for that many sagas of one step, started in one transaction."""
    tidy()
    began = time.perf_counter()
    with transaction.atomic():
        for number in range(many):
            Single.start(Many(number), key=f"s{number}")
    run()
    return time.perf_counter() - began


def fanned(many: int) -> float:
    """Seconds for one saga with that many items."""
    tidy()
    began = time.perf_counter()
    with transaction.atomic():
        started = Fanned.start(Many(many), key="f")
    while Fanned.get(id=started.id).status != Status.COMPLETED:  # the look at its items may be due a moment later
        assert time.perf_counter() - began < LONGEST, "the fan-out did not end"
        run()
    return time.perf_counter() - began


@pytest.mark.full
@pytest.mark.usefixtures("shop")
def test_an_item_costs_hardly_more_than_a_saga_of_one_step() -> None:
    """Ten thousand of each, in turns: at most one and a half times as much."""
    singles(500), fanned(500)  # statements are prepared, pages are there
    ratios = []
    for _ in range(ROUNDS):
        single, each = singles(ITEMS), fanned(ITEMS)
        ratios.append(each / single)
        print(f"{ITEMS} sagas {single:.2f} s, {ITEMS} items {each:.2f} s, ratio {ratios[-1]:.2f}")
    assert min(ratios) <= MOST, ratios
    assert differences() == []
