"""Relays and workers that say they are there: a row for each in `sagas_process`, renewed every ten seconds.

Nothing is decided from it: claims and leases are what counts. It is for people, who want to know what runs where.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import psycopg

from sagas_outbox.link import Link
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.outbox")

EVERY: Final = 10.0  # seconds
FIRST: Final = 1.0  # seconds after its start: what ends sooner was not there
MISSING: Final = 3 * EVERY  # seconds without a word, after which a process counts as gone
LONGEST: Final = 200  # characters of what is told of a trouble
PACKAGE: Final = "sagas_outbox"


class Presence:
    """One relay or worker of this process.

    Args:
        holder: its name, as claims have it.
        queues: those it serves; empty: all.
    """

    def __init__(self, holder: str, queues: Collection[str] = ()) -> None:
        self._holder, self._queues = holder, ",".join(sorted(queues))
        self._due_at = time.monotonic() + FIRST
        self._noted = False
        self.trouble = ""  # why it gets nothing done

    def note_if_due(self, link: Link, *, now: datetime | None = None) -> None:
        """Say that it is there, every ten seconds.

        Args:
            link: used only when it is time.
            now: the time to go by; None: the database clock.
        """
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + EVERY
        parameters = {
            "holder": self._holder, "host": socket.gethostname(), "pid": os.getpid(), "queues": self._queues,
            "version": _version(), "now": now, "trouble": self.trouble[:LONGEST],
        }  # fmt: skip
        try:
            with link.use() as connection, connection.transaction():
                connection.execute("set local lock_timeout = '500ms'")
                run(connection, query(PACKAGE, "process_seen"), parameters)
            self._noted = True
        except psycopg.Error as problem:
            log.info("that this process is there could not be noted: %s", problem)

    def leave(self, link: Link) -> None:
        """Say that it goes, in order."""
        if not self._noted:
            return
        self._noted = False
        with suppress(psycopg.Error), link.use() as connection:
            run(connection, query(PACKAGE, "process_left"), {"holder": self._holder})


def _version() -> str:
    try:
        return version("outbox-sagas")
    except PackageNotFoundError:
        return ""
