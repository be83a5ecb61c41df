"""Leases kept alive while bodies run, and bodies ended that may not go on.

Two threads per process, started after the fork. One has a connection of its own and renews leases for as
long as a body runs, also past the step's timeout, and gives back rows that wait behind a body which takes too
long. The other one does no I/O, so that nothing can hold it up: it ends the process when a body, or the
transaction of local steps, outlives its timeout and grace, or when leases cannot be renewed in time: then
somebody else may take over, and two bodies must not act at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from sagas import clock
from sagas.settings import Settings
from sagas.store.rows import Delivery
from sagas.tally import Tally
from sagas_outbox import claims
from sagas_outbox.claims import Connection, Held
from sagas_outbox.link import Link, Links
from sagas_outbox.presence import Presence

log = logging.getLogger("sagas.worker")

BEGIN_SHARE = 0.9  # of a lease: the part of it in which a body may begin


def aside(function: Callable[..., object], *arguments: object, **named: object) -> bool:
    """Have something said from where nothing may wait: nobody may read the log, and there may be no thread left.

    Returns:
        Whether there was a thread for it.
    """
    try:
        threading.Thread(target=function, args=arguments, kwargs=named, name="sagas-aside", daemon=True).start()
    except RuntimeError:
        return False
    return True


@dataclass(slots=True, eq=False)
class Job:
    """The rows one thread works through. `waiting` is shared with the heart: take under its lock."""

    waiting: deque[Delivery] = field(default_factory=deque)
    held: list[Held] = field(default_factory=list)  # all it ever had
    running: Delivery | None = None
    since: float = field(default_factory=time.monotonic)  # when the running body began, or the job was made
    timeout: float = 0.0
    warned: bool = False
    spent: float = 0.0  # seconds in bodies since rows were added last
    sharing: list[Delivery] = field(default_factory=list)  # a transaction of local steps

    @property
    def begun(self) -> bool:
        """Whether a body has ever begun."""
        return self.timeout > 0


class Heart:
    """Keeps the leases of one process.

    Args:
        link: a connection of its own.
        holder: this worker's name.
        settings: lease, heartbeat and the like.
        end_process: ends this process at once.
        ends_overruns: whether a body past its timeout and grace is reason enough; in threads it is only reported.
        draining: whether the process is shutting down.
        queues: those that this worker serves; empty: all.
    """

    def __init__(
        self,
        link: Link,
        *,
        holder: str,
        settings: Settings,
        end_process: Callable[[str], None],
        ends_overruns: bool,
        draining: Callable[[], bool],
        queues: Collection[str] = (),
    ) -> None:
        self._link, self._holder, self._settings = link, holder, settings
        self._end_process, self._ends_overruns, self._draining = end_process, ends_overruns, draining
        self._lock = threading.Lock()
        self._held: dict[Held, float] = {}  # -> this process's time before the lease was last confirmed
        self._lost: set[Held] = set()
        self._jobs: set[Job] = set()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._beaten_at = time.monotonic()
        self._presence = Presence(holder, queues)
        self.tally: Tally | None = None  # what is written about once a second
        self.also_watch: Callable[[], None] | None = None  # called by the thread that does no I/O; may not wait

    def start(self) -> None:
        """Start the threads."""
        for name, target in (("sagas-heart", self._pulse), ("sagas-watch", self._watch)):
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Stop the threads and close the connection."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=self._settings.heartbeat)
        self._presence.leave(self._link)
        self._link.close()

    def open_job(self) -> Job:
        """A job for the rows that the calling thread is about to work through."""
        job = Job()
        with self._lock:
            self._jobs.add(job)
        return job

    def take(self, job: Job) -> Delivery | None:
        """The next waiting row of a job; None when there is none left."""
        with self._lock:
            return job.waiting.popleft() if job.waiting else None

    def begin_body(self, job: Job, delivery: Delivery, timeout: float) -> None:
        """A body begins, and may take `timeout` seconds."""
        job.since, job.timeout, job.warned = time.monotonic(), timeout, False
        job.running = delivery  # last: who looks at it without the lock finds the rest in place

    def end_body(self, job: Job) -> None:
        """The body of the job has ended, and so has what the application does after it."""
        now = time.monotonic()
        job.spent += now - job.since
        job.since, job.warned = now, False
        if job.sharing:
            job.timeout = self._settings.timeout
        job.running = None

    @contextmanager
    def transaction(self, job: Job, group: list[Delivery]) -> Iterator[None]:
        """The transaction of local steps. Before, between and after their bodies it may take the setting `timeout`.

        Where that, or a body in it, takes longer, its rows are no longer renewed. Nobody takes over what it still has
        locked, and it cannot be committed once it has not.
        """
        job.since, job.timeout, job.warned = time.monotonic(), self._settings.timeout, False
        job.sharing = group  # last, as in `begin_body`
        try:
            yield
        finally:
            job.sharing = []
            self.release([delivery.held for delivery in group])

    def hand_over(self, job: Job, delivery: Delivery, to: Job | None = None) -> Job:
        """Move a row that waits no longer from one job to the end of another; None: to one of its own, without waiting.

        Its lease is kept meanwhile.
        """
        with self._lock:
            job.held.remove(delivery.held)
            if to is None:
                to = Job()
                self._jobs.add(to)
            else:
                to.since = to.since if to.waiting else time.monotonic()
                to.waiting.append(delivery)
            to.held.append(delivery.held)
        return to

    def add(self, job: Job, deliveries: list[Delivery]) -> None:
        """Rows that were just begun, by a begin statement or in the commit that recorded the step before."""
        with self._lock:
            job.spent = 0.0
            job.waiting.extend(deliveries)
            for delivery in deliveries:
                job.held.append(delivery.held)
                self._held[delivery.held] = delivery.leased_at

    def release(self, held: list[Held]) -> None:
        """What was recorded or given back needs no renewing."""
        with self._lock:
            for each in held:
                self._held.pop(each, None)
                self._lost.discard(each)

    def outlived(self, job: Job) -> bool:
        """Whether the body of a job, if one runs, has outlived its timeout and the grace."""
        return job.running is not None and time.monotonic() - job.since > job.timeout + self._settings.grace

    def close_job(self, job: Job) -> None:
        """The job is over, however it ended; nothing it had is renewed any longer."""
        with self._lock:
            self._jobs.discard(job)
            job.running = None
        self.release(job.held)

    def may_begin(self, delivery: Delivery) -> bool:
        """Whether the lease of a row is certain to hold for a while yet: else its body must not begin."""
        confirmed = self._held.get(delivery.held)
        return confirmed is not None and time.monotonic() < confirmed + self._settings.lease * BEGIN_SHARE

    def alive(self, delivery: Delivery) -> bool:
        """Whether the lease of a row is still ours, as far as is known."""
        return delivery.held not in self._lost

    # --- the threads ---

    def _pulse(self) -> None:
        tick = min(self._settings.heartbeat, self._settings.hand_back_after) / 2
        while not self._stop.wait(tick):
            try:
                self._hand_back_waiting()
                if time.monotonic() - self._beaten_at >= self._settings.heartbeat - tick / 2:
                    self._beat()
                self._presence.note_if_due(self._link, now=clock.now())
                if self.tally is not None and self.tally.due:
                    with self._link.use() as connection:
                        self.tally.save(connection)
            except psycopg.Error as problem:
                log.warning("heartbeat failed, leases are at risk: %s", problem)
            except Exception:  # of whatever finds out how to connect, say: this thread must not end
                log.exception("heartbeat failed, leases are at risk")

    def _watch(self) -> None:
        tick = min(self._settings.lease, self._settings.grace) / 10
        while not self._stop.wait(tick):
            try:
                self._check_leases(2 * tick)
                self._check_bodies()
                if self.also_watch is not None:
                    self.also_watch()
            except Exception as problem:  # this thread must not end
                aside(log.error, "bodies and their leases could not be looked at", exc_info=problem)

    @contextmanager
    def _bounded(self, connection: Connection) -> Iterator[None]:
        """A transaction whose statements the server ends before they could use up a lease."""
        with connection.transaction():
            limit = f"{int(self._settings.lease / 3 * 1000)}ms"
            connection.execute("select set_config('statement_timeout', %s, true)", [limit])
            yield

    def _beat(self) -> None:
        began = time.monotonic()
        with self._lock:
            held = list(self._held)
        if held:
            with self._link.use() as connection, self._bounded(connection):
                alive = claims.heartbeat(
                    connection, held, holder=self._holder, lease=self._settings.lease, now=clock.now()
                )  # fmt: skip
            with self._lock:
                for each in held:
                    if each not in self._held:
                        continue  # recorded meanwhile
                    if each[0] in alive:
                        self._held[each] = began
                    else:
                        self._lost.add(each)
                        del self._held[each]
        self._beaten_at = began

    def _hand_back_waiting(self) -> None:
        now, draining = time.monotonic(), self._draining()
        for job in list(self._jobs):
            # Behind one long body, or behind some that take longer than whoever made the message was told.
            if job.waiting and (draining or now - job.since + job.spent > self._settings.hand_back_after):
                self.hand_back(job)

    def _check_bodies(self) -> None:
        now = time.monotonic()
        for job in list(self._jobs):
            running, sharing = job.running, job.sharing
            if (running or sharing) and job.timeout and now - job.since > job.timeout + self._settings.grace:
                self._overrun(job, running, sharing)

    def hand_back(self, job: Job, link: Link | Links | None = None) -> None:
        """Give back what waits; by a link of the calling thread, when that is not the heart's own."""
        with self._lock:
            rows = [delivery.held for delivery in job.waiting]
            job.waiting.clear()
            job.held = [held for held in job.held if held not in rows]
        try:
            with (link or self._link).use() as connection, self._bounded(connection):
                claims.hand_back(connection, rows, holder=self._holder, now=clock.now())
        finally:  # whoever could not be given back is taken over when the lease ends
            self.release(rows)

    def _overrun(self, job: Job, running: Delivery | None, sharing: list[Delivery]) -> None:
        what, label = ("the transaction", sharing[0].label) if running is None else ("the body", running.label)
        said = f"{label}: {what} outlived its timeout of {job.timeout} s"
        if self._ends_overruns:
            self._end_process(f"{said} and the grace")
        elif not job.warned:
            fate = "is no longer renewed, so that another worker can take over" if sharing else "is kept"
            job.warned = aside(log.error, "overrun: %s and cannot be ended in a thread; its lease %s", said, fate)
            self.release([delivery.held for delivery in sharing])

    def _check_leases(self, margin: float) -> None:
        """End the bodies of this process before a lease does that could not be renewed."""
        now = time.monotonic()
        with self._lock:
            running = [job.running for job in self._jobs if job.running is not None]
            at_risk = [
                delivery
                for delivery in running
                if now > self._held.get(delivery.held, now) + self._settings.lease - margin
            ]
        if at_risk:
            self._end_process(f"{at_risk[0].label}: the lease could not be renewed, another worker is about to act")
