"""Small sagas that wait, choose, and go on for long. What their bodies do is up to the test."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sagas import COMPENSATE, SKIP, Retry, Saga, Skip, Wait, external_step, sleep, sleep_until, step, wait_for
from tests.shop.sagas import THRICE, Ordered
from tests.shop.world import world


@dataclass(frozen=True)
class Review:
    """What a person, or a webhook, has to say."""

    ok: bool
    note: str = ""


class Reviewed(Saga[Ordered], name="test.reviewed", version=1):
    """Money is taken, a person looks at it, goods are sent."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    review = wait_for(Review, timeout=timedelta(days=2), on_timeout=COMPENSATE)

    @external_step(retry=THRICE, pivot=True)
    def ship(self) -> None:
        world.act("ship", self, self.review.result.note)


class Patient(Saga[Ordered], name="test.patient", version=1):
    """Waits without end, then for two more signals; one of them may stay away."""

    first = wait_for(Review)
    second = wait_for(Review, timeout=60, on_timeout=SKIP)

    @step(compensate=None)
    def told(self) -> list[str]:
        world.act("told", self)
        return [self.first.result.note, self.second.result.note if self.second.status == "done" else "-"]


class Questioned(Saga[Ordered], name="test.questioned", version=1):
    """Parks when nobody answers."""

    answer = wait_for(Review, timeout=60)

    @step(compensate=None)
    def told(self) -> str:
        return self.answer.result.note


class Sleeper(Saga[Ordered], name="test.sleeper", version=1):
    """Sleeps a fixed time, a time that its input says, and until a moment."""

    nap = sleep(timedelta(hours=1))
    longer = sleep(lambda self: timedelta(hours=self.input.number))
    until = sleep_until(lambda self: datetime(2020, 1, 1, tzinfo=UTC))

    @step(compensate=None)
    def awake(self) -> None:
        world.act("awake", self)


class Choosy(Saga[Ordered], name="test.choosy", version=1):
    """Wraps what is a gift: above 10, and never 13."""

    @step(compensate=None)
    def price(self) -> int:
        return self.input.number

    @external_step(
        retry=THRICE, when=lambda self: Skip("unlucky") if self.input.number == 13 else self.price.result > 10
    )
    def wrap(self) -> str:
        return world.act("wrap", self)

    @wrap.compensate(retry=THRICE)
    def unwrap(self, wrapped: str) -> None:
        world.act("unwrap", self, wrapped)

    @external_step(retry=THRICE, compensate=None)
    def post(self) -> str:
        return world.act("post", self, self.wrap.status)


class Import(Saga[Ordered], name="test.import", version=1):
    """A long import that says how far it has come."""

    @external_step(retry=Retry(max_attempts=5, first=10), compensate=None)
    def load(self) -> int:
        done = self.progress or 0
        for line in range(done, self.input.number):
            world.act("line", self, line)
            self.heartbeat(progress=line + 1)
        return self.input.number

    @external_step(compensate=None)
    def after(self) -> None:
        world.act("after", self, self.progress)


class Shipped(Saga[Ordered], name="test.shipped", version=1):
    """After its pivot it goes on until it has succeeded."""

    @external_step(pivot=True, retry=THRICE)
    def pay(self) -> str:
        return world.act("pay", self)

    @external_step()
    def tell(self) -> str:
        return world.act("tell", self)


class ReviewedBefore(Saga[Ordered], name="test.reviewed", version=2):
    """A version of `Reviewed` that has no review and waits for a payment instead."""

    paid = wait_for(str)


class Crowded(Saga[Ordered], name="test.crowded", version=1):
    """Waits for a start that never comes, while signals for later waits pile up."""

    go = wait_for(str)
    one = wait_for(str)
    two = wait_for(str)

    @classmethod
    def waits(cls) -> list[Wait[str]]:
        """The waits that signals may be sent to early."""
        return [cls.one, cls.two]


class Choice:
    """What a condition answers next; a text is a reason to skip."""

    answers: list[Any]

    def ask(self) -> Any:
        """The next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Skip(answer) if isinstance(answer, str) else answer


choice = Choice()


class Whimsical(Saga[Ordered], name="test.whimsical", version=1):
    """A first step whose condition says what a test wants."""

    @external_step(retry=THRICE, when=lambda self: choice.ask())
    def wrap(self) -> str:
        return world.act("wrap", self)

    @wrap.compensate(retry=THRICE)
    def unwrap(self, wrapped: str) -> None:
        world.act("unwrap", self, wrapped)

    @external_step(retry=THRICE, compensate=None)
    def post(self) -> str:
        return world.act("post", self, self.wrap.status)


class Hurried(Saga[Ordered], name="test.hurried", version=1, deadline=timedelta(hours=1)):
    """An hour for everything up to the pivot."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate(retry=THRICE)
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    review = wait_for(Review)

    @external_step(retry=Retry(max_attempts=50, first=60, longest=3600), pivot=True)
    def ship(self) -> str:
        return world.act("ship", self)

    @external_step()
    def tell(self) -> str:
        return world.act("tell", self)


class LocalImport(Saga[Ordered], name="test.local_import", version=1):
    """A local step that wants to keep how far it has come."""

    @step(compensate=None, retry=Retry(max_attempts=1))
    def load(self) -> None:
        self.heartbeat(progress=1)


class Naive(Saga[Ordered], name="test.naive", version=1):
    """Sleeps as long as a test says."""

    nap = sleep(lambda self: world.act("when", self))

    @step(compensate=None)
    def awake(self) -> None:
        world.act("awake", self)


class LastWord(Saga[Ordered], name="test.last_word", version=1):
    """Ends with a wait."""

    word = wait_for(str)
