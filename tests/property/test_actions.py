"""What may be asked of a saga agrees with what the machine would make of it, in every state a saga can get into."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings

from sagas import machine
from sagas.actions import OFFERS, allowed_actions
from sagas.events import ABOUT_A_STEP, OPERATIONS, Cancel, Event, Kind
from sagas.plan import Plan
from sagas.states import Status
from tests.property.test_machine_runs import lived
from tests.support.machine_worlds import TAPES, plans


@settings(max_examples=300, deadline=None, derandomize=True)
@given(plans(), TAPES)
def test_allowed_is_what_the_machine_does_not_ignore(plan: Plan, numbers: bytes) -> None:
    """An action is allowed exactly when its event changes more than the note that somebody asked."""
    saga, _ = lived(plan, numbers)
    before = saga.state
    allowed = {(action.name, action.step) for action in allowed_actions(plan, before)}
    for name, step, event in every_operation(plan):
        decision = machine.decide(plan, before, event)
        heeded = [entry for entry in decision.entries if not entry.data.ignored]
        again = name in ("pause", "resume") and before.paused == decision.state.paused  # heeded, and nothing new
        assert ((name, step) in allowed) == bool((heeded and not again) or decision.wake), (name, before, decision)
        if (name, step) not in allowed:
            after = decision.state
            assert (after.status, after.steps, after.parked_from) == (
                before.status, before.steps, before.parked_from,
            )  # fmt: skip
            assert machine.frontier(plan, after) == machine.frontier(plan, before)


def every_operation(plan: Plan) -> Iterator[tuple[str, str | None, Event]]:
    """Each thing that can be asked for, about each step where it is about one."""
    for name, event in OPERATIONS.items():
        if name in ABOUT_A_STEP:
            yield from ((name, step, event(step)) for step in plan.by_name)
        else:
            yield name, None, event()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plans(), TAPES)
def test_what_follows_from_an_action(plan: Plan, numbers: bytes) -> None:
    """A finished saga allows nothing; a parked one can always be resumed or closed, and only it can be closed."""
    saga, _ = lived(plan, numbers)
    allowed = {action.name: action for action in allowed_actions(plan, saga.state)}
    if saga.status in machine.TERMINAL:
        assert not allowed
    assert ("abort" in allowed) == (saga.status is Status.PARKED)
    if saga.status is Status.PARKED:
        assert "retry" in allowed and allowed["retry"].does == OFFERS["retry"].does_parked
    if "cancel" in allowed:
        turned = machine.decide(plan, saga.state, Cancel())
        assert turned.state.cancel_requested and turned.entries[0].kind is Kind.CANCEL_REQUESTED
