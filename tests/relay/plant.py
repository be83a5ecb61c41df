"""One database with everything that works on it; each process is real, and everything is looked at from outside."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import psycopg
from celery import Celery
from django.db import connections, transaction

from sagas import Saga
from sagas.testing.faults import environment
from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import Redis
from tests.relay.sagas import Job, Single
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds that any wait may take, on a machine that has much else to do
SHORT: Mapping[str, float] = {  # settings for tests that let leases end
    "LEASE": 1.8, "HEARTBEAT": 0.3, "POLL": 0.3, "PUBLISH_WINDOW": 2.0, "PUBLISH_TIMEOUT": 1.0,
    "HAND_BACK_AFTER": 0.4, "GRACE": 0.4,
}  # fmt: skip

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until there is something to see, and return it.

    Raises:
        AssertionError: there was nothing within `timeout` seconds.
    """
    deadline = monotonic() + timeout
    while not (seen := look()):
        assert monotonic() < deadline, f"not within {timeout:g} s: {what}"
        sleep(0.02)
    return seen


class Plant:
    """A database, a broker, and the relays and workers between them.

    Args:
        url: the database.
        broker: URL of the Redis, or of a proxy before it.
        processes: what is started here; ends with them.
        settings: the SAGAS of every process started here.
    """

    def __init__(
        self, url: str, broker: str, processes: ProcessGroup, settings: Mapping[str, float | bool] | None = None
    ) -> None:
        self.url, self.broker, self.processes, self.settings = url, broker, processes, dict(settings or {})

    @cached_property
    def connection(self) -> psycopg.Connection[Any]:
        """Our own connection, for looking."""
        return psycopg.connect(self.url, autocommit=True)

    @cached_property
    def celery(self) -> Celery:
        """A Celery client of our own, that sends what nobody should."""
        app = Celery("tests.relay.outsider", broker=self.broker, set_as_current=False)
        app.conf.broker_transport_options = {"socket_timeout": 5, "socket_connect_timeout": 5}
        return app

    def close(self) -> None:
        """Let go of the database."""
        if "celery" in self.__dict__:
            self.celery.close()
        self.connection.close()

    # --- doing ---

    def relay(
        self, *options: str, fault: tuple[str, Path] | None = None, broker: str | None = None, **settings: float | bool
    ) -> Process:
        """Start `manage.py sagas relay` and wait until it serves."""
        words = ("-m", "django", "sagas", "relay", "--app", "tests.relay.celery_app", *options)
        told = self.environment(settings) | (environment(fault[1], fault[0]) if fault else {})
        told["REDIS_URL"] = broker or self.broker
        relay = self.processes.python(*words, name="relay", env=told, cwd=ROOT)
        relay.wait_for_output("serves", PATIENCE)
        return relay

    def worker(self, queues: str, *options: str, processes: int = 2, **settings: float | bool) -> Process:
        """Start a prefork Celery worker and wait until it is ready."""
        words = (
            "-m", "celery", "-A", "tests.relay.celery_app", "worker", "-c", str(processes), "-Q", queues,
            "--loglevel=INFO", "--without-gossip", "--without-mingle", "-n", f"{uuid.uuid4().hex}@test", *options,
        )  # fmt: skip
        worker = self.processes.python(*words, name="worker", env=self.environment(settings), cwd=ROOT)
        worker.wait_for_output("ready.", PATIENCE)
        return worker

    def environment(self, settings: Mapping[str, float | bool] | None = None) -> dict[str, str]:
        """What our processes are told, beside what we are."""
        return {
            "DJANGO_SETTINGS_MODULE": "tests.relay.settings",
            "DATABASE_URL": self.url,
            "REDIS_URL": self.broker,
            "RELAY_SAGAS": json.dumps(self.settings | dict(settings or {})),
            "PYTHONFAULTHANDLER": "1",
        }

    def start(self, *keys: str, job: Job | None = None, saga: type[Saga[Job]] = Single) -> None:
        """Start sagas in one transaction, as an application does."""
        self.start_each({key: job or Job() for key in keys}, saga=saga)

    def start_each(self, jobs: Mapping[str, Job], saga: type[Saga[Job]] = Single) -> None:
        """Start sagas in one transaction, each with a job of its own."""
        with self._alias() as alias, transaction.atomic(using=alias):
            for key, job in jobs.items():
                saga.start(job, key=key, using=alias)

    @contextmanager
    def _alias(self) -> Iterator[str]:
        """A Django alias of this database, for as long as the block lasts."""
        alias = f"plant-{uuid.uuid4().hex}"
        connections.settings[alias] = connections.settings["default"] | database_from_url(self.url)
        try:
            yield alias
        finally:
            connections[alias].close()
            del connections[alias], connections.settings[alias]

    @contextmanager
    def gate(self, number: int) -> Iterator[None]:
        """Bodies that come to this gate wait there until the block ends."""
        with psycopg.connect(self.url, autocommit=True) as keeper:
            keeper.execute("select pg_advisory_lock(%s)", [number])
            yield

    def measured(self, saga: type[Saga[Job]], step: str, seconds: float) -> None:
        """As if workers had measured that this step takes so long."""
        self.connection.execute(
            "insert into sagas_pace (name, step, direction, mean) values (%s, %s, 'do', %s)"
            " on conflict (name, step, direction) do update set mean = excluded.mean",
            [saga.plan.name, step, seconds],
        )

    # --- looking ---

    def fetch(self, query: str, *parameters: object) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query, parameters).fetchall()

    def value(self, query: str, *parameters: object) -> Any:
        """The one value of a query."""
        return self.fetch(query, *parameters)[0][0]

    def status(self, key: str) -> str:
        """Where a saga stands."""
        return str(self.value("select status from sagas_saga where key = %s", key))

    def wait_until_completed(self, *keys: str, timeout: float = PATIENCE) -> None:
        """Wait until these sagas have completed."""
        query = "select count(*) from sagas_saga where key = any(%s) and status = 'completed'"
        wait_until(lambda: self.value(query, list(keys)) == len(keys), f"the end of {keys[:5]} ...", timeout)

    def notes(self, key: str) -> list[tuple[str, int, int, int]]:
        """What bodies of this saga noted: what, attempt, process, backend."""
        return self.fetch("select what, attempt, pid, backend from relay_note where key = %s order by id", key)

    def wait_for_notes(self, key: str, count: int = 1, timeout: float = PATIENCE) -> list[tuple[str, int, int, int]]:
        """Wait until bodies of this saga have left so many notes."""
        return wait_until(
            lambda: notes if len(notes := self.notes(key)) >= count else [], f"{count} notes of {key}", timeout
        )

    def row(self, key: str) -> tuple[str, int, int]:
        """The outbox row of a saga: kind of holder, deliveries, token."""
        found: tuple[str, int, int] = self.fetch(
            "select split_part(coalesce(o.holder, ''), ':', 1), o.deliveries, o.token from sagas_outbox o"
            " join sagas_saga s on s.id = o.saga_id where s.key = %s", key
        )[0]  # fmt: skip
        return found

    def attempts(self, key: str) -> list[tuple[str, int]]:
        """Kind and attempt of each line of a saga's log but the first."""
        return self.fetch(
            "select l.kind, l.attempt from sagas_log l join sagas_saga s on s.id = l.saga_id"
            " where s.key = %s and l.seq > 0 order by l.seq", key
        )  # fmt: skip

    def mark(self) -> int:
        """A place in the history of outbox rows; see `begins` and `publishes`."""
        return int(self.value("select coalesce(max(id), 0) from relay_change"))

    def begins(self, since: int = 0) -> dict[int, int]:
        """How often each outbox row was begun from a message."""
        return dict(
            self.fetch(
                "select row_id, count(*) from relay_change where id > %s and holder like 'worker:%%'"
                " and holder_before like 'relay:%%' group by row_id", since
            )
        )  # fmt: skip

    def publishes(self, since: int = 0) -> int:
        """How many rows were published, those counted twice that were published twice.

        Rows that were claimed, and given back since there was no room for them, were not.
        """
        query = """select count(*) filter (where publishes > publishes_before)
            - count(*) filter (where publishes < publishes_before and holder = '' and holder_before like 'relay:%%')
            from relay_change where id > %s"""
        return int(self.value(query, since))


def everything_else_is_idle(plant: Plant, seconds: float) -> bool:
    """Whether nobody else has asked the database of a plant for anything for some time."""
    query = """select coalesce(min(clock_timestamp() - state_change), '1 hour') > make_interval(secs => %s)
        and not bool_or(state <> 'idle') from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""
    return bool(plant.value(query, seconds))


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def redis_url(redis: Redis, port: int | None = None) -> str:
    """URL of a Redis, or of a proxy before it at another port."""
    return f"redis://{redis.host}:{port or redis.port}/0"
