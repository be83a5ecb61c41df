"""A connection that is opened when it is needed, never crosses a fork, and is replaced once it broke."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import psycopg

Connection = psycopg.Connection[Any]

LIMITS = {  # arguments of libpq with which a server that is cut off is noticed; seconds, of the second milliseconds
    "connect_timeout": 10, "tcp_user_timeout": 15_000, "keepalives_idle": 10, "keepalives_interval": 5,
}  # fmt: skip

# what another connection, or the same a moment later, may do better with: sqlstates and their beginnings
ELSEWHERE = (
    "08",
    "25006",
    "40",
    "53",
    "57P",
    "58",
)  # cut off, read-only, rolled back, out of something, ending, the disk

READ_COMMITTED = """
select set_config('default_transaction_isolation', 'read committed', false)
where current_setting('default_transaction_isolation') <> 'read committed'
"""


class HasFileno(Protocol):
    """A connection of any driver."""

    def fileno(self) -> int: ...


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
        if self._connection is None or self._connection.closed or self._connection.broken or cut(self._connection):
            self.close()
            self._connection, self._pid = self._connected(), os.getpid()
        return self._connection

    def _connected(self) -> Connection:
        """A new connection. Whoever tells the address or the password (a vault, say) may be away for a while too."""
        try:
            return self._connect()
        except psycopg.Error:
            raise
        except Exception as problem:
            raise psycopg.OperationalError(f"cannot connect: {problem!r}") from problem

    def close(self) -> None:
        """Close what is open here; nothing happens to a connection of the parent process."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(psycopg.Error):
                connection.close()


class Links:
    """As many links as are in use at one time, by whatever threads: pools of greenlets make a new one for each task.

    Args:
        connect: opens a new autocommit connection.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._free: deque[Link] = deque()  # its append and pop are atomic

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """A connection that nobody else uses meanwhile. See `Link.use`."""
        try:
            link = self._free.pop()
        except IndexError:
            link = Link(self._connect)
        try:
            with link.use() as connection:
                yield connection
        finally:
            self._free.append(link)

    def close(self) -> None:
        """Close what is not in use."""
        while self._free:
            self._free.pop().close()


def cut(connection: HasFileno) -> bool:
    """Whether the server ended an idle connection: it has something to say, and nobody asked it anything.

    Costs no round trip. Better one connection too many than a statement that fails: a lost begin costs the
    publish window, a local step on a dead connection a lease.
    """
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError, psycopg.Error):  # closed on our side
        return True


def is_elsewhere(problem: psycopg.Error) -> bool:
    """Whether an error says nothing against the statement: of the connection, or of the server, or of the moment.

    Psycopg's `OperationalError` is no answer: it is also what a statement meets that is too large or too complex.
    """
    if problem.sqlstate is None:
        return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return problem.sqlstate.startswith(ELSEWHERE)


def read_committed(connection: Connection) -> None:
    """Let each statement of a session see what others have committed until then, whatever its role or database says.

    Whoever counts what is at work first waits for the others who do: what they have begun would not be in its snapshot.

    Args:
        connection: in autocommit; a session of its own, not one that a pooler hands to others.
    """
    psycopg.Cursor(connection).execute(READ_COMMITTED)
