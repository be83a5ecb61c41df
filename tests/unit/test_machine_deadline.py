"""Deadlines: a saga that takes too long turns back, wherever it stands, if it still can."""

from __future__ import annotations

import pytest

from sagas.events import Attempt, Chosen, Kind, Skipped, Succeeded, TimedOut, Waits, Withdrawn
from sagas.fold import fold
from sagas.plan import OnTimeout
from sagas.retry import Retry
from sagas.states import Status
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    DO,
    SETTLE_AFTER,
    Did,
    Driven,
    local,
    pivot,
    plan,
    result,
    sleep,
    step,
    wait,
)

ONCE = Retry(max_attempts=1)
PASSED = "its deadline has passed"


def reasons(saga: Driven) -> list[str]:
    """Why it turned back."""
    return [entry.data.reason for entry in saga.log if entry.kind is Kind.COMPENSATING]


def later(saga: Driven, seconds: float) -> None:
    saga.now += seconds


def test_the_deadline_is_folded_from_entry_0() -> None:
    """It is in the log, so that a rebuilt saga keeps it."""
    saga = Driven(plan(step()), deadline=50)
    assert fold(saga.log).deadline == saga.now + 50


def test_before_anything_began() -> None:
    """Nothing was done, nothing is undone; it did not end by anybody's cancel."""
    saga = Driven(plan(step()), deadline=50)
    later(saga, 50)
    saga.deliver()
    assert (saga.status, reasons(saga)) == (Status.COMPENSATED, [PASSED])


def test_between_steps() -> None:
    """The next step does not begin."""
    saga = Driven(plan(step(), pivot()), deadline=50)
    saga.deliver(Did.OK)
    later(saga, 50)
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.COMPENSATED)


def test_while_a_step_runs() -> None:
    """It succeeds after the deadline: the result is kept, and undone."""
    saga = Driven(plan(step(), pivot()), deadline=50)
    saga.apply(Succeeded(Attempt(step="charge", direction=DO, now=saga.now + 51), result("charge")))
    assert (saga.kinds[1:], reasons(saga)) == (["step_done charge", "compensating"], [PASSED])
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_while_a_step_runs_that_has_nothing_to_undo() -> None:
    """Even the last one: the saga did not complete in time."""
    saga = Driven(plan(step(undo=None)), deadline=50)
    saga.apply(Succeeded(Attempt(step="charge", direction=DO, now=saga.now + 51), result("charge")))
    saga.must_be(Status.COMPENSATED)


def test_while_backing_off() -> None:
    """The row comes due with the deadline, however long the backoff is."""
    patient = Retry(max_attempts=9, first=100_000, longest=100_000)
    saga = Driven(plan(local("a"), local("b", retry=patient)), deadline=50)
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    assert saga.delay == 50
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.COMPENSATED)


def test_while_backing_off_in_doubt() -> None:
    """It is found out what became of the attempt, then undone."""
    saga = Driven(plan(step(has_resolve=True)), deadline=50)
    saga.deliver(Did.FAIL)
    later(saga, 50)
    saga.deliver(ask=result("charge"))
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.COMPENSATED)


@pytest.mark.parametrize("waits", [100.0, None], ids=["a time", "without end"])
def test_while_waiting(waits: float | None) -> None:
    """The row comes due with the deadline, not with the end of the wait."""
    saga = Driven(plan(step(), wait()), deadline=50)
    saga.deliver(Did.OK)
    saga.deliver(waits=waits)
    assert saga.delay == 50
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.COMPENSATED)


def test_while_the_deadline_is_farther_than_the_wait() -> None:
    """Then it changes nothing."""
    saga = Driven(plan(sleep()), deadline=500)
    saga.deliver()
    assert saga.delay == 100
    saga.deliver()
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("on_timeout", OnTimeout)
def test_a_timeout_that_is_noticed_after_the_deadline(on_timeout: OnTimeout) -> None:
    """The deadline holds: it neither parks nor is it completed."""
    saga = Driven(plan(wait(on_timeout=on_timeout)), deadline=50)
    saga.deliver(waits=10.0)
    saga.apply(TimedOut(Attempt(step="review", direction=DO, now=saga.now + 60)))
    assert (saga.status, reasons(saga)) == (Status.COMPENSATED, [PASSED])


def test_reaching_a_wait_or_a_choice_after_the_deadline() -> None:
    """The row is due at once, and the next look turns back."""
    saga = Driven(plan(local("a"), wait()), deadline=50)
    saga.deliver(Did.OK)
    saga.apply(Waits(Attempt(step="review", direction=DO, now=saga.now + 60), saga.now + 1000))
    assert saga.delay == 0
    chosen = Driven(plan(step(has_when=True)), deadline=50)
    a = Attempt(step="charge", direction=DO, now=chosen.now + 60)
    chosen.apply(Chosen(a))
    later(chosen, 60)
    chosen.deliver()
    chosen.must_be(Status.COMPENSATED)
    skipped = Driven(plan(step(has_when=True)), deadline=50)
    skipped.apply(Skipped(a, "nothing to pay"))
    skipped.must_be(Status.COMPENSATED)


def test_after_the_pivot_it_has_no_effect() -> None:
    """Neither on backoffs nor on waits, and the saga is completed however late."""
    patient = Retry(max_attempts=9, first=100.0)
    saga = Driven(plan(pivot(), step("tell", undo=None, retry=patient), wait()), deadline=50)
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    assert saga.delay == 100
    later(saga, 100)
    saga.deliver(Did.OK)
    saga.deliver(waits=1000.0)
    assert saga.delay == 1000
    saga.signal()
    saga.must_be(Status.COMPLETED)


def test_during_the_pivot_it_has_no_effect() -> None:
    """It happened; there is no way back."""
    saga = Driven(plan(step(), pivot()), deadline=50)
    saga.deliver(Did.OK)
    saga.deliver(Did.OK, meanwhile=lambda: later(saga, 60))
    saga.must_be(Status.COMPLETED)


def test_a_deadline_does_not_shorten_settling() -> None:
    """A late request has until `settle_after`, whatever else is near."""
    blind = step(undo=ACCEPTS, on_unknown=COMPENSATE, retry=ONCE)
    saga = Driven(plan(blind), deadline=10)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    assert (saga.status, saga.delay) == (Status.SETTLING, SETTLE_AFTER)


def test_a_parked_saga_stays_parked() -> None:
    """A person decides; the retry then finds that the deadline has passed."""
    saga = Driven(plan(local("a"), wait()), deadline=500)
    saga.deliver(Did.OK)
    saga.deliver()
    saga.deliver()
    saga.must_be(Status.PARKED)
    later(saga, 500)
    saga.retry_now()
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.COMPENSATED)


def test_withdrawn_says_why() -> None:
    """A cancel where somebody asked for it, else the deadline."""
    saga = Driven(plan(step()), deadline=50)
    saga.cancel()
    saga.apply(Withdrawn(Attempt(step="charge", direction=DO, now=saga.now)))
    assert (reasons(saga), saga.status) == (["cancel"], Status.CANCELLED)
