"""The rules: going forward."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sagas.events import (
    Attempt,
    Blocked,
    Chosen,
    Direction,
    ErrorText,
    Failed,
    Kind,
    Lost,
    Mark,
    NotDone,
    Refused,
    Skipped,
    Source,
    Succeeded,
    TimedOut,
    Undecided,
    Unstorable,
    Waits,
    Withdrawn,
)
from sagas.machine import look
from sagas.machine.draft import Draft
from sagas.plan import OnTimeout, OnUnknown
from sagas.states import StepStatus, Track

SOONEST: Final = 0.2  # seconds between two looks at a semantic lock that another saga holds; longer and longer
LATEST: Final = 15.0
BEING_TAKEN: Final = 10.0  # seconds that another saga may take to take one, also for a step that does not wait


def do_succeeded(d: Draft, e: Succeeded) -> None:
    begun = e.attempt.deliveries if e.source is Source.BODY else e.attempt.lost
    d.answer(Kind.STEP_DONE, e.attempt, begun=begun, source=e.source, result=e.result)
    d.next = e.next
    d.turn_back_if_asked(e.attempt)


def done_after_abort(d: Draft, e: Succeeded) -> None:
    """It was under way when somebody closed the saga: what it did is in the log all the same."""
    a, status = e.attempt, look.step_of(d.state, e.attempt.step).status
    begun = a.deliveries if e.source is Source.BODY else a.lost
    if a.direction is Direction.DO and status in (StepStatus.PENDING, StepStatus.WAITING):
        d.answer(Kind.STEP_DONE, a, begun=begun, source=e.source, result=e.result)
    elif a.direction is Direction.UNDO and status is not StepStatus.UNDONE:
        d.answer(Kind.UNDO_DONE, a, begun=begun, source=e.source)


def do_unstorable(d: Draft, e: Unstorable) -> None:
    d.answer(Kind.STEP_FAILED, e.attempt, begun=e.attempt.deliveries, unknown=True, closed=True, error=e.error)
    d.park(e.attempt, f"happened, but its result cannot be stored: {e.error.message}")


def do_refused(d: Draft, e: Refused) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if e.partly or look.ever_unknown(planned.external, look.step_of(d.state, a.step).do, a):
        d.answer(
            Kind.STEP_FAILED, a, begun=a.deliveries, unknown=True, closed=True, refused=True, error=e.error
        )  # fmt: skip
        _ask_or_give_up(d, a)
    elif d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_NOT_DONE, a, begun=a.deliveries, refused=True, error=e.error)
        d.turn_back(a.step, f"refused: {e.error.message}")
    else:
        d.answer(Kind.STEP_FAILED, a, begun=a.deliveries, closed=True, error=e.error)
        d.park(a, f"refused after the pivot: {e.error.message}")


def do_failed(d: Draft, e: Failed) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if e.misfit:
        d.park_misfit(e)
        return
    step = look.step_of(d.state, a.step)
    began = e.began or step.do.doubted  # in a history that was lost, perhaps
    if not began:  # its key was not used yet, so that the time for which it is known has not begun
        a = replace(a, first_begun_at=None)
    in_doubt = planned.external and began
    delay = planned.retry.delay(step.do.failures + 1, a.jitter)
    d.answer(Kind.STEP_FAILED, a, begun=a.deliveries, unknown=in_doubt, closed=e.give_up, error=e.error)
    if in_doubt:
        d.marks.append(Mark(a.step, "started", step.generation))
    if _again(d, a):
        d.again(delay)
    elif in_doubt:
        _ask_or_give_up(d, a, delay)
    elif d.plan.may_turn_back(a.step):
        _turn_back(d, a, f"failed: {e.error.message}")
    else:
        d.park(a, f"failed after the pivot: {e.error.message}")


def do_not_done(d: Draft, e: NotDone) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    stays = planned.pivot and (_doubt(d, a) or not look.stopping(d.plan, d.state, a.step, a.now))
    if stays or not d.plan.may_turn_back(a.step):
        d.park(a, "resolve says it did not happen, and no further attempt may begin", lost=a.lost, unknown=True)
    else:
        _turn_back(d, a, "resolve says it did not happen, and no further attempt may begin")


def do_undecided(d: Draft, e: Undecided) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    delay = planned.retry.delay(look.step_of(d.state, a.step).do.asked + 1, a.jitter)
    d.answer(Kind.STEP_UNDECIDED, a, begun=a.lost, unknown=_doubt(d, a), error=e.error)
    if _again(d, a):
        d.again(delay)
    else:
        _ask_or_give_up(d, a, delay)


def do_lost(d: Draft, e: Lost) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    step = look.step_of(d.state, a.step)
    if planned.external and (step.do.doubted or not look.undecided_condition(planned, step)):
        _give_up(d, a, crashed=e.crashed)
    else:
        d.park(a, f"{a.lost} workers died over it", lost=a.lost)


def do_withdrawn(d: Draft, e: Withdrawn) -> None:
    if look.alone(d.plan, d.state):
        d.turn_back(e.attempt.step, look.why_stopping(d.state))
    else:  # the others have to know that this one is out of the way
        d.answer(Kind.STEP_NOT_DONE, e.attempt, begun=e.attempt.lost)
        d.turn_back(e.attempt.step, look.why_stopping(d.state))


def do_waits(d: Draft, e: Waits) -> None:
    d.log(Kind.WAITING, e.attempt.step, until=e.until)


def do_timed_out(d: Draft, e: TimedOut) -> None:
    a, wait = e.attempt, d.plan.by_name[e.attempt.step].wait
    assert wait is not None
    arrived = look.step_of(d.state, a.step).signals
    if look.stopping(d.plan, d.state, a.step, a.now):  # a cancel came while the end of the wait was being noticed
        do_withdrawn(d, Withdrawn(a))
    elif arrived and wait.signal:  # while a step beside it was parked, and nothing was taken
        d.log(Kind.STEP_DONE, a.step, direction=Direction.DO, source=Source.SIGNAL, ref=arrived[0])
    elif wait.on_timeout is OnTimeout.SKIP:
        d.log(Kind.STEP_SKIPPED, a.step, reason="no signal came in time")
    elif wait.on_timeout is OnTimeout.COMPENSATE and d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_NOT_DONE, a, begun=0)
        d.turn_back(a.step, "no signal came in time")
    else:
        d.park(a, "no signal came in time")


def do_chosen(d: Draft, e: Chosen) -> None:
    d.log(Kind.STEP_CHOSEN, e.attempt.step)


def do_skipped(d: Draft, e: Skipped) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    track = look.step_of(d.state, a.step).do
    if track.doubted and not (planned.has_resolve and look.may_ask(planned.retry, track, a)):
        _give_up(d, a)  # there its condition may have been true, and nobody has said that it did not happen
    elif look.stopping(d.plan, d.state, a.step, a.now):
        do_withdrawn(d, Withdrawn(a))
    else:
        d.log(Kind.STEP_SKIPPED, a.step, reason=e.reason)


def do_blocked(d: Draft, e: Blocked) -> None:
    """Wait for the lock, without holding anything up; refuse when that has taken long enough."""
    a, step = e.attempt, look.step_of(d.state, e.attempt.step)
    limit = e.wait if e.held else max(e.wait, BEING_TAKEN)
    until = a.now + limit if step.blocked is None else step.blocked
    if a.now >= until or (e.held and not e.wait):
        do_refused(d, Refused(a, ErrorText("LockHeld", e.reason)))
        return
    if step.blocked is None or a.lost:
        if not a.lost:  # its key was not used
            a = replace(a, first_begun_at=step.do.first_begun_at)
        d.answer(Kind.STEP_BLOCKED, a, begun=a.lost, unknown=_doubt(d, a), reason=e.reason, until=until)
    in_doubt = look.ever_unknown(d.plan.by_name[a.step].external, look.step_of(d.state, a.step).do, a)
    if in_doubt or not look.stopping(d.plan, d.state, a.step, a.now):  # else the row is due: the step is withdrawn
        waited = max(0.0, limit - (until - a.now))
        backoff = min(max(SOONEST, waited / 4), LATEST) * (1 + a.jitter) / 2
        d.delay = min(backoff, until - a.now)


def _turn_back(d: Draft, a: Attempt, reason: str) -> None:
    d.answer(
        Kind.STEP_NOT_DONE,
        a,
        begun=_uncounted(d, a),
        unknown=not d.plan.by_name[a.step].pivot and (_ever_in_doubt(look.step_of(d.state, a.step).do) or _doubt(d, a)),
    )
    if look.step_of(d.state, a.step).unsettled:  # a late answer has to reopen it, also where no compensation is called
        d.marks.append(Mark(a.step, "closed", look.step_of(d.state, a.step).generation))
    d.turn_back(a.step, reason)


def _ever_in_doubt(track: Track) -> bool:
    return track.unknown or track.doubted


def _doubt(d: Draft, a: Attempt) -> bool:
    return d.plan.by_name[a.step].external and _uncounted(d, a) > 0


def _uncounted(d: Draft, a: Attempt) -> int:
    """Begun bodies that no entry of this decision has accounted for yet."""
    return 0 if d.entries else a.lost


def _again(d: Draft, a: Attempt) -> bool:
    """Whether the body may begin once more."""
    planned, track = d.plan.by_name[a.step], look.step_of(d.state, a.step).do
    fresh = replace(a, deliveries=1)  # earlier deliveries are in the track by now
    turning = look.stopping(d.plan, d.state, a.step, a.now) and look.may_leave_unknown(planned)
    turning = turning or look.only_asked(d.state, a.step)
    return look.may_begin(planned, planned.retry.max_attempts, track, fresh) and not turning


def _ask_or_give_up(d: Draft, a: Attempt, delay: float = 0.0) -> None:
    planned, track = d.plan.by_name[a.step], look.step_of(d.state, a.step).do
    if planned.has_resolve and track.asked < planned.retry.max_attempts:
        d.again(delay)
    else:
        _give_up(d, a)


def _give_up(d: Draft, a: Attempt, *, crashed: bool = False) -> None:
    """An unknown outcome stays unknown: undo as unknown where that is allowed, else park."""
    planned, step = d.plan.by_name[a.step], look.step_of(d.state, a.step)
    turning = step.do.refused or look.stopping(d.plan, d.state, a.step, a.now)
    compensate = turning or (planned.on_unknown is OnUnknown.COMPENSATE and not crashed)
    lost = _uncounted(d, a)
    if compensate and look.may_leave_unknown(planned) and not planned.pivot and d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_UNKNOWN, a, begun=lost, unknown=True)
        d.turn_back(a.step, "outcome unknown")
    elif crashed:
        d.park(a, f"{a.lost} workers died over it; its outcome is unknown", lost=lost, unknown=True)
    else:
        d.park(a, "its outcome is unknown, and no further attempt may begin", lost=lost, unknown=True)
