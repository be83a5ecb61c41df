"""The shop's API.

Each endpoint has a transaction of its own, and answers once that is committed. (A session from a dependency with
`yield` is committed after the answer was sent, and who was told 201 may have nothing.) It asks nobody who they are:
where the signature of a webhook and the login of a person belong is in docs/fastapi.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from example_project.fastapi_shop.db import Session, engine
from example_project.fastapi_shop.models import Order
from example_project.fastapi_shop.sagas import Approval, OrderPlaced, PlaceOrder, Settled
from sagas import SagaNotFound


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connections are closed with the server."""
    yield
    await engine.dispose()


app = FastAPI(title="A shop with sagas", lifespan=lifespan)


class Wish(BaseModel):
    """What a customer asks for."""

    item: str
    total: Annotated[Decimal, Field(gt=0, max_digits=10, decimal_places=2)]


class Event(BaseModel):
    """What the bank posts, as often as it likes until it is told that we have it."""

    id: str
    order: UUID


class Verdict(BaseModel):
    """What the office says."""

    ok: bool
    by: str


@app.post("/orders", status_code=201)
async def place_order(wish: Wish) -> dict[str, Any]:
    """The order and its saga are there together, or not at all."""
    async with Session.begin() as session:
        order = Order(item=wish.item, total=wish.total)
        session.add(order)
        await session.flush()  # for its id
        run = await PlaceOrder.astart(
            OrderPlaced(order.id, order.total), key=f"order-{order.id}", subject=order, using=session
        )
    return {"id": order.id, "saga": run.status}


@app.get("/orders/{order_id}")
async def show_order(order_id: UUID) -> dict[str, Any]:
    """How far an order got."""
    async with Session() as session:
        order = await session.get(Order, order_id)
        if order is None:
            raise HTTPException(404, f"no order {order_id}")
        run = await PlaceOrder.aget(key=f"order-{order_id}", using=session)
    return {
        "id": order.id,
        "status": order.status,
        "saga": run.status,
        "error": run.error,
        "steps": {name: step.status for name, step in (run.steps or {}).items()},
    }


@app.post("/webhooks/bank", status_code=202)
async def settled(event: Event) -> dict[str, bool]:
    """However often it is posted, and to however many servers at once, it counts once."""
    async with Session.begin() as session:
        first = await PlaceOrder.settled.asend(
            Settled(event.id), key=f"order-{event.order}", dedupe_id=event.id, using=session
        )
    return {"first": first}


@app.post("/orders/{order_id}/approval", status_code=202)
async def approve(order_id: UUID, verdict: Verdict) -> None:
    """It may come before the saga waits for it."""
    async with Session.begin() as session:
        await PlaceOrder.approval.asend(
            Approval(verdict.ok, verdict.by), key=f"order-{order_id}", actor=verdict.by, using=session
        )


@app.delete("/orders/{order_id}", status_code=202)
async def cancel(order_id: UUID) -> None:
    """Ask for the order to be undone, while it still can be; a worker does it."""
    async with Session.begin() as session:
        run = await PlaceOrder.aget(key=f"order-{order_id}", using=session)
        if "cancel" not in [action.name for action in run.allowed_actions]:
            raise HTTPException(409, f"too late: {run.status}")
        await PlaceOrder.acancel(key=f"order-{order_id}", reason="the customer changed their mind", using=session)


@app.exception_handler(SagaNotFound)
async def not_found(request: Request, problem: SagaNotFound) -> JSONResponse:
    """The order of a webhook, approval or cancel is not there."""
    return JSONResponse({"detail": str(problem)}, status_code=404)
