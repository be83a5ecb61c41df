"""What a begun delivery is to do: run the body, ask `resolve` first, or neither.

The order of asking is the claim protocol's: what the dedupe table remembers, then `resolve`, then
another attempt under the same key while the limits allow, and without an answer an event that the
machine decides about. Pure; the worker carries out what `assess` returns.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from msgspec import Raw

from sagas.events import (
    Attempt,
    Direction,
    Looks,
    Lost,
    NotDone,
    Recalled,
    Source,
    Succeeded,
    TimedOut,
    Withdrawn,
    Work,
)
from sagas.machine import look
from sagas.machine.look import ever_unknown, frontier, may_ask, may_begin, may_leave_unknown, step_of, undo_of
from sagas.plan import Plan, StepPlan
from sagas.states import State, StepState, StepStatus


class Ask(NamedTuple):
    """Call `resolve` (of the compensation, when undoing) before anything else."""


class Argument(Enum):
    """What a compensation is called with."""

    RESULT = "result"  # the stored result of the step
    UNKNOWN = "unknown"


class Run(NamedTuple):
    """Run the body, or the compensation with `argument`, under the key of this `generation`."""

    argument: Argument | Raw | None = None
    generation: int = 0


class Choose(NamedTuple):
    """Look at the step's condition; nothing of the step may begin before what came of it is recorded."""


class Wait(NamedTuple):
    """The saga has come to this wait: find out until when."""


class Beget(NamedTuple):
    """The saga has come to a step that starts other sagas: find out with what."""


class Misplaced(NamedTuple):
    """The row does not stand for the work that is next: put it where it belongs."""


Action = (
    Run | Ask | Choose | Wait | Beget | Misplaced | Succeeded | NotDone | Lost | Withdrawn | TimedOut | Recalled | Looks
)


class Memory(NamedTuple):
    """What the dedupe table says about an effect: `closed`, or a `response`, or both."""

    closed: bool = False
    response: Raw | None = None


NOTHING: Final = Memory()
NULL: Final = Raw(b"null")


def assess(
    plan: Plan, state: State, a: Attempt, *, memory: Memory = NOTHING, not_done: bool = False
) -> Action:  # fmt: skip
    """What to do with a begun delivery: run, ask, or an event that is already decided.

    Args:
        plan: the definition the saga was started with.
        state: the saga as it stands.
        a: the delivery.
        memory: what the dedupe table remembers about the effect at stake (when settling: about the step itself).
        not_done: `resolve` was asked in this delivery and said `NOT_DONE`.
    """
    if Work(a.step, a.direction) not in frontier(plan, state):
        return Misplaced()
    return _ASSESS[a.direction](plan, state, a, memory, not_done)


def _assess_do(plan: Plan, state: State, a: Attempt, memory: Memory, not_done: bool) -> Action:
    planned, step = plan.by_name[a.step], step_of(state, a.step)
    track = step.do
    crashed = a.lost >= planned.max_deliveries
    stop = look.stopping(plan, state, a.step, a.now)
    if planned.children is not None and step.status is StepStatus.WAITING:
        return _assess_children(planned, step, a, stop=stop)
    undecided = look.undecided_condition(planned, step)
    if not planned.has_body or (undecided and not (planned.external and track.doubted)):
        return _assess_before_body(planned, step, a, stop=stop)
    if memory.response is not None:
        return Succeeded(a, memory.response, Source.DEDUPE)
    if memory.closed:
        return Lost(a, crashed=True)
    if not ever_unknown(planned.external, track, a):
        if stop:
            return Withdrawn(a)
        return Lost(a, crashed=True) if crashed else Run(generation=step.generation)
    if crashed:
        return Lost(a, crashed=True)
    again = may_begin(planned, planned.retry.max_attempts, track, a, not_done=not_done)
    begin = Choose() if undecided else Run(generation=step.generation)
    if not_done:
        turning = stop and not (planned.pivot and look.certain(track, a))
        return begin if again and not turning else NotDone(a)
    if planned.has_resolve and may_ask(planned.retry, track, a):
        return Ask()
    turning = stop and not planned.pivot and may_leave_unknown(planned)  # a pivot in doubt has to go on
    return begin if again and not (turning or look.only_asked(state, a.step)) else Lost(a)


def _assess_before_body(planned: StepPlan, step: StepState, a: Attempt, *, stop: bool) -> Action:
    """A wait, or a condition that nobody has looked at: nothing can have happened yet, however many workers died."""
    if stop:
        return Withdrawn(a)
    if a.lost >= planned.max_deliveries:
        return Lost(a, crashed=True)
    if look.undecided_condition(planned, step):
        return Choose()
    if planned.wait is None:
        return Beget()
    if step.status is not StepStatus.WAITING:
        return Wait()
    if step.until is None or a.now < step.until:
        return Misplaced()  # woken early
    return TimedOut(a) if planned.wait.signal else Succeeded(a, NULL, Source.TIMER)


def _assess_children(planned: StepPlan, step: StepState, a: Attempt, *, stop: bool) -> Action:
    """A step that waits for its children, or until it starts others."""
    if step.started:
        return Recalled(a) if stop and not step.recalled else Looks(a)
    if stop:
        return Withdrawn(a)
    if a.lost >= planned.max_deliveries:
        return Lost(a, crashed=True)
    return Misplaced() if step.until is not None and a.now < step.until else Beget()


def _assess_undo(plan: Plan, state: State, a: Attempt, memory: Memory, not_done: bool) -> Action:
    planned, step = plan.by_name[a.step], step_of(state, a.step)
    undo, track = undo_of(planned), step.undo
    if undo.children:
        return Looks(a) if step.recalled else Recalled(a)
    if memory.response is not None:
        return Succeeded(a, memory.response, Source.DEDUPE)
    if a.lost >= planned.max_deliveries:
        return Lost(a, crashed=True)
    again = may_begin(planned, undo.retry.max_attempts, track, a)
    if not_done:
        return Run(_undo_argument(step)) if again else NotDone(a)
    if undo.has_resolve and ever_unknown(undo.external, track, a) and may_ask(undo.retry, track, a):
        return Ask()
    return Run(_undo_argument(step)) if again else Lost(a)


def _assess_settle(plan: Plan, state: State, a: Attempt, memory: Memory, not_done: bool) -> Action:
    planned, step = plan.by_name[a.step], step_of(state, a.step)
    undo, track, generation = undo_of(planned), step.settle, step.settled + 1
    if a.lost >= planned.max_deliveries:
        return Lost(a, crashed=True)
    again = may_begin(planned, undo.retry.max_attempts, track, a)
    if memory.response is not None:
        return Run(memory.response, generation) if again else Lost(a)
    if not_done:
        return NotDone(a)
    if planned.has_resolve:
        return Ask() if may_ask(planned.retry, track, a) else Lost(a)
    return Run(Argument.UNKNOWN, generation) if again and undo.accepts_unknown else Lost(a)


def has_one_attempt(plan: Plan, work: Work) -> bool:
    """Whether this work may begin only once: then it begins alone, so that no neighbour's crash uses that up."""
    planned = plan.by_name[work.step]
    if work.direction is Direction.DO or planned.undo is None:
        return planned.external and planned.retry.max_attempts == 1
    return planned.undo.external and planned.undo.retry.max_attempts == 1


_ASSESS: Final = {Direction.DO: _assess_do, Direction.UNDO: _assess_undo, Direction.SETTLE: _assess_settle}


def _undo_argument(step: StepState) -> Argument:
    return Argument.RESULT if step.status is StepStatus.DONE else Argument.UNKNOWN
