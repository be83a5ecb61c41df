"""A second alias, of the same database; and two engines, which are never connected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction
from sqlalchemy import create_engine

from sagas import Saga, ports, step
from sagas_sqlalchemy import Sagas
from tests.integration.conftest import database_alias
from tests.shop.models import Order

__all__ = ["Order", "Sagas", "transaction"]

sales_engine = create_engine("postgresql+psycopg://localhost/sales")
archive_engine = create_engine("postgresql+psycopg://localhost/archive")


@dataclass(frozen=True)
class Ordered:
    order_id: int


class ShipOrder(Saga[Ordered], name="docs.multi_database", version=1):
    @step(pivot=True)
    def ship(self) -> None: ...


@contextmanager
def around() -> Iterator[None]:
    """The runtimes of the page are forgotten afterwards."""
    with database_alias("orders", dict(connections.databases["default"])):
        yield
    for name in ("sales", "archive"):
        ports.unregister_store(name)


def afterwards(names: dict[str, Any]) -> None:
    """It was started by the other alias, and done."""
    assert ShipOrder.get(key=f"order-{names['order'].pk}", using="orders").status == "completed"
    for runtime in (names["sales"], names["archive"]):
        runtime.close()
