"""Plain messages, the inbox, hooks: what users write about them, checked by type checkers only."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_type
from uuid import UUID

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from sagas import hooks
from sagas.events import Kind
from sagas_outbox import Message, MessagePublisher, NewMessage, apublish, one_by_one, publish, publish_many, take
from sagas_sqlalchemy import inbox


def on_an_engine(engine: Engine, message: UUID) -> None:
    """A handler keeps the arguments of its function, without the session that it is given first."""

    @inbox(engine, name="invoices")
    def send_invoice(session: Session, order: int) -> str:
        assert_type(session, Session)
        return f"invoice {order}"

    assert_type(send_invoice(7), str | None)
    assert_type(send_invoice.take(message, order=7), str | None)
    send_invoice("7")  # type: ignore[arg-type]
    send_invoice.take(message)  # type: ignore[call-arg]


def in_a_transaction(session: Session, message: UUID) -> None:
    """What is published, and taken."""
    due = publish("shop.tasks.send", {"order": 7}, ordering_key="order-7", due_at=timedelta(minutes=1), using=session)
    assert_type(due, UUID)
    assert_type(publish_many([NewMessage(destination="shop.tasks.send", payload=[7])], using=session), list[UUID])
    assert_type(take(message, handler="invoices", using=session), bool)
    publish(7, using=session)  # type: ignore[arg-type]
    take(message, using=session)  # type: ignore[call-arg]


async def awaited(session: Session) -> None:
    """The twin gives the same."""
    assert_type(await apublish("shop.tasks.send", using=session, headers={"traceparent": "00"}), UUID)


class Printer:
    """A publisher of one's own needs no class of ours."""

    def send(self, messages: Sequence[Message]) -> Sequence[BaseException | None]:
        return one_by_one(messages, lambda message: print(message.destination, message.payload))

    def reset(self) -> None: ...


PUBLISHERS: dict[str, MessagePublisher] = {"print": Printer(), "wrong": object()}  # type: ignore[dict-item]


@hooks.on(Kind.PARKED, "step_failed", name="shop.place_order", times=3)
def page(happening: hooks.Happening) -> None:
    assert_type(happening.saga_id, UUID)
    assert_type(happening.step, str | None)
    assert_type(happening.failures, int)
    happening.failures = 3  # type: ignore[misc]


@hooks.on("parked", times="3")  # type: ignore[arg-type]
def wrong(happening: hooks.Happening) -> None: ...
