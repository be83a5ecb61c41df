"""Requests from outside: cancel, an operator's retry, abort (claim protocol, rules 5 and 9)."""

from __future__ import annotations

import pytest

from sagas.events import Entry, Kind, RetryNow, Start
from sagas.fold import fold
from sagas.machine import decide
from sagas.retry import Retry
from sagas.states import Status
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    INPUT,
    Did,
    Driven,
    local,
    pivot,
    plan,
    result,
    step,
    undo,
)

FOUND = result("charge")
ONCE = Retry(max_attempts=1)


# --- cancel ------------------------------------------------------------------------------------------------------


def test_cancel_before_anything_began() -> None:
    """Nothing was done, nothing is undone."""
    saga = Driven(plan(step()))
    saga.cancel()
    assert (saga.status, saga.last.wake, saga.last.rows) == (Status.RUNNING, True, ())
    saga.deliver()
    assert saga.kinds[-3:] == ["cancel_requested", "compensating charge", "cancelled"]


def test_cancel_between_steps() -> None:
    """What was done is undone; the next step never begins."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK)
    saga.cancel()
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_during_a_step_that_succeeds() -> None:
    """The holder records its result, and turns back with it."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK, meanwhile=saga.cancel)
    assert saga.kinds[1:] == ["cancel_requested", "step_done charge", "compensating"]
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)


def test_cancel_during_a_step_that_is_refused() -> None:
    """Nothing happened, and the saga ends as the caller wished."""
    saga = Driven(plan(step()))
    saga.deliver(Did.REFUSE, meanwhile=saga.cancel)
    saga.must_be(Status.CANCELLED)


@pytest.mark.parametrize("before", [Did.FAIL, Did.DIE])
def test_cancel_in_doubt_asks(before: Did) -> None:
    """NOT_DONE is enough to turn back; no further body begins."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(before)
    saga.cancel()
    saga.deliver(ask=Did.NOT_DONE)
    saga.deliver(ask=Did.NOT_DONE)
    assert (saga.steps_of(Kind.SETTLE_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_in_doubt_undoes_as_unknown_where_accepted() -> None:
    """Nobody can be asked, so it is undone without knowing, although `on_unknown` is PARK."""
    saga = Driven(plan(step(undo=ACCEPTS)))
    saga.deliver(Did.FAIL)
    saga.cancel()
    saga.deliver()
    assert saga.kinds[-2:] == ["step_unknown charge", "compensating charge"]


@pytest.mark.parametrize("before", [Did.FAIL, Did.DIE])
def test_cancel_in_doubt_retries_to_know_where_a_result_is_needed(before: Did) -> None:
    """Under the same key the answer is found out, and then undone: no person is needed for one lost reply."""
    saga = Driven(plan(step()))
    saga.deliver(before)
    saga.cancel()
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_in_doubt_parks_when_nothing_helps() -> None:
    """Not known, not to be found out, and the undo needs a result."""
    saga = Driven(plan(step(retry=Retry(max_attempts=2))))
    saga.deliver(Did.FAIL)
    saga.cancel()
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)


def test_cancel_while_resolve_cannot_tell() -> None:
    """Asked to the end, then undone as unknown."""
    saga = Driven(plan(step(has_resolve=True, undo=ACCEPTS, retry=Retry(max_attempts=2))))
    saga.deliver(Did.FAIL)
    saga.cancel()
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    assert saga.kinds[-2:] == ["step_unknown charge", "compensating charge"]


def test_cancel_stops_the_retries_of_a_failing_step() -> None:
    """The failure of a body that was under way does not start another."""
    saga = Driven(plan(local("a"), local("b")))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL, meanwhile=saga.cancel)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.CANCELLED)


def test_cancel_during_the_pivot() -> None:
    """It turns back only if the pivot certainly did nothing."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK, meanwhile=saga.cancel)
    saga.must_be(Status.COMPLETED)


