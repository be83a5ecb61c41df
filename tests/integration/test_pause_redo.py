"""Forward recovery: after the pivot for ever, and a redo under a new key where a person says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from sagas import FOREVER, InvalidInput, engine
from sagas.rebuild import rebuild
from sagas.states import Status
from sagas.testing.moving import Clock
from sagas_django.store import DjangoStore
from tests.shop.waiting import Review, Reviewed, Shipped
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, log_of, outbox
from tests.support.waiting import ask
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
NO_WAIT = timedelta(0)


def send() -> None:
    with transaction.atomic():
        Reviewed.review.send(Review(True), key="a")


def test_after_the_pivot_a_step_is_tried_for_ever(time_machine: Clock, world: World) -> None:
    """With a backoff that grows up to its cap, and no further; it never parks by itself."""
    assert Shipped.plan.by_name["tell"].retry.max_attempts == FOREVER
    world.plan("tell", *[RuntimeError("down")] * 40)
    saga = begin(Shipped)
    drain(skip=NO_WAIT)
    for _ in range(60):
        if Shipped.get(key="a").status == Status.COMPLETED:
            break
        time_machine.advance(timedelta(seconds=301))
        drain(skip=NO_WAIT, check=False)
    assert world.count()["tell"] == 41
    delays = [entry.data["retry_in"] for entry in entries(saga) if entry.kind == "step_failed"]
    assert delays[:3] == [0.5, 1.0, 2.0] and set(delays[15:]) == {150.0}
    assert log_of(saga)[-1] == "completed"


def test_an_explicit_retry_after_the_pivot_still_parks(world: World) -> None:
    """Who says how often means it."""
    world.plan("ship", *[RuntimeError("down")] * 50)
    saga = begin(Reviewed)
    drain()
    send()
    drain()
    assert Reviewed.get(key="a").status == Status.PARKED
    assert log_of(saga).count("step_failed ship") == 3


def _parked_at_ship(world: World) -> Any:
    world.plan("ship", *[RuntimeError("down")] * 3)
    saga = begin(Reviewed)
    drain()
    send()
    drain()
    assert Reviewed.get(key="a").status == Status.PARKED
    return saga


def test_a_redo_does_the_step_again_under_a_new_key(world: World) -> None:
    """The log says who told it to forget what is known, and a new generation of the key says so to the other side."""
    saga = _parked_at_ship(world)
    ask("redo", saga, step="ship", reason="the carrier lost it")
    drain()
    assert Reviewed.get(key="a").status == Status.COMPLETED
    keys = [call.key for call in world.of("ship")]
    assert len(set(keys[:3])) == 1 and keys[3] not in keys[:3]
    assert keys[0].endswith(":do:0") and keys[3].endswith(":do:1")
    (redone,) = [entry for entry in entries(saga) if entry.kind == "redone"]
    assert (redone.step, redone.data["actor"], redone.data["reason"]) == ("ship", "ann", "the carrier lost it")
    assert outbox(saga) == []


def test_a_redo_begins_with_a_new_budget_and_no_memory(world: World) -> None:
    """What the dedupe table knows is about the former key."""
    saga = _parked_at_ship(world)
    world.plan("ship", RuntimeError("once more"))
    ask("redo", saga, step="ship")
    drain()
    assert [call.attempt for call in world.of("ship")] == [1, 2, 3, 1, 2]
    assert Reviewed.get(key="a").status == Status.COMPLETED


@pytest.mark.parametrize("step", ["charge", "review"])
def test_an_illegal_redo_changes_nothing(step: str, world: World) -> None:
    """It may not lead over a step that happened and can be undone; the log says that it was ignored."""
    saga = _parked_at_ship(world)
    before = Reviewed.get(key="a")
    ask("redo", saga, step=step)
    drain()
    after = Reviewed.get(key="a")
    if step == "review":  # nothing but a wait lies between: legal, it waits anew
        assert after.status == Status.RUNNING
        return
    assert (after.status, after.steps, after.parked_from) == (before.status, before.steps, before.parked_from)
    assert [entry.data.get("ignored") for entry in entries(saga) if entry.kind == "redone"] == [True]
    assert len(world.of("ship")) == 3


def test_a_redo_of_a_saga_that_has_moved_on_is_noted(world: World) -> None:
    """It parked over the same step again after another attempt, which may have done what was thought to be lost."""
    saga = _parked_at_ship(world)
    seen = Reviewed.get(key="a").seq
    world.plan("ship", *[RuntimeError("down")] * 3)
    ask("retry", saga)
    drain()
    assert Reviewed.get(key="a").status == Status.PARKED
    ask("redo", saga, step="ship", seen=seen)
    drain()
    assert [entry.data.get("ignored") for entry in entries(saga) if entry.kind == "redone"] == [True]
    assert Reviewed.get(key="a").status == Status.PARKED and len(world.of("ship")) == 6


def test_a_redo_of_a_saga_that_is_not_parked_is_noted(world: World) -> None:
    """It forgets nothing of what is under way."""
    saga = begin(Reviewed)
    drain()
    ask("redo", saga, step="charge")
    drain()
    assert [entry.data.get("ignored") for entry in entries(saga) if entry.kind == "redone"] == [True]
    assert log_of(saga)[-1] == "redone charge" and world.names == ["charge"]


def test_a_redone_saga_is_rebuilt_with_its_generation(world: World) -> None:
    """The new key is in the log, so that no rebuild falls back to the old one."""
    saga = _parked_at_ship(world)
    ask("redo", saga, step="ship")
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))  # the request only
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("delete from sagas_outbox")
        cursor.execute("delete from sagas_saga")
    with DjangoStore("default").connect() as store:
        assert [(each.changed, each.problem) for each in rebuild(store)] == [(True, "")]
    drain()
    assert world.of("ship")[-1].key.endswith(":do:1")
    assert log_of(saga)[-1] == "completed"


@pytest.mark.parametrize(
    ("kind", "options", "path"), [("redo", {}, "step"), ("redo", {"step": "nope"}, "step"), ("stop", {}, "kind")]
)
def test_requests_that_mean_nothing_are_refused(kind: str, options: dict[str, str], path: str) -> None:
    """Before anything is inserted, naming what is wrong and what there is."""
    saga = begin(Reviewed)
    with pytest.raises(InvalidInput, match=path) as caught, transaction.atomic():
        engine.request(None, kind, id=saga.id, reason="x", **options)
    assert caught.value.path == path
    assert len(outbox(saga)) == 1
