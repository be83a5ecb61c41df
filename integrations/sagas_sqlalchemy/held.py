"""Savepoints of bodies in a group, which wait for what is sent next.

SQLAlchemy compiles each SAVEPOINT and each RELEASE anew and sends it by itself. In a group of local steps they are
held back instead: the end of one savepoint and the beginning of the next travel together, just before the first
statement of the body, or not at all where nothing was sent in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sagas.opening import Opening
from sagas_sqlalchemy.keeping import GUARD, Guard

KNOWN: Final = "_sagas_holds_back"  # attribute of a dialect


class Held:
    """What is held back on one connection.

    Args:
        connection: in a transaction; nobody else uses it.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._opening: Opening | None = None

    def hold(self, statement: str) -> None:
        """Send it before whatever is sent next.

        Raises:
            SagaError: nobody knows whether what was held back before was executed.
        """
        waiting: tuple[str, ...] = ()
        if self._opening is not None:
            self._opening.check()
            waiting = () if self._opening.sent else self._opening.statements
            self._opening.close()
        self._opening = Opening(self._connection, *waiting, statement)

    def drop(self) -> None:
        """Forget what was not sent."""
        if self._opening is not None:
            self._opening.close()
            self._opening = None


def hold_back(dialect: Dialect) -> None:
    """Have a dialect ask the guard of a connection before it sends a savepoint or its end."""
    if not hasattr(dialect, KNOWN):
        for name, statement in (("do_savepoint", "SAVEPOINT"), ("do_release_savepoint", "RELEASE SAVEPOINT")):
            setattr(dialect, name, _asking(getattr(dialect, name), statement))
        setattr(dialect, KNOWN, True)


def _asking(sends: Callable[[Connection, str], None], statement: str) -> Callable[[Connection, str], None]:
    def ask(connection: Connection, name: str) -> None:
        guard: Guard | None = getattr(connection, GUARD, None)
        if guard is None or guard.held is None:
            sends(connection, name)
        else:
            guard.held.hold(f"{statement} {name}")

    return ask
