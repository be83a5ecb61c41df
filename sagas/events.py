"""The vocabulary of the state machine: events that go in, log entries and decisions that come out.

Plain values without behaviour. Everything that gives them a meaning is in `sagas.machine`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import msgspec

from sagas.states import State


class Direction(StrEnum):
    """Which way a step is being worked on."""

    DO = "do"
    UNDO = "undo"  # its compensation
    SETTLE = "settle"  # the last look at a step that was undone as unknown


class Source(StrEnum):
    """Where the answer to an attempt came from."""

    BODY = "body"
    DEDUPE = "dedupe"
    RESOLVE = "resolve"
    SIGNAL = "signal"
    TIMER = "timer"


class Kind(StrEnum):
    """Log kinds: the closed list. Every entry of a saga log has one."""

    STARTED = "started"
    STEP_DONE = "step_done"
    STEP_FAILED = "step_failed"
    STEP_UNDECIDED = "step_undecided"
    STEP_NOT_DONE = "step_not_done"
    STEP_UNKNOWN = "step_unknown"
    STEP_CHOSEN = "step_chosen"
    STEP_SKIPPED = "step_skipped"
    WAITING = "waiting"
    SIGNALLED = "signalled"
    UNDO_DONE = "undo_done"
    UNDO_FAILED = "undo_failed"
    UNDO_UNDECIDED = "undo_undecided"
    SETTLE_DONE = "settle_done"
    SETTLE_FAILED = "settle_failed"
    SETTLE_UNDECIDED = "settle_undecided"
    LATE_ANSWER = "late_answer"
    REBUILT = "rebuilt"
    CANCEL_REQUESTED = "cancel_requested"
    RETRIED = "retried"
    REDONE = "redone"
    PAUSED = "paused"
    RESUMED = "resumed"
    TURNING = "turning"
    COMPENSATING = "compensating"
    SETTLING = "settling"
    PARKED = "parked"
    COMPLETED = "completed"
    COMPENSATED = "compensated"
    CANCELLED = "cancelled"
    ABORTED = "aborted"


class Work(NamedTuple):
    """One thing to do next: a step and a direction."""

    step: str
    direction: Direction


class ErrorText(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of an exception: text only, cleaned and bounded, never a pickle."""

    type: str
    message: str
    traceback: str = ""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a log entry says besides its kind, step and attempt; stored as its `data`."""

    direction: Direction | None = None
    deliveries: int = 0  # begun bodies this entry accounts for
    unknown: bool = False  # one of them has an outcome that nobody knows
    closed: bool = False  # no further body may begin in this budget
    refused: bool = False  # the step said no; the saga is to turn back
    ignored: bool = False  # a request that came too late to matter
    first_begun_at: float | None = None  # epoch seconds, database clock
    source: Source | None = None
    error: ErrorText | None = None
    reason: str = ""
    actor: str = ""
    retry_in: float | None = None  # seconds until the next attempt
    until: float | None = None  # epoch seconds, database clock: when a wait ends; None: only by a signal
    open: tuple[str, ...] = ()  # the steps under way beside the one that turns the saga back, or parks
    ref: int | None = None  # seq of the entry that holds the step's result, where that is not this one
    deadline: float | None = None  # entry 0: epoch seconds, database clock
    continued: UUID | None = None  # the saga that goes on from here
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # a step's result or a signal, encoded
    saga: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # entry 0: name, version, key, subject, headers, input


class Entry(msgspec.Struct, frozen=True):
    """One line of a saga log."""

    seq: int
    kind: Kind
    step: str | None = None
    attempt: int = 0  # number of the attempt it is about, from 1; 0: about none
    data: Facts = Facts()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One begun delivery, as the begin statement reported it."""

    step: str
    direction: Direction
    deliveries: int = 1  # begins since the last recorded answer, this one included
    first_begun_at: float | None = None  # epoch seconds: the first begin under the present key
    now: float = 0.0  # epoch seconds, database clock
    jitter: float = 1.0  # from 0 up to 1

    @property
    def lost(self) -> int:
        """Earlier begins that never brought an answer."""
        return self.deliveries - 1


class Continuation(msgspec.Struct, frozen=True):
    """A saga that takes over from one that ends: what `start()` would send for it."""

    id: UUID
    request: msgspec.Raw


class Start(msgspec.Struct, frozen=True):
    """A caller starts a saga."""

    saga: msgspec.Raw


class Succeeded(msgspec.Struct, frozen=True):
    """The body returned, the dedupe table remembers, or `resolve` found a result."""

    attempt: Attempt
    result: msgspec.Raw
    source: Source = Source.BODY
    next: Continuation | None = None  # the step ended this saga and asked for one that goes on


class Unstorable(msgspec.Struct, frozen=True):
    """The body returned, so its effect happened, but its result cannot be stored."""

    attempt: Attempt
    error: ErrorText


