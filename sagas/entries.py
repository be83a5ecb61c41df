"""What a saga log is made of: the closed list of kinds, and what an entry says.

Plain values without behaviour. What each entry means is in `sagas.fold`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import msgspec


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
    CHILDREN = "children"
    OPERATOR = "operator"


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
    STEP_BLOCKED = "step_blocked"
    WAITING = "waiting"
    SIGNALLED = "signalled"
    CHILDREN_STARTED = "children_started"
    CHILDREN_RECALLED = "children_recalled"
    UNDO_DONE = "undo_done"
    UNDO_FAILED = "undo_failed"
    UNDO_UNDECIDED = "undo_undecided"
    SETTLE_DONE = "settle_done"
    SETTLE_FAILED = "settle_failed"
    SETTLE_UNDECIDED = "settle_undecided"
    LATE_ANSWER = "late_answer"
    REBUILT = "rebuilt"
    DOUBTED = "doubted"
    CANCEL_REQUESTED = "cancel_requested"
    RETRIED = "retried"
    REDONE = "redone"
    RESOLVED = "resolved"
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
    count: int = 0  # children that are started with this entry
    total: int = 0  # and how many there are to be
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # a step's result or a signal, encoded
    saga: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # entry 0: name, version, key, subject, headers, input


class Entry(msgspec.Struct, frozen=True):
    """One line of a saga log."""

    seq: int
    kind: Kind
    step: str | None = None
    attempt: int = 0  # number of the attempt it is about, from 1; 0: about none
    data: Facts = Facts()
