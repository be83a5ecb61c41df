"""An application that starts sagas while an embedded worker runs them, and looks at itself now and then.

`python -m tests.support.flat django|sqlalchemy COUNT ...`; `DATABASE_URL` names the database. After each COUNT of sagas
that are done it prints, as a line of JSON, its memory, its connections, and which sessions are alive.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from sagas.embedded import Embedded

CHUNK = 100  # sagas started before the worker has to have finished them all
LONGEST = 60.0  # seconds for one chunk
CONNECTIONS = (
    # whoever is between two statements is idle for a moment
    "select count(*), count(*) filter (where state like 'idle in transaction%'"
    " and state_change < clock_timestamp() - interval '1 second') from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What there is after so many sagas."""

    sagas: int
    memory: int  # bytes
    objects: int  # that the garbage collector knows
    connections: int
    idle_in_transaction: int
    sessions: int  # of SQLAlchemy
    held: int  # objects in their identity maps
    left: int  # rows in the outbox
    dead: int  # versions of outbox rows that vacuum has still to remove
    outbox: int  # bytes of the outbox, with its indexes
    log: int  # steps that were recorded


def main(kind: str, counts: list[int]) -> None:
    """Run the application of a kind until it has seen so many sagas."""
    start, store = {"django": django_app, "sqlalchemy": sqlalchemy_app}[kind]()
    worker = Embedded(store, concurrency=4)
    thread = threading.Thread(target=worker.run)
    thread.start()
    watch = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    done = 0
    try:
        for wanted in counts:
            while done < wanted:
                done += start(CHUNK)
                wait_until(watch, "select count(*) from sagas_saga where finished_at is null", 0)
            print(json.dumps(asdict(look(watch, done))), flush=True)
    finally:
        worker.stop()
        thread.join()
    wait_until(watch, CONNECTIONS.replace("count(*), ", ""), 0)


def wait_until(watch: psycopg.Connection[Any], query: str, value: int) -> None:
    """Wait until a query finds a value."""
    deadline = time.monotonic() + LONGEST
    while watch.execute(query.encode()).fetchone() != (value,):
        if time.monotonic() > deadline:
            raise SystemExit(f"{query}: not {value} within {LONGEST} s")
        time.sleep(0.01)


def look(watch: psycopg.Connection[Any], sagas: int) -> Look:
    """What there is now."""
    gc.collect()
    known = gc.get_objects()
    sessions: list[Any] = [each for each in known if is_session(each)]
    row = watch.execute(CONNECTIONS.encode()).fetchone()
    assert row is not None
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Look(
        sagas=sagas, memory=pages * os.sysconf("SC_PAGE_SIZE"), objects=len(known), connections=row[0],
        idle_in_transaction=row[1], sessions=len(sessions), held=sum(len(each.identity_map) for each in sessions),
        left=counted(watch, "select count(*) from sagas_outbox"),
        dead=counted(watch, "select n_dead_tup from pg_stat_user_tables where relname = 'sagas_outbox'"),
        outbox=counted(watch, "select pg_total_relation_size('sagas_outbox')"),
        log=counted(watch, "select count(*) from sagas_log where kind = 'step_done'"),
    )  # fmt: skip


def is_session(each: object) -> bool:
    """Whether this is a session of SQLAlchemy, or of a subclass of it; proxies are not asked."""
    return any(kind.__qualname__ == "Session" and kind.__module__ == "sqlalchemy.orm.session"
               for kind in type(each).__mro__)  # fmt: skip


def counted(watch: psycopg.Connection[Any], query: str) -> int:
    """The one number that a query finds."""
    row = watch.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0] or 0)


Start = Callable[[int], int]


def django_app() -> tuple[Start, Any]:
    """Requests that start sagas of three local and of three external steps, each in an `atomic` block of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.db import transaction

    from sagas_django.store import DjangoStore
    from tests.shop.models import Order
    from tests.shop.sagas import Externals, Locals, Ordered

    def start(many: int) -> int:
        for number in range(many):
            with transaction.atomic():
                order = Order.objects.create(title="flat")
                (Locals, Externals)[number % 2].start(Ordered(number), key=f"order-{order.pk}", subject=order)
        return many

    return start, DjangoStore("default")


def sqlalchemy_app() -> tuple[Start, Any]:
    """The same with a session for each request."""
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    from sagas import registry
    from sagas_sqlalchemy import Sagas
    from tests.support.flat_sagas import Base, Flat, Note, Noted

    url = os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    runtime = Sagas(engine, metadata=Base.metadata)
    registry.load()
    numbers = count()

    def start(many: int) -> int:
        for number in range(many):
            with Session(engine) as session, session.begin():
                note = Note(text=f"order {next(numbers)}")
                session.add(note)
                session.flush()
                Flat.start(Noted(note.id, number), key=f"order-{note.id}", subject=note, using=session)
        return many

    return start, runtime.store


if __name__ == "__main__":
    main(sys.argv[1], [int(each) for each in sys.argv[2:]])
