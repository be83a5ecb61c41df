"""`PlaceOrder.get(...).allowed_actions`: what may be asked of a stored saga, and that what is allowed also happens."""

from __future__ import annotations

import pytest
from django.db import transaction

from sagas import engine
from sagas.errors import NotPossible, UnknownSaga
from sagas_django.models import SagaRow
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, log_of

pytestmark = pytest.mark.usefixtures("shop")


def names(key: str = "a") -> list[str]:
    """What is allowed now."""
    return [action.name for action in Trip.get(key=key).allowed_actions]


def park(world: World) -> None:
    """A trip that parked over its charge."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    begin(Trip)
    drain()


def test_from_start_to_end(world: World) -> None:
    """As the saga goes on, less is possible; in the end nothing."""
    begin(Trip)
    assert names() == ["retry", "cancel", "pause"]
    drain()
    assert names() == []


@pytest.mark.parametrize("kind", ["retry", "cancel", "abort", "pause"])
def test_what_is_allowed_is_heeded(world: World, kind: str) -> None:
    """Asked for by its name, each action of a parked saga leaves an entry that is not ignored."""
    park(world)
    assert kind in names()
    before = len(entries(Trip.get(key="a").id))
    engine.request("test.trip", kind, key="a", reason="because", actor="test")
    drain()
    asked = [entry for entry in entries(Trip.get(key="a").id)[before:] if entry.data.get("actor") == "test"]
    assert asked and not any(entry.data.get("ignored") for entry in asked)


def test_pause_and_resume(world: World) -> None:
    """One or the other."""
    begin(Trip)
    engine.request("test.trip", "pause", key="a", reason="wait")
    drain()
    assert ("pause" in names(), "resume" in names()) == (False, True)
    engine.request("test.trip", "resume", key="a", reason="go on")
    drain()
    assert log_of(Trip.get(key="a").id)[-1] == "completed"


def test_of_what_start_returned(world: World) -> None:
    """A saga just made is known; one that existed is not read by `start()`, which says what to call instead."""
    with transaction.atomic():
        made = Trip.start(Ordered(), key="a")
        again = Trip.start(Ordered(), key="a")
    assert [action.name for action in made.allowed_actions] == ["retry", "cancel", "pause"]
    with pytest.raises(NotPossible, match=r"use get\(\)"):
        _ = again.allowed_actions


def test_of_a_definition_that_is_not_here(world: World) -> None:
    """It cannot be said, which is not the same as nothing."""
    run = begin(Trip)
    SagaRow.objects.update(version=9)
    with pytest.raises(UnknownSaga, match="version 9"):
        _ = engine.find(None, id=run.id).allowed_actions
