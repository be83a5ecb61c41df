"""One database with relays and workers, and a caller who publishes into it through Django."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections, transaction

from sagas.testing.faults import environment
from sagas.testing.processes import Process, ProcessGroup
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
TABLES = """
drop table if exists note;
create table note (n bigint generated always as identity, task text, id text, what jsonb);
drop sequence if exists tries;
create sequence tries;
"""


class Mill:
    """A database, a broker, and what works between them.

    Args:
        url: the database.
        broker: URL of its Redis.
        processes: what is started here; ends with them.
    """

    def __init__(self, url: str, broker: str, processes: ProcessGroup) -> None:
        self.url, self.broker, self.processes = url, broker, processes
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(TABLES)

    def relay(self, *, fault: tuple[str, Path] | None = None, **settings: Any) -> Process:
        """Start `manage.py sagas relay` and wait until it serves."""
        words = ("-m", "django", "sagas", "relay", "--app", "tests.messages.celery_app")
        told = self._environment(settings) | (environment(fault[1], fault[0]) if fault else {})
        relay = self.processes.python(*words, name="relay", env=told, cwd=ROOT)
        relay.wait_for_output("serves", PATIENCE)
        return relay

    def worker(self, queues: str = "celery,apart", *, pool: str = "solo") -> Process:
        """Start a Celery worker that handles one message after the other, and wait until it is ready."""
        words = (
            "-m", "celery", "-A", "tests.messages.celery_app", "worker", "-P", pool, "-Q", queues, "--loglevel=INFO",
            "--without-gossip", "--without-mingle", "-n", f"{uuid.uuid4().hex}@test",
        )  # fmt: skip
        worker = self.processes.python(*words, name="worker", env=self._environment({}), cwd=ROOT)
        worker.wait_for_output("ready.", PATIENCE)
        return worker

    def _environment(self, settings: dict[str, Any]) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.messages.settings", "DATABASE_URL": self.url, "REDIS_URL": self.broker,
            "MESSAGES_SAGAS": json.dumps(settings),
        }  # fmt: skip

    @contextmanager
    def alias(self) -> Iterator[str]:
        """A Django alias of this database, with a transaction open on it."""
        alias = f"mill-{uuid.uuid4().hex}"
        connections.settings[alias] = connections.settings["default"] | database_from_url(self.url)
        try:
            with transaction.atomic(using=alias):
                yield alias
        finally:
            connections[alias].close()
            del connections[alias], connections.settings[alias]

    def notes(self, task: str) -> list[tuple[str, Any]]:
        """What a task noted down, in order: its id, and what it was called with."""
        return self.connection.execute("select id, what from note where task = %s order by n", [task]).fetchall()

    def waiting(self) -> int:
        """How many messages are not sent yet."""
        row = self.connection.execute("select count(*) from sagas_message where state = 'waiting'").fetchone()
        return 0 if row is None else int(row[0])
