"""What an integration gives the suite: business transactions, and what bodies of local steps can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sagas.definition import Saga
from sagas.engine import SagaRun
from sagas.ports import Store
from sagas.waits import Wait

NOTE = """
create table conformance_note (
    id bigint generated always as identity primary key,
    text text not null unique,
    transaction text not null default pg_current_xact_id()::text,
    backend integer not null default pg_backend_pid()
)
"""  # what the suite's bodies write; it makes the table itself


class Unit(ABC):
    """One business transaction on a session or connection of its own.

    Attributes:
        using: what is given to `start(using=...)`.
        awaited: whether the calls with an `a` in front are used on it.
    """

    using: Any = None
    awaited = False

    @abstractmethod
    def execute(self, statement: str) -> Any:
        """Run a statement of the application's own in it; `%` and `:` mean nothing in there."""

    @abstractmethod
    def commit(self) -> None:
        """Commit it; the unit is not used any more."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll it back; the unit is not used any more."""

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[Any]:
        """A savepoint: released when the block ends, rolled back when it raises."""

    def wait(self, given: Awaitable[Any]) -> Any:
        """The outcome of an awaitable, where `awaited` is set."""
        raise NotImplementedError

    def keep_back(self, text: str) -> bool:
        """Give the session a note that it does not send yet. False: there is no session that could."""
        return False

    def kept_back(self) -> bool:
        """Whether it has not been sent."""
        raise NotImplementedError

    def subject(self) -> tuple[Any, tuple[str, str]] | None:
        """A business object, stored or about to be, with the type and id that sagas are to keep of it.

        None: there are no such objects.
        """
        return None

    def start(self, saga: type[Saga[Any]], input: Any, **named: Any) -> SagaRun:
        """`saga.start()` on this unit."""
        run: SagaRun = self._call(saga, "start", input, **named)
        return run

    def get(self, saga: type[Saga[Any]], **named: Any) -> SagaRun:
        """`saga.get()` on this unit."""
        run: SagaRun = self._call(saga, "get", **named)
        return run

    def cancel(self, saga: type[Saga[Any]], **named: Any) -> None:
        """`saga.cancel()` on this unit."""
        self._call(saga, "cancel", **named)

    def send(self, wait: Wait[Any], value: Any, **named: Any) -> bool:
        """`wait.send()` on this unit."""
        taken: bool = self._call(wait, "send", value, **named)
        return taken

    def _call(self, owner: Any, verb: str, *given: Any, **named: Any) -> Any:
        if self.awaited:
            return self.wait(getattr(owner, f"a{verb}")(*given, using=self.using, **named))
        return getattr(owner, verb)(*given, using=self.using, **named)


class Integration(ABC):
    """An integration, set up on a database that has the tables of sagas and nobody else uses meanwhile.

    Attributes:
        url: of the database, for psycopg; the user may create tables and end sessions.
        wakes: whether relays are told of a commit, by whatever the application does next.
        store: the database as workers see it, with `Settings(wake=False)`; only for `WorkerSuite`.
    """

    url: str
    wakes = True
    store: Store

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Unit]:
        """A unit whose transaction is open, or is opened by its first statement. May be called in several threads.

        When the block ends, what is not committed is rolled back, and the session or connection is closed (or back in
        its pool).
        """

    @abstractmethod
    def autocommit(self) -> AbstractContextManager[Unit]:
        """The same on a connection on which each statement commits by itself."""

    # From here on for `WorkerSuite`. `run` is the `self` of a step's body.

    def write(self, run: Any, text: str) -> None:
        """Write a note in a local step, as an application would: by its model, or by SQL where there are none."""
        raise NotImplementedError

    def execute(self, run: Any, statement: str) -> None:
        """Run a statement in a local step, on the connection that models use there."""
        raise NotImplementedError

    def savepoint(self, run: Any) -> AbstractContextManager[Any]:
        """A savepoint of the body's own."""
        raise NotImplementedError

    def after_commit(self, run: Any, call: Callable[[], object]) -> None:
        """Have something called after the commit of a local step, by the hooks that applications use for that."""
        raise NotImplementedError

    def endings(self) -> Mapping[str, Callable[[Any], object]]:
        """Every way in which a body might end the transaction of its local step; each has to be refused."""
        return {}

    def leave_open(self, run: Any) -> None:
        """In an external step: begin a transaction as a careless body might, and leave it open.

        Only where the integration knows of it, such as a session of the thread.
        """
        return None
