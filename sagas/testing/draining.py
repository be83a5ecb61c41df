"""Running what is due, row after row, in the thread and on the connection of the test.

The worker is the real one: begin, run, decide and record are those of production. What is left out is what needs a
second connection or thread: heartbeats, claiming in the background, the broker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from sagas import clock as engine
from sagas import hooks, machine
from sagas.duty import duty_of
from sagas.errors import ConfigurationError
from sagas.events import Answer, Event
from sagas.heart import Job
from sagas.ports import LocalTransaction
from sagas.store.rows import Delivery
from sagas.takeover import Misplaced
from sagas.testing import since
from sagas.testing.borrowed import BorrowedStore
from sagas.testing.moving import Clock
from sagas.testing.stories import Seen, fetch, look, story, waits_for_signal
from sagas.worker import Worker
from sagas_outbox.link import Link

log = logging.getLogger("sagas.worker")

ONE_DAY = timedelta(days=1)
MOVES = 1000  # rows begun in one drain
MOST_NAMED = 5  # sagas of others, in a message
IN_VAIN = 3  # times that a row is begun and put off before it counts as left


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """One thing that was run."""

    saga_id: UUID
    name: str  # of the saga
    key: str
    step: str  # or the kind of a request, such as "cancel"
    direction: str  # "do", "undo" or "settle"; "" for a request
    attempt: int  # bodies begun since the last answer that was recorded
    outcome: str  # "succeeded", "refused", "failed", ...; "lost" when no answer came

    def __str__(self) -> str:
        return f"{self.direction + ' ' if self.direction not in ('', 'do') else ''}{self.step}: {self.outcome}"


class Unfinished(AssertionError):
    """Sagas are parked, or have work left.

    Args:
        message: the story of each of them.
        sagas: their ids.
        ran: what was run before.
    """

    def __init__(self, message: str, *, sagas: tuple[UUID, ...], ran: tuple[Ran, ...]) -> None:
        super().__init__(message)
        self.sagas, self.ran = sagas, ran


class KitWorker(Worker):
    """A worker that tells what it ran, and whose retries wait their full backoff, so that no run differs from another.

    Args:
        store: the test's connection.
    """

    store: BorrowedStore

    def __init__(self, store: BorrowedStore) -> None:
        super().__init__(
            store, end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: True,
            draining=lambda: False, concurrent=False,
        )  # fmt: skip
        self.recorder.away = 0.0  # the test's connection does not come back
        self.ran: list[Ran] = []

    def _event(self, job: Job, delivery: Delivery) -> Event | Misplaced | None:
        event = super()._event(job, delivery)
        if delivery.attempt is None:
            self._note(delivery, event)
        return event

    def _perform(self, job: Job, delivery: Delivery, transaction: LocalTransaction | None) -> Answer | Misplaced | None:
        if duty_of(delivery).external:
            with self.store.shelter():
                event = super()._perform(job, delivery, transaction)
        else:
            event = super()._perform(job, delivery, transaction)
        self._note(delivery, event)
        if event is None or isinstance(event, Misplaced):
            return event
        return replace(event, attempt=replace(event.attempt, jitter=1.0))

    def _note(self, delivery: Delivery, event: Event | Misplaced | None) -> None:
        attempt = delivery.attempt
        self.ran.append(
            Ran(
                saga_id=delivery.saga_id, name=delivery.name, key=delivery.key,
                step=attempt.step if attempt else delivery.kind,
                direction=attempt.direction.value if attempt else "",
                attempt=attempt.deliveries if attempt else 0,
                outcome="lost" if event is None else "applied" if attempt is None else type(event).__name__.lower(),
            )
        )  # fmt: skip


class _Ear(logging.Handler):
    """Hears errors that no log of a saga tells of, such as a commit that failed: the workers write them down only."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.heard.append(logging.Formatter("%(message)s").format(record))


