"""The saga state machine. Everything that decides what happens next is in this file.

Theory of operation
===================

`decide(plan, state, event)` answers one event with a `Decision`: the new state, the log entries
that say so, and the outbox rows the saga owns from now on. It is a pure function. The shell around
it writes all of a decision in one statement, or, when somebody else moved first, nothing, and asks
again from fresh state. `TABLE` below lists every pair of status and event that changes anything;
a pair that is not in it changes nothing, so a finished saga absorbs whatever still arrives.

State changes only through log entries: a rule writes entries, `evolve` folds each of them into the
state. Folding a stored log from entry 0 therefore gives the stored state again (`fold`), which is
what `sagas verify` compares.

The rules, each kept because its absence loses money:

1.  A step is worked on in one direction at a time: DO while the saga is running, UNDO while it is
    compensating, SETTLE while it is settling. `frontier` says which work is next; an answer about
    any other work is late and changes nothing.
2.  An attempt of an external step that raised, or whose worker died, is *unknown*. That is stored
    in the step's track with the next entry and never forgotten before an answer is known.
3.  An unknown attempt is asked about first (`assess`): the dedupe table, then `resolve`. Then the
    body may run again under the same key, while `max_attempts`, `max_deliveries` and `key_ttl` allow.
4.  Without an answer the step parks, unless its author said `on_unknown=COMPENSATE` or the saga is
    turning back anyway; then it is undone as unknown, if its compensation accepts `UNKNOWN`.
5.  `Refused` means "did not happen" only if no earlier attempt is unknown, and no `effect()` of this one happened.
6.  The pivot and what follows it are never undone: they are asked about, retried, else parked.
7.  Undo goes in reverse order of completion. A step that was undone as unknown is looked at once
    more (SETTLE) before the saga counts as compensated: its request may have landed late.
8.  An answer that arrives after the compensation of its step began opens that step for settling (again),
    also in a saga that had ended as compensated or cancelled: the only way out of a finished state.
9.  A cancel only sets a flag. The holder of the work in flight, or whoever takes it over, turns the
    saga back once it is known what that work did; a step that can only be undone given its result is
    tried again, within its limits, to learn that.

Compensation: Garcia-Molina & Salem, "Sagas", 1987. Empty undo and hanging: dtm's sub-transaction barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sagas.events import (
    Abort,
    Answer,
    Attempt,
    Cancel,
    Decision,
    Direction,
    Entry,
    Event,
    Facts,
    Failed,
    Kind,
    LateAnswer,
    Lost,
    Mark,
    NotDone,
    Rebuild,
    Refused,
    RetryNow,
    Row,
    Source,
    Start,
    Succeeded,
    Undecided,
    Unstorable,
    Withdrawn,
    Work,
)  # fmt: skip
from sagas.fold import UNTOUCHED, evolve, track_of
from sagas.plan import OnUnknown, Plan, StepPlan, UndoPlan
from sagas.states import State, Status, StepState, StepStatus, Track

TERMINAL: Final = frozenset({Status.COMPLETED, Status.COMPENSATED, Status.CANCELLED, Status.ABORTED})
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
    """Whether the saga calls for no work: it has ended, or waits for a person."""
    return finished(state) or parked(state)


def parked(state: State) -> bool:
    """Whether the saga waits for a person."""
    return state.status is Status.PARKED


# --- What is next ----------------------------------------------------------------------------------------------


def frontier(plan: Plan, state: State) -> tuple[Work, ...]:
    """The work this state calls for. Every saga that is neither finished nor parked has some."""
    if state.status is Status.RUNNING:
        for step in plan.steps:
            if step_of(state, step.name).status is not StepStatus.DONE:
                return (Work(step.name, Direction.DO),)
    elif state.status is Status.COMPENSATING:
        return _latest(state, (name for name in state.steps if _needs_undo(plan, state, name)), Direction.UNDO)
    elif state.status is Status.SETTLING:
        return _settling(state, (name for name in state.steps if _needs_settling(plan, state, name)))
    return ()


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


def _needs_settling(plan: Plan, state: State, name: str) -> bool:
    return state.steps[name].unsettled and _can_settle(plan, state, name)


def _can_settle(plan: Plan, state: State, name: str) -> bool:
    step, planned = state.steps[name], plan.by_name[name]
    if step.status is StepStatus.NOT_DONE:
        return step.do.unknown and planned.has_resolve and planned.undo is not None
    return step.status is StepStatus.UNDONE


def step_of(state: State, name: str) -> StepState:
    """One step as it stands; untouched when nothing was logged about it."""
    return state.steps.get(name, UNTOUCHED)


def rows(plan: Plan, state: State, *, delay: float | None = None) -> tuple[Row, ...]:
    """The outbox rows this state needs, from nothing but the state. `delay` in seconds; None: as the work has it."""
    return tuple(_row(plan, state, work, delay) for work in frontier(plan, state))


def _row(plan: Plan, state: State, work: Work, delay: float | None = None) -> Row:
    planned, track = plan.by_name[work.step], track_of(step_of(state, work.step), work.direction)
    if delay is None:
        delay = planned.settle_after if work.direction is Direction.SETTLE else 0.0
    undo = planned.undo
    queue = planned.queue if work.direction is Direction.DO or undo is None else undo.queue
    return Row(
        step=work.step, direction=work.direction, queue=queue, delay=delay,
        failures=track.failures, first_begun_at=track.first_begun_at,
    )  # fmt: skip


# --- What the rules ask about a step ----------------------------------------------------------------------------------


def undo_of(planned: StepPlan) -> UndoPlan:
    assert planned.undo is not None, f"step {planned.name} has no compensation"
    return planned.undo


def ever_unknown(external: bool, track: Track, a: Attempt) -> bool:
    """A local step whose worker died was rolled back; of an external one nobody knows."""
    return external and (track.unknown or a.lost > 0)


def may_begin(planned: StepPlan, max_attempts: int, track: Track, a: Attempt) -> bool:
    if track.closed or track.attempts - track.budget + a.lost >= max_attempts:
        return False
    if planned.key_ttl is None or a.first_begun_at is None or a.direction is not Direction.DO:
        return True
    return a.now - a.first_begun_at < planned.key_ttl


def stopping(plan: Plan, state: State, name: str) -> bool:
    """A cancel was asked for and can still be granted: the pivot is not passed, and not in doubt."""
    in_doubt = plan.by_name[name].pivot and step_of(state, name).do.unknown
    return state.cancel_requested and plan.may_turn_back(name) and not in_doubt


def may_leave_unknown(planned: StepPlan) -> bool:
    """Whether a saga can turn back without knowing what became of this step."""
    return not planned.external or planned.undo is None or planned.undo.accepts_unknown


def _pivot_passed(plan: Plan, state: State) -> bool:
    """Whether the way back is closed: the pivot happened, or may have."""
    if plan.pivot is None:
        return False
    pivot = step_of(state, plan.steps[plan.pivot].name)
    return pivot.status is StepStatus.DONE or pivot.do.unknown


# --- Deciding --------------------------------------------------------------------------------------------------


class Draft:
    """A decision in the making: entries so far, and the state they lead to."""

    def __init__(self, plan: Plan, state: State) -> None:
        self.plan, self.before, self.state = plan, state, state
        self.entries: list[Entry] = []
        self.marks: list[Mark] = []
        self.delay: float | None = None
        self.wake = False

    def log(self, kind: Kind, step: str | None = None, *, attempt: int = 0, **facts: Any) -> None:
        entry = Entry(self.state.seq + 1, kind, step, attempt, Facts(**facts))
        self.entries.append(entry)
        self.state = evolve(self.state, entry)

    def answer(self, kind: Kind, a: Attempt, *, begun: int, unknown: bool = False, **facts: Any) -> None:
        """Log what became of a delivery; `begun` is how many begun bodies the entry accounts for."""
        track = track_of(step_of(self.state, a.step), a.direction)
        self.log(
            kind, a.step, attempt=track.attempts + begun, direction=a.direction, deliveries=begun,
            unknown=unknown, first_begun_at=a.first_begun_at, **facts,
        )  # fmt: skip

    def park(self, a: Attempt, reason: str, *, lost: int = 0, unknown: bool = False) -> None:
        self.answer(Kind.PARKED, a, begun=lost, unknown=unknown, reason=reason)

    def decision(self) -> Decision:
        self._advance()
        before, after = frontier(self.plan, self.before), rows(self.plan, self.state, delay=self.delay)
        marks = [
            Mark(row.step, "closed")
            for row in after
            if row.direction is Direction.UNDO
            and Work(row.step, row.direction) not in before
            and self.plan.by_name[row.step].external
        ]
        latest = {mark.step: mark for mark in (*self.marks, *marks)}  # "closed" says more than "started"
        return Decision(self.state, tuple(self.entries), after, self.wake, tuple(latest.values()))

    def _advance(self) -> None:
        """Write the entries that follow by themselves, until the saga has work, is parked or has ended."""
        while self.state.status in DIRECTION and not frontier(self.plan, self.state):
            if self.state.status is Status.RUNNING:
                self.log(Kind.COMPLETED)
            elif self.state.status is Status.COMPENSATING and frontier(
                self.plan, replace(self.state, status=Status.SETTLING)
            ):
                self.log(Kind.SETTLING)
            else:
                self.log(Kind.CANCELLED if self.state.cancel_requested else Kind.COMPENSATED)


def decide(plan: Plan, state: State | None, event: Event) -> Decision:
    """Answer one event.

    Args:
        plan: the definition the saga was started with.
        state: the saga as it stands; None for `Start`.
        event: what happened.

    Returns:
        The decision; one without entries when the event changes nothing. Its rows take the place of
        the row an answer was about; a request adds rows only to a saga that had none.

    Raises:
        ValueError: `Start` for a saga that exists, or another event for one that does not.
    """
    if state is None or isinstance(event, Start):
        if state is not None or not isinstance(event, Start):
            raise ValueError(f"{type(event).__name__} does not fit a saga that {'exists' if state else 'is not there'}")
        return _begin(plan, event)
    transition = TABLE.get((state.status, type(event)))
    if transition is None or not _concerns(plan, state, event):
        return place(plan, state) if isinstance(event, Answer) else Decision(state)
    draft = Draft(plan, state)
    transition.rule(draft, event)
    decision = draft.decision()
    return decision if isinstance(event, Answer) or not frontier(plan, state) else replace(decision, rows=())


def answers(status: Status, event: type[Event]) -> bool:
    """Whether such an event can change anything in a saga of this status."""
    return (status, event) in TABLE


def place(plan: Plan, state: State) -> Decision:
    """Change nothing, and put a row that is out of place where the saga's work is."""
    return Decision(state, rows=rows(plan, state))


