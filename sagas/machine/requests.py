"""The rules: requests from outside."""

from __future__ import annotations

from sagas.events import (
    Abort,
    Cancel,
    Direction,
    Doubt,
    Kind,
    LateAnswer,
    Mark,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    Pause,
    Rebuild,
    Redo,
    Resolution,
    Resume,
    RetryNow,
    Signal,
    SkipStep,
    Source,
    Work,
)
from sagas.fold import track_of
from sagas.machine import look
from sagas.machine.draft import Draft
from sagas.states import Status


def cancel(d: Draft, e: Cancel) -> None:
    late = look.pivot_passed(d.plan, d.state)
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=late)
    d.wake = not late


def cancel_late(d: Draft, e: Cancel) -> None:
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=True)


def cancel_parked(d: Draft, e: Cancel) -> None:
    late = d.state.parked_from is not Status.RUNNING or look.pivot_passed(d.plan, d.state)
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason, ignored=late)
    if not late:  # on the way back, to learn what the step did: its body may not begin again for that
        d.wake = True  # others that wait beside it
        _resume(d, actor=e.actor, reason=e.reason, closed=True)


def retry_now(d: Draft, e: RetryNow) -> None:
    for work in look.frontier(d.plan, d.state):
        if look.between_children(look.step_of(d.state, work.step)):  # its row alone, due at once, would wait on
            d.log(Kind.RETRIED, work.step, direction=work.direction, actor=e.actor, reason=e.reason)
    if not d.entries:
        d.log(Kind.RETRIED, actor=e.actor, reason=e.reason, ignored=True)
    d.wake = d.state.status is not Status.SETTLING  # a late request has until `settle_after`


def retry_parked(d: Draft, e: RetryNow) -> None:
    _resume(d, actor=e.actor, reason=e.reason)


def _resume(d: Draft, *, actor: str, reason: str, closed: bool = False) -> None:
    """Go on with every step that parked; closed: without beginning its body again."""
    for work in look.parked_work(d.plan, d.state):
        d.log(Kind.RETRIED, work.step, direction=work.direction, actor=actor, reason=reason, closed=closed)
    d.delay = 0.0


def redo(d: Draft, e: Redo) -> None:
    """Forget what is known of the step, and of the steps after it that were skipped or are in doubt. What an attempt
    under the former key may still be doing is closed: its next effect is refused, its answer kept and not used. It does
    not count if the saga has moved on since it was looked at: an attempt since then may have done what was lost."""
    legal = look.may_redo(d.plan, d.state, e.step) and _as_seen(d, e)
    following = [each for each in d.plan.following(e.step) if each in d.state.steps] if legal else []
    again = (e.step, *following)
    for work in look.parked_work(d.plan, d.state) if legal else ():
        if work.step not in again:  # parked beside it: tried again, under its old key
            d.log(Kind.RETRIED, work.step, direction=work.direction, actor=e.actor, reason=e.reason)
    for name in again:
        if legal and d.plan.by_name[name].external:
            d.marks.append(Mark(name, "closed", look.step_of(d.state, name).generation))
        d.log(Kind.REDONE, name, actor=e.actor, reason=e.reason, ignored=not legal)


def redo_late(d: Draft, e: Redo) -> None:
    d.log(Kind.REDONE, e.step, actor=e.actor, reason=e.reason, ignored=True)


def mark_done(d: Draft, e: MarkDone) -> None:
    """The step counts as done, with the result that the operator gives."""
    if _resolved(d, e, look.may_mark_done(d.plan, d.state, e.step)):
        d.log(Kind.STEP_DONE, e.step, direction=Direction.DO, source=Source.OPERATOR, result=e.result)
        _turn_back_if_asked(d, e.step)


def mark_not_done(d: Draft, e: MarkNotDone) -> None:
    """As if `resolve` had said so for good: what was in doubt is looked at once more in the end."""
    legal = look.may_resolve(d.plan, d.state, e.step) and d.plan.may_turn_back(e.step)
    if _resolved(d, e, legal):
        d.log(Kind.STEP_NOT_DONE, e.step, direction=Direction.DO, source=Source.OPERATOR)
        d.turn_back(e.step, f"{e.step} did not happen, {e.actor or 'an operator'} says: {e.reason}")


def skip(d: Draft, e: SkipStep) -> None:
    """The saga goes on without the step, which is never undone."""
    if _resolved(d, e, look.may_skip(d.plan, d.state, e.step)):
        d.log(Kind.STEP_SKIPPED, e.step, source=Source.OPERATOR, reason=e.reason)
        _turn_back_if_asked(d, e.step)


def mark_undone(d: Draft, e: MarkUndone) -> None:
    """The compensation, or the last look, counts as done."""
    parked = {work.step: work.direction for work in look.parked_work(d.plan, d.state)}
    direction = parked.get(e.step, Direction.DO)
    if _resolved(d, e, look.may_resolve(d.plan, d.state, e.step, back=True)):
        kind = Kind.UNDO_DONE if direction is Direction.UNDO else Kind.SETTLE_DONE
        d.log(kind, e.step, direction=direction, source=Source.OPERATOR)


def resolve_late(d: Draft, e: Resolution) -> None:
    d.log(Kind.RESOLVED, e.step, actor=e.actor, reason=e.reason, ignored=True)


