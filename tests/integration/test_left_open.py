"""What a body leaves on Django's connection of its thread: hooks of its transaction, and blocks that it forgot."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from sagas import Refused, Saga, external_step, step
from sagas.states import Status
from tests.shop.models import Booking
from tests.shop.sagas import THRICE, Ordered
from tests.shop.world import World
from tests.shop.world import world as the_world
from tests.support.stories import begin, begin_many, drain
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")


class Turns(Saga[Ordered], name="test.turns", version=1):
    """Writes, asks another system, and writes again."""

    @step(retry=THRICE)
    def book(self) -> None:
        Booking.objects.create(saga=self.key, step="book")
        the_world.act("book", self)

    @book.compensate
    def unbook(self, _: None) -> None:
        Booking.objects.filter(saga=self.key).delete()

    @external_step(retry=THRICE, compensate=None)
    def pay(self) -> None:
        the_world.act("pay", self)

    @step(compensate=None)
    def note(self) -> None:
        Booking.objects.create(saga=self.key, step="note")


def leave_open(run: Any) -> None:
    transaction.atomic().__enter__()


def leave_open_and_write(run: Any) -> None:
    leave_open(run)
    Booking.objects.create(saga=run.key, step="inside")


def leave_open_and_fail(run: Any) -> None:
    leave_open(run)
    raise ConnectionError("no")


def write_durably(run: Any) -> None:
    with transaction.atomic(durable=True):
        Booking.objects.create(saga=run.key, step="inside")


def leave_open_and_close(run: Any) -> None:
    leave_open(run)
    connection.close()


def test_a_failing_hook_puts_no_following_step_in_doubt(world: World) -> None:
    """The step is committed, and this worker goes on: a refusal of the step after it is believed."""
    world.plan("book", lambda run: transaction.on_commit(lambda: 1 / 0))
    world.plan("pay", Refused("card declined"))
    begin(Turns)
    drain()
    assert Turns.get(key="a").status == Status.COMPENSATED
    assert [call.attempt for call in world.of("pay")] == [1]
    assert Booking.objects.count() == 0


@pytest.mark.parametrize("body", [leave_open, leave_open_and_write, leave_open_and_fail, leave_open_and_close])
def test_a_block_that_an_external_body_left_open(world: World, body: Any) -> None:
    """It ends with the body: what comes after it in this thread commits, and finds a connection that works."""
    world.plan("pay", body)
    begin(Turns, "left")
    drain()
    assert not connection.in_atomic_block
    begin(Turns, "next")
    drain()
    assert [Turns.get(key=key).status for key in ("left", "next")] == [Status.COMPLETED] * 2
    assert set(Booking.objects.values_list("saga", "step")) == {
        (key, step) for key in ("left", "next") for step in ("book", "note")
    }  # fmt: skip


class Asks(Saga[Ordered], name="test.asks", version=1):
    """Two external steps, one after the other."""

    @external_step(retry=THRICE, compensate=None)
    def pay(self) -> None:
        the_world.act("pay", self)

    @external_step(retry=THRICE, compensate=None)
    def deliver(self) -> None:
        the_world.act("deliver", self)


def test_a_durable_block_after_one_that_was_left_open(world: World) -> None:
    """Nothing of the block that was left is there for a body that insists on being the outermost."""
    world.plan("pay", leave_open)
    world.plan("deliver", write_durably)
    begin(Asks)
    drain()
    assert Asks.get(key="a").status == Status.COMPLETED
    assert [call.attempt for call in world.of("deliver")] == [1]


class Pair(Saga[Ordered], name="test.pair", version=1):
    """Two local steps, one after the other."""

    @step(retry=THRICE, compensate=None)
    def book(self) -> None:
        Booking.objects.create(saga=self.key, step="book")
        the_world.act("book", self)

    @step(compensate=None)
    def note(self) -> None:
        Booking.objects.create(saga=self.key, step="note")


@pytest.mark.parametrize("saga", [Turns, Pair])
def test_a_block_that_a_commit_hook_left_open(world: World, saga: Any) -> None:
    """It ends with the step whose hook it was: the step after it commits."""
    world.plan("book", lambda run: transaction.on_commit(lambda: leave_open(run)))
    begin(saga)
    drain()
    assert not connection.in_atomic_block
    assert saga.get(key="a").status == Status.COMPLETED
    assert set(Booking.objects.values_list("step", flat=True)) == {"book", "note"}


@pytest.mark.parametrize("body", [leave_open, leave_open_and_write, leave_open_and_fail])
@pytest.mark.parametrize("together", [True, False])
def test_a_block_that_a_local_step_left_open(world: World, body: Any, together: bool) -> None:
    """It is an error of this body; its neighbours, and its next attempt, commit."""
    world.plan("book", body, saga="left")
    keys = ["first", "left", "next"] if together else ["left"]
    begin_many(Turns, keys)
    run_together()
    drain()
    assert [Turns.get(key=key).status for key in keys] == [Status.COMPLETED] * len(keys)
    assert [call.saga for call in world.of("book")].count("left") == 2
    assert sorted(Booking.objects.values_list("saga", "step")) == sorted(
        (key, step) for key in keys for step in ("book", "note")
    )
    assert not connection.in_atomic_block
