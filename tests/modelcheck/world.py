"""The abstract world: everything that a step of the check can depend on, as hashable plain tuples.

Time is left out: a lease, a publish window or a delay can end at any moment. A row that nobody holds is
always due, since nothing can be told apart from its delay having passed already.
"""

from __future__ import annotations

from typing import Final

from tests.modelcheck.provider import Effect
from tests.modelcheck.value import Value

# Where a worker stands with a delivery.
BEGUN: Final = "begun"  # taken over; what to do is decided, nothing is done yet
LOCKED: Final = "locked"  # a local step: its transaction is open, its body has run
BACK: Final = "back"  # not to be worked on now: paused, too early, or without a saga; it is given back
READY: Final = "ready"  # has asked `resolve`, and is to run the body
WAITING: Final = "waiting"  # the body's request is on its way
TOLD: Final = "told"  # a guarded effect was answered, and the answer is to be kept
ANSWER: Final = "answer"  # the event is known and is to be recorded
UNSURE: Final = "unsure"  # the connection broke while recording; nothing was written, but it does not know that
WRITTEN: Final = "written"  # the same, and it was written
AGAIN: Final = "again"  # record was refused, or is not in the log: look at the saga afresh

STALE: Final = -99  # of a token: not the row's, and never again

Call = tuple[str | int | float, ...]  # an event, or what to do with a delivery; see `brain`


class Row(Value, frozen=True):
    """An outbox row."""

    id: int
    token: int
    saga: int
    kind: str  # step, cancel, retry, late_answer, signal, pause, resume, redo, or what an operator decides of a step
    step: str  # of a request: what it is about, if anything
    direction: str
    holder: str  # "" nobody, "relay", "worker"
    deliveries: int
    due: bool  # its lease has ended; only of use for a row that a worker holds
    first: float | None = None  # when the work was first begun, where that matters
    number: int = 0  # of a signal: the how manieth that was sent
    carried: int = 0  # of a signal: the run it was carried into
    asleep: bool = False  # its time never comes: somebody has to wake it
    said: tuple[int, ...] = ()  # of what an operator decides: the result, and seq of the saga as it was looked at


class Delivery(Value, frozen=True):
    """One begun row as the worker that holds it, or believes so, remembers it."""

    row: int
    token: int
    saga: int
    kind: str
    step: str
    direction: str
    deliveries: int
    state: int  # the saga's state as it was loaded
    live: bool  # by the clock its lease has not ended
    phase: str
    call: Call
    late: int | None = None  # when undoing: an answer of the step that came after it was given up
    first: float | None = None  # when the work was first begun, where that matters
    now: float = 0.0
    number: int = 0  # of a signal
    had: tuple[int, ...] = ()  # answers of the step's guarded effects, as far as its body has come


class Request(Value, frozen=True):
    """A request on its way to the provider whose worker does not wait for it any more."""

    saga: int
    step: str
    direction: str
    argument: int
    generation: int
    effect: str = ""  # of a step with several guarded effects: which
    redone: int = 0  # the generation of the step's own key


class Mark(Value, frozen=True):
    """One log entry, as much of it as `recorded.sql` looks at."""

    seq: int
    row: int  # under whose token it was written: rows count their tokens each for itself
    token: int
    kind: str
    step: str


class Memory(Value, frozen=True):
    """What the dedupe table holds about one step."""

    closed: bool = False
    response: int | None = None
    undone: bool = False  # the response of its compensation


class Line(Value, frozen=True):
    """What the dedupe table holds about one guarded effect."""

    asked: int  # which request: a release may change what a step asks for
    response: int | None = None


class Saga(Value, frozen=True):
    """One saga: its row, the results in its log, what the dedupe table and the provider know about its steps."""

    state: int
    results: tuple[tuple[str, int], ...] = ()
    log: tuple[Mark, ...] = ()  # the entries that somebody may still look for
    memory: tuple[tuple[str, Memory], ...] = ()
    effects: tuple[tuple[str, Effect], ...] = ()
    guarded: tuple[tuple[str, Line], ...] = ()  # by idempotency key
    heard: tuple[tuple[int, int], ...] = ()  # signals in its log that may be taken: seq of the entry, number
    noted: tuple[int, ...] = ()  # signals in its log that came too late
    taken: tuple[int, ...] = ()  # signals that ended a wait
    sure: tuple[str, ...] = ()  # redone steps of which nothing had happened, or will, under the former key
    mistaken: bool = False  # what an operator said of a step was not so any more when it was applied
    continued: bool = False  # it has ended, and another run goes on

    def result(self, step: str) -> int:
        return dict(self.results)[step]

    def remembered(self, step: str) -> Memory:
        return dict(self.memory).get(step, Memory())

    def effect(self, step: str) -> Effect:
        return dict(self.effects).get(step, Effect())

    def line(self, key: str) -> Line | None:
        return dict(self.guarded).get(key)

    def with_line(self, key: str, line: Line) -> Saga:
        return self.but(guarded=_put(self.guarded, key, line))

    def with_memory(self, step: str, memory: Memory) -> Saga:
        return self.but(memory=_put(self.memory, step, memory))

    def with_effect(self, step: str, effect: Effect) -> Saga:
        return self.but(effects=_put(self.effects, step, effect))

    def with_result(self, step: str, result: int) -> Saga:
        return self.but(results=_put(self.results, step, result))


