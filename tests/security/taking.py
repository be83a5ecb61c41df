"""Who of this process asks the database for something, and taking on that user meanwhile.

What the product opens or uses belongs to a role, told by the code that does it; what a test itself looks at or breaks
is done by the owner of the tables.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from tests.security.users import OPERATOR, PRUNER, RELAY, REPAIRER, WEB, WORKER, prepare, seen

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = f"{ROOT / 'tests'}/"
OURS: Final = f"{ROOT / 'tests' / 'security'}/"
FUNCTIONS: Final = {"rebuilding": REPAIRER}
MODULES: Final = (  # whose code opens a connection; the first that fits
    ("sagas.operate_restoring", REPAIRER), ("sagas.operate_keeping", PRUNER), ("sagas.retention", PRUNER),
    ("sagas.schedules", RELAY), ("sagas_outbox.relay", RELAY),
    *((f"sagas.{name}", OPERATOR) for name in (
        "operate", "doctor", "exporter", "measure", "alarms", "watched", "live", "desk", "cli",
    )),
    ("sagas_django.admin", OPERATOR), ("sagas_django.operate", OPERATOR), ("sagas_django.metrics", OPERATOR),
    *((f"sagas.{name}", WORKER) for name in (
        "worker", "embedded", "heart", "local", "guard", "recorder", "perform", "reception", "tally", "pace", "aio",
        "inline", "locking",
    )),
    ("sagas_celery.process", WORKER), ("sagas_celery.tasks", WORKER), ("sagas_outbox.wake", WEB),
)  # fmt: skip

_here = threading.local()


def present() -> str:
    """Who this thread is, where that is settled; else nothing."""
    return getattr(_here, "user", "")


@contextmanager
def being(user: str) -> Iterator[None]:
    """Whatever this thread does in the block is done by this user."""
    before, _here.user = present(), user
    try:
        yield
    finally:
        _here.user = before


def asking(store: Any) -> str:
    """Who opens a connection just now; nothing: the test, as the owner, also from within a body."""
    frame = sys._getframe(2)
    while frame is not None:
        if user := _user_of(frame.f_globals.get("__name__", ""), frame.f_code.co_name):
            return (present() or user) if user == OPERATOR else user  # a command has a user of its own
        if frame.f_code.co_filename.startswith(TESTS) and not frame.f_code.co_filename.startswith(OURS):
            return str(getattr(store, "of_user", ""))
        frame = frame.f_back  # type: ignore[assignment]
    return present() or str(getattr(store, "of_user", ""))


def _user_of(module: str, function: str) -> str:
    if function in FUNCTIONS:
        return FUNCTIONS[function]
    found = (user for prefix, user in MODULES if module == prefix or module.startswith((f"{prefix}.", f"{prefix}_")))
    return next(found, "")


def become(connection: psycopg.Connection[Any], user: str, *, local: bool = False) -> None:
    """Let a connection have this user's rights, for good or for the transaction."""
    place = connection.info
    if place.parameter_status("is_superuser") != "on" and not hasattr(connection, "of_user"):
        return  # the test has made it somebody with less rights than the owner
    prepare(host=place.host, port=place.port, dbname=place.dbname, user=place.user, password=place.password or None)
    connection.execute(f"set {'local ' if local else ''}role {user}".encode(), prepare=False)
    seen[user] += 1
    if not local:
        connection.of_user = user  # type: ignore[attr-defined]


def spoilt(connection: Any) -> bool:
    """Whether nothing can be said on a connection of psycopg: its end, or its rollback, takes the role back."""
    return bool(connection.closed) or connection.info.transaction_status not in (
        TransactionStatus.IDLE, TransactionStatus.INTRANS
    )  # fmt: skip


@contextmanager
def aliases_as(user: str, *names: str) -> Iterator[None]:
    """Django's own connections of this thread have this user's rights, where they can be opened."""
    from django.db import connections

    taken = []
    for name in names:
        with suppress(Exception):  # whoever needs it will say what is wrong with it
            connections[name].ensure_connection()
            raw = connections[name].connection
            if isinstance(raw, psycopg.Connection) and not spoilt(raw):
                become(raw, user, local=False)
                taken.append(raw)
    try:
        with being(user):
            yield
    finally:
        for raw in taken:
            give_back(raw)


def give_back(connection: psycopg.Connection[Any]) -> None:
    """Be the owner again."""
    if not hasattr(connection, "of_user"):
        return
    if not spoilt(connection):
        connection.execute("reset role", prepare=False)
    del connection.of_user
