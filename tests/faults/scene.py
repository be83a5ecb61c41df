"""One database, one order, and the processes that work on it; everything is looked at from outside."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.db import connections, transaction

from example_project.bank.desk import Desk
from sagas import Saga
from sagas.testing import faults
from sagas.testing.faults import Hit
from sagas.testing.processes import Process, ProcessGroup
from sagas.verify import Finding, verify
from tests.faults.app.sagas import Ordered, parcel
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
TERMINAL = ("completed", "compensated", "cancelled", "aborted")
PATIENCE = 30.0  # seconds that any wait may take

T = TypeVar("T")

_connections_change = threading.Lock()


def wait_until(look: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until there is something to see, and return it.

    Raises:
        AssertionError: there was nothing within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.03)
    return seen


@dataclass(frozen=True, kw_only=True)
class Row:
    """An outbox row without its due time, which heartbeats move."""

    work: str  # such as charge:do
    holder: str  # "worker", "relay" or ""
    token: int
    deliveries: int
    publishes: int = 0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A log line: what happened, to which step, at which attempt, and who said so."""

    kind: str
    step: str | None = None
    attempt: int = 0
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """What one database holds at one moment."""

    status: str
    outbox: list[Row]
    log: list[Line]
    dedupe: dict[str, str]  # "charge:do" -> state
    movements: list[str]  # what local steps did
    reservations: int


