"""README.md: its two pieces of code run as they are, one in this Django project, one in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.db import transaction

from sagas import NOT_DONE, NotDone, Saga, external_step, step
from sagas.testing.servers import Postgres
from tests.docs.reading import ROOT, blocks
from tests.shop.models import Booking, Order
from tests.support.stories import drain

DJANGO, SQLALCHEMY = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
GIVEN = """
import os
from dataclasses import dataclass
from decimal import Decimal
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sagas import Saga, step
from sagas_sqlalchemy import HasSagas, Sagas, sagas_tables

class Base(DeclarativeBase): pass

sagas_tables(Base.metadata)

class Order(HasSagas, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[Decimal]
    status: Mapped[str] = mapped_column(default="placed")

@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
    total: Decimal

engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:"))
Base.metadata.create_all(engine)
"""
AFTERWARDS = """
from sagas.embedded import Embedded
Embedded(sagas.store).run(until_idle=True)
with Session(engine) as session:
    print(session.scalars(select(Order.status)).all(), PlaceOrder.get(key="order-1", using=session).status)
"""


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """URL of an empty database."""
    name = f"readme_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


def test_the_lines_for_django(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order is made, reserved and charged."""

    @dataclass(frozen=True)
    class OrderPlaced:
        order_id: int
        total: Decimal

    class Things:
        """`objects` of models that the shop of the tests has not."""

        def create(self, **given: Any) -> Any:
            Booking.objects.create(saga="readme", step=",".join(given))
            made = Order.objects.create(title="readme")
            made.__dict__.update(given)
            return made

    module = ModuleType("docs_readme")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    charged: list[str] = []
    bank = SimpleNamespace(charge=lambda total, key: charged.append(key) or f"ch_{total}")
    things = SimpleNamespace(objects=Things())
    module.__dict__.update(
        Decimal=Decimal, OrderPlaced=OrderPlaced, Order=things, Reservation=things, Saga=Saga, bank=bank,
        external_step=external_step, step=step, transaction=transaction, NotDone=NotDone, NOT_DONE=NOT_DONE,
    )  # fmt: skip
    exec(compile(DJANGO, "README.md", "exec", dont_inherit=True), module.__dict__)
    drain()
    assert module.__dict__["PlaceOrder"].get(key=f"order-{module.__dict__['order'].pk}").status == "completed"
    assert len(charged) == 1 and Booking.objects.filter(saga="readme").count() == 2


def test_the_lines_for_sqlalchemy(database: str, tmp_path: Path) -> None:
    """An order is made and accepted."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "sagas.py").write_text("")
    (tmp_path / "readme.py").write_text(GIVEN + SQLALCHEMY + AFTERWARDS)
    done = subprocess.run(
        [sys.executable, "readme.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60,
        env={**os.environ, "DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": ""},
    )  # fmt: skip
    assert done.stdout == "['accepted'] completed\n", done.stdout + done.stderr
