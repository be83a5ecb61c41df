"""README.md: its two pieces of code run as they are, one in this Django project, one in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sagas.testing.servers import Postgres
from tests.docs.reading import ROOT, blocks
from tests.shop.models import Booking, Order
from tests.sqlalchemy.conftest import with_driver
from tests.support.stories import drain

DJANGO, SQLALCHEMY = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
MODELS = """
import os
from decimal import Decimal
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sagas_sqlalchemy import HasSagas, sagas_tables

class Base(DeclarativeBase): pass

sagas_tables(Base.metadata)

class Order(HasSagas, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[Decimal]
    status: Mapped[str] = mapped_column(default="placed")

Base.metadata.create_all(create_engine(os.environ["DATABASE_URL"]))
"""
AFTERWARDS = """
from sqlalchemy import select
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

    class Things:
        """`objects` of models that the shop of the tests has not."""

        def create(self, **given: Any) -> Any:
            Booking.objects.create(saga="readme", step=",".join(given))
            made = Order.objects.create(title="readme")
            made.__dict__.update(given)
            return made

    charged: list[str] = []
    bank = SimpleNamespace(charge=lambda total, key: charged.append(key) or f"ch_{total}")
    things = SimpleNamespace(objects=Things())
    module = ModuleType("docs_readme")
    for name, given in (
        ("docs_readme", module),
        ("shop", SimpleNamespace(bank=bank)),
        ("shop.models", SimpleNamespace(Order=things, Reservation=things)),
    ):
        monkeypatch.setitem(sys.modules, name, given)
    exec(compile(DJANGO, "README.md", "exec", dont_inherit=True), module.__dict__)
    drain()
    assert module.__dict__["PlaceOrder"].get(key=f"order-{module.__dict__['order'].pk}").status == "completed"
    assert len(charged) == 1 and Booking.objects.filter(saga="readme").count() == 2


def test_the_lines_for_sqlalchemy(database: str, tmp_path: Path) -> None:
    """An order is made and accepted."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "sagas.py").write_text("")
    (tmp_path / "shop" / "models.py").write_text(MODELS)
    place = DJANGO.partition("\n\nclass PlaceOrder")[0].rpartition("\n\n@dataclass")[2]  # "the OrderPlaced of above"
    ordered = "from dataclasses import dataclass\nfrom decimal import Decimal\n\n@dataclass" + place
    (tmp_path / "readme.py").write_text(f"{ordered}\n{SQLALCHEMY}\n{AFTERWARDS}")
    done = subprocess.run(
        [sys.executable, "readme.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60,
        env={**os.environ, "DATABASE_URL": with_driver(database, "psycopg"), "DJANGO_SETTINGS_MODULE": ""},
    )  # fmt: skip
    assert done.stdout == "['accepted'] completed\n", done.stdout + done.stderr
