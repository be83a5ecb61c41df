"""Sagas that start other sagas."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sagas import (
    COLLECT,
    COMPENSATE,
    FOREVER,
    NotDone,
    Retry,
    Saga,
    child_saga,
    external_step,
    step,
    tolerate,
    wait_for,
)
from tests.shop.sagas import THRICE, Ordered
from tests.shop.waiting import Review
from tests.shop.world import world

QUICK = Retry(max_attempts=FOREVER, first=0.01, factor=1)


@dataclass(frozen=True)
class Paid:
    """What a payment is about."""

    amount: int


class Payment(Saga[Paid], name="test.payment", version=1):
    """A hold on the money, then the money."""

    @external_step(retry=THRICE)
    def hold(self) -> str:
        return world.act("hold", self)

    @hold.compensate(retry=THRICE)
    def let_go(self, hold: str) -> None:
        world.act("let_go", self, hold)

    @external_step(retry=THRICE)
    def take(self) -> str:
        return world.act("take", self)

    @take.compensate(retry=THRICE)
    def give_back(self, taken: str) -> None:
        world.act("give_back", self, taken)


class Purchase(Saga[Ordered], name="test.purchase", version=1):
    """Goods are reserved, a payment is made by a saga of its own, then all is packed."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.act("reserve", self)

    @reserve.compensate(retry=THRICE)
    def release(self, reserved: str) -> None:
        world.act("release", self, reserved)

    payment = child_saga(Payment, input=lambda self: Paid(self.input.number), result=Payment.take)

    @external_step(retry=THRICE)
    def pack(self) -> str:
        world.act("pack", self, self.payment.result)
        return self.payment.result

    @pack.compensate(retry=THRICE)
    def unpack(self, packed: str) -> None:
        world.act("unpack", self, packed)


class Slow(Saga[Ordered], name="test.slow_child", version=1):
    """A child that waits."""

    @external_step(retry=THRICE)
    def open(self) -> str:
        return world.act("open", self)

    @open.compensate(retry=THRICE)
    def close(self, opened: str) -> None:
        world.act("close", self, opened)

    review = wait_for(Review)


class Waiting(Saga[Ordered], name="test.waiting_parent", version=1, deadline=timedelta(days=30)):
    """A parent whose child waits."""

    @external_step(retry=THRICE)
    def first(self) -> str:
        return world.act("first", self)

    @first.compensate(retry=THRICE)
    def undo_first(self, first: str) -> None:
        world.act("undo_first", self, first)

    child = child_saga(Slow, input=lambda self: self.input, result=Slow.review)


class Twice(Saga[Ordered], name="test.twice", version=1):
    """A child that may fail once, beside a wait."""

    paid = child_saga(
        Payment, input=lambda self: Paid(1), retry=Retry(max_attempts=2, first=0.01), result=Payment.take, after=[]
    )
    review = wait_for(Review, timeout=3600, on_timeout=COMPENSATE, after=[])


class Decided(Saga[Ordered], name="test.decided", version=1):
    """The pivot is a step; the child that follows has to complete."""

    @external_step(pivot=True, retry=THRICE)
    def decide(self) -> str:
        return world.act("decide", self)

    paid = child_saga(Payment, input=lambda self: Paid(2), result=Payment.take, retry=QUICK)


class Capture(Saga[Ordered], name="test.capture", version=1):
    """Has a pivot of its own."""

    @external_step(retry=THRICE)
    def hold(self) -> str:
        return world.act("hold", self)

    @hold.compensate(retry=THRICE)
    def let_go(self, hold: str) -> None:
        world.act("let_go", self, hold)

    @external_step(pivot=True, retry=THRICE)
    def capture(self) -> str:
        return world.act("capture", self)


