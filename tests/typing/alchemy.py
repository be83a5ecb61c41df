"""A SQLAlchemy application, checked by type checkers only; see `api.py`."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sagas import Saga, step
from sagas.engine import SagaRun
from sagas_sqlalchemy import HasSagas, Sagas, sagas_tables


class Base(DeclarativeBase):
    pass


sagas_tables(Base.metadata)


class Order(HasSagas, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


sagas = Sagas(
    create_engine("postgresql+psycopg://"), metadata=Base.metadata, modules=["shop.sagas"], settings={"poll": 1}
)


@dataclass(frozen=True)
class Placed:
    order_id: int


class PlaceOrder(Saga[Placed], name="typing.alchemy", version=1):
    @step(pivot=True)
    def accept(self) -> int:
        session: Any = self.session
        assert_type(self.input, Placed)
        return int(session.get_one(Order, self.input.order_id).id)


def place(session: Session) -> None:
    """In the caller's transaction."""
    order = Order()
    session.add(order)
    assert_type(PlaceOrder.start(Placed(order.id), key="k", subject=order, using=session), SagaRun)


async def aplace(session: AsyncSession) -> None:
    """The same, awaited."""
    assert_type(await PlaceOrder.astart(Placed(1), key="k", using=session), SagaRun)
