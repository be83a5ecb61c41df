"""Many small sagas. What their bodies do is up to the test: see `tests.shop.world`."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from sagas import COMPENSATE, NotDone, Retry, Saga, Unknown, external_step, step
from tests.shop.models import Booking
from tests.shop.world import world

THRICE = Retry(max_attempts=3, first=10)  # seconds, halved by the tests' jitter; `drain` does not wait for them
OFTEN = Retry(max_attempts=5, first=10, longest=20, give_up_on=(ValueError,))


@dataclass(frozen=True)
class Ordered:
    """The usual input."""

    number: int = 0


class Trip(Saga[Ordered], name="test.trip", version=1):
    """Local, external, local; each can be undone."""

    @step(retry=THRICE)
    def book(self) -> int:
        world.act("book", self)
        return Booking.objects.create(saga=self.key, step="book").pk

    @book.compensate(retry=THRICE)
    def unbook(self, booking: int) -> None:
        world.act("unbook", self, booking)
        Booking.objects.filter(pk=booking).delete()

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    @step(retry=THRICE)
    def confirm(self) -> str:
        world.act("confirm", self, (self.book.result, self.charge.result))
        Booking.objects.create(saga=self.key, step="confirm")
        return "confirmed"

    @confirm.compensate(retry=THRICE)
    def withdraw(self, confirmed: str) -> None:
        world.act("withdraw", self, confirmed)


class Locals(Saga[Ordered], name="test.locals", version=1):
    """Three local steps, one insert each."""

    @step(compensate=None)
    def one(self) -> None:
        Booking.objects.create(saga=self.key, step="one")

    @step(compensate=None)
    def two(self) -> None:
        Booking.objects.create(saga=self.key, step="two")

    @step(compensate=None)
    def three(self) -> None:
        Booking.objects.create(saga=self.key, step="three")


class Externals(Saga[Ordered], name="test.externals", version=1):
    """Three external steps that do nothing."""

    @external_step(compensate=None)
    def one(self) -> None: ...

    @external_step(compensate=None)
    def two(self) -> None: ...

    @external_step(compensate=None)
    def three(self) -> None: ...


class Local(Saga[Ordered], name="test.local", version=1):
    """One local step that writes, then does what the test says."""

    @step(retry=THRICE, compensate=None)
    def body(self) -> None:
        Booking.objects.create(saga=self.key, step="body")
        world.act("body", self)


class Charge(Saga[Ordered], name="test.charge", version=1):
    """A step before, and an external one that can only be undone given its result."""

    @step
    def book(self) -> str:
        return "booking"

    @book.compensate
    def unbook(self, booking: str) -> None:
        world.act("unbook", self, booking)

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)


class Asked(Saga[Ordered], name="test.asked", version=1):
    """An external step with a `resolve`."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.resolve
    def find(self) -> str | NotDone:
        return world.act("find", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)


class AskedPivot(Saga[Ordered], name="test.asked_pivot", version=1):
    """A pivot with a `resolve`."""

    @step
    def book(self) -> str:
        return "booking"

    @book.compensate
    def unbook(self, booking: str) -> None:
        world.act("unbook", self, booking)

    @external_step(pivot=True, retry=THRICE)
    def ship(self) -> str:
        return world.act("ship", self)

    @ship.resolve
    def find(self) -> str | NotDone:
        return world.act("find", self)


class Blind(Saga[Ordered], name="test.blind", version=1):
    """Undone without an answer; nobody can be asked, so settling undoes once more."""

    @external_step(retry=Retry(max_attempts=1), on_unknown=COMPENSATE, settle_after=60)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str | Unknown) -> None:
        world.act("refund", self, charge)


class BlindAsked(Saga[Ordered], name="test.blind_asked", version=1):
    """Undone without an answer; settling asks once more."""

    @external_step(retry=Retry(max_attempts=1), on_unknown=COMPENSATE, settle_after=60)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.resolve
    def find(self) -> str | NotDone:
        return world.act("find", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str | Unknown) -> None:
        world.act("refund", self, charge)


