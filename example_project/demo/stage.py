"""Everything the demo runs on: Postgres, Redis, bank, relay, workers. Processes of their own, gone at the end.

`DATABASE_URL` and `REDIS_URL` mean servers of yours. On that Postgres the demo makes a database of its own and drops
it; that Redis is emptied.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import django
import redis as redis_client
from django.core.management import call_command

from example_project.bank.desk import ROOT, Desk, open_bank
from example_project.demo.database import SagaTables
from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import postgres, redis

WORKERS = 2
QUEUES = ("default", "payments")
CONCURRENCY = 2  # prefork children of a worker
MANAGE = ROOT / "example_project" / "manage.py"


@dataclass(kw_only=True)
class Stage:
    """The processes, and the ways to look at them."""

    processes: ProcessGroup
    broker: redis_client.Redis
    bank: Desk
    tables: SagaTables
    workers: list[Process] = field(default_factory=list)
    relays: int = 0

    def start_relay(self, *, env: Mapping[str, str] | None = None) -> Process:
        """Start one more relay; `env` may say where it is to stop, see `sagas.testing.faults`."""
        self.relays += 1
        return self.processes.python(MANAGE, "sagas", "relay", name=f"relay-{self.relays}", env=env, cwd=ROOT)

    def start_worker(self) -> Process:
        """Start one more Celery worker; `wait_for_output("ready.")` tells when it works."""
        name = f"worker-{len(self.workers) + 1}"
        options = ["-Q", ",".join(QUEUES), "-c", str(CONCURRENCY), "-n", f"{name}@%h", "-l", "INFO"]
        quick_start = ["--without-gossip", "--without-mingle"]
        words = ["-m", "celery", "-A", "example_project", "worker", *options, *quick_start]
        self.workers.append(self.processes.python(*words, name=name, cwd=ROOT))
        return self.workers[-1]

    def start_web(self, port: int) -> Process:
        """Start Django's web server on a port of this machine; `wait_for_output("Quit the server")` tells when."""
        words = ["runserver", "--noreload", "--insecure", f"127.0.0.1:{port}"]  # --insecure: it serves the admin's CSS
        return self.processes.python(MANAGE, *words, name="web", cwd=ROOT)

    def worker_of(self, pid: int) -> Process | None:
        """The worker that a process belongs to: each leads a process group of its own."""
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return None
        return next((worker for worker in self.workers if worker.pid == group), None)

    def waiting_rows(self) -> frozenset[int]:
        """The outbox rows that the messages waiting in Redis are about."""
        messages = [message for queue in QUEUES for message in self.broker.lrange(queue, 0, -1)]
        return frozenset(row for message in messages for row in rows_of(message))

    def wipe_broker(self) -> None:
        """Make Redis forget everything."""
        self.broker.flushall()


def rows_of(message: bytes) -> list[int]:
    """The outbox rows that one message is about, as Celery's protocol 2 wraps them."""
    _, keywords, _ = json.loads(base64.b64decode(json.loads(message)["body"]))
    return [row for row, _token in keywords["rows"]]


def manage(*words: str, **options: Any) -> str:
    """Run a command of the shop's manage.py in this process; returns what it wrote.

    Raises:
        CommandError: it says that something is wrong.
    """
    said = StringIO()
    django.setup()
    call_command(*words, stdout=said, stderr=said, **options)
    return said.getvalue()


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Start servers and bank, and migrate; relay and workers are for the demo to start.

    Raises:
        NoServerFound: there is no Postgres or no Redis to run.
        ProcessFailed: one of them did not start; the message shows the end of its output.
    """
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        redis_url = stack.enter_context(redis()).url
        database = f"shop_demo_{os.getpid()}"
        stack.callback(server.drop_database, database)
        url = server.create_database(database)
        broker = stack.enter_context(redis_client.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5))
        broker.ping()
        processes = stack.enter_context(ProcessGroup())
        bank = open_bank(processes)
        os.environ |= {
            "DATABASE_URL": url,
            "REDIS_URL": redis_url,
            "BANK_URL": bank.url,
            "DJANGO_SETTINGS_MODULE": "example_project.demo.settings",
        }
        tables = SagaTables(url)
        stack.callback(tables.close)
        manage("migrate", verbosity=0)
        yield Stage(processes=processes, broker=broker, bank=bank, tables=tables)
