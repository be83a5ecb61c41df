"""How users write sagas, checked by type checkers only: `mypy --strict` and pyright must accept every line but
those marked to be ignored, and must reject those (unused marks are errors in both)."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import assert_type
from uuid import UUID

from sagas import (
    COMPENSATE,
    NOT_DONE,
    PARK,
    UNKNOWN,
    NotDone,
    OnExisting,
    Refused,
    Retry,
    Saga,
    Schedule,
    Step,
    StepRun,
    Undecided,
    Unknown,
    external_step,
    semantic_lock,
    step,
)
from sagas.engine import SagaRun


@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    amount: Decimal


class PlaceOrder(Saga[OrderPlaced], name="typing.place_order", version=1):
    @step
    def reserve(self) -> UUID:
        assert_type(self.input, OrderPlaced)
        assert_type(self.id, UUID)
        assert_type(self.key, str | None)
        assert_type(self.idempotency_key, str)
        assert_type(self.attempt, int)
        assert_type(self.headers, Mapping[str, str])
        self.heartbeat()
        assert_type(self.effect("pay", lambda key: len(key), returns=int), int)
        return self.input.order_id

    @reserve.compensate
    def release(self, reservation: UUID) -> None: ...

    @external_step(
        retry=Retry(max_attempts=8, give_up_on=(ValueError,)),
        timeout=30,
        queue="payments",
        key_ttl=timedelta(hours=24),
        on_unknown=COMPENSATE,
        settle_after=60,
        max_deliveries=3,
        lock=semantic_lock(lambda self: f"order:{self.input.order_id}", wait=timedelta(minutes=5)),
    )
    def charge(self) -> str:
        assert_type(self.reserve, StepRun[UUID])
        assert_type(self.reserve.result, UUID)
        assert_type(self.reserve.attempts, int)
        assert_type(self.reserve.status, str)
        raise Refused("card declined")

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        if self.attempt > 3:
            raise Undecided
        return NOT_DONE

    @charge.compensate(retry=Retry(first=5), timeout=timedelta(seconds=3), queue="refunds", external=True)
    def refund(self, charge_id: str | Unknown) -> None:
        if charge_id is UNKNOWN:
            return
        assert_type(charge_id, str)

    @refund.resolve
    def find_refund(self, charge_id: str | Unknown) -> NotDone | None:
        return None

    @step(compensate=None, on_unknown=PARK)  # type: ignore[call-overload, untyped-decorator]
    def local_steps_are_never_unknown(self) -> None: ...

    @external_step(pivot=True, compensate=None)
    def ship(self) -> None:
        assert_type(self.charge.result, str)
        wrong: int = self.charge.result  # type: ignore[assignment]
        del wrong
        self.charge.result = "x"  # type: ignore[misc]


class Awaited(Saga[OrderPlaced], name="typing.awaited", version=1):
    """`async def` where external; results have the same types."""

    @external_step
    async def ask(self) -> int:
        await self.aheartbeat(progress=1)
        return 1

    @external_step(timeout=3)
    async def charge(self) -> str:
        async def pay(key: str) -> int:
            return len(key)

        assert_type(self.ask.result, int)
        assert_type(await self.aeffect("pay", pay, returns=int), int)
        return "c1"

    @charge.resolve
    async def find_charge(self) -> str | NotDone:
        return NOT_DONE

    @charge.compensate(retry=Retry(first=5))
    async def refund(self, charge_id: str) -> None: ...

    @refund.resolve
    async def find_refund(self, charge_id: str) -> NotDone | None:
        return None

    @step(compensate=None)
    def note(self) -> str:
        return self.charge.result


class Wrong(Saga[OrderPlaced]):
    @external_step
    def charge(self) -> str:
        return "c1"

    @charge.compensate  # type: ignore[arg-type]
    def refund(self, charge_id: int) -> None: ...

    @charge.resolve  # type: ignore[arg-type]
    def find(self) -> int:
        return 1

    @charge.compensate  # type: ignore[arg-type]
    def undo(self, charge_id: str) -> int:
        return 1


def on_the_class(order: OrderPlaced) -> None:
    """What the outside may do."""
    assert_type(PlaceOrder.reserve, Step[PlaceOrder, UUID])
    assert_type(PlaceOrder.fingerprint(), str)
    assert_type(PlaceOrder.saga_version, int)
    PlaceOrder.start(order)
    PlaceOrder.start(order, key="k", on_existing=OnExisting.RAISE, headers={"a": "b"}, own_transaction=True)
    assert_type(PlaceOrder.get(key="k"), SagaRun)
    assert_type(PlaceOrder.reserve.result_of(key="k"), UUID)
    assert_type(PlaceOrder.charge.results_of([order.order_id]), dict[UUID, str])
    PlaceOrder.cancel(key="k", reason="asked for")

    PlaceOrder.start("order")  # type: ignore[arg-type]
    PlaceOrder.start(order, key=7)  # type: ignore[arg-type]
    PlaceOrder.start(order, on_existing="raise")  # type: ignore[arg-type]
    PlaceOrder.cancel(key="k")  # type: ignore[call-arg]
    print(PlaceOrder.charge.result)  # type: ignore[attr-defined]


async def awaited(order: OrderPlaced) -> None:
    """The twins take and give the same."""
    assert_type(await PlaceOrder.astart(order, key="k", using=object(), subject=order), SagaRun)
    assert_type(await PlaceOrder.aget(id=order.order_id), SagaRun)
    assert_type(await PlaceOrder.reserve.aresult_of(id=order.order_id, using=object()), UUID)
    assert_type(await PlaceOrder.charge.aresults_of(()), dict[UUID, str])
    await PlaceOrder.acancel(key="k", reason="asked for")
    await PlaceOrder.astart("order")  # type: ignore[arg-type]
    await PlaceOrder.acancel(key="k")  # type: ignore[call-arg]


def by_the_clock(order: OrderPlaced) -> None:
    """A schedule gives its saga what that takes, or makes it from the tick."""
    assert_type(Schedule(PlaceOrder, cron="0 6 * * *", input=order), Schedule[OrderPlaced])
    daily = Schedule(PlaceOrder, every=timedelta(days=1), input=lambda tick: OrderPlaced(order.order_id, order.amount))
    for tick in daily.ticks(datetime.now(UTC)):
        assert_type(daily.input(tick), OrderPlaced)
    Schedule(PlaceOrder, cron="0 6 * * *", input="order")  # type: ignore[arg-type]
    Schedule(PlaceOrder, cron="0 6 * * *")  # type: ignore[call-arg]
