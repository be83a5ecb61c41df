"""The rules: steps that start other sagas, and wait for their end.

A child is a saga like any other. What its parent does about it - start it, ask it to turn back, undo what it has
completed - happens in the commit that records why (`Decision.calls`). The other way round a child's end is a row for
its parent, inserted by the commit that recorded the end; whoever begins that row looks how all children of the step
stand. So nothing is ever told of one child only, and what is told late says the same again.
"""

from __future__ import annotations

from typing import Final

from sagas.events import (
    Attempt,
    Begot,
    Call,
    Children,
    Direction,
    ErrorText,
    Kind,
    Looks,
    Recalled,
    Source,
    UndoCompleted,
    Withdrawn,
    Work,
)
from sagas.machine import look
from sagas.machine.draft import Draft
from sagas.machine.forward import do_withdrawn
from sagas.plan import StepPlan
from sagas.states import State, Status, StepState, StepStatus

ASKS: Final = {Direction.DO: "cancel", Direction.UNDO: "undo"}  # of children whose step turns back


def do_begot(d: Draft, e: Begot) -> None:
    """Start the first of them; if there are more, or if some may be there from an earlier round, look at once. None,
    where a cancel came while it was found out what they are given, or a pause: then it is found out again."""
    a, step = e.attempt, look.step_of(d.state, e.attempt.step)
    if look.stopping(d.plan, d.state, a.step, a.now):
        do_withdrawn(d, Withdrawn(a))
        return
    if d.state.paused:
        return
    if not e.total:
        d.answer(Kind.STEP_DONE, a, begun=0, source=Source.CHILDREN, result=e.items)
        d.turn_back_if_asked(a)
        return
    again = step.do.attempts > 0
    d.log(Kind.CHILDREN_STARTED, a.step, direction=Direction.DO, count=e.count, total=e.total, result=e.items)
    d.calls.append(Call("start", a.step, step.generation, e.request))
    if again or e.count < e.total:
        d.calls.append(Call("look", a.step, step.generation))


def recalled(d: Draft, e: Recalled) -> None:
    """The saga turns back, and with it its children: those under way, or those that have completed."""
    _recall(d, e.attempt.step, e.attempt.direction, d.state.error or look.why_stopping(d.state))


def looks(d: Draft, e: Looks) -> None:
    """What they were asked is asked again, for it may have been lost with the rows of the outbox."""
    step = look.step_of(d.state, e.attempt.step)
    if step.recalled:
        d.calls.append(Call(ASKS[e.attempt.direction], e.attempt.step, step.generation))
    d.calls.append(Call("look", e.attempt.step, step.generation))


def seen(d: Draft, e: Children) -> None:
    """Somebody has looked at the children of a step."""
    planned, step = d.plan.by_name.get(e.step), look.step_of(d.state, e.step)
    if planned is None or planned.children is None or e.generation != step.generation or step.parked:
        return
    if d.state.status is Status.COMPENSATING:
        _seen_undoing(d, e, step)
    elif (e.round, e.started) != (step.do.attempts, step.started):
        d.calls.append(Call("look", e.step, step.generation))
    elif step.status is StepStatus.WAITING and step.started and look.goes_forward(d.state):
        _seen_waiting(d, e, planned, step)


def undo_completed(d: Draft, e: UndoCompleted) -> None:
    """A child that had completed is undone like one that is cancelled."""
    d.log(Kind.CANCEL_REQUESTED, actor=e.actor, reason=e.reason)
    d.log(Kind.COMPENSATING, reason=e.reason)


def _seen_waiting(d: Draft, e: Children, planned: StepPlan, step: StepState) -> None:
    assert planned.children is not None
    tolerated, stop = planned.children.tolerated, look.stopping(d.plan, d.state, e.step, e.now)
    failed = tolerated is not None and e.undone + e.aborted > tolerated
    more = step.started < step.total
    if not e.open and (failed or stop or not more):
        _ended(d, e, planned, stop=stop, complete=not failed and not more)
    elif failed and not step.recalled and d.plan.may_turn_back(e.step):
        _recall(d, e.step, Direction.DO, e.reason)
    elif more and e.count and not failed and not stop and not d.state.paused and _goes_on(d.state):
        d.log(Kind.CHILDREN_STARTED, e.step, direction=Direction.DO, count=e.count, total=step.total)
        d.calls.append(Call("start", e.step, step.generation, e.request))
        if step.do.attempts or e.count < step.total - step.started:
            d.calls.append(Call("look", e.step, step.generation))


