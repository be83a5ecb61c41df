"""The SQL functions behind `start()`, `get()`, `cancel()` and `send()`, called as docs/sql-api.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sagas import COMPENSATE, KeyConflict, Saga, external_step, wait_for
from sagas.states import Status
from tests.support.stories import drain, log_of, outbox

PAGE = Path(__file__).parents[2] / "docs" / "sql-api.md"
shipped: list[tuple[int, Decimal, dict[str, str]]] = []


@dataclass(frozen=True)
class Ordered:
    order_id: int
    total: Decimal


class ShipOrder(Saga[Ordered], name="shop.ship_order", version=1):
    @external_step(pivot=True)
    def ship(self) -> str:
        shipped.append((self.input.order_id, self.input.total, dict(self.headers)))
        return "parcel"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def orders(shop: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with the page's table and trigger, which are gone afterwards."""
    shipped.clear()
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute(blocks("sql")[0].encode())
        yield connection
        connection.execute("drop table orders; drop function start_shipping")


def test_the_class_is_the_one_of_the_page() -> None:
    """What is run here is what readers see."""
    head = "class ShipOrder(Saga[Ordered], name=" + '"shop.ship_order", version=1):'
    assert head in blocks("python")[0]
    assert head in Path(__file__).read_text()


def test_a_trigger_starts_sagas(orders: psycopg.Connection[Any]) -> None:
    """Each inserted order has its saga in the same transaction, and workers run it to the end."""
    with pytest.raises(ZeroDivisionError), orders.transaction():  # noqa: PT012 - the transaction is the test
        orders.execute("insert into orders (total) values (1)")
        raise ZeroDivisionError
    orders.execute("insert into orders (total) values (12.50), (7)")
    sagas = [ShipOrder.get(key=f"order-{number}") for number in (2, 3)]
    assert [len(outbox(saga)) for saga in sagas] == [1, 1]
    drain()
    assert [ShipOrder.get(id=saga.id).status for saga in sagas] == [Status.COMPLETED] * 2
    assert sorted(shipped) == [(2, Decimal("12.50"), {}), (3, Decimal("7.00"), {})]
    assert log_of(sagas[0]) == ["started", "step_done ship", "completed"]


def test_python_and_sql_share_keys(orders: psycopg.Connection[Any]) -> None:
    """`start()` knows the saga of a trigger as its own, and a trigger that of `start()`."""
    orders.execute("insert into orders (total) values (12.50)")
    with orders.transaction():
        again = ShipOrder.start(Ordered(1, Decimal("12.50")), key="order-1", using=orders)
        assert not again.created
        with pytest.raises(KeyConflict):
            ShipOrder.start(Ordered(1, Decimal("12.51")), key="order-1", using=orders)
        early = ShipOrder.start(Ordered(2, Decimal(3)), key="order-2", using=orders)
    orders.execute("insert into orders (total) values (4)")
    drain()
    assert ShipOrder.get(key="order-2").id == early.id
    assert sorted(shipped) == [(1, Decimal("12.50"), {}), (2, Decimal(3), {})]


def test_looking_and_asking(orders: psycopg.Connection[Any]) -> None:
    """The other two functions, as on the page; what is not there is null."""
    _, look, ask, _ = blocks("sql")
    assert orders.execute(look.encode()).fetchone() == orders.execute(ask.encode()).fetchone() == (None,)
    orders.execute("insert into orders (total) values (1)")
    assert orders.execute(look.encode()).fetchone() == orders.execute(ask.encode()).fetchone() == ("running",)
    drain()
    assert (ShipOrder.get(key="order-1").status, shipped) == (Status.CANCELLED, [])