def _begin(plan: Plan, event: Start) -> Decision:
    draft = Draft(plan, State(Status.RUNNING, -1))
    draft.log(Kind.STARTED, saga=event.saga)
    return draft.decision()


def _concerns(plan: Plan, state: State, event: Event) -> bool:
    """Whether an answer is about the work that is next (requests concern every saga that is not finished)."""
    attempt: Attempt | None = getattr(event, "attempt", None)
    return attempt is None or Work(attempt.step, attempt.direction) in frontier(plan, state)


# --- The rules: going forward ----------------------------------------------------------------------------------


def _do_succeeded(d: Draft, e: Succeeded) -> None:
    begun = e.attempt.deliveries if e.source is Source.BODY else e.attempt.lost
    d.answer(Kind.STEP_DONE, e.attempt, begun=begun, source=e.source, result=e.result)
    if d.state.cancel_requested and not _pivot_passed(d.plan, d.state):
        d.log(Kind.COMPENSATING, reason="cancel")


def _do_unstorable(d: Draft, e: Unstorable) -> None:
    d.answer(Kind.STEP_FAILED, e.attempt, begun=e.attempt.deliveries, unknown=True, closed=True, error=e.error)
    d.park(e.attempt, f"happened, but its result cannot be stored: {e.error.message}")


