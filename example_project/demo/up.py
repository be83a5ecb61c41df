"""`make demo-up`: the shop left running, with orders coming in and some that need a person, until Ctrl-C.

Run it with `python -m example_project.demo.up`. It ends by itself after `DEMO_MINUTES` (default 60), and takes every
process with it. Exit code 0, 1 when a process died, 2 for a wrong `DEMO_MINUTES`.
"""

from __future__ import annotations

import os
import random
import secrets
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from example_project.demo.plan import NOWHERE, PlannedOrder, Trouble, make_plan
from example_project.demo.stage import MANAGE, WORKERS, Stage, open_stage
from example_project.demo.terminal import end_on_signals, say
from sagas.testing.binaries import NoServerFound
from sagas.testing.launch import free_port
from sagas.testing.processes import Process, ProcessFailed

USER = "demo"
PAUSE = 2.0  # seconds between orders
ONE_STUCK_IN = 10  # orders: its refund fails until it parks, for somebody to retry
REFUND_ATTEMPTS = 5  # what the shop's saga makes of it before it parks
TOLD = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "REDIS_URL", "BANK_URL")  # what a process of the demo has to know
PORT_ATTEMPTS = 5  # another process may take a free port before the web server does


def main() -> int:
    """Run it, and say how it ended."""
    end_on_signals()
    try:
        minutes = minutes_of(os.environ.get("DEMO_MINUTES", "60"))
    except ValueError as problem:
        say(f"FAILED: {problem}")
        return 2
    try:
        _run(minutes)
    except KeyboardInterrupt:
        say("stopped; every process was ended")
        return 0
    except (ProcessFailed, NoServerFound) as problem:
        say(f"FAILED: {problem}")
        return 1
    say(f"{minutes:g} minutes are over; every process was ended")
    return 0


def minutes_of(text: str) -> float:
    """What `DEMO_MINUTES` says.

    Raises:
        ValueError: it is no number, or out of range.
    """
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0
    if not 0 < minutes <= 24 * 60:
        raise ValueError(f"DEMO_MINUTES={text!r}: a number above 0, at most a day")
    return minutes


def _run(minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    say("starting Postgres, Redis, the bank, a relay, workers and the admin")
    if os.environ.get("REDIS_URL"):
        say("REDIS_URL is set: its queues are used")
    with open_stage() as stage:
        from example_project.demo import shopfront

        shopfront.open_shop()
        password = _open_admin()
        processes = [stage.start_relay(), *(stage.start_worker() for _ in range(WORKERS))]
        for worker in stage.workers:
            worker.wait_for_output("ready.", timeout=60)
        address, web = _open_web(stage)
        print(f"\n  admin     {address}/admin/\n  user      {USER}\n  password  {password}\n", flush=True)
        print(f"  terminal  {terminal()}\n            ... show ID, doctor, list --stuck, top\n", flush=True)
        say(f"orders come in; Ctrl-C ends everything, as do {minutes:g} minutes")
        _trickle(stage, [*processes, web], until)


def _open_admin() -> str:
    """Make the one who may do everything; returns the password."""
    from django.contrib.auth.models import User

    password = secrets.token_urlsafe(9)
    User.objects.create_superuser(USER, password=password)
    return password


def terminal() -> str:
    """What to type in another terminal to see what needs a person."""
    said = {name: os.environ[name] for name in TOLD if name in os.environ}
    told = " ".join(f"{name}={shlex.quote(value)}" for name, value in said.items())
    python, manage = (os.path.relpath(each) for each in (sys.executable, MANAGE))
    return f"{told} {python} {manage} sagas list --status parked"


def _open_web(stage: Stage) -> tuple[str, Process]:
    """Start the web server on a free port; returns its address.

    Raises:
        ProcessFailed: it did not start.
    """
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port()
        web = stage.start_web(port)
        try:
            web.wait_for_output("Quit the server", timeout=60)
            return f"http://127.0.0.1:{port}", web
        except ProcessFailed:
            if attempt == PORT_ATTEMPTS or "already in use" not in web.output():
                raise
    raise AssertionError("unreachable")


def _trickle(stage: Stage, processes: list[Process], until: float) -> None:
    """Place an order now and then.

    Raises:
        ProcessFailed: one of the processes ended.
    """
    from example_project.demo import shopfront

    for order, fault in orders():
        for process in processes:
            if process.poll() is not None:
                raise process.failure(f"ended with {process.poll()}")
        if fault:
            stage.bank.script(fault)
        shopfront.place([order])
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(PAUSE, left))


def orders() -> Iterator[tuple[PlannedOrder, dict[str, Any] | None]]:
    """Orders without end, each with what the bank is told to do to it; some get stuck, the first among them."""
    for seed in iter(lambda: random.getrandbits(32), None):
        for number, order in enumerate(make_plan(orders=200, seed=seed).orders):
            if number % ONE_STUCK_IN == 0:
                yield stuck(order.order_id)
            elif order.trouble is not Trouble.HELD:  # nobody would let it go
                yield order, order.fault


def stuck(order_id: UUID) -> tuple[PlannedOrder, dict[str, Any]]:
    """An order that no carrier takes, after it was paid, and whose refund fails until its saga parks."""
    order = PlannedOrder(order_id=order_id, sku="tea", quantity=1, city=NOWHERE, trouble=Trouble.REFUND_FAILS)
    return order, {
        "fault": "error", "when": "before", "on": "refund", "times": REFUND_ATTEMPTS, "order": str(order_id)
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
