"""A database, a broker, the bank's own books, and processes of old and new code."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import transaction

from sagas import Saga
from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import Redis
from sagas.verify import Finding, verify
from tests.deploys.app import bank
from tests.deploys.app.sagas import Purchase
from tests.relay.plant import Plant, redis_url, wait_until

QUEUES = "payments,books,parcels"
PATIENCE = 90.0  # seconds
SETTINGS: Mapping[str, float] = {
    "POLL": 0.2, "LEASE": 6.0, "HEARTBEAT": 1.0, "PUBLISH_WINDOW": 3.0, "UNKNOWN_DELAY": 1.0
}  # fmt: skip
TROUBLE = ("parked", "step_failed", "step_unknown", "step_not_done", "compensating", "aborted")


class Scene(Plant):
    """One database, and who works on it. `code` is what processes that are started next have: "old" or "new"."""

    def __init__(self, url: str, books: str, broker: Redis, processes: ProcessGroup) -> None:
        super().__init__(url, redis_url(broker), processes, SETTINGS)
        self.books, self.redis, self.code = books, broker, "old"

    def environment(self, settings: Mapping[str, float | bool] | None = None) -> dict[str, str]:
        """What our processes are told."""
        return super().environment(settings) | {
            "DJANGO_SETTINGS_MODULE": "tests.deploys.settings", "BANK_URL": self.books, "DEPLOYS_CODE": self.code
        }  # fmt: skip

    def work(self) -> Process:
        """Start a worker of every queue."""
        return self.worker(QUEUES, processes=1)

    def buy(self, *keys: str, saga: type[Saga[Purchase]]) -> None:
        """Start sagas in one transaction."""
        with self._alias() as alias, transaction.atomic(using=alias):
            for key in keys:
                saga.start(Purchase(), key=key, using=alias)

    @contextmanager
    def stream(self, saga: type[Saga[Purchase]], prefix: str) -> Iterator[list[str]]:
        """Somebody buys all the time until the block ends; gives the keys of what was bought so far."""
        keys: list[str] = []
        over = threading.Event()

        def buy() -> None:
            with self._alias() as alias:
                while not over.is_set():
                    key = f"{prefix}-{len(keys)}"
                    with transaction.atomic(using=alias):
                        saga.start(Purchase(), key=key, using=alias)
                    keys.append(key)
                    over.wait(0.12)

        buyer = threading.Thread(target=buy)
        buyer.start()
        try:
            yield keys
        finally:
            over.set()
            buyer.join(PATIENCE)
            assert not buyer.is_alive()

    def more(self, keys: list[str], count: int = 10) -> None:
        """Wait until so many more were bought, and as many have come to their end since."""
        bought, ended = len(keys) + count, self.ended() + count
        wait_until(lambda: len(keys) >= bought and self.ended() >= ended, f"{count} more sagas to end", PATIENCE)

    def ended(self) -> int:
        """How many sagas have ended."""
        return int(self.value("select count(*) from sagas_saga where finished_at is not null"))

    def leave(self, process: Process) -> None:
        """Ask it to end, as a deploy does, and wait until it has."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, process.output()

    def wait_for_end(self) -> None:
        """Wait until no saga is open."""
        wait_until(
            lambda: self.value("select count(*) from sagas_saga where finished_at is null") == 0, "the end", PATIENCE
        )

    def movements(self) -> list[str]:
        """The keys under which the bank moved money."""
        with bank.books(self.books) as connection:
            return [row[0] for row in connection.execute("select key from movement order by at")]

    def parcels(self) -> Counter[str]:
        """How many parcels were sent under each key."""
        with bank.books(self.books) as connection:
            return Counter(row[0] for row in connection.execute("select key from parcel"))

    def check(self, *keys: str) -> None:
        """Every saga has completed, nothing failed on the way, and the books outside say so, once each."""
        self.wait_for_end()
        statuses = self.fetch("select status, count(*) from sagas_saga group by status")
        assert statuses == [("completed", len(keys))], statuses
        assert {row[0] for row in self.fetch("select key from sagas_saga")} == set(keys)
        assert self.fetch("select kind, step, data from sagas_log where kind = any(%s)", list(TROUBLE)) == []
        steps = self.fetch("select id, version from sagas_saga")
        charged = {f"{id}:{step}:do:0" for id, version in steps for step in ("charge", "insure")[:version]}
        assert sorted(self.movements()) == sorted(charged)
        assert self.parcels() == Counter(f"{id}:ship:do:0" for id, _ in steps)
        assert self.problems() == []

    def problems(self) -> list[str]:
        """Where sagas do not agree with their logs."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [str(each) for each in verify(connection) if isinstance(each, Finding)]

    def json(self, *command: str) -> Any:
        """What an operator's command says, as data."""
        words = ("-m", "django", "sagas", *command, "--json")
        process = self.processes.python(*words, name="command", env=self.environment())
        process.wait(PATIENCE)
        return json.loads(process.output().splitlines()[-1])
