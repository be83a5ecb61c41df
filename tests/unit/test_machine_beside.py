"""Steps side by side: every interleaving of small sagas over the pure machine."""

from __future__ import annotations

import pytest

from sagas import machine
from sagas.machine import look
from sagas.plan import Plan, StepPlan, UndoPlan
from sagas.retry import Retry
from sagas.states import Status
from tests.support import beside
from tests.support.beside import explore

TWICE = Retry(max_attempts=2)
LOCAL_UNDO = UndoPlan(external=False, queue="q", retry=TWICE, timeout=None)


def local(name: str, *after: str, undo: UndoPlan | None = LOCAL_UNDO) -> StepPlan:
    return StepPlan(name=name, external=False, queue="q", retry=TWICE, undo=undo, after=after, max_deliveries=3)


def external(name: str, *after: str) -> StepPlan:
    undo = UndoPlan(external=True, queue="q", retry=TWICE, timeout=None)
    return StepPlan(name=name, external=True, queue="q", retry=TWICE, undo=undo, after=after, max_deliveries=3)


def pivot(name: str, *after: str) -> StepPlan:
    return StepPlan(name=name, external=False, queue="q", retry=TWICE, pivot=True, after=after, max_deliveries=3)


PLANS = {
    "two from the start": (local("one"), local("two")),
    "a diamond": (local("top"), local("left", "top"), external("right", "top"), local("bottom", "left", "right")),
    "a long and a short way": (local("a"), local("b", "a"), local("short"), local("end", "b", "short")),
    "three into a pivot": (local("one"), external("two"), local("three"), pivot("decide", "one", "two", "three")),
    "two after the pivot": (pivot("decide"), local("x", "decide", undo=None), local("y", "decide", undo=None)),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_interleaving(name: str) -> None:
    """Nothing begins before what it needs; nothing is undone while something may still act; each work has one row; what
    happened stays whole or is undone whole; and an end can be reached from everywhere."""
    nodes = explore(Plan(name="p", version=1, steps=PLANS[name]), faults=2, asked=1)
    assert {Status.COMPLETED} <= {node.state.status for node in nodes}
    assert len(nodes) > 50


def test_undone_before_the_others_have_ended_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has teeth: turning back at once lets an undo run beside a body."""
    monkeypatch.setattr(machine.draft.Draft, "_beside", lambda self, step: ())
    with pytest.raises(beside.Broken):
        explore(Plan(name="p", version=1, steps=PLANS["a diamond"]), faults=2, asked=0)


def test_a_join_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has teeth: a step that begins when the first of what it needs has ended."""

    def hasty(plan: Plan, state: machine.State) -> object:
        for step in plan.steps:
            if look.step_of(state, step.name).status not in look.PASSED:
                needs = plan.needs[step.name]
                if not needs or any(look.step_of(state, each).status in look.PASSED for each in needs):
                    yield step.name

    monkeypatch.setattr(look, "_ready", hasty)
    with pytest.raises(beside.Broken):
        explore(Plan(name="p", version=1, steps=PLANS["a diamond"]), faults=0, asked=0)