class Decides(Saga[Ordered], name="test.child_decides", version=1):
    """The child decides its parent too."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.act("reserve", self)

    @reserve.compensate(retry=THRICE)
    def release(self, reserved: str) -> None:
        world.act("release", self, reserved)

    captured = child_saga(Capture, input=lambda self: self.input, result=Capture.capture, pivot=True)

    @step
    def note(self) -> str:
        return world.act("note", self)


class Grand(Saga[Ordered], name="test.grand", version=1):
    """A child that has a child."""

    purchase = child_saga(Purchase, input=lambda self: self.input, result=Purchase.pack)

    @external_step(retry=THRICE)
    def thank(self) -> str:
        return world.act("thank", self)

    @thank.compensate(retry=THRICE)
    def unthank(self, thanked: str) -> None:
        world.act("unthank", self, thanked)


class Letters(Saga[Ordered], name="test.letters", version=1):
    """Addresses are found, and a letter is sent to each; not more than three at a time."""

    @external_step(compensate=None)
    def find(self) -> list[int]:
        return list(range(self.input.number))

    @external_step(for_each=lambda self: self.find.result, concurrency=3, max_items=50, retry=THRICE)
    def post(self, item: int) -> str:
        return world.act(f"send-{item}", self, (self.input.number, self.find.result[item]))

    @post.compensate(retry=THRICE)
    def recall(self, item: int, sent: str) -> None:
        world.act(f"recall-{item}", self, sent)

    @external_step(retry=THRICE)
    def report(self) -> int:
        world.act("report", self, self.post.result)
        return len(self.post.result)

    @report.compensate(retry=THRICE)
    def unreport(self, reported: int) -> None:
        world.act("unreport", self, reported)


class Tolerant(Saga[Ordered], name="test.tolerant", version=1):
    """One letter may fail."""

    @external_step(
        for_each=lambda self: range(self.input.number), on_failure=tolerate(1), compensate=None, retry=THRICE
    )
    def post(self, item: int) -> str:
        return world.act(f"send-{item}", self)


class Collects(Saga[Ordered], name="test.collects", version=1):
    """Whatever comes of the letters, it goes on."""

    @external_step(for_each=lambda self: range(self.input.number), on_failure=COLLECT, compensate=None, retry=THRICE)
    async def post(self, item: int) -> str:
        return world.act(f"send-{item}", self, self.input.number)


class Told(Saga[Ordered], name="test.told", version=1):
    """The other side can tell what became of each letter."""

    @external_step(for_each=lambda self: range(self.input.number), on_failure=COLLECT, compensate=None, retry=THRICE)
    def post(self, item: int) -> str:
        return world.act(f"send-{item}", self)

    @post.resolve
    def posted(self, item: int) -> str | NotDone:
        return world.act(f"find-{item}", self)


class After(Saga[Ordered], name="test.each_after", version=1):
    """After the pivot every item has to succeed."""

    @external_step(pivot=True, retry=THRICE)
    def decide(self) -> str:
        return world.act("decide", self)

    @external_step(for_each=lambda self: range(self.input.number), retry=Retry(max_attempts=2, first=0.01))
    def post(self, item: int) -> str:
        return world.act(f"send-{item}", self)


class Unsent(Saga[Ordered], name="test.unsent", version=1):
    """After the pivot, three at a time; to whom is asked of the world."""

    @external_step(pivot=True, retry=THRICE)
    def decide(self) -> str:
        return world.act("decide", self)

    @external_step(
        for_each=lambda self: world.act("unsent", self), concurrency=3, retry=Retry(max_attempts=2, first=0.01)
    )
    def post(self, item: int) -> str:
        return world.act(f"send-{item}", self)


class Twofold(Saga[Ordered], name="test.twofold", version=1):
    """What came of the first letters is told in the second ones."""

    @external_step(for_each=lambda self: range(self.input.number), compensate=None, retry=THRICE)
    def announce(self, item: int) -> str:
        return world.act(f"announce-{item}", self, self.input.number)

    @external_step(for_each=lambda self: range(self.input.number), compensate=None, retry=THRICE)
    def remind(self, item: int) -> str:
        return world.act(f"remind-{item}", self, self.announce.result[item])

    @external_step(for_each=lambda self: range(self.input.number), compensate=None, retry=THRICE)
    async def thank(self, item: int) -> str:
        return world.act(f"thank-{item}", self, self.remind.result[item])
