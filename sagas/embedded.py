"""The embedded worker: claims and runs in one process, without a broker.

One thread claims and begins rows in batches and deals them out; a fixed number of threads run bodies, and an event
loop those that are `async def`. Each takes as many rows as it has room for, so neither waits for the other. The
guarantees are those of relay and Celery: the same begin, run, decide and record.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from sagas import clock
from sagas.aio import awaited_names
from sagas.events import Work
from sagas.heart import Job
from sagas.pace import Pace
from sagas.ports import Store
from sagas.reception import definition_of
from sagas.store.rows import Delivery
from sagas.takeover import has_one_attempt
from sagas.worker import Worker
from sagas_outbox import claims
from sagas_outbox.claims import Held, Room
from sagas_outbox.link import Link
from sagas_outbox.packing import pack
from sagas_outbox.rights import missing
from sagas_outbox.scan import Marks
from sagas_outbox.turns import Turns
from sagas_outbox.wake import THROTTLE, Ear

log = logging.getLogger("sagas.worker")

ALL = "*"
LAST_WORDS = 0.5  # seconds that saying why may hold up the end of a process


class Claim(NamedTuple):
    """What was begun."""

    jobs: list[list[Delivery]]  # for threads
    awaited: list[Delivery]  # for the event loop
    put_off: bool = False  # rows were due, and every one of them was paused or has to wait: look for others at once

    def __bool__(self) -> bool:
        return bool(self.jobs or self.awaited or self.put_off)


class Embedded:
    """Runs sagas in this process until it is told to stop.

    Args:
        store: where the sagas are.
        queues: the queues to serve; empty: all.
        concurrency: bodies that may run at the same time, apart from `async def` ones (setting `async_concurrency`).
    """

    def __init__(self, store: Store, *, queues: Collection[str] = (), concurrency: int = 8) -> None:
        self.store, self.settings, self.queues = store, store.settings, frozenset(queues)
        self.concurrency = concurrency
        self.pace = Pace()
        self._draining, self._stir = threading.Event(), threading.Event()
        self.worker = Worker(
            store, end_process=end_process, ends_overruns=False, goes_on=self._goes_on,
            draining=self._draining.is_set, pace=self.pace, stir=self._stir.set, queues=self.queues,
        )  # fmt: skip
        self._link = Link(store.connect)
        self._marks = Marks()
        self._turns, self._slot_turns = Turns(), Turns()
        self._rooms: list[Room] = []  # of the last claim, for threads
        self._places: list[Room] = []  # likewise, for the event loop
        self._busy = 0
        self._awaited: list[str] = []
        self._until_idle = False
        self._lock = threading.Lock()
        self._healthy_since = time.monotonic()

    def stop(self, *_: Any) -> None:
        """Begin nothing more; what runs is finished and recorded. A signal handler has another thread call it."""
        self._draining.set()
        self._stir.set()

    def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop` is called.

        Args:
            until_idle: also end as soon as nothing is due and nothing runs.

        Raises:
            psycopg.errors.InsufficientPrivilege: until_idle, and the user of the database may not claim; a worker that
                runs on says so and tries again.
        """
        self._until_idle = until_idle
        self._awaited = awaited_names()
        self.worker.start()
        ear = Ear(self.store.connect, self._stir.set)
        if self.settings.wake:
            ear.start()
        try:
            with ThreadPoolExecutor(self.concurrency, thread_name_prefix="sagas-body") as pool:
                self._loop(pool, until_idle)
        finally:
            if self.settings.wake:
                ear.stop()
            self.worker.stop()
            self._link.close()

    def _loop(self, pool: ThreadPoolExecutor, until_idle: bool) -> None:
        found_before = False
        while not self._draining.is_set():
            self._stir.clear()
            free = self.concurrency - self._busy
            found = self._claim(free) if free > 0 or self._slots() else Claim([], [])
            for job in found.jobs:
                with self._lock:
                    self._busy += 1
                pool.submit(self._run, self.worker.take_up(job))  # its leases are kept also while it queues
            if found.awaited:
                self.worker.run(self.worker.take_up(found.awaited))  # which only hands them to the event loop
            if until_idle and not found and self._idle():
                return
            if not found:
                self._stir.wait(2 * THROTTLE if found_before else self._marks.rest(self.settings.poll, self._serves))
            found_before = bool(found)

    def _idle(self) -> bool:
        """Nothing runs, and a look from the very beginning finds nothing due."""
        if self._busy or not self.worker.idle:
            return False
        with self._link.use() as connection:
            oldest = claims.queues(connection, now=clock.now())
        return all(due_in > 0 for queue, (due_in, _) in oldest.items() if self._serves(queue))

    def _slots(self) -> int:
        """How many `async def` bodies could begin; 0 where no definition has any."""
        return self.worker.room if self._awaited else 0

    def _claim(self, free: int) -> Claim:
        """Begin what is due for the threads and slots that are free."""
        try:
            with self._link.use() as connection:
                self.worker.declare(connection)
                self._scan(connection)
                self.pace.save_if_due(connection)
                found = self._due(connection, free)
                self._marks.claimed(len(found.jobs) + len(found.awaited), [*self._rooms, *self._places])
                self._turns.note(self._rooms)
                self._slot_turns.note(self._places)
                return found
        except psycopg.Error as problem:
            why = missing(problem, "sagas_worker") or problem
            if self._until_idle and isinstance(problem, psycopg.errors.InsufficientPrivilege):
                raise
            log.warning("cannot claim, trying again in %s s: %s", self.settings.poll, why)
            self._healthy_since = time.monotonic() + self.settings.heartbeat
            self._draining.wait(self.settings.poll)
            return Claim([], [])

    def _scan(self, connection: claims.Connection) -> None:
        if self._marks.full_scan_due():
            began = time.monotonic()
            self._awaited = awaited_names()
            found = claims.lanes(connection, now=clock.now())
            self._marks.full_scan_done(found, time.monotonic() - began)

    def _due(self, connection: claims.Connection, free: int) -> Claim:
        """Lock and begin due rows, as many as find room; what turns out to be more stays as it was."""
        slots = self._slots()
        with connection.transaction():
            due = self._lock_due(connection, free, slots)
            fresh: list[Held] = [held for held, deliveries in due if not deliveries]
            again: list[Held] = [held for held, deliveries in due if deliveries][: free + slots]
            begun = self.worker.begin(connection, [*fresh, *again], published=False) if due else []
            awaited = [each for each in begun if self.worker.awaits(each)] if slots else []
            jobs = self._deal([each for each in begun if each not in awaited] if awaited else begun)
            surplus = [each.held for job in jobs[free:] for each in job] + [each.held for each in awaited[slots:]]
            if surplus:
                claims.hand_back(connection, surplus, now=clock.now())
            put_off = (bool(due) and not begun) or any(room.put_off for room in [*self._rooms, *self._places])
            return Claim(jobs[:free], awaited[:slots], put_off)

    def _lock_due(self, connection: claims.Connection, free: int, slots: int) -> list[tuple[Held, int]]:
        """Rows for the threads, and, looked for apart, rows for the event loop."""
        served = [queue for queue in self._marks.lanes if self._serves(queue)]
        healthy, now = time.monotonic() >= self._healthy_since, clock.now()
        rooms = self._marks.rooms(self._turns.share(served, self._rows(free))) if free > 0 else []
        self._rooms, self._places = rooms, []
        if not self._awaited:
            return claims.lock_due(connection, rooms, begun=healthy, now=now) if rooms else []
        places = self._places = self._marks.rooms(self._slot_turns.share(served, slots))
        found = claims.lock_due_of(connection, places, work=self._awaited, begun=healthy, now=now) if places else []
        if rooms:
            found += claims.lock_due_of(connection, rooms, work=self._awaited, but=True, begun=healthy, now=now)
        return found

    def _rows(self, free: int) -> int:
        """Rows that keep the free threads busy for about one message's work each."""
        means = self.pace.known().values()
        if not means:
            return free
        typical = max(sum(means) / len(means), 1e-6)
        each = max(1, min(self.settings.message_rows, int(self.settings.message_work / typical)))
        return free * each

    def _deal(self, begun: list[Delivery]) -> list[list[Delivery]]:
        return pack(
            begun, work=self._work, alone=_alone,
            target=self.settings.message_work, most=self.settings.message_rows,
        )  # fmt: skip

    def _work(self, delivery: Delivery) -> float | None:
        if delivery.attempt is None:
            return 0.0
        return self.pace.known().get((delivery.name, delivery.attempt.step, delivery.attempt.direction.value))

    def _run(self, job: Job) -> None:
        try:
            self.worker.run(job)
        except BaseException:  # the pool would keep it to itself
            log.exception("a batch of %d rows ended with an error; their leases run out", len(job.held))
        finally:
            with self._lock:
                self._busy -= 1
            self._stir.set()

    def _serves(self, queue: str) -> bool:
        return not self.queues or queue in self.queues

    def _goes_on(self, _: str, queue: str) -> bool:
        return self._serves(queue) and not self._draining.is_set()


def _alone(delivery: Delivery) -> bool:
    """A body that may kill its worker again, or has one attempt only that a neighbour's crash must not use up."""
    attempt = delivery.attempt
    if attempt is None:
        return False
    plan = definition_of(delivery).plan
    return attempt.lost > 0 or has_one_attempt(plan, Work(attempt.step, attempt.direction))


def end_process(reason: str) -> None:
    """End this process at once: its leases are about to pass to others. Nothing may hold that up or prevent it, such as
    a log that nobody reads, or an output that is closed."""
    try:
        words = threading.Thread(target=_say, args=(reason,), daemon=True)
        words.start()
        words.join(LAST_WORDS)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def _say(reason: str) -> None:
    log.critical("ending this process: %s", reason)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it is closed, or there is none
            stream.flush()
