"""Small sagas that hold semantic locks. What their bodies do is up to the test."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from sagas import COMPENSATE, Retry, Saga, Unknown, child_saga, external_step, semantic_lock, step, wait_for
from tests.shop.models import Booking
from tests.shop.sagas import THRICE
from tests.shop.waiting import Review
from tests.shop.world import world

MINUTES = timedelta(minutes=10)


@dataclass(frozen=True)
class Wanted:
    """What is to be locked."""

    subjects: list[str] = field(default_factory=lambda: ["account:7"])


class Holds(Saga[Wanted], name="test.holds", version=1):
    """An external step that takes its subjects and does not wait for them; then a wait, and the pivot."""

    @external_step(retry=THRICE, lock=semantic_lock(lambda self: self.input.subjects))
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    review = wait_for(Review)

    @external_step(retry=THRICE, pivot=True)
    def ship(self) -> None:
        world.act("ship", self)


class HoldsLocally(Saga[Wanted], name="test.holds_locally", version=1):
    """A local step that takes its subjects."""

    @step(retry=THRICE, lock=semantic_lock(lambda self: self.input.subjects))
    def book(self) -> int:
        world.act("book", self)
        return Booking.objects.create(saga=self.key or "", step="book").pk

    @book.compensate
    def unbook(self, booking: int) -> None:
        world.act("unbook", self)
        Booking.objects.filter(pk=booking).delete()

    review = wait_for(Review)


class Awaits(Saga[Wanted], name="test.awaits", version=1):
    """Waits ten minutes for what another saga holds; one attempt only, so that one used up would show."""

    @external_step(retry=Retry(max_attempts=1), lock=semantic_lock(lambda self: self.input.subjects, wait=MINUTES))
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)


class AwaitsLocally(Saga[Wanted], name="test.awaits_locally", version=1):
    """The same, in a local step after another one."""

    @step
    def first(self) -> None:
        world.act("first", self)

    @first.compensate
    def unfirst(self, nothing: None) -> None:
        world.act("unfirst", self)

    @step(
        retry=Retry(max_attempts=1), compensate=None, lock=semantic_lock(lambda self: self.input.subjects, wait=MINUTES)
    )
    def book(self) -> None:
        world.act("book", self)


class Returns(Saga[Wanted], name="test.returns", version=1):
    """Takes its subjects in one queue, goes on in another, and comes back to the first to end there."""

    @external_step(retry=THRICE, queue="left", lock=semantic_lock(lambda self: self.input.subjects, wait=MINUTES))
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    @external_step(retry=THRICE, pivot=True, queue="right")
    def ship(self) -> None:
        world.act("ship", self)

    @external_step(retry=THRICE, queue="left")
    def tell(self) -> None:
        world.act("tell", self)


class ReturnsLocally(Saga[Wanted], name="test.returns_locally", version=1):
    """The same, and ends with a local step."""

    @step(
        retry=THRICE, compensate=None, queue="left", lock=semantic_lock(lambda self: self.input.subjects, wait=MINUTES)
    )
    def book(self) -> None:
        world.act("book", self)

    @external_step(retry=THRICE, pivot=True, queue="right")
    def ship(self) -> None:
        world.act("ship", self)

    @step(retry=THRICE, queue="left")
    def note(self) -> None:
        world.act("note", self)


class Crossing(Saga[Wanted], name="test.crossing", version=1):
    """Takes two subjects, one after the other."""

    @external_step(retry=THRICE, compensate=None, lock=semantic_lock(lambda self: self.input.subjects[0], wait=60))
    def one(self) -> None:
        world.act("one", self)

    @external_step(retry=THRICE, compensate=None, lock=semantic_lock(lambda self: self.input.subjects[1], wait=60))
    def two(self) -> None:
        world.act("two", self)


class Async(Saga[Wanted], name="test.holds_async", version=1):
    """An `async def` body."""

    @external_step(retry=THRICE, compensate=None, lock=semantic_lock("account:7", wait=60))
    async def charge(self) -> str:
        return world.act("charge", self)


class Odd(Saga[Wanted], name="test.holds_odd", version=1):
    """A subject that cannot be."""

    @external_step(
        retry=Retry(max_attempts=2, first=0.01),
        compensate=None,
        lock=semantic_lock(lambda self: world.act("ask", self)),
    )
    def charge(self) -> str:
        return world.act("charge", self)


class Guest(Saga[Wanted], name="test.holds_as_child", version=1):
    """Takes what its parent has, or anybody else."""

    @external_step(retry=THRICE, lock=semantic_lock(lambda self: self.input.subjects))
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)


class Host(Saga[Wanted], name="test.holds_for_child", version=1):
    """Takes its subjects, then starts a child that takes the same."""

    @step(compensate=None, lock=semantic_lock(lambda self: self.input.subjects))
    def hold(self) -> None:
        world.act("hold", self)

    guest = child_saga(Guest, input=lambda self: self.input)

    review = wait_for(Review)


class Blind(Saga[Wanted], name="test.holds_blind", version=1):
    """One attempt; what nobody can tell of it is undone as unknown."""

    @external_step(
        retry=Retry(max_attempts=1),
        on_unknown=COMPENSATE,
        lock=semantic_lock(lambda self: self.input.subjects),
    )
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str | Unknown) -> None:
        world.act("refund", self, charge)
