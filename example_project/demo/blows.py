"""The three blows. Each waits for its moment, strikes, and says whom it hit; without a moment it raises `Missed`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from example_project.demo.plan import PlannedOrder
from example_project.demo.stage import Stage
from sagas.points import Point
from sagas.testing.faults import environment, wait_for_hit

T = TypeVar("T")

PATIENCE = 40.0  # seconds for a moment to come
LEAST_WIPED = 10  # rows that must be published and not begun when Redis is wiped


class Missed(Exception):
    """A planned fault found no moment to strike, so that the demo shows nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blow:
    """A fault that hit."""

    name: str
    detail: str
    sagas: frozenset[UUID]  # whose delivery was lost by it


def kill_relay_between_claim_and_publish(stage: Stage) -> Blow:
    """SIGKILL a relay that holds claimed rows and has published none of them; no worker runs yet.

    Raises:
        Missed: it held nothing, or had published something.
        ProcessFailed: it did not get there.
    """
    marker = stage.processes.directory / "relay.hit"
    relay = stage.start_relay(env=environment(marker, f"{Point.AFTER_CLAIM}:pause"))
    wait_for_hit(marker, relay, timeout=PATIENCE)
    relay.kill()
    claimed = stage.tables.claimed()
    if not claimed:
        raise Missed("the relay stood between claim and publish, but no row was in its hands")
    if published := stage.waiting_rows():
        raise Missed(f"the relay had published {len(published)} rows before it was killed")
    return Blow(
        name="the relay was killed",
        detail=f"pid {relay.pid}, {len(claimed)} rows claimed, none published",
        sagas=claimed,
    )


def wipe_redis(stage: Stage) -> Blow:
    """FLUSHALL while messages that a new relay published wait for workers, which are frozen for that moment.

    Raises:
        Missed: too few rows were waiting in Redis.
    """

    def enough() -> frozenset[UUID] | None:
        waiting = stage.tables.unbegun(stage.waiting_rows())
        return waiting if len(waiting) >= LEAST_WIPED else None

    for worker in stage.workers:
        worker.pause()
    stage.start_relay()
    try:
        waiting = wait_for(f"{LEAST_WIPED} rows to be published and not begun", enough)
        stage.wipe_broker()
    finally:
        for worker in stage.workers:
            worker.resume()
    return Blow(name="Redis was wiped", detail=f"FLUSHALL, {len(waiting)} rows published and not begun", sagas=waiting)


def kill_worker_that_charges(stage: Stage, order: PlannedOrder) -> Blow:
    """SIGKILL the worker whose charge the bank reports as in flight; then start another and let the charge land.

    Raises:
        Missed: no charge was held, or its worker had given up on it before it could be killed.
    """

    def held() -> dict[str, Any] | None:
        mine = (one for one in stage.bank.in_flight() if one["order"] == str(order.order_id))
        return next((one for one in mine if one["doing"] == "hold"), None)

    arrival = wait_for("the bank to hold a charge", held)
    worker = stage.worker_of(int(arrival["client"]))
    if worker is None:
        raise Missed(f"the charge in flight was sent by process {arrival['client']}, which is no worker of ours")
    worker.kill()
    sagas = stage.tables.held_beside(f"order-{order.order_id}")
    if not sagas:
        raise Missed(f"the worker gave up on order {order.order_id} before it was killed, although it was in flight")
    if not stage.bank.release(arrival=arrival["arrival"]):
        raise Missed(f"charge number {arrival['arrival']} was no longer in flight when its worker was dead")
    stage.start_worker()
    return Blow(
        name="a worker was killed",
        detail=f"pid {arrival['client']}, its charge in flight at the bank and taken after its death",
        sagas=sagas,
    )


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """Look again and again until there is something to see.

    Raises:
        Missed: there was nothing within `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise Missed(f"waited {PATIENCE:g} s for {what}")
        time.sleep(0.02)
    return seen
