"""A psycopg 3 connection as the place where a saga is started, without a framework around it.

psycopg tells nobody of a commit, so no wake-up is sent: work is found by the next poll. Who cannot wait for that sends
`NOTIFY sagas_wake` in a statement of its own after the commit.
"""

from __future__ import annotations

from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from sagas.errors import NotInTransaction
from sagas.ports import Caller, Work, drive, not_ready, settings_in_force
from sagas.settings import Settings

T = TypeVar("T")

REMEDY = "run the migrations of your integration"


class _PsycopgCaller:
    """What the two kinds of connection share: all but the statement itself."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._given = connection
        kind = type(connection)
        place = "" if connection.closed else f" to database {connection.info.dbname!r}"
        self.name = f"{kind.__module__.split('.')[0]}.{kind.__name__}{place}"

    @property
    def settings(self) -> Settings:
        return settings_in_force()

    def in_transaction(self) -> bool:
        status = self._given.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise NotInTransaction(
                f"start(): the transaction on {self.name} has failed, so nothing that is written in it stays; "
                f"roll it back (or back to a savepoint) first"
            )
        if status == TransactionStatus.UNKNOWN:
            raise NotInTransaction(f"start(): {self.name} is closed or broken; connect again")
        # without autocommit the first statement opens a transaction, which the caller has to commit
        return status != TransactionStatus.IDLE or not self._given.autocommit

    def wake_after_commit(self) -> None:
        """Nobody says when the caller commits."""

    def subject(self, subject: object) -> tuple[str, str] | None:
        """There are no models here: a subject is its type and id, as an integration would write them."""
        match subject:
            case (str(type_), str(id)):
                return type_, id
        return None


class BareCaller(_PsycopgCaller):
    """A `psycopg.Connection`."""

    blocks, awaits = True, False

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._connection = connection

    def run(self, work: Work[T]) -> T:
        return drive(work, self._fetch)

    async def arun(self, work: Work[T]) -> T:
        raise NotImplementedError  # ports.caller() has said so, in words

    def _fetch(self, sql: LiteralString, argument: str) -> str | None:
        # a plain cursor: the connection may prefer rows or bindings of another kind
        cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
        try:
            row = cursor.execute(sql, [argument]).fetchone()
        except psycopg.Error as problem:
            explained = not_ready(problem.sqlstate, self.name, REMEDY, problem)
            if explained is None:
                raise
            raise explained from None
        return None if row is None else row[0]


class AsyncBareCaller(_PsycopgCaller):
    """A `psycopg.AsyncConnection`."""

    blocks, awaits = False, True

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self._connection = connection

    def run(self, work: Work[T]) -> T:
        raise NotImplementedError  # ports.caller() has said so, in words

    async def arun(self, work: Work[T]) -> T:
        answer: str | None = None
        while True:
            try:
                question = work.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = await self._fetch(*question)

    async def _fetch(self, sql: LiteralString, argument: str) -> str | None:
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        try:
            row = await (await cursor.execute(sql, [argument])).fetchone()
        except psycopg.Error as problem:
            explained = not_ready(problem.sqlstate, self.name, REMEDY, problem)
            if explained is None:
                raise
            raise explained from None
        return None if row is None else row[0]


def bare_caller(using: Any) -> Caller | None:
    """The caller for a psycopg 3 connection."""
    if isinstance(using, psycopg.Connection):
        return BareCaller(using)
    if isinstance(using, psycopg.AsyncConnection):
        return AsyncBareCaller(using)
    return None