class UndoAsked(Saga[Ordered], name="test.undo_asked", version=1):
    """The compensation has a `resolve` of its own; the second step is what makes it necessary."""

    @external_step
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    @refund.resolve
    def find_refund(self, charge: str) -> NotDone | None:
        return world.act("find_refund", self, charge)

    @step(retry=THRICE, compensate=None)
    def body(self) -> None:
        world.act("body", self)


class Picky(Saga[Ordered], name="test.picky", version=1):
    """Gives up on some errors; its key is forgotten after 30 seconds."""

    @step(retry=OFTEN, compensate=None)
    def here(self) -> None:
        world.act("here", self)

    @external_step(retry=OFTEN, key_ttl=30, compensate=None)
    def there(self) -> None:
        world.act("there", self)


class Pivoted(Saga[Ordered], name="test.pivoted", version=1):
    """No way back after the second step."""

    @step
    def book(self) -> str:
        return "booking"

    @book.compensate
    def unbook(self, booking: str) -> None:
        world.act("unbook", self, booking)

    @external_step(pivot=True, retry=THRICE)
    def ship(self) -> None:
        world.act("ship", self)

    @external_step(retry=THRICE)
    def invoice(self) -> None:
        world.act("invoice", self)

    @step(retry=THRICE)
    def confirm(self) -> None:
        world.act("confirm", self)


class OneAttempt(Saga[Ordered], name="test.one_attempt", version=1):
    """A step that may begin once, after one that is quick and shares batches."""

    @external_step(compensate=None)
    def prepare(self) -> None:
        world.act("prepare", self)

    @external_step(compensate=None, retry=Retry(max_attempts=1))
    def once(self) -> None:
        world.act("once", self)


class Queues(Saga[Ordered], name="test.queues", version=1):
    """Steps in queues of their own."""

    @external_step(compensate=None, queue="left")
    def left(self) -> None:
        world.act("left", self)

    @external_step(compensate=None, queue="right")
    def right(self) -> None:
        world.act("right", self)


@dataclass(frozen=True)
class Before:
    """An input as it was released first."""

    number: int


@dataclass(frozen=True)
class After:
    """The same with a field added since."""

    number: int
    gift: bool = False


class Grown1(Saga[Before], name="test.grown", version=1):
    """The first release."""

    @step(compensate=None)
    def body(self) -> None: ...


class Grown2(Saga[After], name="test.grown", version=2):
    """The release that added a field."""

    @step(compensate=None)
    def body(self) -> None: ...


@dataclass(frozen=True)
class Line:
    """Part of `Everything`."""

    text: str = ""
    price: Decimal = Decimal(0)


@dataclass(frozen=True)
class Everything:
    """Every kind of value that an input may hold wrongly."""

    text: str = ""
    weight: float = 0.0
    when: datetime | None = None
    lines: list[Line] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)


class Kinds(Saga[Everything], name="test.kinds", version=1):
    """Takes and returns all kinds of values."""

    @external_step(retry=THRICE)
    def charge(self) -> Everything:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: Everything) -> None:
        world.act("refund", self, charge)


class LocalKinds(Saga[Everything], name="test.local_kinds", version=1):
    """The same in a local step."""

    @step(retry=THRICE)
    def body(self) -> Everything:
        Booking.objects.create(saga=self.key, step="body")
        return world.act("body", self)

    @body.compensate
    def unbody(self, result: Everything) -> None:
        world.act("unbody", self, result)


class Effects(Saga[Ordered], name="test.effects", version=1):
    """Two guarded effects in one external step."""

    @external_step(retry=THRICE)
    def pay(self) -> str:
        def debit(key: str) -> str:
            return world.ask("debit", self, key)

        def credit(key: str) -> str:
            return world.ask("credit", self, key)

        world.act("pay", self)
        amount = world.amount
        return self.effect("debit", debit, returns=str, request={"amount": amount}) + self.effect(
            "credit", credit, returns=str, request={"amount": amount}
        )

    @pay.compensate(retry=THRICE)
    def refund(self, paid: str | Unknown) -> None:
        world.act("refund", self, paid)


class LocalEffect(Saga[Ordered], name="test.local_effect", version=1):
    """Asks for a guard where none is needed."""

    @step(compensate=None, retry=Retry(max_attempts=1))
    def body(self) -> str:
        return self.effect("debit", lambda key: world.ask("debit", self, key), returns=str)
