"""Waits, signals, choices and what a test of a user's sagas does, checked by type checkers only; see `api.py`."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, assert_type

from sagas import (
    COMPENSATE,
    KEEP,
    PARK,
    SKIP,
    ContinueAs,
    Saga,
    Sensitive,
    Skip,
    Step,
    StepRun,
    Wait,
    external_step,
    sleep,
    sleep_until,
    step,
    wait_for,
)
from sagas.engine import SagaRun
from sagas.testing import Kit, answers, assert_started, drain, run_saga


@dataclass(frozen=True)
class Ordered:
    order_id: int
    card: Annotated[str, Sensitive]


@dataclass(frozen=True)
class Review:
    ok: bool


class PlaceOrder(Saga[Ordered], name="typing.waiting", version=1, deadline=timedelta(days=1)):
    review = wait_for(Review, timeout=timedelta(days=2), on_timeout=COMPENSATE)
    second = wait_for(str, timeout=timedelta(days=2), on_timeout=PARK)
    third = wait_for(int, on_timeout=SKIP, timeout=60)
    soon = sleep(timedelta(hours=1))
    later = sleep_until(datetime(2030, 1, 1, tzinfo=UTC))

    @external_step(after=[], when=lambda self: self.input.order_id > 0 or Skip("no"))
    def flight(self) -> str:
        return "f"

    @flight.compensate
    def cancel_flight(self, flight: str) -> None: ...

    @step(after=[flight, review], pivot=True)
    def pay(self) -> int | ContinueAs:
        assert_type(self.review, StepRun[Review])
        assert_type(self.review.result, Review)
        assert_type(self.second.result, str)
        assert_type(self.third.status, str)
        assert_type(self.flight.result, str)
        return 1


def from_outside() -> None:
    """Signals are typed by their wait."""
    assert_type(PlaceOrder.review, Wait[Review])
    assert_type(PlaceOrder.flight, Step[PlaceOrder, str])
    assert_type(PlaceOrder.review.send(Review(ok=True), key="order-7", dedupe_id="w1", actor="ann", reason="ok"), bool)
    PlaceOrder.review.send(Review(ok=True), key="order-7", missing=KEEP)
    PlaceOrder.review.send("yes", key="order-7")  # type: ignore[arg-type]
    PlaceOrder.third.send("1", key="order-7")  # type: ignore[arg-type]


async def awaited() -> None:
    """The same, awaited."""
    assert_type(await PlaceOrder.review.asend(Review(ok=True), key="order-7", using=object()), bool)
    await PlaceOrder.review.asend(1, key="order-7")  # type: ignore[arg-type]


def in_a_test(sagas: Kit) -> None:
    """The kit."""
    run = sagas.run(PlaceOrder, Ordered(1, "4111"))
    assert_type(run, SagaRun)
    assert_type(run_saga(PlaceOrder, Ordered(1, "4111"), key="order-7"), SagaRun)
    answers(PlaceOrder).flight.returns("f1")
    assert_started(PlaceOrder, key="order-7")
    drain()
    sagas.assert_status(run, "completed")