class Refused(msgspec.Struct, frozen=True):
    """The body says that this attempt definitely did nothing."""

    attempt: Attempt
    error: ErrorText
    partly: bool = False  # although an `effect()` of it had its answer already


class Failed(msgspec.Struct, frozen=True):
    """The body raised. Of an external step the outcome is unknown."""

    attempt: Attempt
    error: ErrorText
    give_up: bool = False  # a `give_up_on` error: no further body
    began: bool = True  # False: it was the step's condition that raised, so nothing can have happened


class NotDone(msgspec.Struct, frozen=True):
    """`resolve` says it did not happen, and no further body may begin."""

    attempt: Attempt


class Undecided(msgspec.Struct, frozen=True):
    """`resolve` could not say, or raised."""

    attempt: Attempt
    error: ErrorText | None = None


class Lost(msgspec.Struct, frozen=True):
    """No further body may begin and nobody can be asked."""

    attempt: Attempt
    crashed: bool = False  # because too many workers died over it


class Withdrawn(msgspec.Struct, frozen=True):
    """The saga is to turn back before this step ever did anything."""

    attempt: Attempt


class Waits(msgspec.Struct, frozen=True):
    """The saga has come to a wait."""

    attempt: Attempt
    until: float | None  # epoch seconds, database clock; None: until a signal comes


class TimedOut(msgspec.Struct, frozen=True):
    """No signal came in time."""

    attempt: Attempt


class Chosen(msgspec.Struct, frozen=True):
    """The condition of the step is true."""

    attempt: Attempt


class Skipped(msgspec.Struct, frozen=True):
    """The condition of the step is false."""

    attempt: Attempt
    reason: str


class Cancel(msgspec.Struct, frozen=True):
    """A caller asks to undo the saga."""

    actor: str = ""
    reason: str = ""


class RetryNow(msgspec.Struct, frozen=True):
    """An operator says: try again now."""

    actor: str = ""
    reason: str = ""


class Abort(msgspec.Struct, frozen=True):
    """An operator closes a parked saga as it is."""

    actor: str = ""
    reason: str = ""


class Redo(msgspec.Struct, frozen=True):
    """An operator says: forget what is known about this step of a parked saga, and do it under a new key."""

    step: str
    actor: str = ""
    reason: str = ""


class Pause(msgspec.Struct, frozen=True):
    """An operator says: begin nothing more of this saga for now."""

    actor: str = ""
    reason: str = ""


class Resume(msgspec.Struct, frozen=True):
    """An operator says: go on with a paused saga."""

    actor: str = ""
    reason: str = ""


class Signal(msgspec.Struct, frozen=True):
    """Somebody outside sent what a wait of the saga waits for, or will wait for."""

    step: str
    value: msgspec.Raw
    actor: str = ""
    reason: str = ""


class LateAnswer(msgspec.Struct, frozen=True):
    """An attempt brought its answer after the compensation of its step had begun; the dedupe table has it."""

    step: str


class Rebuild(msgspec.Struct, frozen=True):
    """The saga's rows were lost and are made again from its log: what was under way is in doubt."""


Answer = (
    Succeeded | Unstorable | Refused | Failed | NotDone | Undecided | Lost | Withdrawn
    | Waits | TimedOut | Chosen | Skipped
)  # fmt: skip
Request = Cancel | RetryNow | Abort | Redo | Pause | Resume | Signal | LateAnswer | Rebuild
Event = Start | Answer | Request
OPERATIONS: dict[str, type[Request]] = {  # by outbox kind
    "cancel": Cancel, "retry": RetryNow, "abort": Abort, "redo": Redo, "pause": Pause, "resume": Resume,
}  # fmt: skip
EVENTS: tuple[type[Event], ...] = (
    Start, Succeeded, Unstorable, Refused, Failed, NotDone, Undecided, Lost, Withdrawn, Waits, TimedOut, Chosen,
    Skipped, Cancel, RetryNow, Abort, Redo, Pause, Resume, Signal, LateAnswer, Rebuild,
)  # fmt: skip


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that a saga needs: this work, no earlier than `delay` seconds from now."""

    step: str
    direction: Direction
    queue: str
    delay: float = 0.0
    failures: int = 0
    first_begun_at: float | None = None


class Mark(msgspec.Struct, frozen=True):
    """A line for the dedupe table about one effect of this saga."""

    step: str
    state: str  # "started" or "closed"
    generation: int = 0


class Decision(msgspec.Struct, frozen=True):
    """What one event changes. The shell writes all of it in one statement, or nothing."""

    state: State
    entries: tuple[Entry, ...] = ()
    rows: tuple[Row, ...] = ()  # the saga's work from now on; replaces the row that was acted on
    surplus: tuple[Work, ...] = ()  # work whose row is of no use any more, unless somebody holds it
    spare: bool = False  # the row is dropped if another one stands for the same work
    wake: bool = False  # make the saga's rows that nobody holds due now
    marks: tuple[Mark, ...] = ()
    next: Continuation | None = None  # a saga to start
