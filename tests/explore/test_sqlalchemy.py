"""The explorer on a SQLAlchemy session that joins an external transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from sagas import Saga, external_step, step
from sagas.engine import SagaRun
from sagas.testing import explore
from sagas_sqlalchemy import Sagas
from tests.explore.bank import world
from tests.explore.right import FEE, THRICE, Ordered
from tests.sqlalchemy.conftest import engine, make_engine, make_runtime, runtime, shop_template, url
from tests.sqlalchemy.shop import Order, Reservation

__all__ = ["engine", "make_engine", "make_runtime", "runtime", "shop_template", "url"]


class Kept(Saga[Ordered], name="explore.sqlalchemy", version=1):
    """A local step that writes with its session, and the bank."""

    @step
    def reserve(self) -> str:
        made = Reservation(order_id=self.input.number)
        self.session.add(made)
        self.session.flush()
        return str(made.id)

    @reserve.compensate
    def release(self, reservation: str) -> None:
        self.session.delete(self.session.get(Reservation, reservation))

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price + FEE, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key, self.input.price + FEE)

    @external_step(pivot=True, retry=THRICE)
    def ship(self) -> None:
        world.ship(self.idempotency_key)


class Short(Kept, name="explore.sqlalchemy_short", version=1):
    """The refund forgets the fee."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price + FEE, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key, self.input.price)


@pytest.fixture
def session(engine: Engine, runtime: Sagas) -> Iterator[Session]:
    """The recipe of SQLAlchemy's documentation."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as opened:
            yield opened
        transaction.rollback()


def test_on_a_session(session: Session) -> None:
    """Each story begins with what the session had, and leaves nothing behind."""

    def reserved() -> int:
        return session.scalar(select(func.count()).select_from(Reservation)) or 0

    def in_order(run: SagaRun) -> None:
        assert reserved() == len(world.shipped) == (run.status == "completed")
        assert world.bank.kept == (0 if run.status != "completed" else 10 + FEE), f"{world.bank.kept} was kept"

    def ordered() -> Ordered:
        session.add(Order(id=7, amount=5))
        session.flush()
        return Ordered(7)

    found = explore(Kept, ordered, invariant=in_order, reset=world.reset, using=session)
    assert len(found.stories) > 50 and not found.left_out
    found = explore(Short, ordered, invariant=in_order, reset=world.reset, using=session, raises=False, stop_after=1)
    assert "refund('ch_1') ran" in str(found) and "paid back 10.00 of 12.50" in str(found)
    assert reserved() == 0
