"""Steps that run side by side, on a real database."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import transaction

from sagas import DefinitionError, Refused, Saga, external_step, step
from sagas.states import Status
from tests.shop.beside import Journey, Waits
from tests.shop.models import Booking
from tests.shop.sagas import Ordered
from tests.shop.waiting import Review
from tests.shop.world import World
from tests.support.stories import begin, drain, log_of, outbox
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")


def test_steps_that_do_not_need_each_other_have_a_row_each(world: World) -> None:
    """As soon as what they need has ended; what needs all of them has one row when the last of them has."""
    run = begin(Journey)
    run_together()
    assert sorted(row.step for row in outbox(run)) == ["car", "flight", "hotel"]
    assert run_together() == 3
    (row,) = outbox(run)
    assert row.step == "pay"
    drain()
    assert Journey.get(key="a").status == Status.COMPLETED
    assert not outbox(run)


def test_they_run_at_the_same_time(world: World) -> None:
    """Each waits for the others to have begun; one after the other they would wait for ever."""
    together = threading.Barrier(3, timeout=10)

    def meet(run: Any) -> str:
        together.wait()
        return "booked"

    for name in ("flight", "hotel", "car"):
        world.plan(name, meet)
    begin(Journey)
    drain(concurrency=3)
    assert Journey.get(key="a").status == Status.COMPLETED


def test_one_that_fails_stops_the_rest(world: World) -> None:
    """What has not begun never does; what is done is undone in reverse order of its end."""
    world.plan("flight", "F")
    world.plan("car", Refused("no car"))
    run = begin(Journey)
    drain()
    assert Journey.get(key="a").status == Status.COMPENSATED
    names = world.names
    assert "pay" not in names
    done = [line.split()[1] for line in log_of(run) if line.startswith("step_done")]
    undone = [line.split()[1] for line in log_of(run) if line.startswith("undo_done")]
    assert undone == [name for name in reversed(done) if name != "open"]
    assert not Booking.objects.exists()
    assert not outbox(run)


def test_one_that_is_under_way_is_awaited(world: World) -> None:
    """Its answer is taken before anything is undone, and then it is undone too."""
    refused = threading.Event()

    def slow(run: Any) -> str:
        assert refused.wait(10)
        return "F"

    def refuse(run: Any) -> str:
        refused.set()
        raise Refused("no car")

    world.plan("flight", slow)
    world.plan("car", refuse)
    run = begin(Journey)
    drain(concurrency=3)
    log = log_of(run)
    assert Journey.get(key="a").status == Status.COMPENSATED
    assert log.index("step_done flight") < min(i for i, line in enumerate(log) if line.startswith("undo_done"))
    assert "undo_done flight" in log


def test_a_parked_branch_leaves_the_others_their_step(world: World) -> None:
    """They finish it and begin no other; after a retry the saga goes on where everything is."""
    world.plan("car", *[ConnectionError("gone")] * 3)
    run = begin(Journey)
    drain()
    saga = Journey.get(key="a")
    assert saga.status == Status.PARKED
    assert "step_done flight" in log_of(run)
    assert "step_done hotel" in log_of(run)
    assert not outbox(run)
    from sagas import engine

    with transaction.atomic():
        engine.request("test.journey", "retry", key="a", reason="back again")
    drain()
    assert Journey.get(key="a").status == Status.COMPLETED


def test_waits_beside_each_other(world: World) -> None:
    """Each takes its own signal; the last of them lets the saga go on."""
    run = begin(Waits)
    drain()
    assert sorted(row.step for row in outbox(run)) == ["one", "two"]
    with transaction.atomic():
        Waits.two.send(Review(True, "2"), key="a")
    drain()
    (row,) = outbox(run)
    assert row.step == "one"
    with transaction.atomic():
        Waits.one.send(Review(True, "1"), key="a")
    drain()
    assert Waits.get(key="a").status == Status.COMPLETED


def test_a_cancel_withdraws_all_of_them(world: World) -> None:
    """Waits end, what happened is undone."""
    run = begin(Waits)
    drain()
    with transaction.atomic():
        Waits.cancel(key="a", reason="changed their mind")
    drain()
    assert Waits.get(key="a").status == Status.CANCELLED
    assert world.names == ["charge", "refund"]
    assert not outbox(run)


def test_nothing_may_run_beside_the_pivot() -> None:
    """It would be neither before it nor after it."""
    with pytest.raises(DefinitionError, match="would run beside the pivot"):

        class Wrong(Saga[Ordered], name="test.wrong_beside", version=1):
            @external_step(compensate=None)
            def one(self) -> None: ...

            @external_step(pivot=True, after=[one])
            def two(self) -> None: ...

            @step(after=[one])
            def three(self) -> None: ...
