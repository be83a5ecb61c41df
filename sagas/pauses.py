"""Holding up a queue, or a saga definition, for all workers and relays at once.

While a queue is held up nothing of it is claimed, requests included. While a definition is held up none of its sagas
begins anything, and requests (a cancel, a signal) are still applied. What is under way is finished and recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg
from psycopg.rows import class_row

from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
BATCH = 1000  # rows made due in one statement


class Scope(StrEnum):
    """What can be held up as a whole."""

    QUEUE = "queue"
    DEFINITION = "definition"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Something that is held up."""

    kind: Scope
    name: str
    version: int  # of a definition; 0: every version
    actor: str
    reason: str
    at: datetime


def pause(
    connection: psycopg.Connection[Any], kind: Scope, name: str, *, version: int = 0, actor: str = "", reason: str
) -> None:
    """Hold up a queue or a definition until `resume`. A second time changes the reason only.

    Args:
        connection: autocommit.
        kind: of what.
        name: of the queue or the definition; it need not have any work yet.
        version: of the definition; 0: every version.
        actor: who.
        reason: why.
    """
    parameters = {"kind": Scope(kind).value, "name": name, "version": version, "actor": actor, "reason": reason}
    run(connection, query(PACKAGE, "pause"), parameters)


def resume(connection: psycopg.Connection[Any], kind: Scope, name: str, *, version: int = 0) -> bool:
    """Let it go on, and make due what was put off meanwhile; returns whether it was held up.

    Args:
        connection: autocommit.
        kind: of what.
        name: of the queue or the definition.
        version: as it was given to `pause`.
    """
    parameters = {"kind": Scope(kind).value, "name": name, "version": version}
    was_paused = run(connection, query(PACKAGE, "unpause"), parameters).rowcount > 0
    last = 0
    while True:
        woken = [row[0] for row in run(connection, query(PACKAGE, "wake"), parameters | {"last": last, "limit": BATCH})]
        if not woken:
            return was_paused
        last = max(woken)


def pauses(connection: psycopg.Connection[Any]) -> Iterator[Pause]:
    """Everything that is held up, oldest first."""
    with psycopg.Cursor(connection, row_factory=class_row(Pause)) as cursor:
        yield from cursor.execute(query(PACKAGE, "pauses"))
