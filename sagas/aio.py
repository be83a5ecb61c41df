"""`async def` bodies: many at the same time on the event loop of this process.

The loop starts with the first of them, so after any fork. A worker hands rows over and goes on with others; each
row here is a job of its own, with its own lease and time limit, and a slot until what came of it is recorded. What is
recorded goes through the worker's recorder, so that results which come together are written together. Nothing that
waits for the database runs on the loop.

A body past its timeout is cancelled: like any exception that leaves its outcome unknown. One that goes on regardless
is ended like any other body that cannot be stopped (`Heart`). One that holds up the loop is reported, with the line
at which it does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg

from sagas.duty import is_awaited
from sagas.events import Answer, Direction
from sagas.heart import Heart, Job, aside
from sagas.loop import Loop, join, leave, within
from sagas.perform import Found
from sagas.points import Point, reached
from sagas.reception import definition_of
from sagas.recorder import Recorder, labels
from sagas.registry import registry
from sagas.store.rows import Delivery
from sagas.takeover import Misplaced
from sagas.threads import Threads
from sagas_outbox.link import Links

log = logging.getLogger("sagas.worker")

HELD_UP = 1.0  # seconds without an answer of the loop that are reported

Perform = Callable[[Job, Delivery, Threads], Awaitable[Found]]


def is_suspect(delivery: Delivery) -> bool:
    """Whether a body may be what ends its worker: it was there twice, or has only one more chance."""
    attempt = delivery.attempt
    if attempt is None or not attempt.lost:
        return False
    return attempt.lost >= min(2, definition_of(delivery).plan.by_name[attempt.step].max_deliveries - 1)


def awaited_names() -> list[str]:
    """All work of this process whose function is `async def`, each as name of the saga, step and direction."""
    return [
        f"{each.saga_name} {step.name} {direction.value}"
        for each in registry.definitions() for step in each.steps for direction in Direction
        if is_awaited(step, direction)
    ]  # fmt: skip


@dataclass(slots=True)
class _Running:
    """The threads beside the loop, and what is known of it."""

    threads: Threads
    home: Loop = field(default_factory=join)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    asked_at: float = 0.0  # when the loop was asked for a sign of life
    answered: bool = True
    reported: bool = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.home.loop


class Concurrent:
    """The `async def` bodies of one process.

    Args:
        heart: keeps their leases.
        recorder: writes what came of them.
        links: connections for whoever needs one.
        limit: how many may run at the same time.
        perform: carries out one begun row.
        is_draining: whether nothing more may begin.
        stir: told whenever a slot is free again.
        patience: seconds that a function which is no `async def` may wait for a thread.
        tidied: around such a function, what looks after the connections of its thread.
        tidy: what the application does after bodies, such as closing connections that have ended.
    """

    def __init__(
        self,
        heart: Heart,
        recorder: Recorder,
        *,
        links: Links,
        limit: int,
        perform: Perform,
        is_draining: Callable[[], bool],
        stir: Callable[[], None],
        patience: float,
        tidied: Callable[[], AbstractContextManager[None]],
        tidy: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._heart, self._recorder, self._limit, self._perform = heart, recorder, limit, perform
        self._links, self._make_threads = links, partial(Threads, tidied, patience)
        self._is_draining, self._stir, self._tidy = is_draining, stir, tidy
        self._untidy = False
        self._tidying: asyncio.Task[None] | None = None
        self._changed = threading.Condition()
        self._jobs: set[Job] = set()  # one for each slot that is taken
        self._queue: Job | None = None  # rows that wait for a slot
        self._running: _Running | None = None
        self._stopping = False
        self._left = False  # the loop of `_running`
        self._quarantine = False  # a body that may end the process runs, or is next

    # --- for workers ---

    @property
    def room(self) -> int:
        """How many more rows could begin now."""
        return 0 if self._quarantine else max(0, self._limit - len(self._jobs) - self._waiting)

    @property
    def _waiting(self) -> int:
        return len(self._queue.waiting) if self._queue is not None else 0

    @property
    def idle(self) -> bool:
        """Whether nothing runs, waits or is being recorded."""
        return not self._jobs and not self._waiting

    def take(self, job: Job, delivery: Delivery) -> None:
        """Take a row over from the job of a worker's thread. It begins at once, or as soon as a slot is free."""
        self._start()
        with self._changed:
            if self._queue is None:
                self._queue = self._heart.open_job()
        self._heart.hand_over(job, delivery, self._queue)
        self._fill()

    def wait_for(self, label: str, timeout: float, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run an `async def` for a thread that waits for it: the `resolve` of a plain step.

        Args:
            label: what it is about.
            timeout: seconds after which it is cancelled.
            coroutine: what to run.

        Returns:
            What it returned.

        Raises:
            BaseException: what it raised; TimeoutError if it was cancelled.
        """
        running = self._start()
        with self._tidied_around(running):
            return running.home.wait_for(within(timeout, coroutine, label=label))

    @contextmanager
    def _tidied_around(self, running: _Running) -> Iterator[None]:
        """Connections may have ended while nobody used them, and a resolve may leave one as it must not be."""
        tidy = partial(running.loop.call_soon_threadsafe, self._tidy_soon, running, context=Context())
        tidy()
        try:
            yield
        finally:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                tidy()

    def _start(self) -> _Running:
        with self._changed:
            if self._running is None or self._left:
                self._running, self._left = _Running(self._make_threads()), False
                self._heart.also_watch = self._watch
            return self._running

    def wait_for_room(self) -> None:
        """Wait until a row could begin, or nothing may begin any more."""
        with self._changed:
            while not self.room and not self._is_draining():
                self._changed.wait(0.1)  # nobody says when draining begins

    def stop(self) -> None:
        """Give back what has not begun, let end what runs (its timeout bounds that), and end the loop."""
        self._stopping, running = True, self._running
        if running is None or self._left:
            return
        running.threads.ask_no_more()
        if self._queue is not None:
            self._end_queue(self._queue)
        self._left = True
        leave()
        running.threads.end(wait=not self._jobs)

    def _end_queue(self, queue: Job) -> None:
        self._give_back(queue)
        with self._changed:
            while self._jobs and not self._is_hopeless():
                self._changed.wait(0.1)
            for job in self._jobs:
                log.error("%s: it does not end; its lease runs out", job.running.label if job.running else "a body")
        self._give_back(queue)  # what was to follow
        self._heart.close_job(queue)

    def _give_back(self, job: Job) -> None:
        try:
            if job.waiting:
                self._heart.hand_back(job, self._links)
        except psycopg.Error as problem:
            log.warning("rows that have not begun cannot be given back, their leases run out: %s", problem)

    def _is_hopeless(self) -> bool:
        """Whether all that runs has outlived its timeout and the grace."""
        return all(self._heart.outlived(job) for job in self._jobs)

    # --- from row to row ---

    def _fill(self) -> None:
        """Begin rows that wait, as long as there are slots."""
        while not self._stopping and not self._is_draining():
            with self._changed:
                if len(self._jobs) >= self._limit or self._queue is None or self._running is None:
                    return
                if self._waits_to_be_alone(self._queue):
                    return
                delivery = self._heart.take(self._queue)
                if delivery is None:
                    return
                self._queue.since = time.monotonic()
                job = self._heart.hand_over(self._queue, delivery)
                self._jobs.add(job)
                running = self._running
            running.loop.call_soon_threadsafe(self._begin, job, delivery, context=Context())

    def _waits_to_be_alone(self, queue: Job) -> bool:
        """Whether a body that may end the process runs, or is next and others still run. It would take them with it,
        again and again, until they counted as what ends the process, too."""
        head = next(iter(list(queue.waiting)), None)
        suspect = head is not None and is_suspect(head)
        if self._is_hopeless():  # nothing runs that could be waited for
            self._quarantine = suspect  # it is about to begin
            return False
        if suspect and not self._quarantine:
            self._quarantine, queue.since = True, math.inf  # not given back: its turn comes when the others have ended
        return self._quarantine

    def _begin(self, job: Job, delivery: Delivery) -> None:
        """In the loop: every body has a context of its own."""
        assert self._running is not None
        if not self._running.tasks:  # connections may have ended while nobody used them
            self._tidy_soon(self._running)
        task = self._running.loop.create_task(self._one(job, delivery), name=delivery.label, context=Context())
        self._running.tasks.add(task)
        task.add_done_callback(partial(self._end, self._running, job))

    def _end(self, running: _Running, job: Job, task: asyncio.Task[None]) -> None:
        running.tasks.discard(task)
        if task.cancelled():  # by another body, before it had begun: nobody else will say that it is over
            log.error("%s: cancelled before its body began; another worker takes over", task.get_name())
            self._free(job)
        self._tidy_soon(running)

    def _tidy_soon(self, running: _Running) -> None:
        """Have the application tidy up after bodies: once for all that have ended meanwhile."""
        self._untidy = True
        if self._tidy is not None and (self._tidying is None or self._tidying.done()) and not self._stopping:
            self._tidying = running.loop.create_task(self._tidied(self._tidy), context=Context())

    async def _tidied(self, tidy: Callable[[], Awaitable[None]]) -> None:
        try:
            while self._untidy:
                self._untidy = False
                await tidy()
        except Exception:
            log.exception("connections of async bodies could not be looked after")

    async def _one(self, job: Job, delivery: Delivery) -> None:
        try:
            if not self._heart.may_begin(delivery):
                log.warning("%s: not begun, its lease has ended or is about to; another takes over", delivery.label)
            else:
                assert self._running is not None
                threads = self._running.threads
                event = await self._perform(job, delivery, threads)
                if event is not None:
                    self._record(job, delivery, event)
                    return
                if not job.begun:
                    job.waiting.append(delivery)
                    await threads.apart(self._give_back, job)
        except BaseException as problem:
            if isinstance(problem, GeneratorExit) and self._stopping:  # the process ends
                raise
            log.exception("%s: what came of it cannot be told; another worker takes over", delivery.label)
        self._free(job)

    def _record(self, job: Job, delivery: Delivery, event: Answer | Misplaced) -> None:
        running = self._running
        assert running is not None

        def written(continued: list[Delivery], problem: BaseException | None) -> None:
            with suppress(RuntimeError):  # the process has ended meanwhile
                running.threads.recording.submit(self._written, job, delivery, continued, problem)

        self._recorder.submit((delivery, event), written, running.threads.recording.submit)

    async def apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what waits for the database in a thread, with the context of the caller; on the loop."""
        assert self._running is not None
        return await self._running.threads.apart(function, *arguments)

    def _written(
        self, job: Job, delivery: Delivery, continued: list[Delivery], problem: BaseException | None
    ) -> None:  # fmt: skip
        """What came of a row is recorded; the slot goes on with what follows, if anything does."""
        try:
            if problem is not None:
                log.error("%s: what came of it was not recorded", delivery.label, exc_info=problem)
            else:
                reached(Point.AFTER_RECORD, labels([(delivery, None)]))
            for each in continued:
                following = self._heart.open_job()
                self._heart.add(following, [each])
                self._heart.take(following)
                reached(Point.BETWEEN_STEPS, labels([(each, None)]))
                self.take(following, each)
                self._heart.close_job(following)
        finally:
            self._free(job)

    def _free(self, job: Job) -> None:
        self._heart.close_job(job)
        with self._changed:
            self._jobs.discard(job)
            self._quarantine = self._quarantine and bool(self._jobs or self._waiting)
            self._changed.notify_all()
        self._fill()
        self._stir()

    # --- the loop held up ---

    def _watch(self) -> None:
        """Called about once a second by the thread that watches: does the loop still answer?"""
        running, now = self._running, time.monotonic()
        if running is None or self._stopping:
            return
        if self._quarantine:
            self._fill()  # a body may have outlived its time meanwhile
        if running.answered:
            running.asked_at, running.answered, running.reported = now, False, False
            running.loop.call_soon_threadsafe(self._answer)
        elif now - running.asked_at > HELD_UP and not running.reported:
            running.reported = aside(_report, running, now - running.asked_at)

    def _answer(self) -> None:
        assert self._running is not None
        self._running.answered = True


def _report(running: _Running, seconds: float) -> None:
    log.error(
        "overrun: the event loop of async bodies has been held up for %.1f s by %s, and all of them wait; await what "
        "takes time, hand it to asyncio.to_thread(), or write the step as def:\n%s", seconds, *_where(running),
    )  # fmt: skip


def _where(running: _Running) -> tuple[str, str]:
    """Which task the loop is at, and in which line."""
    try:
        task = asyncio.current_task(running.loop)
        frame: Any = sys._current_frames().get(running.home.thread.ident or 0)
        return (task.get_name() if task else "a callback"), "".join(traceback.format_stack(frame)[-6:])
    except Exception:  # it went on meanwhile
        return "a body", ""
