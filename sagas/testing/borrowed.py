"""The test's own connection as a store of sagas.

A test that runs in a transaction which never commits is the only one to see its rows. So everything that a
worker does with several connections happens on the test's own: what is a transaction elsewhere becomes a savepoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Protocol, cast

from psycopg.pq import TransactionStatus

from sagas import ports
from sagas.errors import ConfigurationError
from sagas.ports import Connection, Store

CALL = "sagas.testing.drain"  # how messages call what needs the connection
PLACE = "fixture sagas_using (using= of a function)"  # and where they say that it is given


class BorrowedStore(Store, Protocol):
    """A store whose `connect` lends out the test's own connection."""

    def shelter(self) -> AbstractContextManager[None]:
        """Around the body of an external step: a statement of its own that fails does not end the test's transaction.

        In production such a body runs outside any transaction.
        """


class _Lent:
    """A connection of somebody else: used like any other, and never closed by us."""

    def __init__(self, connection: Connection) -> None:
        self._lent = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent, name)

    def close(self) -> None:
        """It is not ours."""


def lend(connection: Connection) -> Connection:
    """The connection, safe from being closed; with its transaction open, if there is to be one."""
    if not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        connection.execute("select 1")  # else psycopg would take our first savepoint for the transaction, and commit it
    return cast(Connection, _Lent(connection))


@contextmanager
def sheltered(connection: Connection) -> Iterator[None]:
    """A savepoint that is rolled back only if a statement failed in the block; without a transaction nothing."""
    if _status(connection) != TransactionStatus.INTRANS:
        yield
        return
    connection.execute("savepoint sagas_body")
    try:
        yield
    finally:
        status = _status(connection)
        if status == TransactionStatus.INERROR:
            connection.execute("rollback to savepoint sagas_body")
        if status in (TransactionStatus.INERROR, TransactionStatus.INTRANS):
            connection.execute("release savepoint sagas_body")


def _status(connection: Connection) -> TransactionStatus:
    return connection.info.transaction_status


def check_using(using: Any) -> None:
    """See that the kit can work with what it was given as `using=`; errors of `start()` would name its own arguments.

    Raises:
        ConfigurationError: it was given nothing where there is no default, or something asynchronous.
    """
    if iscoroutinefunction(getattr(type(using), "close", None)):
        raise ConfigurationError(
            f"{PLACE}: a {type(using).__name__} is asynchronous, and the kit runs everything in the thread of the "
            f"test; return a session of psycopg 3 beside it, as in docs/testing.md#an-asynchronous-application"
        )
    if using is not None:
        return
    try:
        ports.caller(None, call=CALL)
    except ConfigurationError:
        raise ConfigurationError(
            f"{PLACE}: the testing kit was not told where it finds sagas; override this fixture to return the session "
            f"or connection of the test, as in docs/testing.md#with-sqlalchemy (Django: add 'sagas_django' to "
            f"INSTALLED_APPS)"
        ) from None


def borrow(using: Any) -> BorrowedStore:
    """The store of what was given as `using=`; the integration that knows it has a module `testing` with `borrow`.

    Raises:
        ConfigurationError: no integration knows it, that has no testing kit, it is asynchronous, or its driver is not
            psycopg 3.
    """
    check_using(using)
    package = type(ports.caller(using, call=CALL)).__module__.partition(".")[0]
    if package == "sagas":
        raise ConfigurationError(
            f"{CALL}(): local steps need the models of an application, and using={using!r} is a bare connection; "
            f"pass a Django alias, or a session or connection of SQLAlchemy"
        )
    try:
        found = import_module(f"{package}.testing")
    except ModuleNotFoundError as problem:
        if problem.name != f"{package}.testing":
            raise
        raise ConfigurationError(f"using={using!r}: {package} has no testing kit, a module {package}.testing") from None
    store: BorrowedStore = found.borrow(using)
    return store
