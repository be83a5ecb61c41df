"""Looking at sagas that wait, and at who waits for whose lock."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from django.db import connection, transaction

from sagas import engine
from tests.support.stories import entries


def wait_until_blocked(many: int, seconds: float = 20) -> None:
    """Wait until so many connections to this database wait for a lock of another transaction."""
    deadline = monotonic() + seconds
    while _blocked() < many:
        assert monotonic() < deadline, f"fewer than {many} connections wait for a lock"
        sleep(0.01)


def _blocked() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def queued(saga: Any) -> list[Any]:
    """What was signalled to a saga, in the order of its log."""
    return [entry.data["result"] for entry in entries(saga) if entry.kind == "signalled"]


def ask(kind: str, saga: Any, reason: str = "a test", **options: Any) -> None:
    """Insert a request in a transaction of its own."""
    with transaction.atomic():
        engine.request(None, kind, id=saga.id, reason=reason, actor="ann", **options)
