"""Orders paid in every way that a step can be declared; `going_on` and `together` have the other constructs."""

from __future__ import annotations

import asyncio

from sagas import COMPENSATE, FOREVER, NotDone, Refused, Retry, Saga, Skip, Unknown, external_step, step
from tests.chaos.app.models import Line
from tests.chaos.app.money import (
    ANY,
    GOODS,
    OFTEN,
    POSTAGE,
    PRICE,
    WORD,
    Placed,
    bank,
    book,
    give_back,
    pay,
    write,
)

ONCE = Retry(max_attempts=1)


class Keyed(Saga[Placed], name="chaos.keyed", version=1):
    """Local, external by key, pivot, and what follows is tried for ever; where it is unknown, it is sent again."""

    @step(retry=OFTEN, max_deliveries=ANY, queue="shop")
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

    @external_step(pivot=True, retry=OFTEN, max_deliveries=ANY, queue="shop")
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @external_step(retry=Retry(max_attempts=FOREVER, first=0.1, longest=0.5), max_deliveries=ANY)
    def tell(self) -> str:
        return pay(self, WORD, "/word")

    @step(retry=OFTEN, max_deliveries=ANY)
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE, word=WORD)


class Asked(Saga[Placed], name="chaos.asked", version=1):
    """The same with a `resolve`: what is unknown is asked about before anything else."""

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

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return bank.find_charge(self.idempotency_key)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    @external_step(pivot=True, retry=OFTEN, max_deliveries=ANY)
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @ship.resolve
    def find_parcel(self) -> str | NotDone:
        return bank.find_charge(self.idempotency_key)

    @step(retry=OFTEN, max_deliveries=ANY)
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE)


class Blind(Saga[Placed], name="chaos.blind", version=1):
    """One attempt, nobody to ask: undone as unknown, by key, and once more when it settles."""

    @external_step(retry=ONCE, on_unknown=COMPENSATE, settle_after=1, max_deliveries=ANY)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        book(self.input.order, whole=PRICE)


class Doubt(Saga[Placed], name="chaos.doubt", version=1):
    """One attempt, nobody to ask, and it cannot be undone without an answer: a person has to look."""

    @external_step(retry=ONCE, settle_after=1, max_deliveries=ANY)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str) -> None:
        give_back(self, paid, "charge")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        book(self.input.order, whole=PRICE)


class Choosy(Saga[Placed], name="chaos.choosy", version=1):
    """Odd orders are wrapped, which is paid for; the fifth of ten is unlucky."""

    @external_step(
        retry=OFTEN,
        max_deliveries=ANY,
        settle_after=1,
        when=lambda self: Skip("unlucky") if self.input.number % 10 == 5 else self.input.number % 2 == 1,
    )
    def wrap(self) -> str:
        return pay(self, PRICE)

    @wrap.compensate(retry=OFTEN)
    def unwrap(self, paid: str | Unknown) -> None:
        give_back(self, paid, "wrap")

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1, queue="shop")
    def post(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @post.compensate(retry=OFTEN)
    def unpost(self, paid: str | Unknown) -> None:
        give_back(self, paid, "post")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        wrapped = {"whole": PRICE} if self.wrap.status == "done" else {}
        book(self.input.order, parcel=POSTAGE, **wrapped)


class Awaited(Saga[Placed], name="chaos.awaited", version=1):
    """`async def` bodies."""

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    async def charge(self) -> str:
        return await asyncio.to_thread(pay, self, PRICE, key=self.idempotency_key)

    @charge.compensate(retry=OFTEN)
    async def refund(self, paid: str | Unknown) -> None:
        await asyncio.to_thread(give_back, self, paid, "charge")

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    async def ship(self) -> str:
        return await asyncio.to_thread(pay, self, POSTAGE, "/parcel", key=self.idempotency_key)

    @ship.compensate(retry=OFTEN)
    async def unship(self, paid: str | Unknown) -> None:
        await asyncio.to_thread(give_back, self, paid, "ship")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE)


class Effects(Saga[Placed], name="chaos.effects", version=1):
    """Two guarded effects in one step, which stumbles between them at first; the second is sometimes declined.

    Once `effect()` has returned, what it guards is never called again: this is noted down, and looked at.
    """

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def charge(self) -> list[str]:
        one = self.effect("one", self._pay_one, returns=str)
        Line.objects.get_or_create(order=self.input.order, what="had one")
        if self.attempt == 1:
            raise RuntimeError("stumbles")
        try:
            return [one, self.effect("two", lambda key: pay(self, POSTAGE, "/parcel", key=key), returns=str)]
        except Refused:
            give_back(self, one, "charge")  # `Refused` says that this step leaves nothing behind
            raise

    def _pay_one(self, key: str) -> str:
        if Line.objects.filter(order=self.input.order, what="had one").exists():
            write(self.input.order, "effect again")
        return pay(self, PRICE, key=key)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: list[str] | Unknown) -> None:
        for number, effect in enumerate(("one", "two")):
            if isinstance(paid, list):
                bank.refund(paid[number], idempotency_key=f"{self.idempotency_key}:{effect}")
            else:
                key = f"{self.id}:charge/{effect}:do:0"
                bank.void(key, idempotency_key=f"{self.idempotency_key}:{effect}")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE)
