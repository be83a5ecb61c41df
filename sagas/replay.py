"""Reading a stored log with today's code, to see before a deploy, or after one, whether the two still fit.

Nothing is run but the conditions of steps (`when=`), which only look, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import Raw

from sagas import machine
from sagas.body import Body, step_named
from sagas.duty import SagaClass
from sagas.errors import CodecError, PayloadLocked, SagaNotFound, UnknownSaga
from sagas.events import Attempt, Direction, Entry, Kind, Source, Work
from sagas.fold import evolve
from sagas.head import Head, read_head
from sagas.outcome import Skip
from sagas.payloads import PLAIN, Payloads
from sagas.plan import Plan
from sagas.reader import Reader
from sagas.registry import registry
from sagas.states import State, Status
from sagas.store.rows import Delivery, entry_of, facts_of
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
ABOUT_WORK = frozenset({
    Kind.STEP_DONE, Kind.STEP_FAILED, Kind.STEP_UNDECIDED, Kind.STEP_NOT_DONE, Kind.STEP_UNKNOWN, Kind.STEP_CHOSEN,
    Kind.STEP_SKIPPED, Kind.WAITING, Kind.CHILDREN_STARTED, Kind.UNDO_DONE, Kind.UNDO_FAILED, Kind.UNDO_UNDECIDED,
    Kind.SETTLE_DONE, Kind.SETTLE_FAILED, Kind.SETTLE_UNDECIDED,
})  # fmt: skip
BY_ITSELF = frozenset({Kind.SETTLING, Kind.COMPLETED, Kind.COMPENSATED, Kind.CANCELLED})  # when there is no work left
DECIDED = {Kind.STEP_CHOSEN: True, Kind.STEP_SKIPPED: False}
BACKWARD = dict.fromkeys((Kind.UNDO_DONE, Kind.UNDO_FAILED, Kind.UNDO_UNDECIDED), Direction.UNDO) | dict.fromkeys(
    (Kind.SETTLE_DONE, Kind.SETTLE_FAILED, Kind.SETTLE_UNDECIDED), Direction.SETTLE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """One entry of the log, read with today's code."""

    entry: Entry
    differences: tuple[str, ...]  # what today's code would have done otherwise, or cannot read


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """A whole log, read with today's code."""

    head: Head
    lines: tuple[Replayed, ...]
    state: State  # what the log leads to
    next: tuple[Work, ...]  # what today's code would do now
    today: str  # fingerprint of today's steps
    locked: tuple[int, ...] = ()  # entries that hold what cannot be opened here, or depend on it; not looked at

    @property
    def fits(self) -> bool:
        """Whether today's code would have written this log too, and its steps are those the saga was started with."""
        return not self.changed and not any(line.differences for line in self.lines)

    @property
    def changed(self) -> bool:
        """Whether the steps have another fingerprint today, also where the log does not show it: the saga waits."""
        return self.head.definition not in ("", self.today)


def replay(connection: psycopg.Connection[Any], id: UUID, payloads: Payloads = PLAIN) -> Replay:
    """Read the log of a saga with the definition of its name and version that this process has.

    Args:
        connection: may be a replica.
        id: of the saga.
        payloads: how they are read; what cannot be opened is not looked at.

    Raises:
        SagaNotFound: there is no log of such a saga.
        UnknownSaga: this process has no such definition.
    """
    rows = run(connection, query(PACKAGE, "logs"), {"ids": [id]}).fetchall()
    if not rows:
        raise SagaNotFound(f"no log of saga {id}; look with `sagas list`")
    return replayed(id, [entry_of(*row[1:]) for row in rows], payloads)


def replayed(id: UUID, entries: list[Entry], payloads: Payloads = PLAIN) -> Replay:
    """Read the entries of one log. See `replay`."""
    saga = entries[0].data.saga
    if not isinstance(saga, Raw):
        raise UnknownSaga(f"saga {id}: entry 0 does not say what it is; run `sagas verify {id}`")
    head = read_head(saga)
    definition = registry.get(head.name, head.version)
    reading = _Reading(id, head, definition, entries, payloads)
    lines = tuple(Replayed(entry=entry, differences=tuple(reading.read(entry))) for entry in entries)
    known = all(name in reading.plan.by_name for name in reading.state.steps)
    return Replay(
        head=head, lines=lines, state=reading.state, today=definition.fingerprint(),
        next=machine.frontier(reading.plan, reading.state) if known else (), locked=tuple(reading.locked),
    )  # fmt: skip


