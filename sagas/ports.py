"""What the core needs from the application around it; each integration provides it.

The core imports no framework. An integration gives it callers (somebody else's connection, on which
a saga is started) and stores (where workers and relays find sagas of one database).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psycopg

from sagas.errors import ConfigurationError
from sagas.settings import Settings

Connection = psycopg.Connection[Any]


class Caller(Protocol):
    """A connection of the application, with whatever transaction is open on it."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def fetch(self, sql: str, argument: str) -> str | None:
        """Run a statement with one text parameter (written `%s`) and return its one text value."""

    def in_transaction(self) -> bool:
        """Whether what is written now is committed or rolled back by the caller."""

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call the hook once what is written now is committed; never when it is rolled back."""

    def wake(self) -> None:
        """Tell relays that there is work, outside any transaction; may do nothing."""

    def subject(self, subject: object) -> tuple[str, str] | None:
        """Type and id of a business object; None when this integration does not know such objects."""


class LocalTransaction(Protocol):
    """One transaction for local steps, on the connection that the application's own models use."""

    @property
    def connection(self) -> Connection:
        """The psycopg 3 connection that the transaction is open on."""

    @property
    def session(self) -> Any:
        """What steps get as `self.session`."""

    def savepoint(self) -> AbstractContextManager[None]:
        """A savepoint that is rolled back when the block raises, commit hooks included."""

    def hooks(self) -> int:
        """How many commit hooks are registered so far."""


class Store(Protocol):
    """One database with sagas in it, as workers and relays see it."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    def connect(self) -> Connection:
        """A new autocommit connection of psycopg 3 that belongs to nobody else."""

    def local(self) -> AbstractContextManager[LocalTransaction]:
        """A transaction that commits when the block ends and rolls back when it raises."""

    def between(self) -> None:
        """Called before and after each batch, in the thread that runs bodies: close stale connections."""

    def after_body(self) -> None:
        """Called after each body, in its thread: a transaction that it left open does not outlive it."""


Adapter = Callable[[Any], Caller | None]

_adapters: list[Adapter] = []
_stores: dict[str, Callable[[], Store]] = {}


def register_adapter(adapter: Adapter) -> None:
    """Let an integration recognise what may be given as `using=`; it returns None for what is not its own."""
    if adapter not in _adapters:
        _adapters.append(adapter)


def caller(using: Any) -> Caller:
    """The caller behind a `using=` argument.

    Raises:
        ConfigurationError: no integration knows such an object.
    """
    for adapter in _adapters:
        found = adapter(using)
        if found is not None:
            return found
    if using is None:
        raise ConfigurationError(
            "no integration is set up: add 'sagas_django' to INSTALLED_APPS, or pass using= a connection"
        )
    raise ConfigurationError(f"using={using!r}: neither a Django database alias nor a connection that sagas knows")


def register_store(name: str, make: Callable[[], Store]) -> None:
    """Let workers find a store by the name that messages carry."""
    _stores[name] = make


def store(name: str) -> Store:
    """The store of a name.

    Raises:
        ConfigurationError: no integration registered it.
    """
    try:
        return _stores[name]()
    except KeyError:
        known = ", ".join(sorted(_stores)) or "none"
        raise ConfigurationError(f"store {name!r} is not set up in this process; known: {known}") from None
