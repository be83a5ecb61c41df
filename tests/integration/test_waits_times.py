"""Sleeps, and what may be said about times: by the class, by its functions, and by the database clock."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sagas import COMPENSATE, PARK, SKIP, DefinitionError, Saga, sleep, sleep_until, step, wait_for
from sagas.states import Status
from sagas.testing.moving import Clock
from tests.shop.sagas import Ordered
from tests.shop.waiting import Naive, Questioned, Review, Sleeper
from tests.shop.world import World
from tests.support.stories import (
    begin,
    drain,
    entries,
    log_of,
    outbox,
)

pytestmark = pytest.mark.usefixtures("shop")
HOUR, NO_WAIT = timedelta(hours=1), timedelta(0)


def test_sleeps_end_in_order(time_machine: Clock, world: World) -> None:
    """A fixed time, one that the input says, and a moment that has passed long ago."""
    saga = begin(Sleeper, input=Ordered(3))
    drain()
    assert log_of(saga)[-1] == "waiting nap"
    time_machine.advance(HOUR - timedelta(minutes=1))
    drain()
    assert log_of(saga)[-1] == "waiting nap"
    time_machine.advance(timedelta(minutes=1))
    drain()
    assert log_of(saga)[-1] == "waiting longer"
    time_machine.advance(4 * HOUR)
    drain()
    assert log_of(saga)[-5:] == ["step_done longer", "waiting until", "step_done until", "step_done awake", "completed"]
    assert world.count()["awake"] == 1


@pytest.mark.parametrize("answer", [datetime(2030, 1, 1), "soon", -5, math.inf, None])
def test_a_time_that_cannot_be_used_is_tried_again_and_turns_back(answer: Any, world: World) -> None:
    """The function is the author's: its error is kept, retried like that of a step, and says what was wrong."""
    world.always("when", answer)
    saga = begin(Naive)
    drain(skip=timedelta(minutes=10))
    found = Naive.get(key="a")
    assert found.status == Status.COMPENSATED
    assert "nap" in found.error
    assert outbox(saga) == []


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: wait_for(Review, timeout=-1), "from 0 to ten years"),
        (lambda: wait_for(Review, timeout=math.nan), "seconds or a timedelta"),
        (lambda: wait_for(Review, timeout="1h"), "seconds or a timedelta"),  # type: ignore[arg-type]
        (lambda: wait_for(Review, on_timeout="park"), "PARK, COMPENSATE or SKIP"),  # type: ignore[arg-type]
        (lambda: sleep(True), "seconds or a timedelta"),
        (lambda: sleep(timedelta(days=4000)), "ten years"),
        (lambda: sleep(lambda: 1), "one argument"),  # type: ignore[misc]
        (lambda: sleep_until(datetime(2030, 1, 1)), "aware"),
        (lambda: sleep_until(5), "aware"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_unusable_declarations_are_refused(declare: Any, problem: str) -> None:
    """When the class is written, in words that say what would do."""
    with pytest.raises(DefinitionError, match=problem):
        declare()


def test_a_signal_type_that_cannot_be_stored_is_refused() -> None:
    """Like an input type: when the class is created, naming the wait."""

    with pytest.raises(DefinitionError, match="'it': object cannot be stored"):

        class Odd(Saga[Ordered], name="test.odd_wait", version=1):
            it = wait_for(object)


def test_the_words_for_a_timeout_are_exported() -> None:
    """PARK and COMPENSATE are those of `on_unknown`."""
    for word in (PARK, COMPENSATE, SKIP):
        wait_for(Review, on_timeout=word)


def test_datetimes_of_waits_are_those_of_the_database(time_machine: Clock) -> None:
    """Not of the worker's host: the end of a wait is counted from the time that statements go by."""
    time_machine.move_to(datetime(2031, 5, 1, 12, tzinfo=UTC))
    saga = begin(Questioned)
    drain()
    (waiting,) = [entry for entry in entries(saga) if entry.kind == "waiting"]
    assert datetime.fromtimestamp(waiting.data["until"], UTC) - datetime(2031, 5, 1, 12, tzinfo=UTC) < timedelta(
        seconds=75
    )


def test_a_wait_is_in_the_queue_of_the_step_before_it() -> None:
    """Or after it: a worker that serves the queues of the steps serves the waits between them."""

    class Queued(Saga[Ordered], name="test.queued_waits", version=1):
        first = wait_for(str)

        @step(queue="left", compensate=None)
        def act(self) -> None: ...

        second = wait_for(str)

        @step(queue="right", compensate=None)
        def react(self) -> None: ...

        third = sleep(5)

    assert [each.queue for each in Queued.plan.steps] == ["left", "left", "left", "right", "right"]
