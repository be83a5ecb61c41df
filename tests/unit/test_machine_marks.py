"""What a decision tells the dedupe table: at most one line for each effect."""

from __future__ import annotations

from sagas import OnUnknown, Retry, machine
from sagas.events import Attempt, Failed, Mark, NotDone, Start
from tests.support.machine_driver import DO, ERROR, INPUT, plan, step, undo


def test_a_step_given_up_at_once_is_marked_closed_only() -> None:
    """One failure both makes the outcome unknown (`started`) and begins the undo (`closed`): the latter says it all.

    Two lines for one key in one statement are refused by Postgres, and the saga could never be recorded.
    """
    blind = plan(
        step(on_unknown=OnUnknown.COMPENSATE, retry=Retry(max_attempts=1), undo=undo(accepts_unknown=True))
    )  # fmt: skip
    state = machine.decide(blind, None, Start(INPUT)).state
    decision = machine.decide(blind, state, Failed(Attempt(step="charge", direction=DO), ERROR))
    assert decision.marks == (Mark("charge", "closed"),)


def test_a_step_that_resolve_calls_not_done_is_closed() -> None:
    """Its worker may still bring an answer, and only for a closed effect is the saga told of it."""
    asked = plan(step(has_resolve=True, retry=Retry(max_attempts=1), undo=undo()))
    state = machine.decide(asked, None, Start(INPUT)).state
    decision = machine.decide(asked, state, NotDone(Attempt(step="charge", direction=DO, deliveries=2)))
    assert decision.marks == (Mark("charge", "closed"),)