def _resolved(d: Draft, e: Resolution, legal: bool) -> bool:
    """Log whose word it is; one about a saga that has moved on since it was looked at does not count. Whoever may still
    be at work on the step is told by the guard that it is closed."""
    legal = legal and _as_seen(d, e)
    if legal and not isinstance(e, MarkUndone) and d.plan.by_name[e.step].external:
        d.marks.append(Mark(e.step, "closed", look.step_of(d.state, e.step).generation))
    d.log(Kind.RESOLVED, e.step, actor=e.actor, reason=e.reason, ignored=not legal)
    return legal


def _as_seen(d: Draft, e: Redo | Resolution) -> bool:
    return e.seen in (None, d.state.seq)


def _turn_back_if_asked(d: Draft, step: str) -> None:
    """A cancel that came meanwhile is granted; a deadline that has passed is seen by whoever begins what follows."""
    if d.state.cancel_requested and not look.pivot_passed(d.plan, d.state):
        d.turn_back(step, look.why_stopping(d.state), failed=False)


def pause(d: Draft, e: Pause) -> None:
    d.log(Kind.PAUSED, actor=e.actor, reason=e.reason)


def resume(d: Draft, e: Resume) -> None:
    was_paused = d.state.paused
    d.log(Kind.RESUMED, actor=e.actor, reason=e.reason)
    d.wake = was_paused and d.state.status is not Status.SETTLING  # a late request has until `settle_after`


def resume_parked(d: Draft, e: Resume) -> None:
    """The signal for whose lack it parked may have come while it was paused."""
    d.log(Kind.RESUMED, actor=e.actor, reason=e.reason)
    _go_on_with_signal(d, actor=e.actor, reason=e.reason)


def signal(d: Draft, e: Signal) -> None:
    """Keep it until its wait is reached; if that is now, the wait is over with this decision."""
    planned = d.plan.by_name.get(e.step)
    expected = planned is not None and planned.wait is not None and planned.wait.signal
    d.log(
        Kind.SIGNALLED, e.step, actor=e.actor, reason=e.reason,
        **({"result": e.value} if expected else {"ignored": True}),
    )  # fmt: skip


def signal_parked(d: Draft, e: Signal) -> None:
    """A saga that parked because this signal did not come goes on; any other keeps it for later."""
    if d.state.parked_from is not Status.RUNNING:  # it is on its way back: nothing will ever take it
        signal_late(d, e)
        return
    signal(d, e)
    _go_on_with_signal(d, actor=e.actor, reason=e.reason)


def _go_on_with_signal(d: Draft, *, actor: str, reason: str) -> None:
    if d.state.parked_from is Status.RUNNING and look.parked_for_signal(d.plan, d.state):
        _resume(d, actor=actor, reason=reason)


def signal_late(d: Draft, e: Signal) -> None:
    d.log(Kind.SIGNALLED, e.step, actor=e.actor, reason=e.reason, ignored=True)


def abort(d: Draft, e: Abort) -> None:
    d.log(Kind.ABORTED, actor=e.actor, reason=e.reason)


def late_answer(d: Draft, e: LateAnswer) -> None:
    """What was undone, or is about to be, happened after all: look at it once more in the end."""
    planned, track = d.plan.by_name.get(e.step), look.step_of(d.state, e.step).do
    if planned is not None and planned.external and planned.undo and (track.attempts or track.unknown):
        looking = Work(e.step, Direction.SETTLE) in look.frontier(
            d.plan, d.state
        )  # maybe without knowing of this answer
        d.log(Kind.LATE_ANSWER, e.step, direction=Direction.SETTLE if looking else None)


def late_answer_reopens(d: Draft, e: LateAnswer) -> None:
    """The only way out of a finished state."""
    if e.step in d.state.steps and look.can_settle(d.plan, d.state, e.step):
        late_answer(d, e)
    if d.entries:
        d.log(Kind.SETTLING, e.step)
        d.delay = 0.0


def rebuild(d: Draft, e: Rebuild) -> None:
    for work in look.frontier(d.plan, d.state):
        planned, track = d.plan.by_name[work.step], track_of(look.step_of(d.state, work.step), work.direction)
        if work.direction is Direction.DO:
            began = not look.undecided_condition(planned, look.step_of(d.state, work.step))
            external = planned.external and began
        else:
            external = look.undo_of(planned).external
        begun = e.first_begun_at if track.first_begun_at is None else track.first_begun_at
        d.log(Kind.REBUILT, work.step, direction=work.direction, unknown=external, first_begun_at=begun)


def doubt(d: Draft, e: Doubt) -> None:
    """What may have been done is asked about before it is done, in its turn, and counts as begun once."""
    for work in e.work or tuple(look.to_doubt(d.plan, d.state)):
        track = track_of(look.step_of(d.state, work.step), work.direction)
        known = [each for each in (track.first_begun_at, e.first_begun_at) if each is not None]
        d.log(
            Kind.DOUBTED, work.step, direction=work.direction, deliveries=0 if track.attempts else 1,
            first_begun_at=min(known, default=None), actor=e.actor, reason=e.reason,
        )  # fmt: skip
    if not d.entries:
        d.log(Kind.DOUBTED, actor=e.actor, reason=e.reason)
