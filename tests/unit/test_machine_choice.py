"""Conditions: looked at once, before anything of their step begins, and recorded before it does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sagas.events import Attempt, Cancel, Continuation, Failed, Kind, Rebuild, Skipped, Succeeded
from sagas.machine import step_of
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    DO,
    ERROR,
    INPUT,
    Did,
    Driven,
    local,
    pivot,
    plan,
    result,
    step,
    undo,
)  # fmt: skip

ONCE = Retry(max_attempts=1)
UUID_7 = UUID(int=7)
BLIND: dict[str, Any] = {"undo": ACCEPTS, "on_unknown": COMPENSATE}


def test_a_true_condition_is_recorded_before_the_body() -> None:
    """Then the body begins under a fresh count of deliveries; the condition is not looked at again."""
    saga = Driven(plan(step(has_when=True)))
    saga.deliver(chooses=Did.OK)
    assert (saga.kinds[-1], saga.state.steps["charge"].chosen, saga.delay) == ("step_chosen charge", True, 0.0)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    assert (saga.status, saga.steps_of(Kind.STEP_CHOSEN)) == (Status.COMPLETED, ["charge"])


def test_a_false_condition_skips_the_step() -> None:
    """With its reason; it is neither done nor undone."""
    saga = Driven(plan(local("a"), step(has_when=True), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.SKIP)
    assert (saga.log[-1].data.reason, saga.state.steps["charge"].status) == ("nothing to pay", StepStatus.SKIPPED)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.COMPENSATED)


def test_skip_of_the_last_step_completes() -> None:
    """Nothing is left to do."""
    saga = Driven(plan(step(has_when=True)))
    saga.deliver(chooses=Did.SKIP)
    assert saga.kinds[-2:] == ["step_skipped charge", "completed"]


def test_a_condition_that_raises_leaves_no_doubt() -> None:
    """It is tried again, then the saga turns back without an undo, a mark, or a key whose time runs."""
    saga = Driven(plan(step(has_when=True, **BLIND)))
    for _ in range(2):
        saga.deliver(chooses=Did.FAIL)
        track = saga.state.steps["charge"].do
        assert (track.unknown, track.first_begun_at, saga.last.marks) == (False, None, ())
        assert saga.delay > 0
    saga.deliver(chooses=Did.FAIL)
    assert (saga.status, saga.marks, saga.steps_of(Kind.UNDO_DONE)) == (Status.COMPENSATED, set(), [])


def test_a_worker_that_died_over_a_condition_leaves_no_doubt() -> None:
    """Its body cannot have begun: what came of the condition is recorded first."""
    saga = Driven(plan(step(has_when=True, retry=ONCE, **BLIND)))
    saga.deliver(chooses=Did.DIE)
    saga.deliver(chooses=Did.FAIL)
    assert (saga.status, saga.state.steps["charge"].unsettled) == (Status.COMPENSATED, False)
    assert not saga.last.marks


def test_workers_that_die_over_a_condition_park_it() -> None:
    """As nothing is in doubt, it is looked at again after a retry, and may still be skipped."""
    saga = Driven(plan(step(has_when=True, max_deliveries=2, **BLIND)))
    saga.deliver(chooses=Did.DIE)
    saga.deliver(chooses=Did.DIE)
    saga.deliver()
    assert (saga.status, saga.state.steps["charge"].do.unknown) == (Status.PARKED, False)
    saga.retry_now()
    saga.deliver(chooses=Did.SKIP)
    saga.must_be(Status.COMPLETED)


def test_a_crash_between_chosen_and_the_body_leaves_doubt() -> None:
    """From then on the body may have begun, and it is asked about first."""
    saga = Driven(plan(step(has_when=True, has_resolve=True)))
    saga.deliver(chooses=Did.OK)
    saga.deliver(Did.DIE)
    saga.deliver(ask=result("charge"))
    saga.must_be(Status.COMPLETED)


def test_a_rebuild_before_the_condition_leaves_no_doubt() -> None:
    """The log says that it was not chosen, so nothing was under way; after that, something may have been."""
    saga = Driven(plan(pivot(has_when=True)))
    saga.apply(Rebuild())
    assert not step_of(saga.state, "ship").do.unknown
    saga.deliver(chooses=Did.OK)
    saga.apply(Rebuild())
    assert saga.state.steps["ship"].do.unknown


def test_cancel_while_the_condition_is_looked_at() -> None:
    """True or false: nothing of the step begins, and what was done is undone."""
    for chooses in (Did.OK, Did.SKIP):
        saga = Driven(plan(local("a"), step(has_when=True)))
        saga.deliver(Did.OK)
        saga.deliver(chooses=chooses, meanwhile=saga.cancel)
        if chooses is Did.OK:
            saga.deliver()
        saga.deliver(Did.OK)
        assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.CANCELLED)


def test_a_skipped_pivot_closes_the_way_back() -> None:
    """What follows it is never undone, so nothing before it may be undone either once that has begun."""
    saga = Driven(plan(step(), pivot(has_when=True), local("tell", undo=None), local("file", undo=None)))
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.SKIP)
    saga.cancel()
    assert saga.log[-1].data.ignored
    saga.deliver(Did.OK, meanwhile=saga.cancel)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_cancel_comes_before_the_skip_of_the_pivot() -> None:
    """Until then the way back is open."""
    saga = Driven(plan(step(), pivot(has_when=True), local("tell", undo=None)))
    saga.deliver(Did.OK)
    saga.apply(Cancel())
    saga.apply(Skipped(Attempt(step="ship", direction=DO), "nothing to ship"))
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)


def test_a_condition_after_the_pivot_that_raises_parks() -> None:
    """There is no way back."""
    saga = Driven(plan(pivot(), step("tell", undo=None, has_when=True, retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.FAIL)
    assert (saga.status, saga.state.steps["tell"].do.unknown) == (Status.PARKED, False)
    saga.retry_now()
    saga.deliver(chooses=Did.OK)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_late_answer_about_a_skipped_step_changes_nothing() -> None:
    """It is not the work that is next any more."""
    saga = Driven(plan(step(has_when=True), local("b", undo=undo(external=False))))
    saga.deliver(chooses=Did.SKIP)
    assert saga.apply(Failed(Attempt(step="charge", direction=DO), ERROR)).entries == ()


# --- a saga that goes on as another -------------------------------------------------------------------------------


def test_a_saga_is_continued_when_it_completes() -> None:
    """The decision starts the next one, and its last entry names it."""
    saga = Driven(plan(step()))
    following = Continuation(id=UUID_7, request=INPUT)
    decision = saga.apply(Succeeded(Attempt(step="charge", direction=DO), result("charge"), next=following))
    assert (decision.next, saga.log[-1].data.continued) == (following, UUID_7)


def test_a_saga_that_turns_back_is_not_continued() -> None:
    """A cancel that came during its last step undoes it; the one that would have gone on from it never exists."""
    saga = Driven(plan(step()))
    saga.cancel()
    following = Continuation(id=UUID_7, request=INPUT)
    decision = saga.apply(Succeeded(Attempt(step="charge", direction=DO), result("charge"), next=following))
    assert (decision.next, saga.status) == (None, Status.COMPENSATING)
