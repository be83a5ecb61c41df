"""What must be true of any decision of the state machine, whatever it is about."""

from __future__ import annotations

import msgspec

from sagas import machine
from sagas.events import Answer, Decision, Event, Facts, Kind, Start, TimedOut, Work
from sagas.fold import evolve
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, StepState, StepStatus


def work_of(event: Answer) -> Work:
    """What an answer is about."""
    return Work(event.attempt.step, event.attempt.direction)


def check_decision(plan: Plan, before: State, event: Event, decision: Decision) -> None:
    """What must be true of any decision, whatever it is about."""
    state = before
    for entry in decision.entries:
        assert entry.seq == state.seq + 1, "entries are numbered without a gap"
        assert msgspec.json.decode(msgspec.json.encode(entry.data), type=Facts) == entry.data
        state = evolve(state, entry)
    assert state == decision.state, "state changes only through entries"
    _check_signals(before, event, decision)
    if decision.entries:
        stored = msgspec.json.decode(msgspec.json.encode(state.steps), type=dict[str, StepState])
        assert stored == state.steps
    _check_rows(plan, before, event, decision)
    transition = machine.TABLE.get((before.status, type(event)))
    allowed = transition.leads_to if transition else frozenset({before.status})
    assert state.status in allowed | ({before.status} if not decision.entries else set()), (before.status, event, state)
    if isinstance(event, Answer) and work_of(event) not in machine.frontier(plan, state):
        again = machine.decide(plan, state, event)
        assert again.entries == ()
        assert again.state == state, "an answer that comes twice, or late, changes nothing"


def _check_signals(before: State, event: Event, decision: Decision) -> None:
    """A signal leaves the queue only by being taken, and while the saga is paused only when its time is up."""
    taken = {
        entry.data.ref for entry in decision.entries if entry.kind is Kind.STEP_DONE and entry.data.ref is not None
    }
    arrived = {
        (entry.step, entry.seq) for entry in decision.entries if entry.kind is Kind.SIGNALLED and not entry.data.ignored
    }
    queued = {(name, seq) for name, each in before.steps.items() for seq in each.signals} | arrived
    left = {(name, seq) for name, each in decision.state.steps.items() for seq in each.signals}
    assert {seq for _, seq in queued - left} == taken and not left - queued, "a signal was lost, or came from nowhere"
    assert not (taken and decision.state.paused) or isinstance(event, TimedOut)


def _check_wait(plan: Plan, event: Answer, decision: Decision) -> None:
    """Whoever leaves a wait behind has its row due when something is to be done about it: held rows are not woken."""
    (work,), (row,), state = machine.frontier(plan, decision.state), decision.rows, decision.state
    step, now = machine.step_of(state, work.step), event.attempt.now
    if state.paused:
        assert row.delay >= look.PAUSE
    elif look.stopping(plan, state, work.step, now) and not step.recalled:
        assert row.delay == 0, "a cancel that came meanwhile, or a deadline that has passed, is seen to at once"
    elif step.until is not None:
        assert row.delay <= max(0.0, step.until - now)
    elif state.deadline is not None and plan.may_turn_back(work.step):
        assert row.delay <= state.deadline - now


def _check_rows(plan: Plan, before: State, event: Event, decision: Decision) -> None:
    """The rows a saga has stand for its work, one for each: those it had, without that of the work that was answered
    and without what is surplus, and those that the decision adds."""
    if decision.spare:  # a row that stands for nothing any more, put where it may be of use
        assert (
            decision.rows
            == machine.rows(plan, decision.state, now=event.attempt.now if isinstance(event, Answer) else None)[:1]
        )
        return
    acted = work_of(event) if isinstance(event, Answer) else None
    had = set() if isinstance(event, Start) else set(machine.frontier(plan, before))
    added = [Work(row.step, row.direction) for row in decision.rows]
    kept = had - {acted} - set(decision.surplus)
    assert set(decision.surplus) <= had - {acted}
    assert len(added) == len(set(added)) and not kept & set(added), "two rows for one work"
    work = machine.frontier(plan, decision.state)
    assert kept | set(added) == set(work), f"{kept} and {added} for {work}"
    assert bool(work) or machine.at_rest(decision.state), "nothing would ever happen again"
    waits = [each for each in work if machine.step_of(decision.state, each.step).status is StepStatus.WAITING]
    if waits and isinstance(event, Answer) and plan.linear:
        _check_wait(plan, event, decision)
