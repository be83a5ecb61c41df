"""What the core needs from the application around it; each integration provides it.

The core imports no framework. An integration gives it callers (somebody else's connection, on which
a saga is started) and stores (where workers and relays find sagas of one database).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, LiteralString, Protocol, TypeAlias, TypeVar, runtime_checkable

import psycopg

from sagas.errors import ConfigurationError, StoreNotReady
from sagas.settings import Settings
from sagas_outbox import calling
from sagas_outbox.encoding import briefly
from sagas_outbox.errors import UnknownConnection

T = TypeVar("T")
Connection = psycopg.Connection[Any]

NOT_MIGRATED = ("42883", "42P01")  # undefined function, undefined table
READ_ONLY = "25006"

# A call in progress: it yields a statement with one text parameter (written `%s`), is sent the one text value of
# its answer, and returns what the caller gets. It does no I/O of its own, so that who drives it may await.
Work: TypeAlias = Generator[tuple[LiteralString, str], str | None, T]


class Caller(Protocol):
    """A connection of the application, with whatever transaction is open on it."""

    @property
    def blocks(self) -> bool:
        """Whether `run` works: the driver answers without being awaited."""

    @property
    def awaits(self) -> bool:
        """Whether `arun` works: the event loop is not held up."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def run(self, work: Work[T]) -> T:
        """Carry out a call."""

    async def arun(self, work: Work[T]) -> T:
        """Carry out a call without holding up the event loop."""

    # The others are called by the work, so inside of `run` or `arun`.

    def in_transaction(self) -> bool:
        """Whether what is written now is committed or rolled back by the caller.

        Raises:
            NotInTransaction: there is more to say than no.
        """

    def wake_after_commit(self) -> None:
        """Tell relays that there is work once what is written now is committed, never when it is rolled back.

        Polling is the guarantee: where nobody says when that is, this does nothing.
        """

    def subject(self, subject: object) -> tuple[str, str] | None:
        """Type and id of a business object; None when this integration does not know such objects."""


def drive(work: Work[T], fetch: Callable[[LiteralString, str], str | None]) -> T:
    """Carry out a call with a driver that blocks.

    Args:
        work: the call.
        fetch: runs a statement with its text parameter and returns its one text value.
    """
    answer: str | None = None
    while True:
        try:
            question = work.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        answer = fetch(*question)


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
        """How many commit hooks are registered so far, and settings made in the session."""


class Joining(LocalTransaction, Protocol):
    """One that opens the savepoints of a group in fewer round trips than one by one. No store needs to."""

    def joined(self) -> AbstractContextManager[None]:
        """As `savepoint`, but what it raises may also say that the whole group has to be rolled back."""

    def release(self) -> None:
        """End the last of these savepoints: what follows belongs to no body."""

    def settle(self) -> None:
        """Send what a body has only asked for yet, before its constraints are looked at."""


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


@runtime_checkable
class AsyncStore(Store, Protocol):
    """A store whose application has connections of its own in `async def` bodies."""

    async def after_async_bodies(self) -> None:
        """Called in the event loop before and after such bodies: what `between` and `after_body` do, there."""


Adapter = Callable[[Any], Caller | None]

_adapters: list[Adapter] = []
_stores: dict[str, Callable[[], Store]] = {}
_owners: dict[str, str] = {}  # which integration registered the store of a name


def register_adapter(adapter: Adapter) -> None:
    """Let an integration recognise what may be given as `using=`; it returns None for what is not its own."""
    if adapter not in _adapters:
        _adapters.append(adapter)


