"""Sagas whose payloads matter: of many types, sensitive, or large."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import msgspec
from pydantic import BaseModel

from sagas import Saga, Sensitive, external_step, step, wait_for
from tests.shop.sagas import THRICE
from tests.shop.world import world

SEVEN = UUID(int=7)
MARKER = "4111-MARKER-1111"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An input with something of everything."""

    card: Annotated[str, Sensitive] = MARKER
    amount: Decimal = Decimal("12345678901234567.890")
    id: UUID = SEVEN
    day: date = date(2026, 2, 28)
    at: datetime = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    lines: list[tuple[str, int]] = field(default_factory=lambda: [("a", 1)])
    raw: bytes = b"\x00\xff"


class Receipt(msgspec.Struct, frozen=True):
    """A result."""

    total: Decimal
    code: Annotated[str | None, Sensitive] = None


class Review(BaseModel):
    """A signal."""

    ok: bool
    note: Annotated[str, Sensitive] = ""


class Vaulted(Saga[Order], name="test.vaulted", version=1):
    """Every place where a payload is stored: input, result, effect, signal."""

    @step(retry=THRICE)
    def take(self) -> Receipt:
        world.act("take", self, self.input)
        return Receipt(self.input.amount, self.input.card + "-taken")

    @take.compensate(retry=THRICE)
    def give_back(self, receipt: Receipt) -> None:
        world.act("give_back", self, (self.input, receipt))

    @external_step(retry=THRICE)
    def charge(self) -> Receipt:
        made = Receipt(Decimal("1.10"), MARKER + "-charged")
        had: Receipt = self.effect("pay", lambda key: made, returns=Receipt, request=self.input.card)
        world.act("charge", self, (self.input, self.take.result, had))
        return had

    @charge.compensate(retry=THRICE)
    def refund(self, receipt: Receipt) -> None:
        world.act("refund", self, (self.input, receipt))

    review = wait_for(Review)

    @external_step(retry=THRICE, compensate=None)
    def ship(self) -> None:
        world.act("ship", self, (self.input, self.take.result, self.charge.result, self.review.result))


class Bulk(Saga[bytes], name="test.bulk", version=1):
    """A large input, a large result, and small steps after them."""

    @external_step(retry=THRICE)
    def make(self) -> bytes:
        world.act("make", self)
        return self.input[::-1]

    @make.compensate(retry=THRICE)
    def unmake(self, made: bytes) -> None:
        world.act("unmake", self, made == self.input[::-1])

    @step(compensate=None, retry=THRICE)
    def note(self) -> int:
        world.act("note", self)
        return 1

    @external_step(compensate=None, retry=THRICE)
    def look(self) -> bool:
        world.act("look", self)
        return self.make.result == self.input[::-1]

    @external_step(compensate=None, retry=THRICE)
    def end(self) -> None:
        world.act("end", self)


class AsyncBulk(Saga[bytes], name="test.async_bulk", version=1):
    """A large input, read by a body on the event loop."""

    @external_step(compensate=None, retry=THRICE)
    async def look(self) -> int:
        world.act("look", self, len(self.input))
        return len(self.input)