def _do_refused(d: Draft, e: Refused) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if e.partly or ever_unknown(planned.external, step_of(d.state, a.step).do, a):
        d.answer(
            Kind.STEP_FAILED, a, begun=a.deliveries, unknown=True, closed=True, refused=True, error=e.error
        )  # fmt: skip
        _ask_or_give_up(d, a)
    elif d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_NOT_DONE, a, begun=a.deliveries, refused=True, error=e.error)
        d.log(Kind.COMPENSATING, a.step, reason=f"refused: {e.error.message}")
    else:
        d.answer(Kind.STEP_FAILED, a, begun=a.deliveries, closed=True, error=e.error)
        d.park(a, f"refused after the pivot: {e.error.message}")


def _do_failed(d: Draft, e: Failed) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    track = step_of(d.state, a.step).do
    delay = planned.retry.delay(track.failures + 1, a.jitter)
    d.answer(
        Kind.STEP_FAILED, a, begun=a.deliveries, unknown=planned.external, closed=e.give_up, error=e.error,
        retry_in=delay,
    )  # fmt: skip
    if planned.external:
        d.marks.append(Mark(a.step, "started"))
    if _again(d, a):
        d.delay = delay
    elif planned.external:
        _ask_or_give_up(d, a, delay)
    elif d.plan.may_turn_back(a.step):
        _turn_back(d, a, f"failed: {e.error.message}")
    else:
        d.park(a, f"failed after the pivot: {e.error.message}")


