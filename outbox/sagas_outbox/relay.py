"""The relay: finds what is due in the outbox and publishes it.

Any number of relays may run: a claim skips what another one has locked. A row is claimed, then published;
a relay that dies in between costs the publish window, after which the row is due again. Nothing is ever
lost with the broker: a row that nobody begins is published again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import psycopg

from sagas_outbox import claims, clock
from sagas_outbox.claims import Claimed, Connection, Held, Work
from sagas_outbox.doubts import Doubts
from sagas_outbox.flight import FLIGHT_CHECK, Flight
from sagas_outbox.link import Link
from sagas_outbox.packing import pack, short_first
from sagas_outbox.points import Point, reached
from sagas_outbox.presence import Presence
from sagas_outbox.rights import missing
from sagas_outbox.scan import Marks
from sagas_outbox.wake import THROTTLE, Ear
from sagas_outbox.weighing import Weights

log = logging.getLogger("sagas.relay")

LONGEST_BACKOFF = 10.0  # seconds between tries while the broker is down
FORGOTTEN = 6 * LONGEST_BACKOFF  # without such a try, since others have published the work
PACES_EVERY = 1.0  # seconds between two looks at how long bodies take
QUICK = 1.0  # seconds in which a broker that is well refuses one queue; what takes longer would add up over queues
UNDER_WAY_DOUBLINGS = 2  # of the publish window, for which an unbegun row counts as under way: it may be lost

Subject = tuple[str, str, str]  # saga name, step, direction
Addressed = tuple[str, Sequence[Held], Mapping[int, str]]  # a message: its queue, its rows, W3C traceparents by row


class UnknownQueue(Exception):
    """The broker is well, but nothing can be published to this queue."""


class Publisher(Protocol):
    """Hands messages to a broker."""

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        """Publish one message about some rows. Bounded in time.

        Raises:
            UnknownQueue: other queues can be published to.
            Exception: any; the broker did not take the message, or nobody knows.
        """

    def reset(self) -> None:
        """Drop connections after a failure."""


@runtime_checkable
class TracingPublisher(Protocol):
    """One whose messages can take traces along."""

    def publish_traced(self, queue: str, rows: Sequence[Held], traces: Mapping[int, str]) -> None:
        """As `publish`, with the W3C traceparent of rows, by id."""


@runtime_checkable
class ManyPublisher(Protocol):
    """One that can publish several messages for less than one after the other."""

    def together(self) -> int:
        """How many messages at most; a relay that is to end looks up between."""

    def publish_all(self, messages: Sequence[Addressed]) -> Sequence[UnknownQueue | None]:
        """Publish messages, in order; for each None, or why its queue cannot be published to. Bounded in time.

        Raises:
            Exception: any; the broker did not take all of them, or nobody knows.
        """


class Spans(Protocol):
    """Makes spans of what is published; see `sagas.tracing_relay`."""

    def look(self, connection: Connection, rows: Sequence[Claimed]) -> None:
        """Find out which traces the rows of a pass are in."""

    def sending(self, queue: str, rows: Sequence[Claimed]) -> AbstractContextManager[Mapping[int, str]]:
        """Spans around the publishing of one message; gives what it is to take along, by row."""


class RelaySettings(Protocol):
    """The settings a relay goes by, in seconds and rows; see `sagas.settings.Settings`."""

    @property
    def poll(self) -> float: ...
    @property
    def publish_window(self) -> float: ...
    @property
    def heartbeat(self) -> float: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def message_rows(self) -> int: ...
    @property
    def message_work(self) -> float: ...
    @property
    def wake(self) -> bool: ...


class Relay:
    """One relay of one store.

    Args:
        connect: opens a new autocommit connection.
        publisher: where messages go.
        settings: its numbers.
        queues: the queues to serve; empty: all.
        paces: reads how long bodies take, in seconds, by saga name, step and direction.
        spans: makes spans of what is published.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        publisher: Publisher,
        settings: RelaySettings,
        *,
        queues: Collection[str] = (),
        paces: Callable[[Connection], Mapping[Subject, float]],
        spans: Spans | None = None,
    ) -> None:
        self.holder = f"relay:{uuid4().hex}"
        self.settings, self.queues = settings, frozenset(queues)
        self._connect, self._publisher, self._read_paces = connect, publisher, paces
        self._many = publisher if isinstance(publisher, ManyPublisher) else None
        self._spans = spans
        self._link = Link(connect)
        self._presence = Presence(self.holder, queues)
        self._marks = Marks()
        self._doubts = Doubts()
        self._flights: dict[str, Flight] = {}
        self._weights = Weights(message=settings.message_work)
        self._paces: Mapping[Subject, float] = {}
        self._paces_at = 0.0
        self._again = False  # nothing was published, and there may be more to look at
        self._failures = 0  # of the broker, in a row
        self._failed_at = 0.0
        self._healthy_since = 0.0
        self._stir, self._draining = threading.Event(), threading.Event()

    def stop(self, *_: Any) -> None:
        """Claim nothing more and end. A signal handler has another thread call it."""
        self._draining.set()
        self._stir.set()

    def run(self) -> None:
        """Publish until `stop` is called."""
        ear = Ear(self._connect, self._stir.set)
        if self.settings.wake:
            ear.start()
        found_before = False
        try:
            while not self._draining.is_set():
                self._stir.clear()
                found = self.run_once()
                self._presence.note_if_due(self._link, now=clock.now())
                if self._failures:
                    self._draining.wait(self._pause(found_before))  # no hint makes a broker come back
                elif not found and not self._again:
                    self._stir.wait(self._pause(found_before))
                found_before = found > 0
        finally:
            if self.settings.wake:
                ear.stop()
            self._presence.leave(self._link)
            self._link.close()

    def run_once(self) -> int:
        """One pass: claim what is due and publish it; returns how many rows were published."""
        self._again = False
        try:
            with self._link.use() as connection:
                claimed = self._claim(connection)
                if not claimed:
                    if time.monotonic() - self._failed_at > FORGOTTEN:
                        self._presence.trouble = ""
                    return 0
                reached(Point.AFTER_CLAIM, str(len(claimed)))
                if self._spans is not None:
                    self._spans.look(connection, claimed)
                left = self._publish(claimed)
                if left:
                    self._release(connection, left)
                return len(claimed) - len(left)
        except psycopg.Error as problem:
            if isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
                log.warning("cannot reach Postgres, trying again in %s s: %s", self.settings.poll, problem)
            else:
                why = missing(problem, "sagas_relay") or problem
                log.error("Postgres refuses to claim, nothing is published; trying again: %s", why)
            # Leases may have run out only because nobody could renew them: give their owners time.
            self._healthy_since = time.monotonic() + self.settings.poll + self.settings.heartbeat
            return 0

    def _pause(self, found_before: bool) -> float:
        if self._failures:
            return min(LONGEST_BACKOFF, self.settings.poll * 2.0 ** min(self._failures - 1, 10))
        if found_before:
            return 2 * THROTTLE  # a hint may have been swallowed
        pause = self._marks.rest(self.settings.poll, self._serves)
        return min(pause, FLIGHT_CHECK) if any(flight.expires for flight in self._flights.values()) else pause

    def _serves(self, queue: str) -> bool:
        return (not self.queues or queue in self.queues) and not self._doubts.rests(queue, time.monotonic())

    def _claim(self, connection: Connection) -> list[Claimed]:
        if time.monotonic() - self._paces_at >= PACES_EVERY:
            self._paces, self._paces_at = self._read_paces(connection), time.monotonic()
        if self._marks.full_scan_due():
            began = time.monotonic()
            found = claims.lanes(connection, now=clock.now())
            self._marks.full_scan_done(found, time.monotonic() - began)
        self._look(connection)
        served = sorted(queue for queue in self._marks.lanes if self._serves(queue))
        rooms = [
            self._weights.fit(room, self._flight(room.queue).free(), self._seconds)
            for room in self._marks.rooms((queue, self._room(queue)) for queue in served)
        ]
        if not any(room.asks for room in rooms):
            return []
        healthy = time.monotonic() >= self._healthy_since
        claimed = claims.claim(
            connection, rooms, holder=self.holder, window=self.settings.publish_window, begun=healthy, now=clock.now()
        )  # fmt: skip
        self._marks.claimed(len(claimed), rooms)
        self._weights.note(rooms)
        if surplus := {*self._weights.surplus(rooms, self._seconds)}:
            claims.put_back(connection, surplus, holder=self.holder, now=clock.now())
            claimed = [row for row in claimed if row not in surplus]
        self._again = not claimed and any(room.put_off for room in rooms)
        return claimed

    def _flight(self, queue: str) -> Flight:
        if queue not in self._flights:
            numbers = self.settings
            self._flights[queue] = Flight(numbers.in_flight, numbers.publish_window, numbers.message_work)
        return self._flights[queue]

    def _room(self, queue: str) -> int:
        room = self._doubts.room(queue, self._flight(queue).room())
        return min(room, 1 if self._failures else self.settings.in_flight)

    def _look(self, connection: Connection) -> None:
        ids = [id for flight in self._flights.values() for id in flight.expires]
        if ids:
            unbegun = claims.unbegun(connection, ids, holder=self.holder)
            for flight in self._flights.values():
                flight.look(unbegun)

    def _publish(self, claimed: Sequence[Claimed]) -> list[Claimed]:
        """Publish messages, several at once where that can be; returns the rows that were not published."""
        messages, left = self._doubts.last(self._messages(claimed)), list[Claimed]()
        taken = False
        while messages and not self._draining.is_set():
            now = self._doubts.first(messages, self._many.together() if self._many else 1)
            messages, began = messages[len(now) :], time.monotonic()
            outcomes: Sequence[Exception | None]
            try:
                outcomes = self._hand_over(now)
            except Exception as problem:
                others = taken and time.monotonic() - began < QUICK
                if not self._not_taken([queue for queue, _ in now], problem, others=others):
                    messages = [*now, *messages]
                    break
                outcomes = [problem]
            refused: dict[str, Exception] = {}
            for (queue, rows), why_not in zip(now, outcomes, strict=True):
                if why_not is None:
                    taken = True
                    self._published(queue, rows)
                else:
                    refused[queue] = why_not
                    left += rows
            for queue, why in refused.items():
                self._refused(queue, why)
            left += [row for queue, rows in messages if queue in refused for row in rows]
            messages = [each for each in messages if each[0] not in refused]
        return left + [row for _, rows in messages for row in rows]

    def _refused(self, queue: str, why: Exception) -> None:
        """Leave a queue alone for a while that cannot be published to, though the broker is well."""
        self._doubts.refused(queue, time.monotonic() + self.settings.poll)
        said = why if isinstance(why, UnknownQueue) else repr(why)
        log.error("queue %r cannot be published to now, its rows wait, others go on: %s", queue, said)

    def _not_taken(self, queues: Sequence[str], problem: Exception, *, others: bool) -> bool:
        """Note what was not taken; returns whether to go on with other queues, as the broker has taken messages for
        them in this pass (`others`) and answers in time."""
        self._publisher.reset()
        if others and len(queues) == 1 and not isinstance(problem, TimeoutError):
            return True
        self._doubts.not_taken(named := sorted({*queues}))
        self._failures, self._failed_at = self._failures + 1, time.monotonic()
        self._presence.trouble = f"the broker takes no messages: {problem!r}"
        log.warning(
            "the broker did not take a message for queue %s (failure %d in a row); its rows stay due: %r",
            " or ".join(map(repr, named[:5])), self._failures, problem,
        )  # fmt: skip
        return False

    def _published(self, queue: str, rows: Sequence[Claimed]) -> None:
        if self._failures:
            log.warning("the broker takes messages again, after %d failures in a row", self._failures)
        self._failures = 0
        self._presence.trouble = ""
        self._doubts.taken(queue)
        self._flight(queue).add(rows, UNDER_WAY_DOUBLINGS, lambda row: self._seconds(row.work))
        reached(Point.AFTER_PUBLISH, queue)

    def _hand_over(self, messages: Sequence[tuple[str, list[Claimed]]]) -> Sequence[UnknownQueue | None]:
        """Publish some messages: several only where the publisher takes them together."""
        with ExitStack() as spans:
            addressed: list[Addressed] = [
                (
                    queue,
                    [(row.id, row.token) for row in rows],
                    spans.enter_context(self._spans.sending(queue, rows)) if self._spans is not None else {},
                )
                for queue, rows in messages
            ]
            if self._many is not None:
                return self._many.publish_all(addressed)
            [(queue, held, traces)] = addressed
            try:
                if traces and isinstance(self._publisher, TracingPublisher):
                    self._publisher.publish_traced(queue, held, traces)
                else:
                    self._publisher.publish(queue, held)
            except UnknownQueue as problem:
                return [problem]
            return [None]

    def _release(self, connection: Connection, rows: Iterable[Claimed]) -> None:
        held = [(row.id, row.token) for row in rows]
        delay = 0.0 if self._draining.is_set() else self.settings.poll
        claims.release(connection, held, holder=self.holder, delay=delay, now=clock.now())

    def _messages(self, claimed: Sequence[Claimed]) -> list[tuple[str, list[Claimed]]]:
        by_queue: dict[str, list[Claimed]] = {}
        for row in claimed:
            by_queue.setdefault(row.queue, []).append(row)
        return [
            (queue, rows)
            for queue, all_rows in by_queue.items()
            for rows in short_first(
                pack(
                    all_rows, work=self._pace, alone=lambda row: row.deliveries > 0,
                    target=self.settings.message_work, most=self.settings.message_rows,
                ),
                work=lambda row: self._seconds(row.work), target=self.settings.message_work,
            )
        ]  # fmt: skip

    def _pace(self, row: Claimed) -> float | None:
        return self._paces.get(row.work) if row.step else 0.0  # type: ignore[arg-type]

    def _seconds(self, work: Work) -> float:
        """What a row takes; what nobody has measured is taken for as much as one message carries."""
        _, step, _ = work
        return self._paces.get(work, self.settings.message_work) if step else 0.0  # type: ignore[arg-type]
