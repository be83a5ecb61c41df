"""What may be asked of a saga, from the first step to the last."""

from __future__ import annotations

import pytest

from sagas.actions import OFFERS, allowed_actions
from sagas.events import OPERATIONS
from sagas.plan import Plan
from sagas.retry import Retry
from sagas.states import State, Status, StepState, StepStatus
from tests.support.machine_driver import Did, Driven, local, pivot, plan, step

PARKED = ["retry", "cancel", "abort", "pause", "redo", "mark_done", "mark_not_done", "skip"]


def names(saga: Driven) -> list[str]:
    """What is allowed, by name."""
    return [action.name for action in allowed_actions(saga.plan, saga.state)]


def test_every_operation_is_offered() -> None:
    """A request that a worker can apply on somebody's behalf has its words."""
    assert set(OFFERS) == set(OPERATIONS)
    assert all(type(OFFERS[name].event("charge")) is event for name, event in OPERATIONS.items())


def test_on_the_way_forward() -> None:
    """Retry and cancel until the pivot is passed; nothing once it is over."""
    saga = Driven(plan(step(), pivot(), local("confirm", undo=None)))
    assert names(saga) == ["retry", "cancel", "pause"]
    saga.deliver(Did.OK)
    assert names(saga) == ["retry", "cancel", "pause"]
    saga.deliver(Did.OK)
    assert names(saga) == ["retry", "pause"]
    saga.deliver(Did.OK)
    assert (saga.status, names(saga)) == (Status.COMPLETED, [])


def test_on_the_way_back() -> None:
    """It turns back already: only its next attempt can be hurried."""
    saga = Driven(plan(local("reserve"), step()))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    assert (saga.status, names(saga)) == (Status.COMPENSATING, ["retry", "pause"])


def test_parked() -> None:
    """Before the pivot it may also turn back, after it not. What each action does is told for a parked saga."""
    saga = Driven(plan(step(retry=Retry(max_attempts=1))))
    saga.deliver(Did.FAIL)
    assert (saga.status, names(saga)) == (Status.PARKED, PARKED)
    retry, cancel, abort, pause, redo, *words = allowed_actions(saga.plan, saga.state)
    assert "where it parked" in retry.does and "turns back" in cancel.does and "final" in abort.does
    assert [each.overrides for each in (retry, cancel, abort, pause, redo)] == [False, False, True, False, True]
    assert [each.step for each in (abort, redo)] == [None, "charge"]
    assert all(each.overrides and each.step == "charge" for each in words)
    late = Driven(plan(step(), pivot(retry=Retry(max_attempts=1))))
    late.deliver(Did.OK)
    late.deliver(Did.FAIL)
    assert (late.status, "cancel" in names(late), "retry" in names(late)) == (Status.PARKED, False, True)


@pytest.mark.parametrize("status", [Status.COMPENSATING, Status.RUNNING])
def test_a_row_that_does_not_fit_its_definition(status: Status) -> None:
    """No worker could apply a request to it, so nothing is offered, and nobody's page breaks."""
    state = State(status, 3, {"gone": StepState(StepStatus.DONE, ended=1)}, parked_from=None)
    fitting: Plan = plan(step())
    assert all(action.name in OFFERS for action in allowed_actions(fitting, state))
