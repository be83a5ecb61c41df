"""Reading stored logs with today's code: what fits shows nothing, what does not fit is named entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest

from sagas import Refused, SagaNotFound
from sagas.plan import Plan
from sagas.replay import replay
from sagas_django.models import LogEntry
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Choosy
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")
UUID0 = UUID(int=0)


@pytest.fixture
def wire(shop: str) -> Iterator[psycopg.Connection]:
    with closing(DjangoStore("default").connect()) as connection:
        yield connection


def changed(plan: Plan, *names: str) -> Plan:
    return Plan(name=plan.name, version=plan.version, steps=tuple(plan.by_name[name] for name in names))


@pytest.mark.parametrize("ending", ["completed", "compensated"])
def test_the_code_that_wrote_a_log_fits_it(ending: str, world: World, wire: psycopg.Connection) -> None:
    """Whatever the saga went through; and nothing is run or written by looking."""
    if ending == "compensated":
        world.plan("confirm", Refused("no"))
    run = begin(Trip)
    drain()
    calls, lines = list(world.calls), LogEntry.objects.count()
    found = replay(wire, run.id)
    assert found.fits, [line for line in found.lines if line.differences]
    assert (found.state.status, found.next) == (ending, ())
    assert (world.calls, LogEntry.objects.count()) == (calls, lines)


def test_steps_in_another_order_show(world: World, wire: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry that today's code would not have written says where it would have been instead."""
    run = begin(Trip)
    drain()
    monkeypatch.setattr(Trip, "plan", changed(Trip.plan, "charge", "book", "confirm"))
    found = replay(wire, run.id)
    first = next(line for line in found.lines if line.differences)
    assert (first.entry.kind, first.entry.step) == ("step_done", "book")
    assert first.differences == ("it was at book (do), today's code would be at charge (do)",)


def test_a_step_that_is_gone_shows(world: World, wire: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, at the entry that speaks of it."""
    run = begin(Trip)
    drain()
    monkeypatch.setattr(Trip, "plan", changed(Trip.plan, "book", "confirm"))
    found = replay(wire, run.id)
    assert [line.differences for line in found.lines if line.entry.step == "charge"] == [
        ("today's code has no step 'charge'",)
    ]  # fmt: skip


def test_a_condition_that_says_otherwise_shows(
    world: World, wire: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is evaluated on what the log holds, without effect."""
    run = begin(Choosy, input=Ordered(20))
    drain()
    options = Choosy.wrap.options
    monkeypatch.setattr(Choosy.wrap, "options", replace(options, when=lambda self: self.price.result > 100))
    found = replay(wire, run.id)
    assert [line.differences for line in found.lines if line.differences] == [("its condition is False today",)]


def test_a_saga_that_does_not_exist_is_an_error(wire: psycopg.Connection) -> None:
    """It names the id."""
    with pytest.raises(SagaNotFound, match=str(UUID0)):
        replay(wire, UUID0)