def view(
    definition: SagaClass, id: UUID, head: Head, state: State, history: Mapping[int, bytes], payloads: Payloads = PLAIN
) -> Any:  # fmt: skip
    """A saga as its bodies see it at one point of its history, for looking only.

    Args:
        definition: its class.
        id: of the saga.
        head: what its first entry says.
        state: at that point.
        history: the data of log entries by seq.
        payloads: how they are read.
    """
    delivery = Delivery(
        id=0, token=0, kind="step", queue="", saga_id=id, name=head.name, version=head.version, key=head.key,
        state=state, attempt=None, history=dict(history), begun_at=0.0,
        reader=Reader(facts_of, payloads),
    )  # fmt: skip
    nothing = Attempt(step="", direction=Direction.DO)
    body = Body(
        delivery=delivery, definition=definition, attempt_event=nothing, limit=0, alive=lambda: False, guard=None
    )  # fmt: skip
    return definition._for_run(body)


class _Reading:
    """The state that the log has led to so far."""

    def __init__(
        self, id: UUID, head: Head, definition: SagaClass, entries: list[Entry], payloads: Payloads
    ) -> None:  # fmt: skip
        self.id, self.head, self.definition, self.payloads = id, head, definition, payloads
        self.locked: list[int] = []
        self.plan: Plan = definition.plan
        self.history: Mapping[int, bytes] = {entry.seq: msgspec.json.encode(entry.data) for entry in entries}
        self.state = State(Status.RUNNING, -1)

    def read(self, entry: Entry) -> Iterator[str]:
        """Where today's code differs at this entry; then the state after it."""
        if entry.step is not None and entry.step not in self.plan.by_name:
            yield f"today's code has no step {entry.step!r}"
        elif all(name in self.plan.by_name for name in self.state.steps):
            yield from self._place(entry)
            yield from self._condition(entry)
        yield from self._data(entry)
        self.state = evolve(self.state, entry)

    def _place(self, entry: Entry) -> Iterator[str]:
        """Whether this is what today's code would have been at."""
        work = machine.frontier(self.plan, self.state)
        wanted = ", ".join(f"{each.step} ({each.direction})" for each in work) or "nothing"
        if entry.data.source is Source.OPERATOR:  # whose word is no matter of the code
            return
        if entry.kind in ABOUT_WORK and entry.step is not None:
            direction = BACKWARD.get(entry.kind, Direction.DO)
            if Work(entry.step, direction) not in work:
                yield f"it was at {entry.step} ({direction}), today's code would be at {wanted}"
        if entry.kind in BY_ITSELF and work:
            yield f"it had nothing left to do, today's code would be at {wanted}"

    def _condition(self, entry: Entry) -> Iterator[str]:
        """Whether the condition of a step says today what it said then."""
        assert entry.step is None or entry.step in self.plan.by_name
        if entry.data.source is Source.OPERATOR or entry.step is None or entry.kind not in DECIDED:
            return
        if not self.plan.by_name[entry.step].has_when:
            return
        when = step_named(self.definition, entry.step).options.when
        assert when is not None
        try:
            found = when(view(self.definition, self.id, self.head, self.state, self.history, self.payloads))
        except PayloadLocked:
            self.locked.append(entry.seq)
            return
        except Exception as problem:
            yield f"its condition raises today: {type(problem).__name__}"
            return
        if (bool(found) and not isinstance(found, Skip)) is not DECIDED[entry.kind]:
            yield f"its condition is {not DECIDED[entry.kind]} today"  # not its value, which may be sensitive

    def _data(self, entry: Entry) -> Iterator[str]:
        """Whether today's types can read what was stored."""
        try:
            if entry.kind is Kind.STARTED:
                self.payloads.read(bytes(self.head.input), self.definition.input_type, what="input")
            raw = entry.data.result
            if entry.kind is Kind.CHILDREN_STARTED:  # what they are for, as the code of then made it
                return
            if isinstance(raw, Raw) and entry.step is not None and entry.step in self.plan.by_name:
                declared = step_named(self.definition, entry.step).result_type
                self.payloads.read(bytes(raw), declared, what=f"result of {entry.step!r}")
        except PayloadLocked:
            self.locked.append(entry.seq)
        except CodecError as problem:
            yield f"today's types cannot read it: {problem}"
