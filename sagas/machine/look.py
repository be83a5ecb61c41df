"""Looking at a saga: what its state calls for, and what the rules ask about a step. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from msgspec.structs import replace

from sagas.events import Attempt, Direction, Row, Work
from sagas.fold import UNTOUCHED, track_of
from sagas.plan import Plan, StepPlan, UndoPlan
from sagas.retry import Retry
from sagas.states import State, Status, StepState, StepStatus, Track

TERMINAL: Final = frozenset({Status.COMPLETED, Status.COMPENSATED, Status.CANCELLED, Status.ABORTED})
GOING_ON: Final = frozenset({Status.RUNNING, Status.COMPLETED})  # as seen by the saga that takes over from one
PASSED: Final = frozenset({StepStatus.DONE, StepStatus.SKIPPED})  # going forward, the next step may begin
PAUSE: Final = 300.0  # seconds until work of a paused saga is looked at again, if nothing wakes it
FOREVER: Final = 3650 * 24 * 3600.0  # seconds: a wait without end
UNDONE: Final = frozenset({Status.COMPENSATED, Status.CANCELLED})  # a key may be used again after these
DIRECTION: Final[dict[Status, Direction]] = {
    Status.RUNNING: Direction.DO,
    Status.COMPENSATING: Direction.UNDO,
    Status.SETTLING: Direction.SETTLE,
}


def finished(state: State) -> bool:
    """Whether the saga has ended for good."""
    return state.status in TERMINAL


def at_rest(state: State) -> bool:
    """Whether the saga calls for no work: it has ended, or waits for a person and nothing runs beside what parked."""
    return finished(state) or (parked(state) and not any(step.open for step in state.steps.values()))


def parked(state: State) -> bool:
    """Whether the saga waits for a person."""
    return state.status is Status.PARKED


def running(state: State) -> bool:
    """Whether it goes forward."""
    return state.status is Status.RUNNING


def goes_forward(state: State) -> bool:
    """Whether it goes forward, or will when a person has seen to it; also while what is under way comes to its end."""
    return Status.RUNNING in (state.status, state.parked_from)


def going_on(state: State) -> bool:
    """Whether what was done stays, as things stand: it goes forward and has no mind to turn back, or has completed."""
    return state.status is Status.COMPLETED or (goes_forward(state) and not state.failing)


def frontier(plan: Plan, state: State) -> tuple[Work, ...]:
    """The work this state calls for, each with a row of its own. Every saga that is neither finished nor parked has
    some; a parked one where other steps run beside the one that parked."""
    if state.status is Status.RUNNING and not state.failing:
        return _next(plan, state) if plan.linear else tuple(Work(name, Direction.DO) for name in _ready(plan, state))
    if state.status is Status.RUNNING or state.parked_from is Status.RUNNING:
        return tuple(Work(each.name, Direction.DO) for each in plan.steps if step_of(state, each.name).open)
    if state.status is Status.COMPENSATING:
        return _latest(state, (name for name in state.steps if _needs_undo(plan, state, name)), Direction.UNDO)
    if state.status is Status.SETTLING:
        return _settling(state, (name for name in state.steps if _needs_settling(plan, state, name)))
    return ()


def _next(plan: Plan, state: State) -> tuple[Work, ...]:
    """The first step that has not ended, where each needs the one before it."""
    known = state.steps
    for step in plan.steps:
        name = step.name
        if name not in known or known[name].status not in PASSED:
            return _forward(name)
    return ()


@cache
def _forward(name: str) -> tuple[Work, ...]:
    return (Work(name, Direction.DO),)


def _ready(plan: Plan, state: State) -> Iterator[str]:
    """Steps that have not ended, and all that they need has."""
    for step in plan.steps:
        passed = step_of(state, step.name).status in PASSED
        if not passed and all(step_of(state, name).status in PASSED for name in plan.needs[step.name]):
            yield step.name


def alone(plan: Plan, state: State) -> bool:
    """Whether no other step runs beside the one that is decided about."""
    return running(state) and not state.failing and len(frontier(plan, state)) == 1


def _latest(state: State, names: Iterable[str], direction: Direction) -> tuple[Work, ...]:
    last = max(names, key=lambda name: state.steps[name].ended, default=None)
    return () if last is None else (Work(last, direction),)


def _settling(state: State, names: Iterable[str]) -> tuple[Work, ...]:
    """What a late answer opens comes after what is being settled already, whose row somebody may hold."""
    first = min(names, key=lambda name: (state.steps[name].opened, -state.steps[name].ended), default=None)
    return () if first is None else (Work(first, Direction.SETTLE),)


def _needs_undo(plan: Plan, state: State, name: str) -> bool:
    step, planned = state.steps[name], plan.by_name[name]
    if planned.undo is None:
        return False
    if step.status is StepStatus.NOT_DONE:  # said to have done nothing, but once unknown: plant a tombstone
        return step.do.unknown and planned.undo.accepts_unknown
    return step.status in (StepStatus.DONE, StepStatus.UNKNOWN)


def to_undo(plan: Plan, state: State) -> tuple[str, ...]:
    """The steps that are undone when the saga turns back as it stands, in that order; none where it cannot any more."""
    if finished(state) or pivot_passed(plan, state):
        return ()
    names = [name for name in state.steps if _needs_undo(plan, state, name)]
    return tuple(sorted(names, key=lambda name: -state.steps[name].ended))


def _needs_settling(plan: Plan, state: State, name: str) -> bool:
    return state.steps[name].unsettled and can_settle(plan, state, name)


def can_settle(plan: Plan, state: State, name: str) -> bool:
    step, planned = state.steps[name], plan.by_name[name]
    if step.status is StepStatus.NOT_DONE:
        return step.do.unknown and planned.has_resolve and planned.undo is not None
    return step.status is StepStatus.UNDONE


def step_of(state: State, name: str) -> StepState:
    """One step as it stands; untouched when nothing was logged about it."""
    return state.steps.get(name, UNTOUCHED)


def rows(plan: Plan, state: State, *, delay: float | None = None, now: float | None = None) -> tuple[Row, ...]:
    """The outbox rows this state needs, from nothing but the state.

    Args:
        plan: the definition.
        state: the saga.
        delay: seconds until the work is due; None: as the work has it.
        now: epoch seconds, database clock; None: not known, so that a wait is looked at at once.
    """
    return tuple(row(plan, state, work, delay, now) for work in frontier(plan, state))


def row(plan: Plan, state: State, work: Work, delay: float | None, now: float | None) -> Row:
    """The row of one work. See `rows`."""
    planned, step = plan.by_name[work.step], step_of(state, work.step)
    track, undo = track_of(step, work.direction), planned.undo
    forward = work.direction is Direction.DO
    if delay is None:
        delay = planned.settle_after if work.direction is Direction.SETTLE else wait_left(step, now)
        if work.direction is Direction.UNDO and step.recalled and now is not None:  # its children are being undone
            delay = FOREVER
        elif delay and forward and not step.recalled and stopping(plan, state, work.step, now):
            delay = 0.0  # asked for while whoever came to this wait held its row
    if state.paused:
        delay = max(delay, PAUSE)
    elif delay and forward and plan.may_turn_back(work.step):
        delay = min(delay, deadline_left(state, now))
    queue = planned.queue if forward or undo is None else undo.queue
    return Row(
        step=work.step, direction=work.direction, queue=queue, delay=delay,
        failures=track.failures, first_begun_at=track.first_begun_at, priority=planned.priority,
    )  # fmt: skip


def wait_left(step: StepState, now: float | None) -> float:
    """Seconds that a wait still has; 0 for a step that does not wait."""
    if step.status is not StepStatus.WAITING or now is None:
        return 0.0
    return FOREVER if step.until is None else max(0.0, step.until - now)


def between_children(step: StepState) -> bool:
    """Whether it waits until its children, which have come to nothing, are started anew."""
    return step.status is StepStatus.WAITING and step.total > 0 and step.started == 0


def deadline_left(state: State, now: float | None) -> float:
    """Seconds until the deadline; no limit where there is none, or where it has passed and was seen to."""
    if state.deadline is None or now is None or now >= state.deadline:
        return FOREVER
    return state.deadline - now


def queued_signal(plan: Plan, state: State) -> tuple[str, int] | None:
    """The wait that is next and the signal that has arrived for it; None when nothing can be taken."""
    if not plan.has_signals:
        return None
    if state.status is not Status.RUNNING or state.paused or state.failing:
        return None
    if state.cancel_requested and not pivot_passed(plan, state):
        return None
    for work in frontier(plan, state):
        planned, step = plan.by_name[work.step], step_of(state, work.step)
        if planned.wait and planned.wait.signal and step.signals:
            return work.step, step.signals[0]
    return None


def parked_work(plan: Plan, state: State) -> tuple[Work, ...]:
    """The work that a parked saga waits for a person with."""
    if state.parked_from is Status.RUNNING:
        return tuple(Work(each.name, Direction.DO) for each in plan.steps if step_of(state, each.name).parked)
    if state.parked_from is None:
        return ()
    return frontier(plan, replace(state, status=state.parked_from, parked_from=None))


def parked_for_signal(plan: Plan, state: State) -> bool:
    """Whether a wait has parked, and what it waited for has come after all."""
    if state.paused:
        return False
    return any(
        (wait := plan.by_name[work.step].wait) and wait.signal and step_of(state, work.step).signals
        for work in parked_work(plan, state)
    )


def to_doubt(plan: Plan, state: State) -> Iterator[Work]:
    """What is still to be done outside, in the direction in which the saga goes: perhaps it has been done already."""
    status = state.parked_from or state.status
    if status is Status.RUNNING:
        for planned in plan.steps:
            if planned.external and planned.has_body and step_of(state, planned.name).status is StepStatus.PENDING:
                yield Work(planned.name, Direction.DO)
    if status is Status.COMPENSATING:
        for name in to_undo(plan, state):
            if undo_of(plan.by_name[name]).external:
                yield Work(name, Direction.UNDO)


def to_ask(plan: Plan, state: State) -> tuple[str, ...]:
    """What is in doubt though its turn never came, and would have to be undone: a saga that turns back asks about it
    first, one at a time (the first of these)."""
    return tuple(
        each.name for each in plan.steps
        if each.external and each.undo is not None and not each.pivot and plan.may_turn_back(each.name)
        and (step := step_of(state, each.name)).do.doubted and step.status is StepStatus.PENDING and not step.open
    )[:1]  # fmt: skip


def only_asked(state: State, name: str) -> bool:
    """Whether nothing of this step may begin, not even to learn what it did: it is in doubt, and the saga turns back,
    perhaps from before its turn."""
    return state.failing and step_of(state, name).do.doubted


def undo_of(planned: StepPlan) -> UndoPlan:
    assert planned.undo is not None, f"step {planned.name} has no compensation"
    return planned.undo


def ever_unknown(external: bool, track: Track, a: Attempt) -> bool:
    """A local step whose worker died was rolled back; of an external one nobody knows."""
    return external and (track.unknown or track.doubted or a.lost > 0)


def may_ask(retry: Retry, track: Track, a: Attempt) -> bool:
    """Whether `resolve` is called: for each attempt whose worker died, whatever was said about earlier ones."""
    return track.asked < retry.max_attempts or a.lost > 0


def certain(track: Track, a: Attempt) -> bool:
    """Whether some attempt is known to have begun and nobody knows what it did; else that is in doubt at most."""
    return track.unknown or a.lost > 0


def may_begin(planned: StepPlan, max_attempts: int, track: Track, a: Attempt, *, not_done: bool = False) -> bool:
    """Whether a body may begin; not_done: `resolve` has just said that none did anything."""
    if track.closed or track.attempts - track.budget + a.lost >= max_attempts:
        return False
    if not_done and not certain(track, a):  # then its key is as good as new
        return True
    if planned.key_ttl is None or a.first_begun_at is None or a.direction is not Direction.DO:
        return True
    return a.now - a.first_begun_at < planned.key_ttl


def turning(state: State, now: float | None) -> bool:
    """Whether somebody asked for an end of the saga: a cancel, or its deadline."""
    return state.cancel_requested or (state.deadline is not None and now is not None and now >= state.deadline)


def stopping(plan: Plan, state: State, name: str, now: float | None) -> bool:
    """An end was asked for, or another step has failed, and the way back is open: the pivot is not passed, and not in
    doubt."""
    if not (state.failing or turning(state, now)):
        return False
    in_doubt = plan.by_name[name].pivot and step_of(state, name).do.unknown
    return plan.may_turn_back(name) and not in_doubt


def why_stopping(state: State) -> str:
    """The reason to give for turning back."""
    if state.failing:
        return state.error
    return "cancel" if state.cancel_requested else "its deadline has passed"


def may_leave_unknown(planned: StepPlan) -> bool:
    """Whether a saga can turn back without knowing what became of this step."""
    return not planned.external or planned.undo is None or planned.undo.accepts_unknown


def undecided_condition(planned: StepPlan, step: StepState) -> bool:
    """Whether the step's condition has to be looked at before its body may begin."""
    return planned.has_when and not step.chosen


