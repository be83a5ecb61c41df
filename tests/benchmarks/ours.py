"""What our side's scripts share: a backlog, the processes that work it off, and the clock beside them.

Only this module knows how our processes are started and how one sees from outside that they are done.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from uuid import uuid4

import django

from sagas.testing.processes import Process, ProcessGroup
from tests.benchmarks.report import Measurement
from tests.benchmarks.scripts import ROOT, NotRun

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmarks.settings")
django.setup()  # before any model can be imported

from django.db import connection, transaction  # noqa: E402

from tests.benchmarks.models import Line, Order  # noqa: E402
from tests.benchmarks.sagas import Noop, NoopInput  # noqa: E402

StartOne = Callable[[int, str], object]  # starts a saga, given a number and a key

EMBEDDED_WORKER = (sys.executable, "-m", "django", "sagas", "worker")
RELAY = (sys.executable, "-m", "django", "sagas", "relay", "--app", "tests.benchmarks.celery_app")
CELERY_WORKER = (
    *(sys.executable, "-m", "celery", "-A", "tests.benchmarks.celery_app", "worker", "-c", "2", "-P", "prefork"),
    *("-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"),  # all as the peer's
)
STARTS_PER_TRANSACTION = 100
OPEN = "select exists (select from sagas_outbox)"
TOUCHED = "select exists (select from sagas_outbox where publishes > 0 or deliveries > 0)"
STATUSES = "select status, count(*) from sagas_saga where key like %s group by status"


def business(number: int, *, saga: bool) -> None:
    """One transaction of two inserts, as an application would have it, with or without a saga."""
    with transaction.atomic():
        order = Order.objects.create(number=f"order-{number}", total=number)
        Line.objects.create(order=order, article="book")
        if saga:
            Noop.start(NoopInput(number), key=f"business-{order.pk}")


def clear() -> None:
    """Forget what earlier measurements left: nobody may work on it while something else is measured."""
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_outbox")


def start_noop(number: int, key: str) -> None:
    """Start three steps that do nothing."""
    Noop.start(NoopInput(number), key=key)


def backlog(count: int, start: StartOne = start_noop) -> tuple[str, float]:
    """Start sagas in transactions of 100; nobody works on them yet.

    Args:
        count: how many.
        start: starts one of them.

    Returns:
        What their keys begin with, and the seconds it took.
    """
    prefix, begun = f"{uuid4()}-", time.monotonic()
    for first in range(0, count, STARTS_PER_TRANSACTION):
        with transaction.atomic():
            for number in range(first, min(first + STARTS_PER_TRANSACTION, count)):
                start(number, f"{prefix}{number}")
    return prefix, time.monotonic() - begun


def drained(
    name: str, count: int, seconds: float, *command: str, start: StartOne = start_noop
) -> Measurement:  # fmt: skip
    """Build a backlog, start the process that sets all going, and time the work from its first touch to its end.

    The first touch (a claim or a publish) is seen from outside within about 2 ms; what the process needs to
    start up does not count, as it does not for the peers.

    Args:
        name: of the measurement.
        count: sagas.
        seconds: each of the two waits is given up after.
        command: the process.
        start: starts one saga.

    Raises:
        NotRun: the time was too short, the process ended early or not all sagas were completed.
    """
    clear()
    prefix, starting = backlog(count, start)
    with ProcessGroup() as group:
        process = group.start(command, cwd=ROOT)
        wait_until(lambda: asked(TOUCHED) or not asked(OPEN), process, every=0.002, seconds=seconds)
        begun = time.monotonic()
        wait_until(lambda: not asked(OPEN), process, every=0.01, seconds=seconds)
        took = time.monotonic() - begun
        process.kill()  # nothing is left to be done in good order
    with connection.cursor() as cursor:
        cursor.execute(STATUSES, [f"{prefix}%"])
        statuses = dict(cursor.fetchall())
    if statuses != {"completed": count}:
        raise NotRun(f"{name}: of {count} sagas not all were completed: {statuses}")
    notes = {"start_seconds": round(starting, 3), "per_second_with_starts": round(count / (took + starting), 2)}
    return Measurement(name=name, count=count, seconds=took, notes=notes)


def asked(query: str) -> bool:
    """Ask the database a yes-or-no question."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return bool(cursor.fetchone()[0])


def wait_until(happened: Callable[[], bool], process: Process, *, every: float, seconds: float) -> None:
    """Look every so many seconds, as long as the process lives.

    Raises:
        NotRun: it ended, or the time was up; the message shows the end of its output.
    """
    end = time.monotonic() + seconds
    while not happened():
        if process.poll() is not None:
            raise NotRun(str(process.failure(f"ended with {process.returncode}")))
        if time.monotonic() > end:
            raise NotRun(str(process.failure(f"was not done after {seconds:.0f} s")))
        time.sleep(every)