def test_cancel_during_a_pivot_that_fails() -> None:
    """From then on it is in doubt, and goes on."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL, meanwhile=saga.cancel)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("before", [Did.FAIL, Did.DIE])
def test_cancel_never_stops_a_pivot_in_doubt(before: Did) -> None:
    """Rule 9: cancelled while it was under way, the pivot is asked about and retried like any other."""
    saga = Driven(plan(step(), pivot(has_resolve=True)))
    saga.deliver(Did.OK)
    saga.deliver(before)
    saga.cancel()
    saga.deliver(Did.OK, ask=Did.NOT_DONE)
    saga.must_be(Status.COMPLETED)


def test_cancel_after_the_pivot_is_logged_and_ignored() -> None:
    """The way back is closed, and the log says who asked."""
    saga = Driven(plan(step(), pivot(), step("tell", undo=None)))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.cancel()
    assert (saga.log[-1].data.ignored, saga.log[-1].data.actor, saga.last.wake) == (True, "customer", False)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_cancel_of_a_parked_saga_goes_on() -> None:
    """It resumes, in order to turn back."""
    saga = Driven(plan(step(undo=ACCEPTS, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.cancel()
    assert (saga.status, len(saga.last.rows)) == (Status.RUNNING, 1)
    saga.deliver()
    saga.must_be(Status.COMPENSATING)


def test_cancel_of_a_saga_parked_after_the_pivot_is_ignored() -> None:
    """It stays parked: an operator's retry or abort are the ways out."""
    saga = Driven(plan(step(), pivot(), step("tell", undo=None, retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.cancel()
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)


def test_cancel_of_an_unstorable_result_is_no_blind_undo() -> None:
    """It happened; where the undo needs its result, `resolve` has to find it first."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(Did.UNSTORABLE)
    saga.cancel()
    saga.deliver(ask=FOUND)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_while_turning_back_changes_nothing() -> None:
    """It is turning back already; the saga ends as compensated."""
    saga = Driven(plan(step(undo=ACCEPTS, on_unknown=COMPENSATE, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.must_be(Status.COMPENSATING)
    saga.cancel()
    assert (saga.kinds[-1], saga.log[-1].data.ignored) == ("cancel_requested", True)
    saga.deliver(Did.OK)
    saga.must_be(Status.SETTLING)
    saga.cancel()
    assert (saga.kinds[-1], saga.log[-1].data.ignored) == ("cancel_requested", True)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_cancel_of_a_saga_parked_while_turning_back() -> None:
    """The undo that failed stays parked."""
    saga = Driven(plan(step(undo=undo(retry=ONCE)), step("book")))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.FAIL)
    saga.cancel()
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)


def test_cancel_twice_is_cancel_once() -> None:
    """Both are in the log; what is done is the same."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK)
    saga.cancel()
    saga.cancel()
    saga.deliver()
    saga.cancel()
    saga.deliver(Did.OK)
    saga.cancel()
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


# --- an operator's retry -----------------------------------------------------------------------------------------


def test_retry_now_wakes_work_that_waits() -> None:
    """The backoff is cut short; counters and row stay."""
    saga = Driven(plan(step(), step("book")))
    saga.deliver(Did.FAIL)
    assert saga.delay > 0
    saga.retry_now()
    assert (saga.delay, saga.last.rows, saga.status) == (0.0, (), Status.RUNNING)
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.FAIL)
    saga.retry_now()
    assert (saga.delay, saga.status) == (0.0, Status.COMPENSATING)


def test_retry_now_does_not_shorten_settling() -> None:
    """Rule 11: a late request has until `settle_after`, whoever is in a hurry."""
    saga = Driven(plan(step(undo=ACCEPTS, on_unknown=COMPENSATE, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    waits = saga.delay
    saga.retry_now()
    assert (saga.delay, saga.last.wake, saga.kinds[-1]) == (waits, False, "retried")


def test_retry_now_opens_a_new_budget() -> None:
    """As many attempts as before, for the work that parked only."""
    saga = Driven(plan(step(retry=Retry(max_attempts=2))))
    for _ in range(2):
        saga.deliver(Did.FAIL)
        saga.deliver(Did.FAIL)
        saga.must_be(Status.PARKED)
        saga.retry_now()
        assert saga.delay == 0.0
    saga.deliver(Did.OK)
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.COMPLETED, 5)


def test_abort_closes_a_parked_saga() -> None:
    """With a reason, and nothing happens afterwards."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.abort()
    assert (saga.status, saga.state.error, saga.row) == (Status.ABORTED, "settled by telephone", None)
    saga.retry_now()
    assert (saga.status, saga.kinds[-1]) == (Status.ABORTED, "aborted")


def test_abort_of_a_saga_at_work_changes_nothing() -> None:
    """Only what nobody works on can be closed as it is."""
    saga = Driven(plan(step()))
    saga.abort()
    assert (saga.status, saga.kinds) == (Status.RUNNING, ["started"])


# --- the edges of decide and fold --------------------------------------------------------------------------------


def test_a_saga_starts_once() -> None:
    """A start of what exists, and anything else about what does not, is an error of the caller."""
    saga = Driven(plan(step()))
    with pytest.raises(ValueError, match="Start does not fit a saga that exists"):
        decide(saga.plan, saga.state, Start(INPUT))
    with pytest.raises(ValueError, match="RetryNow does not fit a saga that is not there"):
        decide(saga.plan, None, RetryNow())


def test_a_saga_without_steps_is_completed_at_once() -> None:
    """Nothing to do is done."""
    assert Driven(plan()).kinds == ["started", "completed"]


def test_fold_refuses_a_log_with_a_gap() -> None:
    """What cannot be the log of a saga is not folded into one."""
    saga = Driven(plan(step()))
    saga.deliver(Did.OK)
    with pytest.raises(ValueError, match="the log is empty"):
        fold([])
    with pytest.raises(ValueError, match=r"entry 2 \(completed\) cannot follow entry 0"):
        fold([saga.log[0], saga.log[2]])
    with pytest.raises(ValueError, match=r"entry 0 \(step_done\) cannot follow entry -1"):
        fold([Entry(0, Kind.STEP_DONE, "charge")])
