"""Processes that live and die in this one: what a kill does to a saga, thousands of times.

A life is a worker, with a relay where the route has one, driven step by step. It dies when the listener at a place
raises `Died`: nothing in the engine catches that to write anything, which is checked at every death. Then leases
and publish windows end by the stroke of a pen, and the next life takes over. For SIGKILLs of real processes see
`test_kills.py`, `test_celery_kills.py` and `test_pairs_killed.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg
from django.db import transaction
from psycopg.pq import TransactionStatus

from sagas.points import Point, listen
from sagas.store.rows import Delivery, paces
from sagas.worker import Worker
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Held, Room
from sagas_outbox.link import Link
from sagas_outbox.relay import Relay
from tests.faults.app.sagas import KeyedOrder, Ordered, parcel
from tests.faults.route import Bank, Place, Route, nth
from tests.faults.scenario import QUEUES
from tests.faults.sight import Sight
from tests.faults.till import Till
from tests.support.attentive import attentive

TABLES = ("sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "faults_movement", "faults_reservation")
ROUNDS = 40  # of one life, at most
WORK_OF = {queue: work for work, queue in QUEUES.items()}


class Died(KeyboardInterrupt):
    """This life is over. The one kind of exception that no body's failure is made of, so nothing goes on after it."""


@dataclass
class Broker:
    """Messages, in order; and all there ever were, for those that come again."""

    waiting: list[list[Held]] = field(default_factory=list)
    ever: list[list[Held]] = field(default_factory=list)

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        """Take a message."""
        self.waiting.append(list(rows))
        self.ever.append(list(rows))

    def reset(self) -> None:
        """Nothing to drop."""


@dataclass(kw_only=True)
class Lives(Sight):
    """The saga of an order, and those who work on it one after the other. Its database is Django's default.

    Args:
        route: how it is run.
        haunted: each message is delivered twice, between all that there ever were.
        at: called at each place, before anything dies there.
        way: URL of another way to the database for workers and relays; they then say each statement in full.
    """

    route: Route
    haunted: bool = False
    at: Callable[[Place], None] = lambda place: None
    way: str = ""
    till: Till = field(default_factory=Till)
    broker: Broker = field(default_factory=Broker)
    trace: list[Place] = field(default_factory=list)  # of the present life
    _until: Place | None = None
    _times: Counter[Place] = field(default_factory=Counter)
    _left: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.till.keys = self.route.saga is KeyedOrder
        self.till.reached = self._reached
        if self.route.back:
            self.till.refused.add(parcel(self.order))

    def start(self) -> None:
        """Place the order."""
        with transaction.atomic():
            self.route.saga.start(Ordered(self.order), key=self.order)

    def live(self, until: Place | None = None) -> None:
        """One life, until nothing is due; or, with `until`, until it dies there, and its leases end.

        Raises:
            AssertionError: it did not come by that place.
        """
        self.trace, self._until, self._times = [], until, Counter()
        listen(self._reached)
        try:
            with suppress(Died):
                self._work_until_idle()
                assert until is None, f"{until} was not reached, but {[str(place) for place in self.trace]}"
        finally:
            listen(None)
        if until is not None:
            assert self.dump() == self._left, "a life wrote something after its death"
            self.end_leases()

    def end_leases(self) -> None:
        """As time does, and publish windows too; the broker has lost what it had."""
        self.broker.waiting.clear()
        self.connection.execute(
            "update sagas_outbox set due_at = least(due_at, clock_timestamp())"
            " where id in (select id from sagas_outbox for update skip locked)"
        )

    def as_heir(self) -> Lives:
        """Somebody else who works on the same saga, with a broker that has lost all messages."""
        return Lives(url=self.url, route=self.route, order=self.order)

    def dump(self) -> list[Any]:
        """Everything in the database."""
        return [self.fetch(f"select * from {table} order by 1, 2") for table in TABLES]

    def empty(self) -> None:
        """Leave the database as it was found."""
        with self.connection.transaction():
            self.connection.execute("set local sagas.pruning = 'on'")
            for table in (*TABLES, "sagas_pace"):
                self.connection.execute(f"delete from {table}")  # type: ignore[arg-type]

    def _reached(self, point: Point | Bank, detail: str) -> None:
        place = nth(Place(point=point, work=self._work_at(point, detail)), self._times)
        self.trace.append(place)
        self.at(place)
        if place == self._until:
            self._left = self.dump()
            raise Died

    def _work_at(self, point: Point | Bank, detail: str) -> str:
        if point is Point.AFTER_CLAIM:  # it only says how many
            return str(self.fetch("select step || ':' || direction from sagas_outbox")[0][0])
        return WORK_OF[detail] if point is Point.AFTER_PUBLISH else detail

    # --- what a life does ---

    def _work_until_idle(self) -> None:
        store = KeepingStore(self.way or self.url, prepared=not self.way)
        with new_worker(store, goes_on=not self.route.relayed) as worker:
            turns = self._relay_and_work(worker) if self.route.relayed else self._claim_and_work(worker)
            with closing(turns):
                for _ in range(ROUNDS):
                    if not next(turns) and not self._end_backoffs():
                        return
        raise AssertionError(f"it goes on and on: {self.view()}")

    def _end_backoffs(self) -> bool:
        """Whether there were any."""
        changed = self.connection.execute(
            "update sagas_outbox set due_at = clock_timestamp() where holder is null and due_at > clock_timestamp()"
        )
        return changed.rowcount > 0

    def _claim_and_work(self, worker: Worker) -> Iterator[bool]:
        """Turn after turn as in `sagas.embedded`; whether there was anything to do."""
        with closing(Link(worker.store.connect)) as link:
            while True:
                begun = []
                with suppress(psycopg.OperationalError), link.use() as connection:
                    begun = begin_due(worker, connection)
                if begun:
                    worker.run(worker.take_up(begun))
                yield bool(begun)

    def _relay_and_work(self, worker: Worker) -> Iterator[bool]:
        """Turn after turn as a relay and `sagas_celery.process` do; whether there was anything to do."""
        relay = attentive(
            Relay(worker.store.connect, self.broker, worker.settings, queues=QUEUES.values(), paces=paces)
        )
        with closing(Link(worker.store.connect)) as link, closing(relay._link):
            while True:
                published = relay.run_once()
                while self.broker.waiting:
                    message = self.broker.waiting.pop(0)
                    ghosts = self.broker.ever if self.haunted else []
                    for each in [*ghosts, message, *ghosts]:
                        self.deliver(worker, link, each)
                yield published > 0

    def deliver(self, worker: Worker, link: Link, message: list[Held]) -> bool:
        """Hand a message to a worker; whether it began anything."""
        begun = []
        with suppress(psycopg.OperationalError), link.use() as connection:  # with the task that fails goes the message
            begun = worker.begin(connection, message, published=True)
        if begun:
            worker.run(worker.take_up(begun))
        return bool(begun)


