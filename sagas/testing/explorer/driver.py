"""Runs one saga to its end as a row of workers would that die, hang and come back, one piece of work after the other.

The workers are real ones without threads, on the test's own connection. Nothing waits: the row that is due first is
made due. Of several workers only one does anything at a time, so a story is the same each time it is told.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import namedtuple_row

from sagas import clock, engine
from sagas.errors import Refused
from sagas.events import Direction, Entry, Kind
from sagas.store.rows import Connection, Delivery, entry_of
from sagas.testing.borrowed import BorrowedStore
from sagas.testing.explorer.faults import GIVEN_UP, LATE
from sagas.testing.explorer.faults import Kind as FaultKind
from sagas.testing.explorer.memory import Memory
from sagas.testing.explorer.places import PARTS, Part, Place, SagaClass
from sagas.testing.explorer.script import Death, Script, shown
from sagas.worker import Worker
from sagas_outbox.queries import query

PACKAGE = "sagas.testing.explorer"
MOST_TURNS = 400  # of one story
MOST_VISITS = 3  # of a wait without an end
MOST_RETRIES = 2  # by a person


@dataclass(slots=True)
class Frozen:
    """A worker that hangs in the middle of an attempt, and goes on later."""

    worker: Worker
    delivery: Delivery
    place: Place
    kind: FaultKind


@dataclass(slots=True, kw_only=True)
class Driver:
    """What runs one story.

    Args:
        saga: the class.
        id: of the saga.
        using: where it is.
        store: the test's own connection as a store.
        connection: that connection.
        script: what is to go wrong.
        places: of the saga.
        memory: what a new worker has forgotten.
        without: sagas that were there before.
        signals: what is sent to its waits, by step.
    """

    saga: SagaClass
    id: UUID
    using: Any
    store: BorrowedStore
    connection: Connection
    script: Script
    places: dict[tuple[str, Part], Place]
    memory: Memory
    without: Sequence[UUID]
    signals: Mapping[str, Any]
    sent: set[str] = field(default_factory=set)
    visits: Counter[int] = field(default_factory=Counter)
    worker: Worker = field(init=False)
    frozen: list[Frozen] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    retries: int = 0
    problem: str = ""  # with how the saga ended

    def __post_init__(self) -> None:
        self.worker = self._hire()

    def play(self) -> None:
        """Go on until nothing is left to do."""
        for _ in range(MOST_TURNS):
            row = self._look()
            self._narrate(row.lines)
            if row.id is None:
                if not (self._thaw(self.frozen) or self._helped()):
                    return
            elif not self._before(row):
                self._turn(row)
                if self._waits_in_vain(row):
                    self.problem = f"it waits for {row.step} for ever; give explore() what comes: signals={{...}}"
                    return
        self.problem = f"it did not come to an end within {MOST_TURNS} pieces of work"

    def cancel(self) -> None:
        """Ask for the saga to be undone."""
        self.saga.cancel(id=self.id, reason="the explorer", using=self.using)

    # --- one piece of work ---

    def _before(self, row: Any) -> bool:
        """What happens before a row's work begins; whether anything did."""
        place = self._place(row)
        if place is None:
            return False
        if fault := self.script.due(place, FaultKind.CANCEL_BEFORE):
            self.script.struck.add(fault)
            self.script.say(f"somebody asked to cancel before {place.label} began")
            self.cancel()
            return True
        if fault := self.script.due(place, FaultKind.FIRST):
            self.script.struck.add(fault)
            self.script.say(f"{place.label} began before what runs beside it")
        if fault := self.script.due(place, FaultKind.OTHER_PROCESS):
            self.script.struck.add(fault)
            self._move_on()
        ready = [each for each in self.frozen if self._goes_on_now(each, place)]
        return self._thaw(ready, looking=place.part is Part.SETTLE) or (place.waits and self._signalled(place))

    def _signalled(self, place: Place) -> bool:
        """Send what the saga waits for, once, unless the story is that it never comes."""
        self.script.reached.setdefault(place, set()).add(False)
        if place.step not in self.signals or place.step in self.sent:
            return False
        self.sent.add(place.step)
        if fault := self.script.due(place, FaultKind.NEVER):
            self.script.struck.add(fault)
            self.script.say(f"{place.label} never came")
            return False
        value = self.signals[place.step]
        self.script.say(f"{place.label} came: {shown(value)}")
        getattr(self.saga, place.step).send(value, id=self.id, using=self.using)
        return True

    def _waits_in_vain(self, row: Any) -> bool:
        """Whether a wait was come to again and again, however much time passed, and nothing was logged."""
        place = self._place(row)
        if place is None or not place.waits:
            return False
        self.visits[len(self.entries)] += 1
        return self.visits[len(self.entries)] > MOST_VISITS

    def _wait(self, row: Any) -> None:
        """Let the time pass that a saga waits for."""
        now = clock.now()
        if math.isfinite(row.due) and row.due > (time.time() if now is None else now.timestamp()):
            moment = datetime.fromtimestamp(row.due + 0.001, UTC)  # past the rounding of a float
            clock.go_by(lambda: moment)

    def _goes_on_now(self, frozen: Frozen, coming: Place) -> bool:
        """Whether a worker that hung goes on before this work."""
        if frozen.kind is FaultKind.MEANWHILE:
            return coming.part is not Part.DO or coming.step not in frozen.place.beside
        if frozen.kind is FaultKind.LATE_AGAIN:
            return coming.step != frozen.place.step or coming.part is not frozen.place.part
        undoing = {FaultKind.LATE_UNDO: Part.UNDO, FaultKind.LATE_LOST: Part.SETTLE}
        return coming.step == frozen.place.step and coming.part is undoing.get(frozen.kind)

    def _turn(self, row: Any) -> None:
        place = self._place(row)
        if place is not None and place.waits:
            self._wait(row)
        for delivery in self.worker.begin(self.connection, [(row.id, row.token)], published=False):
            fault = self.script.due(place, *LATE) if place is not None and place.external else None
            if place is not None and (meanwhile := self.script.due(place, FaultKind.MEANWHILE)):
                self.script.struck.add(meanwhile)
                self.script.say(f"{place.label} was under way, and what runs beside it went on")
                self.frozen.append(Frozen(self.worker, delivery, place, meanwhile.kind))
            elif fault is not None and place is not None:
                self.script.struck.add(fault)
                self.script.say(f"{place.label} was under way, and its worker hung")
                self.frozen.append(Frozen(self.worker, delivery, place, fault.kind))
                self._move_on()
            else:
                self._work(self.worker, delivery)

    def _work(self, worker: Worker, delivery: Delivery) -> None:
        try:
            worker.run(worker.take_up([delivery]))
        except Death:
            if worker is self.worker:
                self._move_on()

    def _thaw(self, frozen: list[Frozen], *, looking: bool = False) -> bool:
        """Let workers that hung go on: the body runs now, and its answer comes late, if at all.

        Args:
            frozen: which.
            looking: the last look at their step is about to happen.
        """
        going_on = list(frozen)
        for each in going_on:
            self.frozen.remove(each)
            if each.kind is FaultKind.MEANWHILE:  # nobody has taken over from it
                self._work(each.worker, each.delivery)
                continue
            self.script.thawing, self.script.dying = True, looking and each.kind is FaultKind.LATE_LOST
            try:
                self._work(each.worker, each.delivery)
            finally:
                self.script.thawing = self.script.dying = False
        return bool(going_on)

    def _move_on(self) -> None:
        """Another worker, which knows nothing of the one before."""
        lost = self.memory.changed()
        self.memory.forget()
        self.worker, self.script.taken_over = self._hire(), True
        if lost:
            self.script.say(f"what the worker had in its memory is gone: {', '.join(lost)}")

    def _hire(self) -> Worker:
        worker = Worker(
            self.store, end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: False,
            draining=lambda: False, concurrent=False,
        )  # fmt: skip
        worker.recorder.away = 0.0  # the test's connection does not come back
        return worker

    # --- looking ---

    def _look(self) -> Any:
        """The row that is next, and what was logged meanwhile."""
        parameters = {
            "without": list(self.without), "id": self.id, "seq": len(self.entries), "now": clock.now(),
            "first": self.script.first(),
            "held": [each.delivery.id for each in self.frozen if each.kind is FaultKind.MEANWHILE],
        }  # fmt: skip
        with psycopg.Cursor(self.connection, row_factory=namedtuple_row) as cursor:
            return cursor.execute(query(PACKAGE, "look"), parameters).fetchone()

    def _place(self, row: Any) -> Place | None:
        if row.saga_id != self.id or row.kind != "step":
            return None
        part = {Direction.DO: Part.DO, Direction.UNDO: Part.UNDO, Direction.SETTLE: Part.SETTLE}
        return self.places.get((row.step, part[Direction(row.direction)]))

    def _narrate(self, lines: str | None) -> None:
        """Tell what the log says since the last look."""
        fresh = [entry_of(*line) for line in msgspec.json.decode(lines or "[]")]
        self.entries += fresh
        for entry in fresh:
            reason = f": {entry.data.reason}" if entry.data.reason else ""
            if entry.kind is Kind.COMPENSATING:
                self.script.turned_back = True
                self.script.say(f"the saga turned back{reason}")
            elif entry.kind is Kind.PARKED:
                self.script.say(f"the saga parked over {entry.step}{reason}")
            elif entry.kind in ENDS:
                self.script.say(f"the saga ended: {entry.kind}")
            elif entry.kind is Kind.CANCEL_REQUESTED and entry.data.ignored:
                self.script.say("the cancel came too late and was ignored")

    # --- a person ---

    def _helped(self) -> bool:
        """If the saga parked over a fault of ours: the trouble ends, a person says retry, and it goes on."""
        parked = self.entries[-1] if self.entries and self.entries[-1].kind is Kind.PARKED else None
        if parked is None:
            return False
        if not self._by_rule(parked):
            self.problem = f"parked, though nothing but the saga's own code stood in its way: {parked.data.reason}"
            return False
        if self.retries == MOST_RETRIES:
            if not self._refuses(parked):
                self.problem = f"parked again and again, though the trouble was over: {parked.data.reason}"
            return False
        self.retries += 1
        self.script.lifted = True
        self.script.say("the trouble was over, and a person said: retry")
        engine.request(self.saga.saga_name, "retry", id=self.id, reason="the trouble is over", using=self.using)
        return True

    def _by_rule(self, parked: Entry) -> bool:
        """Whether the declared rules call for a person here: what went wrong last was the explorer's doing."""
        parts = PARTS[parked.data.direction or Direction.DO]
        step = parked.step or ""
        if any(each.kind in GIVEN_UP and each.place.step == step for each in self.frozen):
            return True
        return self.script.blamed(step, parts) or self._refuses(parked)

    def _refuses(self, parked: Entry) -> bool:
        """Refused by the user's own code, after an attempt whose outcome the explorer made unknown."""
        if parked.data.direction not in (None, Direction.DO):
            return False
        about = self.script.about(parked.step or "", PARTS[Direction.DO])
        return bool(about) and isinstance(about[-1].error, Refused) and any(each.injected for each in about)


ENDS = (Kind.COMPLETED, Kind.COMPENSATED, Kind.CANCELLED, Kind.ABORTED)
