"""On whose connection something is written: an integration's caller, or a bare connection of psycopg 3.

A call is written once, as a generator that yields a statement with one text parameter (written `%s`), is sent the one
text value of its answer, and returns what the caller gets. Whoever carries it out may block or await.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, LiteralString, Protocol, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from sagas_outbox.encoding import briefly
from sagas_outbox.errors import NotPublished, UnknownConnection

T = TypeVar("T")

Work: TypeAlias = Generator[tuple[LiteralString, str], str | None, T]


class Caller(Protocol):
    """A connection of the application, with whatever transaction is open on it."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def run(self, work: Work[T]) -> T:
        """Carry out a call."""

    async def arun(self, work: Work[T]) -> T:
        """Carry out a call without holding up the event loop."""

    def in_transaction(self) -> bool:
        """Whether what is written now is committed or rolled back by the caller."""

    def wake_after_commit(self) -> None:
        """Tell relays that there is work once what is written now is committed."""


Resolver = Callable[[Any, str, bool], Caller]  # of `using=`, the name of the call, and whether it is the async twin

_resolver: list[Resolver] = []


def resolve_by(resolver: Resolver) -> None:
    """Have what stands on this package say what `using=` may be; connections of psycopg are known without it."""
    _resolver[:] = [resolver]


def caller(using: Any, *, call: str, asynchronous: bool) -> Caller:
    """The caller behind a `using=` argument.

    Args:
        using: what the user gave.
        call: what the user called, without the `a` of its twin.
        asynchronous: whether it was the twin.

    Raises:
        UnknownConnection: it is nothing that can be written on, or it is for the other twin.
    """
    if isinstance(using, psycopg.Connection | psycopg.AsyncConnection):
        if asynchronous == isinstance(using, psycopg.Connection):
            right = call if asynchronous else f"a{call}"
            raise UnknownConnection(
                f"{'a' if asynchronous else ''}{call}(using={type(using).__name__}): call {right}()"
            )
        return BareCaller(using)
    if _resolver:
        return _resolver[0](using, call, asynchronous)
    raise UnknownConnection(
        f"{call}(using={briefly(using)}): pass a connection of psycopg 3; with 'sagas_django' in INSTALLED_APPS or "
        f"after `import sagas_sqlalchemy` also what those take"
    )


class BareCaller:
    """A `psycopg.Connection` or `AsyncConnection`. It says nothing of its commits, so polling finds the work."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.name = f"psycopg.{type(connection).__name__}"

    def run(self, work: Work[T]) -> T:
        assert isinstance(self._connection, psycopg.Connection)
        answer: str | None = None
        while True:
            try:
                sql, argument = work.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            # a plain cursor: the connection may prefer rows of another kind
            cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
            row = cursor.execute(sql, [argument]).fetchone()
            answer = None if row is None else row[0]

    async def arun(self, work: Work[T]) -> T:
        assert isinstance(self._connection, psycopg.AsyncConnection)
        answer: str | None = None
        while True:
            try:
                sql, argument = work.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
            row = await (await cursor.execute(sql, [argument])).fetchone()
            answer = None if row is None else row[0]

    def in_transaction(self) -> bool:
        status = self._connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise NotPublished(f"the transaction on {self.name} has failed, nothing written in it stays: roll it back")
        # without autocommit the first statement opens a transaction, which the caller has to commit
        return status != TransactionStatus.IDLE or not self._connection.autocommit

    def wake_after_commit(self) -> None:
        """Nobody says when the caller commits."""
