"""Where operators look: one store, and how it is spoken of. Each integration gives the command line one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row

from sagas import machine, wording
from sagas.doctor import Problem
from sagas.errors import StoreNotReady
from sagas.ports import Connection, Store
from sagas.states import State, Status
from sagas.store.schema_files import NAMES
from sagas.why import WaitingSaga
from sagas.wording import Wording
from sagas_outbox.queries import query

OLDEST_POSTGRES: Final = 150000
PACKAGE: Final = "sagas.store"


class SagaLine(WaitingSaga, Protocol):
    """What is shown of a saga."""

    @property
    def key(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def deadline(self) -> datetime | None: ...


class OutboxLine(Protocol):
    """What is shown of an outbox row."""

    @property
    def step(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def direction(self) -> str | None: ...
    @property
    def holder(self) -> str | None: ...
    @property
    def due_at(self) -> datetime: ...
    @property
    def queue(self) -> str: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def progress(self) -> Any: ...


class LogLine(Protocol):
    """What is shown of a log entry."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> str: ...
    @property
    def step(self) -> str | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def data(self) -> dict[str, Any]: ...


class Desk(Protocol):
    """One store, as the commands see it."""

    @property
    def name(self) -> str:
        """What to call the store in messages."""

    @property
    def command(self) -> str:
        """What these commands begin with, for hints."""

    @property
    def words(self) -> Wording:
        """How to put things."""

    @property
    def using(self) -> Any:
        """What calls of `sagas.engine` take."""

    @property
    def definitions_file(self) -> Path | None:
        """Where released definitions are kept; None: nobody has said."""

    def check_ready(self) -> None:
        """Refuse a database that cannot be reached, or lacks our tables.

        Raises:
            StoreNotReady: it is such a one.
        """

    def problems(self) -> Iterable[Problem]:
        """What the integration knows to be wrong: its settings, its Celery app."""

    def connect(self) -> AbstractContextManager[Connection]:
        """See `connected`."""

    def sagas(
        self, *, limit: int, statuses: Sequence[str] = (), name: str | None = None, version: int | None = None,
        waiting: bool = False, unfinished: bool = False,
    ) -> Sequence[SagaLine]:  # fmt: skip
        """Sagas, newest first; those that fit everything that is given."""

    def saga(self, id: UUID) -> SagaLine:
        """One saga that is there."""

    def rows(self, name: str, parameters: dict[str, Any]) -> Sequence[Any]:
        """What a named query of the core finds, as named tuples; for columns that need no decoding."""

    def outbox(self, saga: UUID) -> Sequence[OutboxLine]:
        """The outbox rows of one saga."""

    def log(self, saga: UUID) -> Sequence[LogLine]:
        """The log of one saga."""


@contextmanager
def connected(store: Store) -> Iterator[Connection]:
    """A connection of psycopg 3 in autocommit, closed at the end of the block.

    Raises:
        StoreNotReady: there is none to be had, it was lost, or the server gave up on a statement.
    """
    try:
        connection = store.connect()
    except psycopg.OperationalError as problem:
        raise _unreachable(store.name, problem) from problem
    with closing(connection):
        try:
            yield connection
        except psycopg.OperationalError as problem:
            if connection.closed:
                raise _unreachable(store.name, problem) from problem
            raise StoreNotReady(f"the database of {store.name!r} did not do it: {problem}") from problem


def _unreachable(name: str, problem: psycopg.Error) -> StoreNotReady:
    return StoreNotReady(f"the database of {name!r} cannot be reached: {problem}".rstrip())


class StoreDesk:
    """A desk on a store's own connection, where no framework has a better one.

    Args:
        store: the store.
        command: what these commands begin with.
        remedy: how the tables get there, such as "run `alembic upgrade head`".
        definitions_file: where released definitions are kept.
        problems: what the integration knows to be wrong.
    """

    words: Wording = wording

    def __init__(
        self, store: Store, *, command: str, remedy: str, definitions_file: Path | None = None,
        problems: Callable[[], Iterable[Problem]] | None = None,
    ) -> None:  # fmt: skip
        self.store, self.name, self.command, self._remedy = store, store.name, command, remedy
        self.definitions_file, self._problems = definitions_file, problems
        self._connection: Connection | None = None

    @property
    def using(self) -> Connection:
        """One connection for everything that is looked at, opened when first needed."""
        if self._connection is None:
            try:
                self._connection = self.store.connect()
            except psycopg.Error as problem:
                raise _unreachable(self.name, problem) from problem
        return self._connection

    def close(self) -> None:
        """Close what was opened."""
        if self._connection is not None:
            self._connection.close()

    def check_ready(self) -> None:
        ((version, made),) = self.rows("operate_ready", {})
        if version < OLDEST_POSTGRES:
            raise StoreNotReady(
                f"the database of {self.name!r} is PostgreSQL {version // 10000}; the oldest that sagas run on is "
                f"{OLDEST_POSTGRES // 10000}"
            )
        if not made:
            self._say_where_they_are()
        tables = self.rows("operate_version", {})[0][0] if made else 0
        if tables < len(NAMES):
            state = f"has tables of version {tables}, version {len(NAMES)} is needed" if made else "lacks our tables"
            raise StoreNotReady(f"the database of {self.name!r} {state}: {self._remedy} (if done, check the schema)")

    def _say_where_they_are(self) -> None:
        (found,) = self.rows("operate_elsewhere", {})
        if found.there is not None:
            raise StoreNotReady(
                f"the database of {self.name!r} lacks our tables where they are looked for (search_path is "
                f"{found.path}), and has some in schema {found.there}: say the same schema= in sagas_tables(...) or "
                f"Sagas(...), and in the migration that calls upgrade(op, ...)"
            )

    def problems(self) -> Iterable[Problem]:
        return () if self._problems is None else self._problems()

    def connect(self) -> AbstractContextManager[Connection]:
        return connected(self.store)

    def sagas(
        self, *, limit: int, statuses: Sequence[str] = (), name: str | None = None, version: int | None = None,
        waiting: bool = False, unfinished: bool = False,
    ) -> Sequence[SagaLine]:  # fmt: skip
        wanted = [State(Status(status), 0) for status in statuses]
        ended = [machine.finished(state) for state in wanted]
        given = {
            "statuses": list(statuses) or None, "name": name, "version": version, "waiting": waiting,
            "unfinished": unfinished or (bool(wanted) and not any(ended)), "finished": bool(wanted) and all(ended),
            "parked": bool(wanted) and all(map(machine.parked, wanted)), "limit": limit,
        }  # fmt: skip
        return self.rows("operate_sagas", given)

    def saga(self, id: UUID) -> SagaLine:
        (found,) = self.rows("operate_saga", {"saga": id})
        return found  # type: ignore[no-any-return]

    def outbox(self, saga: UUID) -> Sequence[OutboxLine]:
        return self.rows("operate_outbox", {"saga": saga})

    def log(self, saga: UUID) -> Sequence[LogLine]:
        return self.rows("operate_log", {"saga": saga})

    def rows(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        cursor = psycopg.Cursor(self.using, row_factory=namedtuple_row)
        return cursor.execute(query(PACKAGE, name), parameters).fetchall()
