"""One database, one order, and the processes that work on it; everything is looked at from outside."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connections, transaction

from example_project.bank.desk import Desk
from sagas import Saga
from sagas.testing import faults
from sagas.testing.faults import Hit
from sagas.testing.processes import Process, ProcessGroup
from tests.faults.app.sagas import Ordered, parcel
from tests.faults.sight import Sight, wait_until
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]

connections_change = threading.Lock()


@dataclass(kw_only=True)
class Scene(Sight):
    """A saga of an order in a database of its own.

    Args:
        url: the database.
        bank: where the money is.
        processes: what is started here; ends with them.
        saga: the definition.
        order: its order, unlike any other at the bank.
    """

    bank: Desk
    processes: ProcessGroup
    saga: type[Saga[Ordered]]
    settings: dict[str, str] = field(default_factory=dict)  # of the processes, by environment variable
    _markers: int = 0

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

    def wait_until_ended(self, *orders: str) -> None:
        """Wait until the sagas of the order (or others) have ended."""
        for order in orders or (self.order,):
            wait_until(partial(self.has_ended, order), f"the end of saga {order}")

    def wait_for_line(self, kind: str, step: str) -> None:
        """Wait until the log of the order has such a line."""
        wait_until(lambda: (kind, step) in self.kinds(), f"{kind} of {step} in the log")

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


@contextmanager
def _alias(url: str) -> Iterator[str]:
    """A Django alias for a database, as long as the block lasts; one at a time, the dict of aliases is shared."""
    alias = f"scene-{uuid.uuid4().hex}"
    with connections_change:
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
    assert process.wait(30) == 0, process.output()