class Kept(psycopg.Connection[Any]):
    """A connection that is not closed but given to the next life: opening one takes longer than a step."""

    idle: ClassVar[list[Kept]] = []

    def close(self) -> None:
        """What a dead process had open is rolled back. A connection that is broken, or in a statement, is not kept."""
        usable = not (self.closed or self.broken or self.info.transaction_status == TransactionStatus.ACTIVE)
        try:
            if usable and self.info.transaction_status != TransactionStatus.IDLE:
                self.rollback()
        except psycopg.Error:
            usable = False
        if usable:
            self.idle.append(self)
        else:
            super().close()

    @classmethod
    def close_all(cls) -> None:
        """Really close them."""
        while cls.idle:
            super(Kept, cls.idle.pop()).close()


class KeepingStore(DjangoStore):
    """Django's default database, by a way of its own."""

    def __init__(self, url: str, *, prepared: bool) -> None:
        super().__init__("default")
        self.url, self.prepared = url, prepared

    def connect(self) -> psycopg.Connection[Any]:
        if Kept.idle:
            return Kept.idle.pop()
        connection = Kept.connect(self.url, autocommit=True)
        connection.prepare_threshold = 1 if self.prepared else None
        return connection


@contextmanager
def new_worker(store: DjangoStore, *, goes_on: bool) -> Iterator[Worker]:
    """A worker without a heartbeat of its own."""
    worker = Worker(
        store, end_process=_never, ends_overruns=False, goes_on=lambda *_: goes_on,
        draining=lambda: False,
    )  # fmt: skip
    try:
        yield worker
    finally:
        worker.stop()


def begin_due(worker: Worker, connection: psycopg.Connection[Any]) -> list[Delivery]:
    """Begin what is due, in one transaction."""
    rooms = [Room(queue, 10) for queue in QUEUES.values()]
    with connection.transaction():
        due = claims.lock_due(connection, rooms, begun=True, now=None)
        return worker.begin(connection, [held for held, _ in due], published=False)


def _never(reason: str) -> None:
    raise AssertionError(reason)
