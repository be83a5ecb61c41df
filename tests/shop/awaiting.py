"""Sagas whose bodies are `async def` and call a slow server (`tests.support.slow_server`)."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass

from sagas import NOT_DONE, NotDone, Retry, Saga, external_step, step
from tests.shop.models import Booking
from tests.shop.world import world
from tests.support.slow_server import call

SOON = Retry(max_attempts=3, first=10)  # `drain` does not wait for it
mark: ContextVar[str] = ContextVar("mark", default="nobody")


@dataclass(frozen=True)
class Asked:
    """Where the server is, and how long it takes to answer: seconds, or "gate"."""

    port: int = 0
    wait: float | str = 0.0


class Slow(Saga[Asked], name="awaiting.slow", version=1):
    """One slow call."""

    @external_step(compensate=None, timeout=20)
    async def charge(self) -> str:
        return await call(self.input.port, self.idempotency_key, self.input.wait)


class Plain(Saga[Asked], name="awaiting.plain", version=1):
    """One step that is no `async def`, in the same queue."""

    @external_step(compensate=None)
    def act(self) -> None:
        world.act("act", self)


class Mixed(Saga[Asked], name="awaiting.mixed", version=1):
    """Local, awaited, external, awaited, local; undone by both kinds."""

    @step
    def book(self) -> int:
        return Booking.objects.create(saga=str(self.key), step="book").pk

    @book.compensate(external=True)
    async def unbook(self, booking: int) -> None:
        world.act("unbook", self, booking)
        await Booking.objects.filter(pk=booking).adelete()

    @external_step(retry=SOON)
    async def charge(self) -> str:
        world.act("charge", self)
        await asyncio.sleep(0)
        return f"charge of {self.book.result}"

    @charge.resolve
    async def find_charge(self) -> str | NotDone:
        found = world.act("find_charge", self)
        return NOT_DONE if found.startswith("find_charge") else str(found)

    @charge.compensate(retry=SOON)
    async def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    @external_step
    def tell(self) -> None:
        world.act("tell", self)

    @tell.resolve
    async def find_tell(self) -> NotDone | None:
        world.act("find_tell", self)
        return NOT_DONE

    @tell.compensate
    def untell(self, _: None) -> None:
        world.act("untell", self)

    @external_step(compensate=None, retry=SOON, when=lambda self: self.charge.result != "")
    async def ship(self) -> str:
        world.act("ship", self)
        return f"sent for {self.charge.result}"

    @step(compensate=None)
    def confirm(self) -> None:
        Booking.objects.create(saga=str(self.key), step=self.ship.result[:20])


class Limited(Saga[Asked], name="awaiting.limited", version=1):
    """A body that has a fifth of a second, and heeds that or not."""

    @external_step(compensate=None, timeout=0.2, retry=Retry(max_attempts=1))
    async def charge(self) -> str:
        world.act("charge", self)
        try:
            return await call(self.input.port, self.idempotency_key, self.input.wait)
        except asyncio.CancelledError:
            world.act("cancelled", self)
            raise


class Effects(Saga[Asked], name="awaiting.effects", version=1):
    """Two effects and a progress."""

    @external_step(compensate=None, retry=SOON)
    async def pay(self) -> list[str]:
        world.act("begin", self, self.progress)

        async def charge(key: str) -> str:
            world.ask("charge", self, key)
            await asyncio.sleep(0)
            return key.split(":", 1)[1]

        both = await asyncio.gather(
            self.aeffect("one", charge, returns=str), self.aeffect("two", charge, returns=str, request={"of": 2})
        )
        await self.aheartbeat(progress={"paid": len(both)})
        self.heartbeat()
        world.act("end", self)
        return list(both)


class Blocking(Saga[Asked], name="awaiting.blocking", version=1):
    """Asks for what would hold up the loop."""

    @external_step(compensate=None, retry=Retry(max_attempts=1))
    async def act(self) -> str:
        try:
            world.act("act", self)
            self.effect("one", lambda key: key, returns=str)
        except Exception as problem:
            return f"{type(problem).__name__}: {problem}"
        return "it went"


class Own(Saga[Asked], name="awaiting.own", version=1):
    """Each body has a context of its own, and uses the ORM."""

    @external_step(compensate=None)
    async def act(self) -> str:
        before = mark.get()
        mark.set(str(self.key))
        await Booking.objects.acreate(saga=str(self.key), step="act")
        await asyncio.sleep(0.01)
        return f"{before} {mark.get()}"


class Twice(Saga[Asked], name="awaiting.twice", version=1):
    """Two awaited steps, one after the other."""

    @external_step(compensate=None)
    async def one(self) -> int:
        await asyncio.sleep(0)
        return 1

    @external_step(compensate=None)
    async def two(self) -> int:
        await asyncio.sleep(0)
        return self.one.result + 1
