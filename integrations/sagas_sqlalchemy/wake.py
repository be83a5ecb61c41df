"""Wake-ups after the commit of somebody else's SQLAlchemy transaction.

A commit is known for sure only where a connection is: `after_commit` of a session fires at the release of a savepoint
too, and a session that joined a connection's transaction commits nothing. So `start()` leaves a note with the DBAPI
connection, events strike out what is rolled back, and when the connection returns to its pool right after the commit,
the hint is sent on it: in autocommit, belonging to nobody, and without taking a second one. A connection that is kept
after its commit sends nothing until it is given back; polling is the guarantee.

The listeners are put on the classes, once, when this module is imported: SQLAlchemy knows listeners by the ids of what
they listen to, which engines, pools and connections leave to others when they die, and its registry is not for several
threads at once. Where there is no note they do nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from sagas_outbox.wake import NOTIFY, Throttle

log = logging.getLogger("sagas.sqlalchemy")

OPEN = "sagas: savepoints around what was started in the open transaction"
DONE = "sagas: committed, and nobody told"
UNKNOWN = 2**31  # inside a savepoint whose number we do not know: any rollback may be about it

_throttles: WeakKeyDictionary[Dialect, Throttle] = WeakKeyDictionary()  # an engine's dialect outlives its pools


def wake_after_commit(connection: Connection, *, autocommit: bool) -> None:
    """Send a hint once what was just written on this connection is committed, never when it is rolled back.

    Args:
        connection: where it was written.
        autocommit: whether it is committed already.
    """
    if autocommit:
        connection.info[DONE] = _throttle(connection)
    else:
        connection.info.setdefault(OPEN, []).append(_savepoint(connection))


def _throttle(connection: Connection) -> Throttle:
    return _throttles.setdefault(connection.dialect, Throttle())


def _savepoint(connection: Connection) -> int:
    """The number of the innermost open savepoint; 0: none is open."""
    if not connection.in_nested_transaction():
        return 0
    return _number(getattr(connection.get_nested_transaction(), "_savepoint", ""))


def _number(name: str) -> int:
    """Savepoints of a connection are numbered in order: one with a higher number lies within, or comes later."""
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else UNKNOWN


def _notes(connection: Connection) -> dict[Any, Any]:
    """Where the notes of a connection are; asking one that broke for its `info` would connect anew, or raise."""
    return {} if connection.closed or connection.invalidated else connection.info


def _committed(connection: Connection, *_: Any) -> None:
    notes = _notes(connection)
    if notes.pop(OPEN, None):
        notes[DONE] = _throttle(connection)  # it will be, if the COMMIT that follows now does not fail


def _rolled_back(connection: Connection, *_: Any) -> None:
    _notes(connection).pop(OPEN, None)


def _savepoint_rolled_back(connection: Connection, name: str, _: None) -> None:
    notes = _notes(connection)
    if kept := notes.pop(OPEN, None):
        number = _number(name)
        notes[OPEN] = [inside for inside in kept if inside < number]


def _failed(context: ExceptionContext) -> None:
    """A COMMIT that failed: statements have a text, COMMIT has none."""
    if context.statement is None and context.connection is not None:
        _notes(context.connection).pop(DONE, None)


def _checked_in(dbapi_connection: Any, record: ConnectionPoolEntry) -> None:
    if not record.info:
        return
    record.info.pop(OPEN, None)  # closed without a commit
    throttle: Throttle | None = record.info.pop(DONE, None)
    if throttle is not None and dbapi_connection is not None and throttle.allows():
        try:
            _notify(dbapi_connection)
        except BaseException as problem:  # before it is in the pool: what is raised here would lose its place there
            record.invalidate(problem)
            log.debug("no wake-up was sent, polling finds the work: %s", problem)
            if isinstance(problem, asyncio.CancelledError):
                _cancel_again()
            elif not isinstance(problem, Exception):
                raise


def _notify(dbapi_connection: Any) -> None:
    before = dbapi_connection.autocommit
    dbapi_connection.autocommit = True
    cursor = dbapi_connection.cursor()
    cursor.execute(NOTIFY)
    cursor.close()
    dbapi_connection.autocommit = before


def _cancel_again() -> None:
    """Whoever cancels a task while it closes its connection is heard once that is done."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
        task.get_loop().call_soon(task.cancel)


for _name, _heard in (
    ("commit", _committed), ("commit_twophase", _committed),
    ("rollback", _rolled_back), ("rollback_twophase", _rolled_back), ("rollback_savepoint", _savepoint_rolled_back),
    ("handle_error", _failed),
):  # fmt: skip
    event.listen(Engine, _name, _heard)
event.listen(Pool, "checkin", _checked_in)
