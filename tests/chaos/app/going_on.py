"""Orders that wait, for people and for times, and that come again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sagas import (
    COMPENSATE,
    SKIP,
    CatchUp,
    ContinueAs,
    Saga,
    Schedule,
    Unknown,
    external_step,
    sleep,
    step,
    wait_for,
)
from tests.chaos.app.money import ANY, GOODS, OFTEN, POSTAGE, PRICE, Placed, book, give_back, pay, write

RUNS = 3
TICK = timedelta(seconds=2)


@dataclass(frozen=True)
class Review:
    """What a person has to say."""

    note: str


class Reviewed(Saga[Placed], name="chaos.reviewed", version=1):
    """Two signals, the first in time or all is undone, the second may stay away; then the pivot."""

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    review = wait_for(Review, timeout=timedelta(seconds=12), on_timeout=COMPENSATE)
    remark = wait_for(Review, timeout=timedelta(seconds=2), on_timeout=SKIP)

    @external_step(pivot=True, retry=OFTEN, max_deliveries=ANY, queue="shop")
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @step(retry=OFTEN, max_deliveries=ANY)
    def close(self) -> None:
        write(self.input.order, f"note {self.review.result.note}")
        book(self.input.order, whole=PRICE, parcel=POSTAGE)


class Hurried(Saga[Placed], name="chaos.hurried", version=1, deadline=timedelta(seconds=4)):
    """A few seconds for everything up to the pivot, and an approval that may come too late."""

    @step(retry=OFTEN, max_deliveries=ANY)
    def reserve(self) -> str:
        write(self.input.order, "reserve", GOODS)
        return self.input.order

    @reserve.compensate(retry=OFTEN)
    def release(self, order: str) -> None:
        write(order, "release", -GOODS)

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    review = wait_for(Review)

    @external_step(pivot=True, retry=OFTEN, max_deliveries=ANY)
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @step(retry=OFTEN, max_deliveries=ANY)
    def close(self) -> None:
        write(self.input.order, f"note {self.review.result.note}")
        book(self.input.order, whole=PRICE, parcel=POSTAGE)


class Again(Saga[Placed], name="chaos.again", version=1):
    """Sleeps, is paid for, and comes again as another run of itself."""

    nap = sleep(lambda self: timedelta(seconds=0.5))

    @external_step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def charge(self) -> str:
        return pay(self, PRICE, f"/{self.input.number}")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def again(self) -> str | ContinueAs:
        book(self.input.order, **{str(self.input.number): PRICE})
        more = self.input.number + 1 < RUNS
        return ContinueAs(replace(self.input, number=self.input.number + 1)) if more else "enough"


class Tick(Saga[datetime], name="chaos.tick", version=1):
    """One for each tick of a schedule."""

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def note(self) -> None:
        write("ticks", f"tick {int(self.input.timestamp())}")


Schedule(Tick, every=TICK, input=lambda tick: tick, catch_up=CatchUp.ALL, most=1000)
