"""A saga that is parked, and a step that still runs beside the one that parked: it finishes, and nothing follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import Raw

from sagas import machine
from sagas.events import (
    Answer,
    Attempt,
    Chosen,
    Direction,
    Failed,
    Lost,
    NotDone,
    Rebuild,
    Refused,
    RetryNow,
    Skipped,
    Start,
    Succeeded,
    TimedOut,
    Undecided,
    Unstorable,
    Waits,
    Withdrawn,
    Work,
)
from sagas.plan import OnTimeout, Plan, StepPlan
from sagas.retry import Retry
from sagas.states import State, Status, StepStatus
from sagas.takeover import Ask, assess
from tests.support.machine_driver import ERROR, local, plan, step, wait

NULL = Raw(b"null")
ONCE = Retry(max_attempts=1)
A = Work("a", Direction.DO)


def attempt(name: str = "a", **more: Any) -> Attempt:
    return Attempt(step=name, direction=Direction.DO, **more)


def beside(a: StepPlan) -> tuple[Plan, State]:
    """`b` has parked while `a` runs; `c` needs `a`."""
    b = replace(step("b", undo=None, retry=ONCE), after=())
    both = plan(replace(a, after=()), b, replace(local("c", undo=None), after=("a",)))
    state = machine.decide(both, None, Start(Raw(b"{}"))).state
    decision = machine.decide(both, state, Failed(attempt("b"), ERROR))
    assert (decision.state.status, decision.rows) == (Status.PARKED, ())
    assert machine.frontier(both, decision.state) == (A,)
    return both, decision.state


def answered(a: StepPlan, *events: Answer) -> tuple[Plan, State]:
    """What becomes of it when `a` is answered so; the saga stays parked."""
    both, state = beside(a)
    for event in events:
        seq = state.seq
        state = machine.decide(both, state, event).state
        assert state.seq > seq, f"{event} changes nothing"
        assert state.status is Status.PARKED
    return both, state


def test_it_succeeds() -> None:
    """Its result is kept, and what needs it begins only when the saga goes on."""
    both, state = answered(step("a"), Succeeded(attempt(), NULL))
    assert machine.frontier(both, state) == ()
    resumed = machine.decide(both, state, RetryNow())
    assert {row.step for row in resumed.rows} == {"b", "c"}
    assert resumed.state.status is Status.RUNNING


def test_it_fails_and_is_tried_again() -> None:
    """Its row stays."""
    both, state = answered(step("a"), Failed(attempt(), ERROR))
    assert machine.frontier(both, state) == (A,)


def test_it_refuses() -> None:
    """The saga is to turn back, as soon as it is known what became of the one that parked."""
    both, state = answered(step("a"), Refused(attempt(), ERROR))
    assert state.failing
    resumed = machine.decide(both, state, RetryNow())
    assert (resumed.state.status, [row.step for row in resumed.rows]) == (Status.RUNNING, ["b"])
    done = machine.decide(both, resumed.state, Succeeded(attempt("b"), NULL))
    assert done.state.status in machine.UNDONE


def test_it_parks_too() -> None:
    """One retry is for both."""
    both, state = answered(step("a", retry=ONCE, undo=None), Failed(attempt(), ERROR))
    assert {row.step for row in machine.decide(both, state, RetryNow()).rows} == {"a", "b"}


def test_its_result_cannot_be_stored() -> None:
    """It happened, so that it parks."""
    _, state = answered(step("a"), Unstorable(attempt(), ERROR))
    assert state.steps["a"].parked


def test_nobody_knows_and_resolve_cannot_say() -> None:
    """It is asked again later."""
    both, state = answered(step("a", has_resolve=True), Undecided(attempt(deliveries=2), ERROR))
    assert machine.frontier(both, state) == (A,)


def test_it_did_not_happen() -> None:
    """The saga is to turn back."""
    _, state = answered(step("a", has_resolve=True), NotDone(attempt(deliveries=2)))
    assert state.failing


def test_its_rows_are_lost() -> None:
    """Perhaps it was under way: it is asked about, not begun again."""
    both, state = beside(step("a", has_resolve=True, retry=ONCE))
    state = machine.decide(both, state, Rebuild()).state
    assert state.status is Status.PARKED
    assert isinstance(assess(both, state, attempt()), Ask)


def test_its_workers_die() -> None:
    """It parks as well."""
    _, state = answered(step("a"), Lost(attempt(deliveries=4), crashed=True))
    assert state.steps["a"].parked


def test_it_is_withdrawn() -> None:
    """It had not begun when the saga was to turn back."""
    _, state = answered(step("a"), Withdrawn(attempt()))
    assert state.steps["a"].status is StepStatus.NOT_DONE


def test_it_comes_to_its_wait_and_the_time_is_up() -> None:
    """The wait is skipped; nothing follows yet."""
    a = wait("a", OnTimeout.SKIP)
    both, state = answered(a, Waits(attempt(), 10.0), TimedOut(attempt(now=11.0)))
    assert state.steps["a"].status is StepStatus.SKIPPED
    assert machine.frontier(both, state) == ()


def test_its_condition_is_true() -> None:
    """Its body begins, for it was under way."""
    both, state = answered(step("a", has_when=True), Chosen(attempt()))
    assert machine.frontier(both, state) == (A,)


def test_its_condition_is_false() -> None:
    """It is skipped."""
    _, state = answered(step("a", has_when=True), Skipped(attempt(), "no gift"))
    assert state.steps["a"].status is StepStatus.SKIPPED
