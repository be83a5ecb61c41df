"""A connection that is opened when it is needed, never crosses a fork, and is replaced once it broke."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]


class Link:
    """One psycopg connection of one thread.

    Args:
        connect: opens a new autocommit connection.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._pid = 0

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection, open. One that broke inside the block is closed; the next use opens another.

        Raises:
            psycopg.OperationalError: the server cannot be reached, or the connection broke.
        """
        connection = self._open()
        try:
            yield connection
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError):
            self.close()
            raise

    def _open(self) -> Connection:
        if self._pid != os.getpid():
            self._connection = None  # the parent's: neither ours to use nor ours to close
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection, self._pid = self._connect(), os.getpid()
        return self._connection

    def close(self) -> None:
        """Close what is open here; nothing happens to a connection of the parent process."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(psycopg.Error):
                connection.close()
