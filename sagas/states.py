"""Where a saga and its steps stand: plain values. Their meaning is in `sagas.machine`."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "pending"
    WAITING = "waiting"  # for a signal, a time, or the end of its children
    DONE = "done"
    NOT_DONE = "not_done"  # did not happen and will not be tried again
    UNKNOWN = "unknown"  # given up without knowing
    UNDONE = "undone"
    SKIPPED = "skipped"  # its condition was false, or no signal came in time


class Status(StrEnum):
    """Where a saga stands."""

    RUNNING = "running"
    COMPENSATING = "compensating"
    SETTLING = "settling"
    PARKED = "parked"
    COMPLETED = "completed"
    COMPENSATED = "compensated"
    CANCELLED = "cancelled"
    ABORTED = "aborted"


class Track(msgspec.Struct, frozen=True, omit_defaults=True):
    """How work on a step in one direction has gone so far."""

    attempts: int = 0  # bodies begun
    budget: int = 0  # `attempts` when the present budget was opened by an operator
    failures: int = 0  # answers that were failures, in the present budget
    asked: int = 0  # times in a row that `resolve` could not say
    unknown: bool = False  # the outcome of some attempt is unknown: stored, never derived
    doubted: bool = False  # the log does not know of it, and yet it may have been done: see `sagas.restored`
    closed: bool = False  # no further body may begin in the present budget
    refused: bool = False  # the step refused although an earlier attempt is unknown
    first_begun_at: float | None = None  # epoch seconds


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of one saga."""

    status: StepStatus = StepStatus.PENDING
    result: int | None = None  # seq of the entry that holds its result, which `Step.result_of` reads
    ended: int = 0  # seq of the entry that ended it going forward: the order of undoing
    settled: int = 0  # times it was looked at once more: each is a new generation of the undo's key
    unsettled: bool = False  # undone without knowing whether it had happened
    again: bool = False  # a late answer came while it was being looked at: look once more
    opened: int = 0  # seq of the late answer that made it so; 0: it was so when it was given up
    until: float | None = None  # epoch seconds at which its wait ends; None: never, or it does not wait
    signals: tuple[int, ...] = ()  # seqs of signals that arrived and were not taken yet, in order
    chosen: bool = False  # its condition was looked at, and was true
    blocked: float | None = None  # epoch seconds until which it waits for a semantic lock; None: it does not
    open: bool = False  # under way beside a step that failed or parked: it has a row of its own until it ends
    parked: bool = False  # a person is to say what becomes of it
    generation: int = 0  # of its idempotency key; an operator's redo begins a new one
    total: int = 0  # children that it is to have
    started: int = 0  # of them that were started, in the present round
    items: int | None = None  # seq of the entry that holds what they are for
    recalled: bool = False  # its children were asked to turn back
    complete: bool = False  # it parked: its children have completed, and what they returned cannot be kept
    do: Track = Track()
    undo: Track = Track()
    settle: Track = Track()


class State(msgspec.Struct, frozen=True):
    """One saga between two events: what the saga row holds, and what folding its log gives."""

    status: Status
    seq: int  # of the last log entry
    steps: dict[str, StepState] = {}
    cancel_requested: bool = False
    parked_from: Status | None = None
    error: str = ""  # why it parked or turned back
    deadline: float | None = None  # epoch seconds at which it turns back, if it still can
    paused: bool = False  # nothing of it begins until it is resumed
    failing: bool = False  # one step has failed, and others that run beside it come to their end before it turns back
