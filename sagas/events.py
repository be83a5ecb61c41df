"""The vocabulary of the state machine: events that go in, log entries and decisions that come out.

Plain values without behaviour. Everything that gives them a meaning is in `sagas.machine`.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from sagas.entries import Direction as Direction
from sagas.entries import Entry as Entry
from sagas.entries import ErrorText as ErrorText
from sagas.entries import Facts as Facts
from sagas.entries import Kind as Kind
from sagas.entries import Source as Source
from sagas.entries import Work as Work
from sagas.operations import (
    ABOUT_A_STEP as ABOUT_A_STEP,
)
from sagas.operations import (
    AS_SEEN as AS_SEEN,
)
from sagas.operations import (
    OPERATIONS as OPERATIONS,
)
from sagas.operations import (
    RESOLUTIONS as RESOLUTIONS,
)
from sagas.operations import (
    Abort as Abort,
)
from sagas.operations import (
    Cancel as Cancel,
)
from sagas.operations import (
    MarkDone as MarkDone,
)
from sagas.operations import (
    MarkNotDone as MarkNotDone,
)
from sagas.operations import (
    MarkUndone as MarkUndone,
)
from sagas.operations import (
    Pause as Pause,
)
from sagas.operations import (
    Redo as Redo,
)
from sagas.operations import (
    Resolution as Resolution,
)
from sagas.operations import (
    Resume as Resume,
)
from sagas.operations import (
    RetryNow as RetryNow,
)
from sagas.operations import (
    SkipStep as SkipStep,
)
from sagas.states import State


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


class Call(msgspec.Struct, frozen=True):
    """What is to happen to the children of a step, in the commit that records the decision."""

    do: str  # start, cancel, undo or look
    step: str
    generation: int = 0
    request: msgspec.Raw = msgspec.Raw(b"{}")  # of a start: what they are given


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
    misfit: bool = False  # nothing has happened: today's types cannot read what is stored, and a person is to see to it


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


class Begot(msgspec.Struct, frozen=True):
    """The children of a step are to be started, or the first of them."""

    attempt: Attempt
    request: msgspec.Raw
    count: int  # of them that this starts
    total: int
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # what they are for, where there are many


class Recalled(msgspec.Struct, frozen=True):
    """The children of a step are to turn back: the saga does."""

    attempt: Attempt


class Looks(msgspec.Struct, frozen=True):
    """The row of a step that waits for its children was begun: how they stand has to be looked at."""

    attempt: Attempt


class Children(msgspec.Struct, frozen=True, kw_only=True):
    """How the children of a step stood when somebody looked, after one of them had come to its end."""

    step: str
    generation: int = 0  # of the step: children of an earlier one do not count
    round: int = 0  # attempts of the step by then, and
    started: int = 0  # how many had been started: who has looked before that changed looks again
    open: int = 0  # not ended
    completed: int = 0
    undone: int = 0  # compensated or cancelled; like `aborted` without those that this round still begins anew
    aborted: int = 0
    now: float = 0.0  # epoch seconds, database clock
    jitter: float = 1.0  # from 0 up to 1
    reason: str = ""  # which of them came to nothing, and why
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # of the step, once all have ended
    problem: str = ""  # why there is none
    request: msgspec.Raw = msgspec.Raw(b"{}")  # those to be started next
    count: int = 0  # so many


class UndoCompleted(msgspec.Struct, frozen=True):
    """The saga that started this one turns back: what this one has completed is to be undone."""

    actor: str = ""
    reason: str = ""


class Blocked(msgspec.Struct, frozen=True):
    """Another saga holds a semantic lock that the step is to take; its body has not begun."""

    attempt: Attempt
    subject: str
    reason: str
    wait: float  # seconds that the step may wait at most
    held: bool = True  # False: another saga is just taking it


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

    first_begun_at: float | None = None  # epoch seconds: not before, where only a lost row said so


class Doubt(msgspec.Struct, frozen=True):
    """Work may have been done that the log does not know of: the database has gone back in time."""

    work: tuple[Work, ...] = ()  # none: whatever is still to be done outside
    first_begun_at: float | None = None  # epoch seconds: not before
    actor: str = ""
    reason: str = ""


Answer = (
    Succeeded | Unstorable | Refused | Failed | NotDone | Undecided | Lost | Withdrawn
    | Waits | TimedOut | Chosen | Skipped | Blocked | Begot | Recalled | Looks
)  # fmt: skip
Request = (
    Cancel | RetryNow | Abort | Redo | Resolution | Pause | Resume | Signal | LateAnswer | Rebuild
    | Doubt | Children | UndoCompleted
)  # fmt: skip
Event = Start | Answer | Request
EVENTS: tuple[type[Event], ...] = (
    Start, Succeeded, Unstorable, Refused, Failed, NotDone, Undecided, Lost, Withdrawn, Waits, TimedOut, Chosen,
    Skipped, Blocked, Begot, Recalled, Looks, Cancel, RetryNow, Abort, Redo, MarkDone, MarkNotDone, SkipStep,
    MarkUndone, Pause, Resume, Signal, LateAnswer, Rebuild, Doubt, Children, UndoCompleted,
)  # fmt: skip


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that a saga needs: this work, no earlier than `delay` seconds from now."""

    step: str
    direction: Direction
    queue: str
    delay: float = 0.0
    failures: int = 0
    first_begun_at: float | None = None
    priority: int = 0  # of the step; that of the saga is added to it


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
    calls: tuple[Call, ...] = ()  # about children
