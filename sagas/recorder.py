"""Recording: decide about what happened and write it, exactly once.

A decision that loses its compare-and-set (a cancel came in between) is made again from fresh state. After
a lost acknowledgement the log says what was written. Results that arrive together are written together:
whoever comes while a statement is under way has its results taken along by the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sagas import clock, machine
from sagas.alarms import alarm, committed
from sagas.definition import Saga
from sagas.duty import Duty, duty_for
from sagas.events import (
    Attempt,
    Cancel,
    Decision,
    Direction,
    Event,
    Pause,
    Resume,
    Signal,
    Succeeded,
    Unstorable,
    Work,
)
from sagas.keys import idempotency_key
from sagas.line import Elsewhere, Line, Then, Ticket
from sagas.onward import brings_much, has_loaded, next_delivery
from sagas.points import Point, reached
from sagas.store import rows
from sagas.store.rows import Connection, Delivery, Recording
from sagas.takeover import Misplaced
from sagas.tally import Tally
from sagas_outbox import claims
from sagas_outbox.link import Link, is_elsewhere

log = logging.getLogger("sagas.worker")

BROKEN = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)  # another connection may do better
PASSING = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)  # a limit of time that the role may have
ROUNDS = 40  # tries to record inside a transaction before it is rolled back
PAUSE = 0.01  # seconds between tries, growing with each
LONGEST_PAUSE = 0.25
LONGEST_AWAY = 3600.0  # seconds; see `Recorder`
PAUSE_AWAY = 2.0  # seconds between tries then
LEASE_SPENT = 0.05  # of a lease: it is renewed with what is recorded when so much of it is over

Happened = tuple[Delivery, Event | Misplaced]
FindPlan = Callable[[Delivery], type[Saga[Any]]]


class Recorder:
    """Writes what happened for all bodies of one process.

    Args:
        link: a connection of its own.
        find: the saga class of a delivery.
        holder: this worker's name.
        lease: seconds.
        goes_on: whether this worker may continue from one queue with work in another.
        follows: whether whoever ran a row can go on with such work.
        draining: whether this process is to end.

    Attributes:
        away: seconds after its lease for which a result is kept for a server that cannot be reached.
    """

    def __init__(
        self,
        link: Link,
        find: FindPlan,
        *,
        holder: str,
        lease: float,
        goes_on: Callable[[str, str], bool],
        follows: Callable[[Delivery, Duty], bool] = lambda delivery, following: True,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link, self._find, self.holder, self._lease, self._goes_on = link, find, holder, lease, goes_on
        self._follows, self._draining = follows, draining
        self.away = LONGEST_AWAY
        self._line = Line(self._serve)
        self.tally = Tally()

    def record(self, happened: Sequence[Happened]) -> list[Delivery]:
        """Write what happened; returns the deliveries that this worker goes on with.

        Raises:
            psycopg.Error: it could not be written; the leases run out and others take over.
        """
        if not happened:
            return []
        reached(Point.BEFORE_RECORD, partial(labels, happened))
        ticket = Ticket(list(happened), time.monotonic() + self._lease)
        self._line.wait(ticket)
        reached(Point.AFTER_RECORD, partial(labels, happened))
        return ticket.continued

    def submit(self, happened: Happened, then: Then, elsewhere: Elsewhere) -> None:
        """Have something written without waiting for it.

        Args:
            happened: what happened.
            then: told what to go on with, or why it could not be written; called in some thread, and may not wait.
            elsewhere: calls a function in a thread that may wait.
        """
        reached(Point.BEFORE_RECORD, labels([happened]))
        self._line.join(Ticket([happened], time.monotonic() + self._lease, then=then, elsewhere=elsewhere))

    def _serve(self, tickets: list[Ticket[Any]]) -> list[Ticket[Any]]:
        """Write what can be written; whoever has everything goes on, the others are tried again with the next."""
        happened = [each for ticket in tickets for each in ticket.happened]
        owner = {delivery.held: ticket for ticket in tickets for delivery, _ in ticket.happened}
        now = time.monotonic()
        for ticket in tickets:
            if not ticket.tries:  # it may have waited for its first round as long as the server was away
                ticket.deadline = max(ticket.deadline, now + self._lease)
        session = _Session(self, happened, one_by_one=True, first=not any(ticket.tries for ticket in tickets))
        if self._turn(session, max(ticket.deadline for ticket in tickets)):
            for ticket in tickets:  # a row that others lock just now deserves more than one try
                ticket.deadline = max(ticket.deadline, time.monotonic() + self._lease)
        for delivery in session.continued:
            owner[delivery.id, delivery.token - 1].continued.append(delivery)
        left: dict[int, list[Happened]] = {}
        for each in session.left:
            left.setdefault(id(owner[each[0].held]), []).append(each)
        return [ticket for ticket in tickets if self._is_left(ticket, left.get(id(ticket), []))]

    def _is_left(self, ticket: Ticket[Any], left: list[Happened]) -> bool:
        ticket.tries = 0 if len(left) < len(ticket.happened) else ticket.tries + 1  # progress: it lost no race
        ticket.tries, ticket.happened = max(ticket.tries, 1), left
        if left and time.monotonic() < ticket.deadline:
            return True
        for delivery, _ in left:
            log.error("%s: what happened could not be recorded; another worker takes over", delivery.label)
        ticket.finish()
        return False

    def _turn(self, session: _Session, deadline: float) -> bool:
        """One round; more to find out what became of a statement whose acknowledgement was lost, and while the server
        cannot be reached, also when that takes longer than a lease: the rows may be ours still, or else what happened
        is kept as a late answer is.

        Returns:
            Whether the server could be reached, after it could not.
        """
        attempt = 0
        while True:
            try:
                with self._link.use() as connection:
                    session.turn(connection)
                self._call_next_signals(session.written)
                committed(session.written, self.tally)
                return attempt > 0
            except BROKEN as problem:
                log.warning("recording failed, trying again: %s", problem)
            late = time.monotonic() - deadline
            if late >= (0.0 if self._draining() else self.away):
                return False
            attempt += 1
            time.sleep(min(PAUSE * attempt, LONGEST_PAUSE if late < 0 else PAUSE_AWAY))

    def _call_next_signals(self, written: Sequence[Recording]) -> None:
        """Signals that were put off until the one before them was applied need not wait any longer."""
        lines = [f"{each.delivery.name} {each.delivery.key}" for each in written if each.delivery.kind == "signal"]
        if lines:
            try:
                with self._link.use() as connection:
                    claims.next_signals(connection, lines, now=clock.now())
            except psycopg.Error as problem:
                log.warning("signals that wait for their turn come a moment later: %s", problem)

    def record_inside(
        self, connection: Connection, happened: list[Happened], written: list[Recording] | None = None
    ) -> list[Delivery]:  # fmt: skip
        """Write what happened in the open transaction of local steps whose rows are locked.

        Args:
            connection: with that transaction.
            happened: what happened.
            written: is given what was written, to be told to `alarms.committed` once it is committed.

        Raises:
            psycopg.Error: the transaction has to be rolled back.
            TimeoutError: a saga row stayed locked by another transaction.
        """
        reached(Point.BEFORE_RECORD, labels(happened))
        session = _Session(self, happened)
        for attempt in range(ROUNDS):
            session.turn(connection)
            if not session.left:
                if written is not None:
                    written += session.written
                return session.continued
            time.sleep(min(PAUSE * (attempt + 1), LONGEST_PAUSE))
        raise TimeoutError(f"{session.left[0][0].label}: its row stayed locked by another transaction")

    def recording(self, delivery: Delivery, event: Event | Misplaced) -> Recording:
        """Decide about one event."""
        definition = self._find(delivery)
        plan = definition.plan
        if isinstance(event, Misplaced):
            attempt = delivery.attempt
            assert attempt is not None
            now = attempt.now + time.monotonic() - delivery.begun_at
            decision = machine.place(plan, delivery.state, now, Work(attempt.step, attempt.direction))
        else:
            decision = machine.decide(plan, delivery.state, event)
        goes_on = (
            bool(decision.rows)
            and delivery.attempt is not None
            and not isinstance(event, Misplaced)
            and self._is_next(definition, delivery, decision)
        )
        return Recording(
            delivery, decision, machine.finished(decision.state), goes_on, frees=plan.has_locks,
            renews=time.monotonic() - delivery.leased_at > self._lease * LEASE_SPENT,
        )  # fmt: skip

    def _is_next(self, definition: type[Saga[Any]], delivery: Delivery, decision: Decision) -> bool:
        """Whether this worker goes on at once with the row that is kept."""
        row = decision.rows[0]
        if row.delay or row.direction is Direction.SETTLE:  # which needs what the dedupe table knows by then
            return False
        following = duty_for(definition, row.step, row.direction)
        return (
            not following.has_one_attempt
            and has_loaded(delivery, decision)
            and self._goes_on(delivery.queue, row.queue)
            and self._follows(delivery, following)
        )

    def write(self, connection: Connection, batch: list[Recording]) -> dict[int, bool | None]:
        """One record statement, and one for each large payload after it; a batch that a single bad value spoils is
        written one by one. Returns, by row, whether this worker goes on with it; None: it cannot be written."""
        light = [each for each in batch if not brings_much(each)]
        if 0 < len(light) < len(batch):
            written: dict[int, bool | None] = self.write(connection, light)
            for each in batch:
                written |= {} if each in light else self.write(connection, [each])
            return written
        try:
            return {**rows.record(connection, batch, holder=self.holder, lease=self._lease, now=clock.now())}
        except psycopg.Error as problem:
            if is_elsewhere(problem) or connection.info.transaction_status != TransactionStatus.IDLE:
                raise  # in the transaction of local steps all of it is rolled back
        written = {}
        for recording in batch:
            try:
                written |= rows.record(connection, [recording], holder=self.holder, lease=self._lease, now=clock.now())
            except PASSING as problem:
                log.warning("%s cannot be recorded yet: %s", recording.delivery.label, problem)  # it is left
            except psycopg.Error as problem:
                if is_elsewhere(problem):
                    raise
                log.exception("%s cannot be recorded; another worker takes over", recording.delivery.label)
                written[recording.delivery.id] = None  # done with: its lease runs out
        return written


class _Session:
    """The rounds it takes to write one set of results."""

    def __init__(
        self, recorder: Recorder, happened: list[Happened], *, one_by_one: bool = False, first: bool = True
    ) -> None:
        self.recorder, self.left = recorder, happened
        self.one_by_one = one_by_one  # nothing else is in the transaction: what cannot be decided is left out
        self.continued: list[Delivery] = []
        self.unsure: list[Recording] = []  # sent, acknowledgement lost
        self.written: list[Recording] = []
        self.first = first  # the states at hand are what begin loaded
        self.sent_at = 0.0

    def turn(self, connection: Connection) -> None:
        """Decide from what is known, write, and keep what was not written for the next turn."""
        if self.unsure:
            self.settle(rows.recorded(connection, self.unsure, holder=self.recorder.holder))
        if not self.first:
            self.refresh(connection)
        self.first = False
        batch: dict[Any, Recording] = {}
        for delivery, event in list(self.left):
            if delivery.saga_id not in batch and (recording := self.decided(delivery, event)):
                batch[delivery.saga_id] = recording
        self.unsure, self.sent_at = list(batch.values()), time.monotonic()
        self.settle(self.recorder.write(connection, self.unsure))

    def decided(self, delivery: Delivery, event: Event | Misplaced) -> Recording | None:
        """The decision about one event; None where a fault of ours prevents it, and others are to go on."""
        try:
            return self.recorder.recording(delivery, event)
        except Exception:
            if not self.one_by_one:
                raise
            log.exception("%s: no decision can be made about it; another worker takes over", delivery.label)
            self.left = [each for each in self.left if each[0].held != delivery.held]
            return None

    def settle(self, written: Mapping[int, bool | None]) -> None:
        """What was written is done with, and goes on where its row was kept for the next step."""
        self.continued += [next_delivery(r, self.sent_at) for r in self.unsure if written.get(r.delivery.id)]
        for recording in self.unsure:
            if written.get(recording.delivery.id) is not None:
                self.written.append(recording)
                alarm(recording)
        done = {recording.delivery.held for recording in self.unsure if recording.delivery.id in written}
        self.unsure = []
        self.left = [each for each in self.left if each[0].held not in done]

    def refresh(self, connection: Connection) -> None:
        """Read the sagas again; a row that is no longer ours keeps its answer in the dedupe table only."""
        held = [delivery.held for delivery, _ in self.left]
        states = rows.load(connection, held, holder=self.recorder.holder)
        kept: list[Happened] = []
        for delivery, event in self.left:
            if delivery.held not in states:
                _remember(connection, delivery, event)
            elif isinstance(event, Signal | Cancel | Pause | Resume) and machine.finished(states[delivery.held]):
                # perhaps another run goes on from there: begun again, the request finds it
                claims.hand_back(connection, [delivery.held], now=clock.now())
            else:
                delivery.state = states[delivery.held]
                kept.append((delivery, event))
        self.left = kept


def _remember(connection: Connection, delivery: Delivery, event: Event | Misplaced) -> None:
    if not isinstance(event, Succeeded | Unstorable) or delivery.attempt is None:
        return
    log.warning("%s: the answer came after the lease was lost; kept in the dedupe table", delivery.label)
    attempt = delivery.attempt
    if attempt.direction is Direction.SETTLE:
        return
    going_forward = attempt.direction is Direction.DO
    generation = machine.step_of(delivery.state, attempt.step).generation if going_forward else 0
    key = idempotency_key(delivery.saga_id, attempt.step, attempt.direction.value, generation)
    # that another run has to follow cannot be kept: whoever takes over asks again, under the same key
    result = event.result if isinstance(event, Succeeded) and event.next is None else None
    rows.remember(connection, delivery, key, result)


def labels(happened: Sequence[tuple[Delivery, object]]) -> str:
    """How a named point calls what happened."""
    return ",".join(_label(delivery.attempt) for delivery, _ in happened[:20])


def _label(attempt: Attempt | None) -> str:
    return f"{attempt.step}:{attempt.direction}" if attempt else "request"