class Left(Value, frozen=True):
    """How much may still go wrong, and be asked for, in this run."""

    faults: int
    cancels: int = 0
    retries: int = 0
    aborts: int = 0
    pauses: int = 0
    redos: int = 0
    resolves: int = 0
    starts: int = 0
    signals: tuple[str, ...] = ()  # to which waits


class World(Value, frozen=True):
    """Everything."""

    sagas: tuple[Saga, ...]
    rows: tuple[Row, ...]
    messages: tuple[tuple[tuple[int, int], ...], ...]  # each: (row id, token), ...
    workers: tuple[tuple[Delivery, ...], ...]  # what each holds; it works on the first
    flight: tuple[Request, ...]
    pending: tuple[Delivery, ...]  # record statements under way whose worker has lost its connection
    left: Left
    next_id: int
    clock: float = 0.0  # 1 once the provider has forgotten the keys it knew
    sent: int = 0  # signals
    dropped: tuple[int, ...] = ()  # signals that found their saga ended
    release: int = 0  # what steps ask for: the releases so far
    broken: str = ""  # a rule that the last step broke


def _put(pairs: tuple[tuple[str, object], ...], name: str, value: object) -> tuple:  # type: ignore[type-arg]
    return tuple(sorted({**dict(pairs), name: value}.items(), key=lambda pair: pair[0]))


def row_of(world: World, id: int) -> Row | None:
    """The row of this id, if it is still there."""
    for row in world.rows:
        if row.id == id:
            return row
    return None


def held(world: World, delivery: Delivery) -> Row | None:
    """The row of a delivery if it still has the delivery's token: what the guard of most statements asks."""
    row = row_of(world, delivery.row)
    return row if row is not None and row.token == delivery.token else None


def with_row(world: World, row: Row) -> World:
    """The world with this row changed."""
    return world.but(rows=tuple(row if each.id == row.id else each for each in world.rows))


def with_saga(world: World, which: int, saga: Saga) -> World:
    """The world with this saga changed."""
    sagas = tuple(saga if place == which else each for place, each in enumerate(world.sagas))
    return world.but(sagas=sagas)


def with_worker(world: World, who: int, deliveries: tuple[Delivery, ...]) -> World:
    """The world with a worker holding these."""
    workers = tuple(deliveries if place == who else each for place, each in enumerate(world.workers))
    return world.but(workers=workers)


def trimmed(world: World) -> World:
    """Without stale messages, which begin nothing; requests in flight in an order of their own."""
    current = {(row.id, row.token) for row in world.rows}
    messages = tuple(sorted(kept for each in world.messages if (kept := tuple(h for h in each if h in current))))
    return world.but(messages=messages, flight=tuple(sorted(world.flight)))


def key_of(world: World) -> World:
    """What tells worlds apart. Workers are alike; of ids and tokens only counts which of them are the same."""
    names = _Names(world)
    return world.but(
        rows=tuple(row.but(id=names.row(row.id), token=0) for row in world.rows),
        messages=tuple(tuple((names.row(id), 0) for id, _ in message) for message in world.messages),
        workers=tuple(sorted(tuple(map(names.delivery, holds)) for holds in world.workers)),
        pending=tuple(map(names.delivery, world.pending)),
        sagas=tuple(
            saga.but(log=tuple(map(names.mark, saga.log))) if saga.log else saga for saga in world.sagas
        ),
        next_id=0,
    )  # fmt: skip


class _Names:
    """New names for the rows and tokens of one world: rows in order, tokens by how far they are behind."""

    def __init__(self, world: World) -> None:
        self.rows = {row.id: place for place, row in enumerate(world.rows)}
        self.tokens = {(row.id, row.token): 0 for row in world.rows}
        current = {row.id: row.token for row in world.rows}
        for d in (*world.pending, *(d for holds in world.workers for d in holds)):
            if d.phase not in (UNSURE, WRITTEN) and d not in world.pending:
                continue  # it has written nothing under its token: once stale, it is like no other
            ahead = current.get(d.row)
            if ahead is not None and d.token == ahead - 1:
                self.tokens[d.row, d.token] = -1
            else:
                self.tokens.setdefault((d.row, d.token), -2 - len(self.tokens))

    def row(self, id: int) -> int:
        return self.rows.setdefault(id, -1 - len(self.rows))

    def delivery(self, d: Delivery) -> Delivery:
        return d.but(row=self.row(d.row), token=self.tokens.get((d.row, d.token), STALE))

    def mark(self, mark: Mark) -> Mark:
        return mark.but(row=self.row(mark.row), token=self.tokens.get((mark.row, mark.token), STALE))