def may_redo(plan: Plan, state: State, name: str) -> bool:
    """Whether a parked saga can go on from this step under a new key: nothing that happened would happen twice
    unless the step itself did, which the operator answers for."""
    if state.parked_from is not Status.RUNNING or state.failing or name not in plan.by_name:
        return False
    if state.cancel_requested and plan.may_turn_back(name):  # somebody was told that it would be undone
        return False
    again = (name, *plan.following(name))
    if any(step_of(state, each).parked and step_of(state, each).started for each in again):
        return False  # its children are there, and would be forgotten: it is retried, or cancelled
    between = [plan.by_name[each] for each in again if not step_of(state, each).parked]
    done = [each for each in between if step_of(state, each.name).status is StepStatus.DONE]
    passed = [each for each in between if step_of(state, each.name).status in PASSED]
    return (
        any(step_of(state, each).parked for each in again)
        and all(each.undo is None for each in done)
        and not any(each.pivot for each in passed)
        and not any(step_of(state, each.name).open for each in between)
    )


def may_resolve(plan: Plan, state: State, name: str, *, back: bool = False) -> bool:
    """Whether a saga waits for a person to say what became of this step, or of its undo. Not of one that starts other
    sagas, which have words of their own; but see `may_mark_done`."""
    waits = any(work.step == name and (work.direction is not Direction.DO) == back for work in parked_work(plan, state))
    return waits and plan.by_name[name].children is None


def may_mark_done(plan: Plan, state: State, name: str) -> bool:
    """Whether a person may give the result of this step: also that of children which have completed."""
    return may_resolve(plan, state, name) or (step_of(state, name).complete and step_of(state, name).parked)


def may_skip(plan: Plan, state: State, name: str) -> bool:
    """Whether it can go on without it: not without the pivot, which decides whether what came before stays."""
    return may_resolve(plan, state, name) and not plan.by_name[name].pivot


def pivot_passed(plan: Plan, state: State) -> bool:
    """Whether the way back is closed: the pivot happened, or may have, or was skipped, so that what follows began."""
    if plan.pivot is None:
        return False
    pivot = step_of(state, plan.steps[plan.pivot].name)
    return pivot.status in PASSED or (pivot.do.unknown and pivot.status is not StepStatus.NOT_DONE)