def _gone(e: Children, step: StepState) -> str:
    """Says that children are missing: nobody knows what is left of what they did."""
    gone = step.started - e.open - e.completed - e.undone - e.aborted
    return f"{gone} of its children are not in the database any more" if gone > 0 else ""


def _goes_on(state: State) -> bool:
    """Where another step has parked, this one begins no more of its children."""
    return state.status is Status.RUNNING


def _ended(d: Draft, e: Children, planned: StepPlan, *, stop: bool, complete: bool) -> None:
    """None of them is open any more."""
    a = Attempt(step=e.step, direction=Direction.DO, now=e.now, jitter=e.jitter)
    if missing := _gone(e, look.step_of(d.state, e.step)):
        d.park(a, f"{missing}; see to what they have done, then say what came of the step", source=Source.CHILDREN)
    elif complete and e.problem and not (stop and _children_can_be_undone(planned)):
        # it keeps its children: who retries has them looked at again, who cancels has them undone
        d.park(a, e.problem, source=Source.CHILDREN)
    elif complete and not e.problem:
        d.log(Kind.STEP_DONE, e.step, direction=Direction.DO, source=Source.CHILDREN, result=e.result)
        d.turn_back_if_asked(a)
    elif e.completed and d.plan.may_turn_back(e.step) and planned.undo and planned.undo.children:
        _undo_the_completed(d, e)  # first what came of the others; their end is told like any
    elif e.aborted:  # nobody knows what is left of what it did
        anew = "cancel this saga, or retry it, which starts what did not complete anew"
        then = "see to what it has done, then retry this saga, which turns back" if stop else anew
        d.park(a, f"{e.reason}; {then}", lost=1, source=Source.CHILDREN)
    elif stop:
        d.log(Kind.STEP_NOT_DONE, e.step, direction=Direction.DO, reason=e.reason)
        d.turn_back(e.step, look.why_stopping(d.state), failed=False)
    else:
        _failed(d, a, planned, e.reason)


def _children_can_be_undone(planned: StepPlan) -> bool:
    """Whether the saga may turn back though they have completed: no compensation needs their result for that."""
    return not planned.pivot and (planned.undo is None or planned.undo.children)


def _undo_the_completed(d: Draft, e: Children) -> None:
    step = look.step_of(d.state, e.step)
    if not step.recalled:
        d.log(Kind.CHILDREN_RECALLED, e.step, direction=Direction.DO, reason=e.reason)
    d.calls.append(Call("undo", e.step, step.generation))


def _failed(d: Draft, a: Attempt, planned: StepPlan, reason: str) -> None:
    """Children have come to nothing: begin them anew, where that was asked for, or after the pivot; else turn back."""
    track = look.step_of(d.state, a.step).do
    if track.attempts + 1 - track.budget < planned.retry.max_attempts:
        delay = planned.retry.delay(track.failures + 1, a.jitter)
        d.answer(
            Kind.STEP_FAILED, a, begun=1, error=ErrorText("ChildFailed", reason), retry_in=delay, until=a.now + delay
        )  # fmt: skip
        d.wake = True  # its row sleeps until the children end; now it is to sleep until then
    elif d.plan.may_turn_back(a.step):
        d.answer(Kind.STEP_NOT_DONE, a, begun=1, error=ErrorText("ChildFailed", reason))
        d.turn_back(a.step, reason)
    else:
        d.park(a, f"after the pivot: {reason}", lost=1, source=Source.CHILDREN)


def _seen_undoing(d: Draft, e: Children, step: StepState) -> None:
    work = Work(e.step, Direction.UNDO)
    if not step.recalled or work not in look.frontier(d.plan, d.state) or e.open or e.completed:
        return
    why = e.reason if e.aborted else _gone(e, step)
    if why and not step.undo.budget:  # what is left of it nobody knows; who retries says that it is in order
        a = Attempt(step=e.step, direction=Direction.UNDO, now=e.now)
        d.park(a, f"{why}; see to what it has done, then retry this saga, which takes it for undone", lost=1)
    else:
        d.log(Kind.UNDO_DONE, e.step, direction=Direction.UNDO, source=Source.CHILDREN)


def _recall(d: Draft, name: str, direction: Direction, reason: str) -> None:
    step = look.step_of(d.state, name)
    d.log(Kind.CHILDREN_RECALLED, name, direction=direction, reason=reason)
    d.calls.append(Call(ASKS[direction], name, step.generation))
    d.calls.append(Call("look", name, step.generation))  # perhaps none of them is left to tell us