def caller(using: Any, *, call: str, asynchronous: bool = False) -> Caller:
    """The caller behind a `using=` argument.

    Args:
        using: what the user gave.
        call: what the user called, such as `PlaceOrder.start`, without the `a` of its twin.
        asynchronous: whether it was the twin.

    Raises:
        ConfigurationError: no integration knows such an object, or it is one for the other twin.
    """
    for adapter in _adapters:
        found = adapter(using)
        if found is not None:
            _check_twin(found, call, asynchronous)
            return found
    sqlalchemy = "sagas_sqlalchemy" in sys.modules
    if using is None and sqlalchemy:
        raise ConfigurationError(
            f"{_twin(call) if asynchronous else call}(): pass using= the session or connection that your transaction "
            f"is open on, such as using=session; in a local step using=self.session"
        )
    if using is None:
        raise ConfigurationError(
            "no integration is set up: add 'sagas_django' to INSTALLED_APPS, or pass using= a connection"
        )
    foreign = type(using).__module__.startswith("sqlalchemy.") and not sqlalchemy
    hint = "; import sagas_sqlalchemy first" if foreign else ""
    raise ConfigurationError(
        f"using={briefly(using)}: neither a Django database alias nor a session or connection that sagas knows{hint}"
    )


def _caller_of_messages(using: Any, call: str, asynchronous: bool) -> calling.Caller:
    try:
        return caller(using, call=call, asynchronous=asynchronous)
    except ConfigurationError as problem:
        raise UnknownConnection(str(problem)) from problem


calling.resolve_by(_caller_of_messages)


def _check_twin(found: Caller, call: str, asynchronous: bool) -> None:
    twin = _twin(call)
    if not asynchronous and not found.blocks:
        raise ConfigurationError(f"{call}(): {found.name} is asynchronous; write `await {twin}(...)`")
    if asynchronous and not found.awaits:
        raise ConfigurationError(
            f"{twin}(): {found.name} is synchronous and would hold up the event loop; "
            f"call {call}(...), or pass using= an asynchronous session or connection"
        )


def _twin(call: str) -> str:
    owner, dot, verb = call.rpartition(".")
    return f"{owner}{dot}a{verb}"


def not_ready(sqlstate: str | None, name: str, remedy: str, problem: Exception) -> StoreNotReady | None:
    """What an error of the database says about its state; None when it is about something else. Of the error its first
    line is told: those below may quote the statement, and with it an input. Raise it `from None` for that reason.

    Args:
        sqlstate: its five characters.
        name: what to call the connection.
        remedy: how our tables get there, such as "run the migrations".
        problem: the error.
    """
    said = str(problem).partition("\n")[0]
    if sqlstate in NOT_MIGRATED:
        return StoreNotReady(
            f"{name} lacks the tables of sagas: {remedy} (if they are there, check search_path): {said}"
        )
    if sqlstate == READ_ONLY:
        return StoreNotReady(f"{name} is read-only (a replica, or after a failover): connect to the primary: {said}")
    return None


def settings_in_force() -> Settings:
    """Those of the stores that this process knows; the defaults where there is none, or several that differ.

    Raises:
        ConfigurationError: they differ, and one of them seals payloads: in doubt none may be written as it is.
    """
    found = [make().settings for make in list(_stores.values())]
    if found and all(each == found[0] for each in found):
        return found[0]
    if any(each.payloads.seals for each in found):
        raise ConfigurationError(
            f"this process has several stores ({', '.join(sorted(_stores))}) whose settings differ, and one has a "
            f"payload_codec: pass using= a session or an alias instead of a bare connection, so that the right one "
            f"holds"
        )
    return Settings()


def register_store(name: str, make: Callable[[], Store], *, owner: str) -> None:
    """Let workers find a store by the name that messages carry; the same integration may replace its own.

    Args:
        name: it.
        make: gives the store.
        owner: the integration, by the name of its package.

    Raises:
        ConfigurationError: another integration has a store of this name.
    """
    taken = _owners.get(name, owner)
    if name in _stores and taken != owner:
        raise ConfigurationError(
            f"store {name!r} of {owner}: another integration has a store of this name in this process, {taken}, and "
            f"messages could not say which one they mean; give one of the two another name (Django: the database "
            f"alias; SQLAlchemy: name= of Sagas(...)), which all its processes must agree on"
        )
    _stores[name], _owners[name] = make, owner


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


def store_names() -> list[str]:
    """The names of all stores of this process, in order."""
    return sorted(_stores)


def unregister_store(name: str) -> None:
    """Forget the store of a name, if there is one."""
    _stores.pop(name, None)
    _owners.pop(name, None)
