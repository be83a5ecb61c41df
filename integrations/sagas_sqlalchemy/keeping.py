"""The guard of a connection on which bodies run that do not end its transaction.

Statements are looked at in psycopg's cursors, so also those that go past SQLAlchemy. What SQLAlchemy's objects do is
heard by listeners on the class `Engine`, put there once, when this module is imported: those of single connections are
known by ids, which are used again. They look for a guard on the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import psycopg
from sqlalchemy import Connection, Engine, event

from sagas.endings import ending, outlasts, setting
from sagas.errors import ConfigurationError
from sagas.looking import LOOK, looking

if TYPE_CHECKING:
    from sagas_sqlalchemy.held import Held

GUARD: Final = "_sagas_guard"  # attribute of a connection that is ours for the time of a transaction
KEPT: Final = ("commit", "rollback", "close", "invalidate")  # of a connection of SQLAlchemy
DRIVERS: Final = ("commit", "rollback")  # of a connection of psycopg
WHO: Final = "a local step"
INSTEAD: Final = "what it writes commits together with its log entry when it returns; to undo it all, raise"
MISSING: Final = object()


class Guard:
    """Whether the transaction may end now, and what a body did that it must not.

    Args:
        who: must not end it.
        instead: what happens, and what to do.

    Attributes:
        open: whether the transaction is ours to end.
        offence: what a body tried that it must not, also where it swallowed the refusal.
        held: what holds savepoints back while a body of a group runs.
        opened: the savepoint that was set last.
        savepoint: that of the body that runs; it is ours as well.
        settings: that bodies have made in the session.
        has_set_for_good: whether one of them outlasts the transaction.
    """

    def __init__(self, who: str = WHO, instead: str = INSTEAD) -> None:
        self._who, self._instead = who, instead
        self.open = False
        self.offence: ConfigurationError | None = None
        self.held: Held | None = None
        self.opened: str | None = None
        self.savepoint: str | None = None
        self.settings = 0
        self.has_set_for_good = False

    def refuse(self, what: str) -> NoReturn:
        """Note the offence.

        Raises:
            ConfigurationError: always; it says what to do instead.
        """
        self.offence = ConfigurationError(f"{self._who} must not call {what}: {self._instead}")
        raise self.offence

    def check(self, what: str) -> None:
        """Refuse it unless the transaction is ours to end.

        Raises:
            ConfigurationError: a body called it.
        """
        if not self.open:
            self.refuse(what)

    def look_at(self, statement: str) -> None:
        """Refuse a statement of a body that would end the transaction, and note what sets something.

        Raises:
            ConfigurationError: it would.
        """
        if self.savepoint is None:  # no body runs
            return
        if found := ending(statement):
            self.refuse(found)
        if found := setting(statement):
            self.settings += 1
            self.has_set_for_good |= outlasts(found)


@contextmanager
def guarded(connection: Connection, raw: psycopg.Connection[Any], guard: Guard) -> Iterator[None]:
    """Have everything that could end the transaction ask the guard, for as long as the block runs.

    Args:
        connection: of SQLAlchemy; it may live on, as may what the application has put on it.
        raw: that of psycopg beneath it.
        guard: is asked.
    """
    put: list[tuple[Any, str, object]] = [  # not by an event: refused there, SQLAlchemy's own state is gone
        *((connection, name, _only_ours(guard, connection, "connection", name)) for name in KEPT),
        *((raw, name, _only_ours(guard, raw, "driver_connection", name)) for name in DRIVERS),
        (connection, GUARD, guard), (raw, LOOK, guard.look_at), (raw, "cursor_factory", looking(raw.cursor_factory)),
    ]  # fmt: skip
    before = [vars(owner).get(name, MISSING) for owner, name, _ in put]
    for owner, name, value in put:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), theirs in zip(put, before, strict=True):
            if theirs is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, theirs)


def _only_ours(guard: Guard, owner: object, what: str, name: str) -> Callable[..., object]:
    call: Callable[..., object] = getattr(owner, name)

    def only_ours(*given: Any) -> object:
        if not given:  # SQLAlchemy itself invalidates a connection, with the error that broke it
            guard.check(f"{what}.{name}()")
        return call(*given)

    return only_ours


def _guard_of(connection: object) -> Guard | None:
    return getattr(connection, GUARD, None)


def _commits(connection: Connection) -> None:
    if (guard := _guard_of(connection)) is not None:
        guard.check("commit() of the connection's transaction")


def _rolls_back(connection: Connection) -> None:
    if (guard := _guard_of(connection)) is not None:
        guard.check("rollback() of the connection's transaction")


def _releases(connection: Connection, name: str, _: Any) -> None:
    if (guard := _guard_of(connection)) is not None and guard.savepoint == name:
        guard.refuse("commit() of the savepoint that it runs in")


def _sets_options(connection: Connection, _: Any) -> None:
    """Such as the schema of a tenant: they are the connection's, not the body's."""
    if (guard := _guard_of(connection)) is not None and guard.savepoint is not None:
        guard.settings += 1


for _name, _heard in (
    ("commit", _commits), ("rollback", _rolls_back), ("release_savepoint", _releases),
    ("set_connection_execution_options", _sets_options),
):  # fmt: skip
    event.listen(Engine, _name, _heard)
