"""The thread of a relay or an embedded worker that looks after schedules.

It has a connection of its own and shares nothing with the rest of the process, so that `input=`, which is the
application's, holds up no work. Any number of processes may have one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from sagas.ports import Store
from sagas.schedules.declaration import Schedule, schedules
from sagas.schedules.firing import fire_due, seconds_left
from sagas.schedules.table import Connection, declare
from sagas_outbox.link import Link

log = logging.getLogger("sagas.schedules")

GOODBYE: Final = 2.0  # seconds that an `input=` which hangs may hold up the end of the process
ROUNDS: Final = 100  # of `once`: more than any schedule needs


class Scheduler:
    """Puts the schedules of this process into the table, and starts what is due.

    Args:
        store: where they are.

    Raises:
        DefinitionError: the input of one of them cannot be stored.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: list[Schedule[Any]] = schedules.of(store.name)
        for each in self.known:
            each.check_input(store.settings.max_payload)
        self._link = Link(store.connect)
        self._declared = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sagas-schedules", daemon=True)

    def start(self) -> None:
        """Begin, if there is anything to look after."""
        if self.known:
            self._thread.start()

    def stop(self) -> None:
        """Start nothing more; waits a moment for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=GOODBYE)

    def once(self) -> None:
        """Do what is due now, in this thread."""
        for _ in range(ROUNDS):
            if not self.known or self._look() > 0:
                break
        self._link.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause = self._look()
            except psycopg.Error as problem:
                pause = self.store.settings.poll
                log.warning("cannot look after schedules, trying again in %s s: %s", pause, problem)
            except Exception:
                pause = self.store.settings.poll
                log.exception("cannot look after schedules, trying again in %s s", pause)
            self._stop.wait(pause)
        self._link.close()

    def _look(self) -> float:
        """Do what is due; returns seconds until the next look."""
        poll = self.store.settings.poll
        with self._link.use() as connection:
            self._declare(connection)
            left = seconds_left(connection, self.known)
            if left is None or left > 0:
                return poll if left is None else min(left, poll)
            with self._application():
                return 0.0 if fire_due(connection, self.store.settings, self.known) else poll

    def _declare(self, connection: Connection) -> None:
        if not self._declared:
            for each in self.known:
                declare(connection, each)
            self._declared = True
            others = [each.name for each in schedules.all() if each not in self.known]
            log.info(
                "looking after %d schedules of store %r: %s%s", len(self.known), self.store.name,
                ", ".join(each.name for each in self.known),
                f"; of other stores are {', '.join(others)}" if others else "",
            )  # fmt: skip

    @contextmanager
    def _application(self) -> Iterator[None]:
        """Around code of the application, which may use connections of its own."""
        self.store.between()
        try:
            yield
        finally:
            self.store.after_body()


@contextmanager
def scheduling(store: Store) -> Iterator[Scheduler]:
    """A scheduler that runs for as long as the block does."""
    scheduler = Scheduler(store)
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.stop()