def _do_not_done(d: Draft, e: NotDone) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if planned.pivot or not d.plan.may_turn_back(a.step):
        d.park(a, "resolve says it did not happen, and no further attempt may begin", lost=a.lost, unknown=True)
    else:
        _turn_back(d, a, "resolve says it did not happen, and no further attempt may begin")


def _do_undecided(d: Draft, e: Undecided) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    delay = planned.retry.delay(step_of(d.state, a.step).do.asked + 1, a.jitter)
    d.answer(Kind.STEP_UNDECIDED, a, begun=a.lost, unknown=True, error=e.error, retry_in=delay)
    if _again(d, a):
        d.delay = delay
    else:
        _ask_or_give_up(d, a, delay)


def _do_lost(d: Draft, e: Lost) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if planned.external:
        _give_up(d, a, crashed=e.crashed)
    else:
        d.park(a, f"{a.lost} workers died over it", lost=a.lost)


def _do_withdrawn(d: Draft, e: Withdrawn) -> None:
    d.log(Kind.COMPENSATING, e.attempt.step, reason="cancel")


def _turn_back(d: Draft, a: Attempt, reason: str) -> None:
    d.answer(Kind.STEP_NOT_DONE, a, begun=_uncounted(d, a), unknown=step_of(d.state, a.step).do.unknown or _doubt(d, a))
    if step_of(d.state, a.step).unsettled:  # a late answer has to reopen it, also where no compensation is called
        d.marks.append(Mark(a.step, "closed"))
    d.log(Kind.COMPENSATING, a.step, reason=reason)


def _doubt(d: Draft, a: Attempt) -> bool:
    return d.plan.by_name[a.step].external and a.lost > 0


def _uncounted(d: Draft, a: Attempt) -> int:
    """Begun bodies that no entry of this decision has accounted for yet."""
    return 0 if d.entries else a.lost


def _again(d: Draft, a: Attempt) -> bool:
    """Whether the body may begin once more."""
    planned, track = d.plan.by_name[a.step], step_of(d.state, a.step).do
    fresh = replace(a, deliveries=1)  # earlier deliveries are in the track by now
    turning = stopping(d.plan, d.state, a.step) and may_leave_unknown(planned)
    return may_begin(planned, planned.retry.max_attempts, track, fresh) and not turning


def _ask_or_give_up(d: Draft, a: Attempt, delay: float = 0.0) -> None:
    planned, track = d.plan.by_name[a.step], step_of(d.state, a.step).do
    if planned.has_resolve and track.asked < planned.retry.max_attempts:
        d.delay = delay
    else:
        _give_up(d, a)


def _give_up(d: Draft, a: Attempt, *, crashed: bool = False) -> None:
    """An unknown outcome stays unknown: undo as unknown where that is allowed, else park."""
    planned, step = d.plan.by_name[a.step], step_of(d.state, a.step)
    turning = step.do.refused or stopping(d.plan, d.state, a.step)
    compensate = turning or (planned.on_unknown is OnUnknown.COMPENSATE and not crashed)
    lost = _uncounted(d, a)
    if compensate and may_leave_unknown(planned) and not planned.pivot and d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_UNKNOWN, a, begun=lost, unknown=True)
        d.log(Kind.COMPENSATING, a.step, reason="outcome unknown")
    elif crashed:
        d.park(a, f"{a.lost} workers died over it; its outcome is unknown", lost=lost, unknown=True)
    else:
        d.park(a, "its outcome is unknown, and no further attempt may begin", lost=lost, unknown=True)


# --- The rules: undoing and settling ---------------------------------------------------------------------------


def _back_succeeded(d: Draft, e: Succeeded) -> None:
    begun = e.attempt.deliveries if e.source is Source.BODY else e.attempt.lost
    d.answer(_BACK[e.attempt.direction].done, e.attempt, begun=begun, source=e.source)


