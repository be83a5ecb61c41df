"""Pauses of a whole queue or definition, for all workers and relays at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from sagas import pauses
from sagas.embedded import Embedded
from sagas.pauses import Scope
from sagas.states import Status
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.shop.sagas import Externals, Queues, Trip
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, begin_many, drain, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def wire(shop: str) -> Iterator[psycopg.Connection]:
    with closing(DjangoStore("default").connect()) as connection:
        yield connection
        connection.execute("delete from sagas_pause")


@pytest.mark.parametrize("version", [0, 1])
def test_a_definition_that_is_held_up_begins_nothing(version: int, world: World, wire: psycopg.Connection) -> None:
    """Its sagas stay where they are, uncounted; others go on; a cancel is applied; resumed it goes on at once."""
    pauses.pause(wire, Scope.DEFINITION, "test.trip", version=version, actor="ann", reason="the bank is down")
    held, other = begin(Trip), begin(Externals, "b")
    drain(skip=NO_WAIT)
    assert log_of(held) == ["started"]
    assert Externals.get(key="b").status == Status.COMPLETED
    (row,) = outbox(held)
    assert (row.holder, row.deliveries, row.first_begun_at) == (None, 0, None)
    assert [(each.kind, each.name, each.version, each.actor) for each in pauses.pauses(wire)] == [
        ("definition", "test.trip", version, "ann")
    ]  # fmt: skip
    assert pauses.resume(wire, Scope.DEFINITION, "test.trip", version=version)
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED
    assert not pauses.resume(wire, Scope.DEFINITION, "test.trip", version=version)
    assert other.created


def test_another_version_goes_on(world: World, wire: psycopg.Connection) -> None:
    """A pause names one version, or all of them."""
    pauses.pause(wire, Scope.DEFINITION, "test.trip", version=2, reason="only the new one")
    begin(Trip)
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED


def test_nothing_of_a_queue_that_is_held_up_is_claimed(world: World, wire: psycopg.Connection) -> None:
    """Neither by a relay nor by an embedded worker; a worker that has finished a step does not go on into it."""
    queues = [step.queue for step in Queues.plan.steps]
    later = next(queue for queue in queues if queue != queues[0])
    pauses.pause(wire, Scope.QUEUE, later, reason="maintenance")
    run = begin(Queues)
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    (row,) = outbox(run)
    assert (row.queue, row.holder) == (later, None)
    assert not claims.claim(wire, [Room(later, 10)], holder="relay:1", window=10, begun=True, now=None)
    assert later not in claims.queues(wire, now=None)
    pauses.resume(wire, Scope.QUEUE, later)
    drain(skip=NO_WAIT)
    assert Queues.get(key="a").status == Status.COMPLETED


def test_many_that_are_held_up_do_not_hold_up_the_rest(world: World, wire: psycopg.Connection) -> None:
    """A worker that has put one row off looks for the next at once; it does not wait for its poll in between."""
    begin_many(Trip, [f"t{number}" for number in range(30)])
    begin(Externals, "last")
    pauses.pause(wire, Scope.DEFINITION, "test.trip", reason="the bank is down")
    began = time.monotonic()
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    assert Externals.get(key="last").status == Status.COMPLETED
    assert time.monotonic() - began < 15  # poll is a second, and there are thirty