@dataclass(slots=True, kw_only=True)
class Drain:
    """One run through everything that is due.

    Args:
        store: the test's connection.
        clock: moved forward to what becomes due.
        skip: how far it may be moved.
        only: the sagas to run; None: all.
        moves: how many rows may be begun.
    """

    store: BorrowedStore
    clock: Clock
    skip: timedelta
    only: Collection[UUID] | None
    moves: int
    worker: KitWorker = field(init=False)
    link: Link = field(init=False)
    touched: dict[UUID, None] = field(default_factory=dict)  # in order
    in_vain: Counter[int] = field(default_factory=Counter)
    aside: set[int] = field(default_factory=set)  # rows that wait for a signal
    out_of_moves: bool = False
    ear: _Ear = field(default_factory=_Ear)

    def run(self) -> list[Ran]:
        """Run until nothing is due that may be; returns what ran, in order.

        Raises:
            ConfigurationError: sagas of somebody else would be run as well; nothing was.
        """
        self.link = Link(self.store.connect)
        if self.only is None:
            self._refuse_others()
        self.worker = KitWorker(self.store)
        log.addHandler(self.ear)
        try:
            with hooks.told_here(self.store.shelter):
                self._move_all()
            return self.worker.ran
        finally:
            log.removeHandler(self.ear)
            self.worker.stop()

    def _move_all(self) -> None:
        for _ in range(self.moves):
            if not self._move():
                return
        self.out_of_moves = self._next() is not None

    def check(self) -> None:
        """See that every saga that was run has finished or waits for a signal, and that no other work is left.

        Raises:
            Unfinished: with the stories of those that have not.
        """
        with self.link.use() as connection:
            left = {row["saga_id"] for row in fetch(connection, "work", self._parameters())}
            sagas = look(connection, [*self.touched, *(id for id in left if id not in self.touched)])
        unfinished = [seen for seen in sagas if seen.unfinished]
        if unfinished:
            raise Unfinished(
                self._message(unfinished), sagas=tuple(seen.id for seen in unfinished), ran=tuple(self.worker.ran)
            )

    def _refuse_others(self) -> None:
        """What was committed before the test may be anybody's, and its bodies would reach whatever is real."""
        first = since.began()
        with self.link.use() as connection:
            found = fetch(connection, "before", {"id": first, "began": (first.int >> 80) / 1000})
        if not found:
            return
        named = ", ".join(f"{each['name']}:{each['key']}" for each in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise ConfigurationError(
            f"sagas.testing.drain(): {len(found)} open saga{'s' if len(found) > 1 else ''} had been committed to "
            f"{self.store.name} before this test began, and would be run with it: {named}{more}. Use an empty database "
            f"for tests, and delete what a test has committed; to run some of them all the same, name them in "
            f"drain(only=[...])"
        )

    def _move(self) -> bool:
        """Run the next row, or move the clock to when it is due; whether there was any."""
        row = self._next()
        if row is None:
            return False
        if waits_for_signal(row["name"], row["version"], row):
            self.aside.add(row["id"])  # whoever tests what happens without it moves the clock
            return True
        if row["due_in"] > 0:
            wait = timedelta(seconds=row["due_in"])
            if wait > self.skip:
                return False
            self.skip -= wait
            self.clock.move_to(datetime.fromtimestamp(row["due_at"], UTC))
        if row["saga_id"] is not None:
            self.touched[row["saga_id"]] = None
        with self.link.use() as connection:
            begun = self.worker.begin(connection, [(row["id"], row["token"])], published=False)
        if begun:
            self.worker.run(self.worker.take_up(begun))
        else:
            self.in_vain[row["id"]] += 1
        return True

    def _next(self) -> dict[str, Any] | None:
        without = [id for id, times in self.in_vain.items() if times >= IN_VAIN]
        parameters = self._parameters() | {"without": without, "aside": list(self.aside)}
        with self.link.use() as connection:
            return next(iter(fetch(connection, "pending", parameters)), None)

    def _parameters(self) -> dict[str, Any]:
        return {"only": None if self.only is None else list(self.only), "now": engine.now()}

    def _message(self, unfinished: list[Seen]) -> str:
        count = f"{len(unfinished)} saga{'s' if len(unfinished) > 1 else ''} did not finish"
        why = f", and there is still work after {self.moves} moves" if self.out_of_moves else ""
        stories = "\n\n".join(story(seen) for seen in unfinished)
        if self.ear.heard:
            stories += f"\n\nlogged meanwhile:\n\n{self.ear.heard[-1]}"
        hints = []
        if any(machine.parked(seen.state) for seen in unfinished):
            hints.append("where a saga is to park, pass check=False and look at what get() returns")
        if any(seen.work for seen in unfinished) and not self.out_of_moves:
            hints.append("what is due later is reached by skip=timedelta(...) or clock.advance(timedelta(...))")
        return f"{count}{why}:\n\n{stories}\n\n{'; '.join(hints)}".rstrip()
