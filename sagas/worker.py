"""The worker: begin, run, decide, record. One batch of rows at a time, each with an error handling of its own.

begin      take the rows over and load their sagas, one statement for all
requests   cancel and the like are decided at once
local      groups share a transaction with their log entries
external   one body after the other; results are recorded together. Those that are `async def` run elsewhere
go on      what was recorded and continues in a queue of ours is already begun: the next wave
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from msgspec import UNSET

from sagas import clock, hooks
from sagas.aio import Concurrent
from sagas.asked import REQUESTS, request_of
from sagas.duty import Duty, duty_of
from sagas.events import (
    Answer,
    Event,
    Signal,
    Succeeded,
)
from sagas.guard import Guard
from sagas.heart import Heart, Job
from sagas.kin import Kin
from sagas.lacking import Lacking
from sagas.local import Apart, LocalRunner
from sagas.onward import weight
from sagas.pace import Pace
from sagas.payloads import LARGE
from sagas.perform import aperform, perform, to_await
from sagas.points import Point, reached
from sagas.ports import AsyncStore, LocalTransaction, Store
from sagas.queues import declare
from sagas.reception import definition_of, receive
from sagas.recorder import Happened, Recorder
from sagas.store import large, rows
from sagas.store.rows import Connection, Damaged, Delivery, Kept
from sagas.takeover import Misplaced
from sagas.threads import Threads, tidied
from sagas.watched import Watched, last_words
from sagas_outbox.claims import Held
from sagas_outbox.link import Link, Links

log = logging.getLogger("sagas.worker")


class Worker:
    """Runs begun rows of one store in one process. `run` may be called from several threads.

    Args:
        store: where the sagas are.
        end_process: ends this process at once, with a message.
        ends_overruns: whether a body past its timeout and grace is reason enough.
        goes_on: whether it may continue from work in one queue with work in another.
        draining: whether it is to begin nothing more; then rows that wait are given back.
        pace: measurements shared with whoever sizes batches.
        stir: told when an `async def` body and its recording are over.
        concurrent: whether such bodies run at the same time on an event loop; else one by one in the thread of `run`.
        queues: those that it serves, for people to see; empty: all.
    """

    def __init__(
        self,
        store: Store,
        *,
        end_process: Callable[[str], None],
        ends_overruns: bool,
        goes_on: Callable[[str, str], bool],
        draining: Callable[[], bool],
        pace: Pace | None = None,
        stir: Callable[[], None] = lambda: None,
        concurrent: bool = True,
        queues: Collection[str] = (),
    ) -> None:
        self.store, self.settings = store, store.settings
        self._declared = False  # whether the limits of queues, as settings say them, are in the database
        self.holder = f"worker:{uuid4().hex}"
        self.pace = pace or Pace()
        self.heart = Heart(
            Link(store.connect), holder=self.holder, settings=store.settings, end_process=end_process,
            ends_overruns=ends_overruns, draining=draining, queues=queues,
        )  # fmt: skip
        self._link = Link(store.connect)
        self._guard_links = Links(store.connect)
        self._kin = Kin(self._guard_links, self.settings.payloads)
        self._apart = Apart()
        self._lacking = Lacking()
        self.recorder = Recorder(
            self._link, definition_of, holder=self.holder, lease=self.settings.lease, goes_on=goes_on,
            follows=_follows if concurrent else lambda *_: True, draining=draining,
        )  # fmt: skip
        self.tally = self.heart.tally = self.recorder.tally
        self.concurrent = Concurrent(
            self.heart, self.recorder, links=self._guard_links, limit=self.settings.async_concurrency,
            perform=self._aperform, is_draining=draining, stir=stir, patience=self.settings.hand_back_after,
            tidied=partial(tidied, store),
            tidy=store.after_async_bodies if isinstance(store, AsyncStore) else None,
        ) if concurrent else None  # fmt: skip

    def start(self) -> None:
        """Start keeping leases. Call it after the fork."""
        hooks.tidy_with(self.store)
        self.heart.start()

    def stop(self) -> None:
        """Let `async def` bodies end, stop keeping leases and close connections; whatever is still held is taken over
        by others."""
        if self.concurrent is not None:
            self.concurrent.stop()
        self.heart.stop()
        last_words(self._link, self.tally)
        hooks.leave_untidied(self.store)
        for link in (self._link, self._guard_links):
            link.close()

    def begin(self, connection: Connection, held: Sequence[Held], *, published: bool) -> list[Delivery]:
        """Take rows over. Rows this process cannot read or does not know are put off and reported."""
        self.declare(connection)
        begun = rows.begin(
            connection, held, holder=self.holder, lease=self.settings.lease, published=published, now=clock.now()
        )  # fmt: skip
        if begun:
            reached(Point.AFTER_BEGIN, partial(_labels, begun))
        self.tally.begun(begun, len(held) if published else 0)
        good = receive(connection, begun, self.settings, REQUESTS, self._lacking)
        for each in good:
            each.reader.fetch, each.reader.kin = partial(self._fetch, each.saga_id), self._kin
        return sorted(good, key=lambda each: each.heavy)  # stable; nobody waits for what a neighbour has to load

    def declare(self, connection: Connection) -> None:
        """Put the limits of queues that settings say into the database, once; in autocommit, so that they stay."""
        if not self._declared:
            declare(connection, self.settings.queues)
            self._declared = True

    def _fetch(self, saga_id: UUID, seq: int) -> bytes:
        with self._guard_links.use() as connection:
            return large.fetch(connection, saga_id, seq)

    def take_up(self, deliveries: list[Delivery]) -> Job:
        """Keep the leases of begun rows until `run` works through them; who waits too long is given back."""
        job = self.heart.open_job()
        self.heart.add(job, _local_last(deliveries))
        return job

    def run(self, job: Job) -> None:
        """Work through begun rows and whatever follows from them."""
        self.store.between()
        try:
            while wave := self._wave(job):
                reached(Point.BETWEEN_STEPS, partial(_labels, wave))
                self.heart.add(job, _local_last(wave))
        finally:
            self.heart.close_job(job)
            self.store.between()

    def _wave(self, job: Job) -> list[Delivery]:
        """One step of every row of the job; returns what is already begun for the next one."""
        continued: list[Delivery] = []
        happened: list[Happened] = []
        local: list[Delivery] = []
        oldest = 0.0
        while (delivery := self.heart.take(job)) is not None:
            duty = None if delivery.attempt is None else duty_of(delivery)
            if duty is not None and not duty.external:
                if local and delivery.heavy:
                    continued += self._record(happened) + self._local(job, local)
                    happened, local = [], []
                local.append(delivery)
                if len(local) == self.settings.local_group or delivery.heavy:
                    continued += self._record(happened) + self._local(job, local)
                    happened, local = [], []
                continue
            if local:  # no row that could be given back waits for a body of another system
                continued += self._record(happened) + self._local(job, local)
                happened, local = [], []
            if self.concurrent is not None and duty is not None and duty.awaited and self.awaits(delivery):
                self.concurrent.take(job, delivery)
                continue
            late = time.monotonic() - oldest > self.settings.flush
            if happened and (late or delivery.heavy or self._may_take_long(duty)):
                continued += self._record(happened)
                happened = []
            event = self._event(job, delivery)
            if event is None:
                continue
            heavy = is_heavy(event)
            if happened and heavy:
                continued += self._record(happened)
                happened = []
            oldest = oldest if happened else time.monotonic()
            happened.append((delivery, event))
            if heavy:  # it neither keeps its neighbours waiting nor is kept in memory with others like it
                continued += self._record(happened)
                happened = []
        if happened:
            continued += self._record(happened)
        if local:
            continued += self._local(job, local)
        return continued

    def _event(self, job: Job, delivery: Delivery) -> Event | Misplaced | None:
        """What came of one row. A fault of ours costs that row its lease, and its neighbours nothing."""
        if not self.heart.may_begin(delivery):  # this process was frozen, or waited long for something
            log.warning("%s: not begun, its lease has ended or is about to; another worker takes over", delivery.label)
            return None
        try:
            return request_of(delivery) if delivery.attempt is None else self._perform(job, delivery, None)
        except Exception:
            log.exception("%s: what came of it cannot be told; another worker takes over", delivery.label)
            self.heart.release([delivery.held])
            return None

    @property
    def room(self) -> int:
        """How many more `async def` bodies could begin now."""
        return self.concurrent.room if self.concurrent is not None else 0

    def wait_for_room(self) -> None:
        """Wait until at least one could begin, or nothing may begin any more."""
        if self.concurrent is not None and not self.concurrent.room:
            self.concurrent.wait_for_room()

    @property
    def idle(self) -> bool:
        """Whether no such body runs, waits or is being recorded."""
        return self.concurrent is None or self.concurrent.idle

    def awaits(self, delivery: Delivery) -> bool:
        """Whether what a row calls for is an `async def` that runs on the event loop."""
        if self.concurrent is None or delivery.attempt is None:
            return False
        duty = duty_of(delivery)
        return duty.awaited and to_await(delivery, duty.definition)

    async def _aperform(self, job: Job, delivery: Delivery, threads: Threads) -> Answer | Misplaced | None:
        duty = duty_of(delivery)
        timeout = duty.timeout or self.settings.timeout

        @contextmanager
        def timed() -> Iterator[float]:
            self.heart.begin_body(job, delivery, timeout)
            try:
                yield timeout
            finally:
                self.heart.end_body(job)

        watched = Watched(delivery, duty, self.tally)
        try:
            with watched:
                watched.event = await aperform(
                    delivery, duty.definition, limit=self.settings.max_payload, guard=self._guard,
                    clock=timed, alive=lambda: self.heart.alive(delivery), threads=threads,
                )  # fmt: skip
            return watched.event
        finally:  # what it keeps from others: messages are packed by that
            self.pace.note(duty.subject, watched.took / self.settings.async_concurrency)

    def _may_take_long(self, duty: Duty | None) -> bool:
        """Results do not wait for a body that is slow, or that nobody has timed yet."""
        return duty is not None and self.pace.mean(duty.subject) > self.settings.flush

    def _perform(self, job: Job, delivery: Delivery, transaction: LocalTransaction | None) -> Answer | Misplaced | None:
        duty = duty_of(delivery)
        timeout = duty.timeout or self.settings.timeout
        self.heart.begin_body(job, delivery, timeout)
        watched = Watched(delivery, duty, self.tally)
        try:
            with watched:
                watched.event = perform(
                    delivery, duty.definition, limit=self.settings.max_payload, transaction=transaction,
                    alive=lambda: self.heart.alive(delivery), guard=self._guard if duty.external else None,
                    **self._awaiting(delivery, timeout),
                )  # fmt: skip
            return watched.event
        finally:
            try:
                self.store.after_body()
            finally:
                self.heart.end_body(job)
            if not duty.begets:  # finding out what many items are says nothing of usual bodies
                self.pace.note(duty.subject, watched.took)

    def _awaiting(self, delivery: Delivery, timeout: float) -> dict[str, Any]:
        """How an `async def` resolve of a plain step is run."""
        if self.concurrent is None:
            return {}
        wait_for = partial(self.concurrent.wait_for, delivery.label, timeout)
        return {"wait_for": wait_for, "apart": self.concurrent.apart}

    def _guard(self, delivery: Delivery, step_key: str) -> Guard:
        assert delivery.attempt is not None
        return Guard(
            link=self._guard_links, saga_id=delivery.saga_id, held=delivery.held, holder=self.holder, step_key=step_key,
            step=delivery.attempt.step, queue=delivery.queue, limit=self.settings.max_payload, label=delivery.label,
            payloads=self.settings.payloads,
        )  # fmt: skip

    def _local(self, job: Job, group: list[Delivery]) -> list[Delivery]:
        runner = LocalRunner(
            self.store, self.recorder, partial(self._perform, job), self._apart
        )  # fmt: skip
        with self.heart.transaction(job, group):
            return runner.run(group)

    def _record(self, happened: list[Happened]) -> list[Delivery]:
        held = [delivery.held for delivery, _ in happened]
        try:
            return self.recorder.record(happened)
        finally:
            self.heart.release(held)


def _follows(delivery: Delivery, following: Duty) -> bool:
    """Whether whoever ran a row can go on with this: the event loop cannot with what is no `async def`."""
    return not duty_of(delivery).awaited or (following.awaited and not following.has_when)


def _local_last(deliveries: list[Delivery]) -> list[Delivery]:
    """Local steps share a transaction once the others are done, and can be given back until then. What has to be
    loaded first comes last."""
    return sorted(deliveries, key=_turn) if len(deliveries) > 1 else deliveries


def _turn(delivery: Delivery) -> tuple[bool, bool]:
    return delivery.heavy, delivery.attempt is not None and not duty_of(delivery).external


def is_heavy(event: Event | Misplaced) -> bool:
    """Whether it brings a large payload."""
    found = event.value if isinstance(event, Signal) else event.result if isinstance(event, Succeeded) else UNSET
    return weight(found) > LARGE


def _labels(found: Sequence[Delivery | Damaged | Kept]) -> str:
    return ",".join(map(_label, found[:20]))


def _label(each: Delivery | Damaged | Kept) -> str:
    if not isinstance(each, Delivery):
        return type(each).__name__.lower()
    return f"{each.attempt.step}:{each.attempt.direction}" if each.attempt else each.kind