def test_the_fields_are_those_of_the_page(orders: psycopg.Connection[Any]) -> None:
    """What `get` answers is on the page, and so is everything that `start` sends."""
    orders.execute("insert into orders (total) values (1)")
    [answer] = orders.execute("select sagas_get_v1(%s)", ['{"name": "shop.ship_order", "key": "order-1"}']).fetchone()  # type: ignore[misc]
    text = PAGE.read_text()
    documented = set(re.findall(r"`(\w+)`", text))
    assert documented >= {"id", "name", "status", "run", "finished_at"}
    assert {"id", "name", "version", "key", "run", "status", "seq", "steps", "error"} <= set(answer)
    [made] = orders.execute("select sagas_start_v1(%s)", [json.dumps(minimal("a"))]).fetchone()  # type: ignore[misc]
    assert (made["created"], made["run"]) == (True, 1)
    [known] = orders.execute("select sagas_start_v1(%s)", [json.dumps(minimal("a"))]).fetchone()  # type: ignore[misc]
    assert set(known) == {"created", "id", "version", "run", "status", "input_hash"}
    assert (known["created"], known["id"]) == (False, made["id"])


def minimal(key: str) -> dict[str, Any]:
    """Only what the page does not call optional."""
    about = {"name": "shop.ship_order", "version": 1, "key": key}
    return {
        **about, "id": "0190d5f0-0000-7000-8000-000000000000", "status": "running", "seq": 0, "steps": {},
        "input_hash": "x", "headers": {}, "saga": {**about, "input": {"order_id": 1, "total": "1"}},
        "rows": [{"step": "ship", "direction": "do", "queue": "default"}],
    }  # fmt: skip


@dataclass(frozen=True)
class Review:
    ok: bool


class ReviewOrder(Saga[Ordered], name="shop.review_order", version=1):
    review = wait_for(Review, timeout=timedelta(days=2), on_timeout=COMPENSATE)

    @external_step(pivot=True)
    def ship(self) -> str:
        return f"ok={self.review.result.ok}"


def signal(connection: psycopg.Connection[Any], **changes: Any) -> Any:
    """What `sagas_send_v1` answers to the request of the page."""
    request = {
        "name": "shop.review_order", "key": "order-1", "step": "review", "queue": "default", "keep": False,
        "payload": {"step": "review", "value": {"ok": True}, "actor": "", "reason": ""},
    }  # fmt: skip
    [answer] = connection.execute("select sagas_send_v1(%s)", [json.dumps(request | changes)]).fetchone()  # type: ignore[misc]
    return answer


def test_sending(orders: psycopg.Connection[Any]) -> None:
    """The signal of the page reaches the saga that waits for it, and a second one with its `dedupe_id` does nothing."""
    *_, send = blocks("sql")
    assert "class ReviewOrder(Saga[Ordered]" in blocks("python")[1]
    assert orders.execute(send.encode()).fetchone() == (None,)
    with orders.transaction():
        run = ReviewOrder.start(Ordered(1, Decimal(1)), key="order-1", using=orders)
    drain()
    assert [orders.execute(send.encode()).fetchone() for _ in range(2)] == [("false",), ("true",)]
    assert signal(orders, dedupe_id="webhook-17") == {"id": str(run.id), "status": "running", "duplicate": True}
    drain()
    assert ReviewOrder.get(id=run.id).status == Status.COMPLETED
    assert log_of(run).count("step_done review") == 1


def test_a_signal_that_is_kept(orders: psycopg.Connection[Any]) -> None:
    """`keep` is for a saga that comes later; without it, and by an unknown id, the answer is null."""
    assert signal(orders) is signal(orders, id="0190d5f0-0000-7000-8000-000000000000", keep=True) is None
    assert signal(orders, keep=True) == {"id": None, "status": None, "duplicate": False}
    with orders.transaction():
        run = ReviewOrder.start(Ordered(1, Decimal(1)), key="order-1", using=orders)
    drain()
    assert ReviewOrder.get(id=run.id).status == Status.COMPLETED


def test_a_signal_that_does_not_fit(orders: psycopg.Connection[Any]) -> None:
    """As the page says: it is taken, and parks that saga and no other."""
    with orders.transaction():
        run = ReviewOrder.start(Ordered(1, Decimal(1)), key="order-1", using=orders)
    drain()
    signal(orders, payload={"step": "review", "value": {"ok": "perhaps"}, "actor": "", "reason": ""})
    drain()
    assert ReviewOrder.get(id=run.id).status == Status.PARKED
    assert log_of(run)[:5] == ["started", "waiting review", "signalled review", "step_done review", "parked ship"]