def _back_failed(d: Draft, e: Failed | Refused) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    undo = undo_of(planned)
    track = track_of(step_of(d.state, a.step), a.direction)
    delay = undo.retry.delay(track.failures + 1, a.jitter)
    closed = isinstance(e, Refused) or e.give_up
    d.answer(
        _BACK[a.direction].failed, a, begun=a.deliveries,
        unknown=undo.external and (isinstance(e, Failed) or a.lost > 0), closed=closed, error=e.error, retry_in=delay,
    )  # fmt: skip
    track = track_of(step_of(d.state, a.step), a.direction)
    if may_begin(planned, undo.retry.max_attempts, track, replace(a, deliveries=1)):
        d.delay = delay
    elif a.direction is Direction.UNDO and undo.has_resolve and isinstance(e, Failed):
        d.delay = delay  # ask whether it happened after all
    else:
        d.park(a, f"compensation failed: {e.error.message}")


def _back_undecided(d: Draft, e: Undecided) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    retry = planned.retry if a.direction is Direction.SETTLE else undo_of(planned).retry
    delay = retry.delay(track_of(step_of(d.state, a.step), a.direction).asked + 1, a.jitter)
    unknown = a.lost > 0
    d.answer(_BACK[a.direction].undecided, a, begun=a.lost, unknown=unknown, error=e.error, retry_in=delay)
    track = track_of(step_of(d.state, a.step), a.direction)
    again = may_begin(planned, undo_of(planned).retry.max_attempts, track, replace(a, deliveries=1))
    if track.asked < retry.max_attempts or (a.direction is Direction.UNDO and again):
        d.delay = delay
    else:
        d.park(a, "resolve could not say what became of it")


def _back_lost(d: Draft, e: Lost | NotDone) -> None:
    a = e.attempt
    crashed = isinstance(e, Lost) and e.crashed
    reason = f"{a.lost} workers died over it" if crashed else "no further attempt of the compensation may begin"
    d.park(a, reason, lost=a.lost, unknown=a.lost > 0)


def _settle_unstorable(d: Draft, e: Unstorable) -> None:
    d.park(e.attempt, f"happened, but its result cannot be stored: {e.error.message}", lost=e.attempt.lost)


def _settle_not_done(d: Draft, e: NotDone) -> None:
    d.answer(Kind.SETTLE_DONE, e.attempt, begun=e.attempt.lost, source=Source.RESOLVE)


class _Kinds(NamedTuple):
    done: Kind
    failed: Kind
    undecided: Kind


_BACK: Final = {
    Direction.UNDO: _Kinds(Kind.UNDO_DONE, Kind.UNDO_FAILED, Kind.UNDO_UNDECIDED),
    Direction.SETTLE: _Kinds(Kind.SETTLE_DONE, Kind.SETTLE_FAILED, Kind.SETTLE_UNDECIDED),
}


# --- The rules: requests from outside --------------------------------------------------------------------------


def _cancel(d: Draft, e: Cancel) -> None:
    late = _pivot_passed(d.plan, d.state)
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=late)
    d.wake = not late


def _cancel_late(d: Draft, e: Cancel) -> None:
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=True)


def _cancel_parked(d: Draft, e: Cancel) -> None:
    late = d.state.parked_from is not Status.RUNNING or _pivot_passed(d.plan, d.state)
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=late)
    if not late:  # on the way back, to learn what the step did: its body may not begin again for that
        _resume(d, actor=e.actor, reason=e.reason, closed=True)


def _retry_now(d: Draft, e: RetryNow) -> None:
    d.log(Kind.RETRIED, actor=e.actor, reason=e.reason, ignored=True)
    d.wake = d.state.status is not Status.SETTLING  # a late request has until `settle_after`


def _retry_parked(d: Draft, e: RetryNow) -> None:
    _resume(d, actor=e.actor, reason=e.reason)


def _resume(d: Draft, *, actor: str, reason: str, closed: bool = False) -> None:
    work = frontier(d.plan, replace(d.state, status=d.state.parked_from))
    d.log(Kind.RETRIED, work[0].step, direction=work[0].direction, actor=actor, reason=reason, closed=closed)
    d.delay = 0.0


def _abort(d: Draft, e: Abort) -> None:
    d.log(Kind.ABORTED, actor=e.actor, reason=e.reason)


def _late_answer(d: Draft, e: LateAnswer) -> None:
    """What was undone, or is about to be, happened after all: look at it once more in the end."""
    planned = d.plan.by_name.get(e.step)
    if planned is not None and planned.external and planned.undo and step_of(d.state, e.step).do.attempts:
        looking = Work(e.step, Direction.SETTLE) in frontier(d.plan, d.state)  # maybe without knowing of this answer
        d.log(Kind.LATE_ANSWER, e.step, direction=Direction.SETTLE if looking else None)


