"""Wake-ups: a hint after commit that there is work, so that nobody has to wait for the next poll.

A hint may be lost, late or doubled; polling is the guarantee. It is sent in an autocommit statement of its
own: a transaction with a pending NOTIFY would take one database-wide lock at its commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import psycopg

from sagas_outbox.link import Link

log = logging.getLogger("sagas.outbox")

CHANNEL = "sagas_wake"
NOTIFY = "NOTIFY sagas_wake"
THROTTLE = 0.01  # seconds in which one process sends at most one hint; who listens looks again after twice that


class Throttle:
    """Lets one hint through in a while."""

    def __init__(self, seconds: float = THROTTLE) -> None:
        self._seconds, self._last = seconds, 0.0

    def allows(self) -> bool:
        """Whether to send one now. Threads that race may send two, which does no harm."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


class Ear:
    """Listens for hints in a thread of its own and calls `heard` for each.

    Args:
        connect: opens a new autocommit connection.
        heard: called in the listening thread; must be quick.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection], heard: Callable[[], None]) -> None:
        self._link, self._heard = Link(connect), heard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sagas-ear", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no longer; waits a moment for the thread."""
        self._stop.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._link.use() as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._heard()  # something may have been missed while nobody listened
                    while not self._stop.is_set():
                        for _ in connection.notifies(timeout=0.5, stop_after=1):
                            self._heard()
            except psycopg.Error as problem:
                log.info("cannot listen for wake-ups, polling goes on: %s", problem)
                self._stop.wait(1.0)
            except Exception:  # of whatever finds out how to connect, say: this thread must not end
                log.exception("cannot listen for wake-ups, polling goes on")
                self._stop.wait(1.0)
        self._link.close()
