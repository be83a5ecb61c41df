"""A small shop on SQLAlchemy: models, a saga with local and external steps, and a bank that keeps its own book."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import ForeignKey, String, UniqueConstraint, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sagas import Refused, Retry, Saga, external_step, step
from sagas_sqlalchemy import HasSagas, sagas_tables

QUICK = Retry(max_attempts=3, first=0.05, factor=1, longest=0.05)


class Base(DeclarativeBase):
    pass


sagas_tables(Base.metadata)


class Order(HasSagas, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Reservation(Base):
    __tablename__ = "reservation"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))


class Note(HasSagas, Base):
    """What bodies note down; a text is unique."""

    __tablename__ = "note"
    __table_args__ = (UniqueConstraint("text"),)
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    text: Mapped[str] = mapped_column(String(100))


class Bank:
    """Outside of the application: it has a connection of its own, and honours idempotency keys."""

    url = ""

    def charge(self, amount: int, key: str) -> str:
        if amount > 1000:
            raise Refused("card declined")
        with psycopg.connect(self.url) as connection:
            connection.execute("insert into bank (key, amount) values (%s, %s) on conflict do nothing", [key, amount])
        return key

    def refund(self, charge: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("delete from bank where key = %s", [charge])


BANK = "create table bank (key text primary key, amount integer not null)"
bank = Bank()


@dataclass(frozen=True)
class Placed:
    order_id: int
    amount: int


class PlaceOrder(Saga[Placed], name="sa.place_order", version=1):
    """Reserve, take the money, ship."""

    @step(retry=QUICK)
    def reserve(self) -> UUID:
        session: Session = self.session
        reservation = Reservation(order_id=self.input.order_id)
        session.add(reservation)
        session.flush()
        return reservation.id

    @reserve.compensate
    def release(self, reservation: UUID) -> None:
        self.session.delete(self.session.get_one(Reservation, reservation))

    @external_step(retry=QUICK)
    def charge(self) -> str:
        return bank.charge(self.input.amount, self.idempotency_key)

    @charge.compensate
    def refund(self, charge: str) -> None:
        bank.refund(charge)

    @step(pivot=True, retry=QUICK)
    def confirm(self) -> None:
        self.session.add(Note(text=f"order {self.input.order_id} is paid by {self.charge.result}"))


@dataclass(frozen=True)
class Told:
    what: str
    text: str = ""


class Odd(Saga[Told], name="sa.odd", version=1):
    """One local step that does as it is told."""

    @step(retry=Retry(max_attempts=1))
    def go(self) -> str:
        return str(ODD[self.input.what](self))

    @go.compensate
    def back(self, result: str) -> None:
        pass


def note(self: Odd) -> str:
    self.session.add(Note(text=self.input.text))
    return self.input.text


def swallows(call: str) -> object:
    def body(self: Odd) -> str:
        note(self)
        _quietly(getattr(self.session, call))
        return "fine"

    return body


def fails_in_flush(self: Odd) -> str:
    self.session.add_all([Note(text="twice"), Note(text="twice")])
    self.session.flush()
    return "never"


def recovers(self: Odd) -> str:
    note(self)
    try:
        with self.session.begin_nested():
            fails_in_flush(self)
    except Exception:
        return "recovered"
    return "never"


told: list[str] = []


def hooked(self: Odd) -> str:
    note(self)
    event.listen(self.session, "after_commit", lambda _: told.append(self.input.text))
    return "hooked"


def then(call: object) -> object:
    def body(self: Odd) -> str:
        note(self)
        self.session.flush()
        call(self)  # type: ignore[operator]
        return "fine"

    return body


def dies_once(self: Odd) -> str:
    note(self)
    self.session.flush()
    if self.input.text not in told:
        told.append(self.input.text)
        self.session.execute(text("select pg_terminate_backend(pg_backend_pid())"))
    return "fine"


ODD: dict[str, Any] = {
    "dies once": dies_once,
    "note": note,
    "fails_in_flush": fails_in_flush,
    "recovers": recovers,
    "hooked": hooked,
    "leaves dirty": then(lambda self: self.session.add_all([Note(text="twice"), Note(text="twice")])),
    "swallows flush": then(lambda self: _quietly(lambda: fails_in_flush(self))),
    "session.commit": then(lambda self: self.session.commit()),
    "session.rollback": then(lambda self: self.session.rollback()),
    "session.close": then(lambda self: self.session.close()),
    "session.begin": then(lambda self: self.session.begin()),
    "connection.commit": then(lambda self: self.session.connection().commit()),
    "connection.rollback": then(lambda self: self.session.connection().rollback()),
    "pooled commit": then(lambda self: self.session.connection().connection.commit()),
    "raw commit": then(lambda self: self.session.connection().connection.driver_connection.commit()),
    "raw rollback": then(lambda self: self.session.connection().connection.driver_connection.rollback()),
    "sql commit": then(lambda self: self.session.connection().exec_driver_sql(" commit")),
    "sql hidden commit": then(lambda self: self.session.connection().exec_driver_sql("select 1; /* now */ commit")),
    "sql commented commit": then(lambda self: self.session.connection().exec_driver_sql("-- now\n/* ; */commit")),
    "sql rollback": then(lambda self: self.session.connection().exec_driver_sql("ROLLBACK; begin")),
    "swallowed commit": swallows("commit"),
    "swallowed close": swallows("close"),
}  # fmt: skip


def _quietly(call: object) -> None:
    with suppress(Exception):
        call()  # type: ignore[operator]
