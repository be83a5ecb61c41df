"""The demo from the first order to the end of the last saga."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from django.core.management import CommandError

from example_project.demo.blows import (
    Blow,
    kill_relay_between_claim_and_publish,
    kill_worker_that_charges,
    wipe_redis,
)
from example_project.demo.plan import Plan, PlannedOrder
from example_project.demo.stage import WORKERS, Stage, manage
from example_project.demo.summary import Line, summarize

PAUSE = 0.01  # seconds between orders once everything runs
STANDSTILL = 30.0  # seconds without any saga ending after which nothing more is expected

Say = Callable[[str], None]


def run(stage: Stage, plan: Plan, say: Say) -> list[Line]:
    """Place orders, strike, wait, compare.

    Args:
        stage: where; its environment is that of the shop.
        plan: which orders.
        say: told about progress.

    Returns:
        The lines of the summary.

    Raises:
        Missed: a planned fault did not hit.
        ProcessFailed: a process did not do what was waited for.
    """
    from example_project.demo import settings, shopfront

    shopfront.open_shop()
    stage.bank.script(*plan.faults)
    began = time.monotonic()
    shopfront.place(plan.first)
    say(f"{len(plan.first)} of {len(plan.orders)} orders placed; {plan.troubles.total()} of all will meet trouble")
    blows = [_strike(say, kill_relay_between_claim_and_publish(stage))]
    for worker in [stage.start_worker() for _ in range(WORKERS)]:
        worker.wait_for_output("ready.", timeout=60)
    say(f"{WORKERS} Celery workers are ready")
    blows.append(_strike(say, wipe_redis(stage)))
    say("placing the other orders; what was lost is published again when the publish window is over")
    with _placing(plan.second) as all_placed:
        blows.append(_strike(say, kill_worker_that_charges(stage, plan.held)))
        _wait_for_the_last(stage, len(plan.orders), say)
        all_placed()
    seconds = time.monotonic() - began
    say("comparing shop, bank and saga logs")
    return summarize(
        plan=plan,
        seconds=seconds,
        states=stage.tables.by_status(),
        parked=stage.tables.parked(),
        verified=_verify(),
        faults=stage.bank.faults(),
        ledger=stage.bank.ledger(),
        books=shopfront.read_books(),
        recovered=[(blow, stage.tables.ended_of(blow.sagas)) for blow in blows],
        shortened=settings.shortened(),
    )


def _wait_for_the_last(stage: Stage, orders: int, say: Say) -> None:
    """Show progress until every saga has ended or is parked, or nothing moves any more."""
    most, moved_at = 0, time.monotonic()
    while time.monotonic() - moved_at < STANDSTILL:
        ended, parked = stage.tables.ended(), stage.tables.parked()
        say(f"{ended:>4} of {orders} sagas ended, {parked} parked, {len(stage.bank.in_flight())} requests at the bank")
        if ended + parked >= orders:
            return
        if ended + parked > most:
            most, moved_at = ended + parked, time.monotonic()
        time.sleep(1)
    say(f"no saga ended for {STANDSTILL:g} s")


def _verify() -> str:
    """What `manage.py sagas verify` says, good or bad."""
    try:
        return manage("sagas", "verify")
    except CommandError as problem:
        return str(problem)


def _strike(say: Say, blow: Blow) -> Blow:
    say(f"HIT  {blow.name}: {blow.detail}")
    return blow


@contextmanager
def _placing(orders: tuple[PlannedOrder, ...]) -> Iterator[Callable[[], None]]:
    """Place orders meanwhile; the block gets a function that waits for the last and raises what went wrong."""
    from django.db import connections

    from example_project.demo import shopfront

    enough = threading.Event()

    def place_all() -> None:
        try:
            for order in orders:
                shopfront.place([order])
                if enough.wait(PAUSE):
                    return
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1, thread_name_prefix="orders") as pool:
        future = pool.submit(place_all)
        try:
            yield lambda: future.result(STANDSTILL)
        finally:
            enough.set()