@dataclass(kw_only=True)
class Scene:
    """A saga of an order in a database of its own.

    Args:
        url: the database.
        bank: where the money is.
        processes: what is started here; ends with them.
        saga: the definition.
        order: its order, unlike any other at the bank.
    """

    url: str
    bank: Desk
    processes: ProcessGroup
    saga: type[Saga[Ordered]]
    order: str = field(default_factory=lambda: f"order-{uuid.uuid4().hex[:12]}")
    settings: dict[str, str] = field(default_factory=dict)  # of the processes, by environment variable
    _connection: psycopg.Connection[Any] | None = None
    _markers: int = 0

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """Our own connection, for looking."""
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def disconnect(self) -> None:
        """Close our own connection; the next look opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # --- doing ---

    def start(self, *orders: str) -> None:
        """Place the order (or others) in one transaction, as an application does."""
        with _alias(self.url) as alias, transaction.atomic(using=alias):
            for order in orders or (self.order,):
                self.saga.start(Ordered(order), key=order, using=alias)

    def cancel(self) -> None:
        """Ask for the saga of the order to be undone."""
        with _alias(self.url) as alias, transaction.atomic(using=alias):
            self.saga.cancel(key=self.order, reason="the customer rang", using=alias)

    def worker(
        self, name: str, *options: str, fault: str | None = None, url: str | None = None, concurrency: int = 2
    ) -> Process:  # fmt: skip
        """Start `manage.py sagas worker`."""
        words = ("sagas", "worker", f"--concurrency={concurrency}", *options)
        return self.command(*words, name=name, fault=fault, url=url)

    def command(self, *words: str, name: str, fault: str | None = None, url: str | None = None) -> Process:
        """Start a management command in a process of its own."""
        return self.processes.python("-m", "django", *words, name=name, env=self.environment(fault, url), cwd=ROOT)

    def environment(self, fault: str | None = None, url: str | None = None) -> dict[str, str]:
        """What our processes are told, beside what we are."""
        told = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "DATABASE_URL": url or self.url,
            "BANK_URL": self.bank.url,
            "PYTHONFAULTHANDLER": "1",
            **self.settings,
        }
        if fault is None:
            return told
        self._markers += 1
        return told | faults.environment(self._marker, *fault.split())

    @property
    def _marker(self) -> Path:
        return self.processes.directory / f"marker-{self._markers}"

    def wait_for_hit(self, process: Process, number: int = 0) -> Hit:
        """Wait until a fault of the process that was last started with one strikes."""
        return faults.wait_for_hit(self._marker, process, number=number)

    def resume(self) -> None:
        """Let that process go on."""
        faults.resume(self._marker)

    # --- looking ---

    def fetch(self, query: str, *parameters: object) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query, parameters or None).fetchall()

    def status(self, order: str | None = None) -> str:
        """Where the saga of the order stands."""
        return str(self.fetch("select status from sagas_saga where key = %s", order or self.order)[0][0])

    def kinds(self, order: str | None = None) -> list[tuple[str, str | None]]:
        """Kind and step of each line of its log."""
        return [(kind, step) for _, kind, step, *_ in self.fetch(LOG, order or self.order)]

    def wait_until_ended(self, *orders: str) -> None:
        """Wait until the sagas of the order (or others) have ended."""
        for order in orders or (self.order,):
            wait_until(partial(self.has_ended, order), f"the end of saga {order}")

    def has_ended(self, order: str | None = None) -> bool:
        """Whether the saga of the order is over."""
        return self.status(order) in TERMINAL

    def wait_for_line(self, kind: str, step: str) -> None:
        """Wait until the log of the order has such a line."""
        wait_until(lambda: (kind, step) in self.kinds(), f"{kind} of {step} in the log")

    def view(self) -> View:
        """Everything in the database, of one moment."""
        with self.connection.transaction():
            self.connection.execute("set transaction isolation level repeatable read")
            return View(
                status=self.status(),
                outbox=[_row(*row) for row in self.fetch(OUTBOX)],
                log=[Line(kind=row[1], step=row[2], attempt=row[3], source=row[4]) for row in self._log()],
                dedupe={key.split(":", 1)[1].removesuffix(":0"): state for key, state in self.fetch(DEDUPE)},
                movements=[row[0] for row in self.fetch("select what from faults_movement order by id")],
                reservations=len(self.fetch("select 1 from faults_reservation")),
            )

    def _log(self) -> list[Any]:
        lines = self.fetch(LOG, self.order)
        assert [line[0] for line in lines] == list(range(len(lines))), f"each seq once, without gaps: {lines}"
        return lines

    def findings(self) -> list[str]:
        """What `sagas verify` finds wrong."""
        return [str(each) for each in verify(self.connection) if isinstance(each, Finding)]

    def money(self, order: str | None = None) -> dict[str, str]:
        """Net balance of the order and its parcel at the bank, and who was charged twice."""
        order, ledger = order or self.order, self.bank.ledger()
        known = {"order": order, "parcel": parcel(order)}
        assert not ledger["duplicate_charges"].keys() & set(known.values()), ledger["duplicate_charges"]
        return {name: ledger["orders"][known[name]] for name in known if known[name] in ledger["orders"]}

    def seen(self) -> dict[str, int]:
        """How often the bank was asked for each effect of the saga, such as charge:undo."""
        mine = f"{self.fetch('select id from sagas_saga where key = %s', self.order)[0][0]}:"
        keys = self.bank.ledger()["keys"].items()
        return {key.removeprefix(mine).removesuffix(":0"): said["seen"] for key, said in keys if key.startswith(mine)}

    def in_flight(self) -> list[dict[str, Any]]:
        """What the bank is doing for the order and its parcel right now."""
        mine = (self.order, parcel(self.order))
        return [arrival for arrival in self.bank.in_flight() if arrival["order"] in mine]

    def wait_for_arrival(self) -> dict[str, Any]:
        """Wait until the bank holds a request for the order."""
        return wait_until(self._held_by_bank, "a request held by the bank")[0]

    def _held_by_bank(self) -> list[dict[str, Any]]:
        return [arrival for arrival in self.in_flight() if arrival["doing"] == "hold"]

    def release(self) -> None:
        """Let the bank go on with what it holds, and wait until it has."""
        for arrival in self.in_flight():
            self.bank.release(order=arrival["order"])
        wait_until(lambda: not self.in_flight(), "the bank to end what it was doing")


OUTBOX = "select step, direction, kind, holder, token, deliveries, publishes from sagas_outbox order by id"
LOG = (
    "select l.seq, l.kind, l.step, l.attempt, coalesce(l.data->>'source', '')"
    " from sagas_log l join sagas_saga s on s.id = l.saga_id where s.key = %s order by l.seq"
)
DEDUPE = "select key, state from sagas_dedupe"


def _row(
    step: str | None, direction: str, kind: str, holder: str | None, token: int, deliveries: int, publishes: int
) -> Row:
    return Row(
        work=f"{step}:{direction}" if step else kind,
        holder=(holder or "").partition(":")[0],
        token=token,
        deliveries=deliveries,
        publishes=publishes,
    )


@contextmanager
def _alias(url: str) -> Iterator[str]:
    """A Django alias for a database, as long as the block lasts; one at a time, the dict of aliases is shared."""
    alias = f"scene-{uuid.uuid4().hex}"
    with _connections_change:
        connections.settings[alias] = connections.settings["default"] | database_from_url(url)
        try:
            yield alias
        finally:
            connections[alias].close()
            del connections[alias], connections.settings[alias]


def kill(pid: int, process: Process) -> None:
    """End a process where it stands: SIGKILL to the very process that hit the point."""
    os.kill(pid, signal.SIGKILL)
    if pid == process.pid:
        assert process.wait(10) == -signal.SIGKILL


def drain(process: Process, ready: str = "serves") -> None:
    """SIGTERM, once it has said that it is ready: it must end in good order."""
    process.wait_for_output(ready)
    process.terminate()
    assert process.wait(15) == 0, process.output()