def _late_answer_reopens(d: Draft, e: LateAnswer) -> None:
    """The only way out of a finished state."""
    if e.step in d.state.steps and _can_settle(d.plan, d.state, e.step):
        _late_answer(d, e)
    if d.entries:
        d.log(Kind.SETTLING, e.step)
        d.delay = 0.0


def _rebuild(d: Draft, e: Rebuild) -> None:
    for work in frontier(d.plan, d.state):
        planned, track = d.plan.by_name[work.step], track_of(step_of(d.state, work.step), work.direction)
        external = planned.external if work.direction is Direction.DO else undo_of(planned).external
        d.log(
            Kind.REBUILT, work.step, direction=work.direction, unknown=external, first_begun_at=track.first_begun_at
        )  # fmt: skip


# --- The transition table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transition:
    """What one event does in one status: the rule, and every status it may lead to."""

    rule: Callable[[Draft, Any], None]
    leads_to: frozenset[Status]


def _to(rule: Callable[[Draft, Any], None], *leads_to: Status) -> Transition:
    return Transition(rule, frozenset(leads_to))


_R, _C, _S, _P = Status.RUNNING, Status.COMPENSATING, Status.SETTLING, Status.PARKED
_DONE, _BACK_ENDS = Status.COMPLETED, (Status.COMPENSATED, Status.CANCELLED)

TABLE: Final[dict[tuple[Status, type[Event]], Transition]] = {
    (_R, Succeeded): _to(_do_succeeded, _R, _C, _DONE, Status.CANCELLED),
    (_R, Unstorable): _to(_do_unstorable, _P),
    (_R, Refused): _to(_do_refused, _R, _C, _P, *_BACK_ENDS),
    (_R, Failed): _to(_do_failed, _R, _C, _P, *_BACK_ENDS),
    (_R, NotDone): _to(_do_not_done, _C, _S, _P, *_BACK_ENDS),
    (_R, Undecided): _to(_do_undecided, _R, _C, _P, *_BACK_ENDS),
    (_R, Lost): _to(_do_lost, _C, _P, *_BACK_ENDS),
    (_R, Withdrawn): _to(_do_withdrawn, _C, Status.CANCELLED),
    (_R, Cancel): _to(_cancel, _R),
    (_R, RetryNow): _to(_retry_now, _R),
    (_C, Succeeded): _to(_back_succeeded, _C, _S, *_BACK_ENDS),
    (_C, Refused): _to(_back_failed, _P),
    (_C, Failed): _to(_back_failed, _C, _P),
    (_C, NotDone): _to(_back_lost, _P),
    (_C, Undecided): _to(_back_undecided, _C, _P),
    (_C, Lost): _to(_back_lost, _P),
    (_C, Cancel): _to(_cancel_late, _C),
    (_C, RetryNow): _to(_retry_now, _C),
    (_S, Succeeded): _to(_back_succeeded, _S, *_BACK_ENDS),
    (_S, Unstorable): _to(_settle_unstorable, _P),
    (_S, Refused): _to(_back_failed, _P),
    (_S, Failed): _to(_back_failed, _S, _P),
    (_S, NotDone): _to(_settle_not_done, _S, *_BACK_ENDS),
    (_S, Undecided): _to(_back_undecided, _S, _P),
    (_S, Lost): _to(_back_lost, _P),
    (_S, Cancel): _to(_cancel_late, _S),
    (_S, RetryNow): _to(_retry_now, _S),
    (_P, Cancel): _to(_cancel_parked, _P, _R),
    (_P, RetryNow): _to(_retry_parked, _R, _C, _S),
    (_P, Abort): _to(_abort, Status.ABORTED),
    (_C, LateAnswer): _to(_late_answer, _C),
    (_S, LateAnswer): _to(_late_answer, _S),
    (_P, LateAnswer): _to(_late_answer, _P),
    (Status.COMPENSATED, LateAnswer): _to(_late_answer_reopens, _S),
    (Status.CANCELLED, LateAnswer): _to(_late_answer_reopens, _S),
    (_R, Rebuild): _to(_rebuild, _R),
    (_C, Rebuild): _to(_rebuild, _C),
    (_S, Rebuild): _to(_rebuild, _S),
}
