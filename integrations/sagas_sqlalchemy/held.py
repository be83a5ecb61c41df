"""Savepoints of bodies in a group, which wait for what is sent next.

SQLAlchemy compiles each SAVEPOINT and each RELEASE anew and sends it by itself. In a group of local steps they are
held back instead: the end of one savepoint and the beginning of the next travel together, just before the first
statement of the body, or not at all where nothing was sent in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sagas.opening import Opening
from sagas_sqlalchemy.keeping import GUARD, Guard

SETS: Final = "SAVEPOINT"
UNDO: Final = "do_rollback_to_savepoint"  # method of a dialect
KNOWN: Final = "_sagas_holds_back"  # attribute of a dialect

_changing = threading.Lock()


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
            self.drop()
        is_empty = bool(waiting) and statement == f"RELEASE {waiting[-1]}"  # nothing was sent in between
        waiting = waiting[:-1] if is_empty else (*waiting, statement)
        if waiting:
            self._opening = Opening(self._connection, *waiting)

    def take_back(self, savepoint: str) -> bool:
        """Forget a savepoint that was not sent yet, with all that came after it; returns whether that was so."""
        waiting = () if self._opening is None or self._opening.sent else self._opening.statements
        statement = f"{SETS} {savepoint}"
        if statement not in waiting:
            return False
        self.drop()
        if before := waiting[: waiting.index(statement)]:
            self._opening = Opening(self._connection, *before)
        return True

    def drop(self) -> None:
        """Forget what was not sent."""
        if self._opening is not None:
            self._opening.close()
            self._opening = None


def hold_back(dialect: Dialect) -> None:
    """Have a dialect ask the guard of a connection before it sends a savepoint or its end."""
    if hasattr(dialect, KNOWN):
        return
    with _changing:  # once: asked twice, a savepoint that was rolled back would be released twice
        if not hasattr(dialect, KNOWN):
            for name, statement in (("do_savepoint", SETS), ("do_release_savepoint", f"RELEASE {SETS}")):
                setattr(dialect, name, _asking(getattr(dialect, name), statement))
            setattr(dialect, UNDO, _taking_back(getattr(dialect, UNDO)))
            setattr(dialect, KNOWN, True)


def _asking(sends: Callable[[Connection, str], None], statement: str) -> Callable[[Connection, str], None]:
    def ask(connection: Connection, name: str) -> None:
        guard: Guard | None = getattr(connection, GUARD, None)
        if guard is None or guard.held is None:
            sends(connection, name)
        else:
            guard.held.hold(f"{statement} {name}")
        if guard is not None and statement == SETS:
            guard.opened = name

    return ask


def _taking_back(sends: Callable[[Connection, str], None]) -> Callable[[Connection, str], None]:
    def ask(connection: Connection, name: str) -> None:
        guard: Guard | None = getattr(connection, GUARD, None)
        if guard is None or guard.held is None or guard.savepoint == name:  # a body may go on past its session
            sends(connection, name)
        elif not guard.held.take_back(name):
            sends(connection, name)
            guard.held.hold(f"RELEASE {SETS} {name}")  # what follows belongs to no body

    return ask
