"""What must be true of any decision of the state machine, whatever it is about."""

from __future__ import annotations

import msgspec

from sagas import machine
from sagas.events import Answer, Decision, Event, Facts, Kind, Start, Work
from sagas.fold import evolve
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, Status, StepState, StepStatus


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
    _check_signals(before, decision)
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


def _check_signals(before: State, decision: Decision) -> None:
    """A signal leaves the queue only by being taken, and none is taken while the saga is paused."""
    taken = {
        entry.data.ref for entry in decision.entries if entry.kind is Kind.STEP_DONE and entry.data.ref is not None
    }
    arrived = {
        (entry.step, entry.seq) for entry in decision.entries if entry.kind is Kind.SIGNALLED and not entry.data.ignored
    }
    queued = {(name, seq) for name, each in before.steps.items() for seq in each.signals} | arrived
    left = {(name, seq) for name, each in decision.state.steps.items() for seq in each.signals}
    assert {seq for _, seq in queued - left} == taken and not left - queued, "a signal was lost, or came from nowhere"
    assert not (taken and decision.state.paused)


def _check_wait(plan: Plan, event: Answer, decision: Decision) -> None:
    """Whoever leaves a wait behind has its row due when something is to be done about it: held rows are not woken."""
    (work,), (row,), state = machine.frontier(plan, decision.state), decision.rows, decision.state
    step, now = machine.step_of(state, work.step), event.attempt.now
    if state.paused:
        assert row.delay >= look.PAUSE
    elif look.stopping(plan, state, work.step, now):
        assert row.delay == 0, "a cancel that came meanwhile, or a deadline that has passed, is seen to at once"
    elif step.until is not None:
        assert row.delay <= max(0.0, step.until - now)
    elif state.deadline is not None and plan.may_turn_back(work.step):
        assert row.delay <= state.deadline - now


def _check_rows(plan: Plan, before: State, event: Event, decision: Decision) -> None:
    """Every saga that is not finished or parked has exactly one row, for the work that is next."""
    work = machine.frontier(plan, decision.state)
    ended = decision.state.status in machine.TERMINAL or decision.state.status is Status.PARKED
    assert len(work) == (0 if ended else 1)
    if not isinstance(event, (Answer, Start)) and machine.frontier(plan, before):
        assert decision.rows == (), "a request leaves the row of the one at work alone"
        return
    delay = decision.rows[0].delay if decision.rows else None
    assert decision.rows == machine.rows(plan, decision.state, delay=delay)
    waits = [each for each in work if machine.step_of(decision.state, each.step).status is StepStatus.WAITING]
    if waits and isinstance(event, Answer):
        _check_wait(plan, event, decision)
